"""The parts of ``benchmarks/operatorbench.py``, one noun a module.

`input_log` reads and writes logs of operator inputs, `loader` merges them, `recorder` makes them
from a model that runs. `operators` looks operators up, `valid_inputs` and `tensors` make arguments
for them. `plan` says what is measured, as `task`; `sample` measures one in a process of its own
(`worker`), with `timing`, `accuracy` and `peak`, while `progress` shows how far it is. `results`
keeps what came out, `text` draws it.
"""
