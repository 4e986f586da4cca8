"""Which threads may parse Python code, without harm to the program."""

import sys
import threading

# Elsewhere one thread's parse can end another's, the program's own, with a SystemError (gh-106905).
THREADS_MAY_PARSE = sys.version_info < (3, 11) or (
    sys.version_info >= (3, 11, 8) and not (3, 12) <= sys.version_info < (3, 12, 2)
)


def may_parse() -> bool:
    """May this thread, while the program runs?"""
    return THREADS_MAY_PARSE or threading.current_thread() is threading.main_thread()
