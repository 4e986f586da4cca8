"""What the session asks of each of its observers. Nobody writes a method that has nothing to do."""

from typing import Protocol


class Observer(Protocol):
    """Watches one thing while the program runs.

    A class that derives from this one overrides what it needs. The session calls all observers in
    one loop, which contains the failure of any.
    """

    def start(self) -> None:
        """Begin to watch, when the backend is loaded.

        It is called again with each graph, and does nothing but in a forked child.
        """
        return None

    def reset(self) -> None:
        """Forget what was seen."""
        return None

    def after_fork(self) -> None:
        """In a forked child: only this thread exists, and a lock may be held by another for ever.

        `reset` is called next.
        """
        return None

    def stop(self) -> None:
        """The process ends. Those that started last stop first."""
        return None
