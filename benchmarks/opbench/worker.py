"""The process that measures, so that a crash or a hang costs one sample.

`Worker` is its handle; run as a program, this module is the process itself. It has a session of its
own: what it started is killed with it, and Ctrl-C reaches the parent alone.
"""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from opbench.results import FAILED, Peak, Sample, sample_from
from opbench.task import Settings, Task

STARTUP_TIMEOUT_S = 300.0
_END_TIMEOUT_S = 30.0
_SAMPLES_A_PROCESS = 200  # memory and the backend's list of graphs start afresh


class WorkerError(RuntimeError):
    """The process could not be started; the message is one line."""


class Worker:
    """A process that measures samples one by one; started when needed, and again after a hang."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._settings = settings
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._left = 0
        self.machine: dict[str, Any] | None = None
        self.peak: Peak | None = None

    def start(self) -> None:
        """Raises `WorkerError`; `machine` and `peak` are known from the first start on."""
        ours, theirs = Pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [*_FOLDERS, os.environ.get("PYTHONPATH")])),
        }
        for name, value in _ENVIRONMENT.items():
            environment.setdefault(name, value)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "opbench.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        theirs.close()
        self._connection = ours
        self._left = _SAMPLES_A_PROCESS
        answer = self._ask((self._settings, self.peak is None), STARTUP_TIMEOUT_S)
        if not isinstance(answer, dict):
            self.stop()
            raise WorkerError(f"the measuring process did not start ({answer}); see {self._log}")
        self.machine = answer["machine"]
        self.peak = self.peak or answer["peak"]

    def measure(self, task: Task, timeout_s: float) -> Sample:
        """The sample's record, whatever became of the process. Raises `WorkerError`."""
        if self._process is None or self._left == 0:
            self.stop()
            self.start()
        self._left -= 1
        answer = self._ask(task, timeout_s)
        sample = sample_from(answer) if isinstance(answer, dict) else task.record(FAILED, answer)
        if sample.status == FAILED and (isinstance(answer, str) or self._settings.device == "cuda"):
            self.stop()  # an error on the GPU may go on in everything after it
        return sample

    def _ask(self, question: Any, timeout_s: float) -> Any:
        """What the process answers, or why it doesn't, as text."""
        assert self._connection is not None and self._process is not None
        try:
            self._connection.send(question)
            if not self._connection.poll(timeout_s):
                return f"no answer in {timeout_s:g} s: the process was killed"
            return self._connection.recv()
        except (EOFError, ConnectionError):
            return self._how_it_ended()

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "the process hung at its end, and was killed"
        if code >= 0:
            return f"the process ended with exit code {code}"
        hint = ", as for want of memory" if code == -signal.SIGKILL else ""
        return f"the process died of {signal.Signals(-code).name}{hint}"

    def stop(self) -> None:
        """End the process and all that it started; nothing where there is none."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


_FOLDERS = list(map(str, Path(__file__).parents[1:3]))  # of this package, and of the backend's

# The user's own settings take precedence. One compiler at a time, in the process that can be
# killed; no op meter, which is measured in overhead.py; no report at the end.
_ENVIRONMENT = {
    "INSTRUMENTED_TABLES": "none",
    "INSTRUMENTED_OPS": "off",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


def main(connection: Connection) -> None:
    """Measure what comes until the parent hangs up."""
    settings, wants_peak = connection.recv()

    import torch

    import instrumented_backend
    from opbench import peak
    from opbench.sample import measure

    torch.set_float32_matmul_precision("high")  # as in PyTorch's operatorbench
    torch.set_flush_denormal(True)  # an operator in place, repeated, may end in denormal numbers
    device = settings.device
    found = peak.measure(device, getattr(torch, settings.dtype)) if wants_peak else None
    machine = {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "instrumented_backend": instrumented_backend.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else _cpu_name(),
        "threads": torch.get_num_threads(),
    }
    connection.send({"machine": machine, "peak": found})
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(asdict(measure(task, settings)))


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "cpu"


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
