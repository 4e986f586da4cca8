"""When the process issued its collectives: what shows how long ranks waited for each other."""

from dataclasses import dataclass


@dataclass
class CollectiveGap:
    """The time between two collectives that the process issued one after the other.

    Each is named by its process group and its number there, by which ranks agree on it. Of the
    collectives that torch's flight recorder still had at the end, the longest gaps are kept.
    """

    group: str
    number: int
    next_group: str
    next_number: int
    start_at: float  # when the first was issued, in seconds since 1970
    seconds: float  # until the next was

    @property
    def end_at(self) -> float:
        return self.start_at + self.seconds
