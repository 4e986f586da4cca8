"""What is to be measured, and how: sent to the process that does it. No torch here."""

from dataclasses import dataclass

from opbench.results import Sample


@dataclass(frozen=True)
class Settings:
    """How every sample is measured."""

    backends: tuple[str, ...]
    device: str
    dtype: str
    repeats: int
    accuracy_checking: bool
    channels_last: bool


@dataclass(frozen=True)
class Task:
    """Which sample; ``inputs`` is its text in the log."""

    operator: str
    sample: int
    inputs: str
    count: int

    def record(self, status: str, reason: str) -> Sample:
        """A record without figures."""
        return Sample(self.operator, self.sample, self.inputs, self.count, status, reason)
