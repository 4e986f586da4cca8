"""A compiler that hangs, as one does on a dead file server or for want of a licence."""

import contextlib
import os
import signal
from pathlib import Path


class Hanging:
    """``path`` is the compiler, which starts another process; ``ready`` is there once both run."""

    def __init__(self, folder: Path, makes: int = 1) -> None:
        """``makes``: how many of them have to run until ``ready``."""
        self.path, self.ready, self._pids = (
            folder / name for name in ("hanging", "ready", "hanging_pids")
        )
        self.path.write_text(
            "#!/bin/sh\n"
            "sleep 1000 &\n"
            f"echo $$ $! >> {self._pids}\n"
            f"[ $(wc -l < {self._pids}) -ge {makes} ] && touch {self.ready}\n"
            "wait\n"
        )
        self.path.chmod(0o755)

    def pids(self) -> list[int]:
        return [int(word) for word in self._pids.read_text().split()]

    def alive(self) -> list[int]:
        return [pid for pid in self.pids() if is_alive(pid)]

    def end(self) -> None:
        """What is left of it after a test has failed."""
        if self._pids.exists():
            for pid in self.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """False, too, where nobody has asked yet how it ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
