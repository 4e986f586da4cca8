"""The ends of processes: what comes first, and multiprocessing's children, by start method."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import multiprocessing, os, sys
from instrumented_backend.observe.exit import ExitHooks

def told():
    name = multiprocessing.current_process().name
    open(os.path.join(sys.argv[1], name), "x").close()

hooks = ExitHooks(told, lambda: None)
hooks.install()  # as the program's modules are imported: a child's, too

def work(in_child):
    if in_child:
        hooks.install()

if __name__ == "__main__":
    for method, in_child in (("forkserver", 0), ("forkserver", 1), ("spawn", 0), ("spawn", 1),
                             ("fork", 0), ("fork", 1)):
        context = multiprocessing.get_context(method)
        child = context.Process(target=work, args=(in_child,), name=f"{method} {in_child}")
        child.start()
        child.join()
        assert child.exitcode == 0
"""


def test_children_of_each_start_method_tell_once(tmp_path: Path) -> None:
    """A child of a fork server imports the program first, and ends past atexit. One that is forked
    has imported nothing: it tells only if it has begun something itself."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    told = tmp_path / "told"
    told.mkdir()
    subprocess.run([sys.executable, str(program), str(told)], check=True)
    assert sorted(path.name for path in told.iterdir()) == [
        *("MainProcess", "fork 1", "forkserver 0", "forkserver 1", "spawn 0", "spawn 1"),
    ]


ENDING = """
import atexit
from instrumented_backend.observe.exit import ExitHooks

hooks = ExitHooks(lambda: print("report"), lambda: None)
hooks.install()
atexit.register(print, "workers")  # as Inductor does when it is imported
for _ in range(2):
    hooks.call_first(lambda: print("over"))
atexit.register(print, "program")
"""


def test_the_end_of_the_program_is_before_that_of_what_it_imported() -> None:
    """And once, whatever the program still registers."""
    ran = subprocess.run([sys.executable, "-c", ENDING], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["program", "over", "workers", "report"]
