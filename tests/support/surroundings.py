"""What the tests must not inherit from the shell that they were started in."""

import os
import signal

# Each of them changes what a child program prints, or what is compiled.
VARIABLES = (
    *("COLUMNS", "LINES", "PYTHONWARNINGS", "NO_COLOR", "FORCE_COLOR"),
    *("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS", "PY_COLORS"),  # how pytest prints
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG"),
)
PREFIXES = ("INSTRUMENTED_", "TORCHDYNAMO_", "TORCHINDUCTOR_")


def forget_variables() -> None:
    """Take the variables of the user's shell away, from this process and all its children."""
    for name in list(os.environ):
        if name in VARIABLES or name.startswith(PREFIXES):
            del os.environ[name]


def let_children_be_interrupted() -> None:
    """Start children with the default action for signals that this process was told to ignore.

    ``nohup`` and a shell's ``&`` ignore SIGHUP and SIGINT, and a child inherits that. A handler,
    here one that does nothing, is not inherited: ``exec`` restores the default action.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
