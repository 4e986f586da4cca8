"""What torch calls at the end of its import, by the entry point group ``torch.backends``.

It stands beside the package, and in site-packages even where the package itself is in a clone:
torch does not import where an entry point cannot be loaded, and a broken or missing package must
not do that to a program.
"""

import os
import sys


def autoload() -> None:
    """Import the package if the environment asks for it; never raises."""
    # As in instrumented_backend/adoption.py, which can't be imported for it.
    if os.environ.get("INSTRUMENTED_ADOPT", "").strip() in ("", "0"):
        return
    try:
        import instrumented_backend  # noqa: F401
    except Exception as error:  # any: torch would not import, in no program of this environment
        said = f"instrumented: not observed: {type(error).__name__}: {error}\n"
        try:
            if sys.stderr is not None:
                sys.stderr.write(said)
        except (OSError, ValueError):
            pass  # closed, or its reader is gone
