"""The parts of ``benchmarks/operatorbench.py``, one noun a module.

`input_log` reads and writes logs of operator inputs, `loader` merges them, `recorder` makes them
from a model that runs. `operators` looks operators up, `valid_inputs` and `tensors` make arguments
for them. `sample` measures one of them in a child process (`worker`), with `timing`, `accuracy` and
`peak`. `results` keeps what came out, `text` draws it.
"""
