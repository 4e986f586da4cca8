"""`run`, where its own report fails: the program's exit code is the program's."""

import subprocess
import sys

FAILS = """
from instrumented_backend.commands import main, run
def fails(folder):
    raise RecursionError("ours\\n\\x1b[2J")
run._collected = fails
main()
"""


def test_the_exit_code_is_the_programs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILS, "run", "--", "sh", "-c", "echo done; exit 7"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (7, "done\n")
    said = "instrumented-backend: lost: the report: RecursionError: ours \\x1b[2J\n"
    assert done.stderr == said
