"""A real terminal, with a shell in it: tmux's."""

import os
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_until

MISSING = None if shutil.which("tmux") else "tmux is not installed"
_PROMPT = "ready> "


class Tmux:
    """One window of a server of its own."""

    def __init__(self, folder: Path, width: int, height: int) -> None:
        self._name = f"instrumented-{uuid.uuid4().hex}"
        environment = {**os.environ, "TERM": "screen-256color"}
        self._tmux(
            *("-f", "/dev/null", "new-session", "-d", "-c", str(folder)),
            *("-x", str(width), "-y", str(height)),
            f"env PS1='{_PROMPT}' bash --norc --noprofile",  # the shell between keeps no PS1
            env=environment,
        )
        wait_until(lambda: _PROMPT.strip() in self.screen())

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-L", self._name, *words], capture_output=True, text=True, env=env
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def lines(self) -> list[str]:
        return self.screen().splitlines()

    def wait_for(self, text: str) -> str:
        """The screen, as soon as it has the text."""
        wait_until(lambda: text in self.screen())
        return self.screen()

    def wait_without(self, text: str) -> None:
        wait_until(lambda: text not in self.screen())

    def keys(self, *keys: str) -> None:
        """By tmux's names, such as "C-c"; other text as it is."""
        self._tmux("send-keys", *keys)

    def run(self, *command: str) -> None:
        """Type a command, and Enter."""
        self.keys(shlex.join(command), "Enter")

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def modes(self) -> str:
        """Does it show the cursor, and the alternate screen? And the program that has it now."""
        return self._tmux(
            "display-message", "-p", "#{cursor_flag} #{alternate_on} #{pane_current_command}"
        ).strip()

    def settings(self, file: Path) -> str:
        """The line discipline's, as the shell sees them; they go through the file."""
        self.keys(f"stty -a > {file}.part; mv {file}.part {file}", "Enter")
        wait_until(file.exists)
        return file.read_text()

    def close(self) -> None:
        self._tmux("kill-server")


@contextmanager
def terminal(folder: Path, width: int = 80, height: int = 24) -> Iterator[Tmux]:
    tmux = Tmux(folder, width, height)
    try:
        yield tmux
    finally:
        tmux.close()
