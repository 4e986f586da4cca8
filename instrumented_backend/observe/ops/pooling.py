"""How many ops each of several gaps has, of which some are known for sure, and others about.

How far gaps themselves differ is told from how far off each of them may be as a meta-analysis tells
it, whose studies are of different size: by random effects (DerSimonian and Laird, 1986).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.scaled import (
    LOOKED,
    NEARLY,
    SLICES_TELL,
    WHOLE,
    Group,
    have_the_same,
)

SHORTER = 0.5  # times the part by which gaps are shorter where they are seen whole


@dataclass(frozen=True)
class About:
    """``n`` gaps with ``ops`` in all; ``squares`` is the sum of the squares of what each has.

    Each may be off by ``error``, and all together by ``bias``: shares of what gaps have on average.
    """

    n: float
    ops: float
    squares: float
    error: float
    bias: float = 0.0

    @staticmethod
    def of(
        seen: Seen, error: float, bias: float = 0.0, but: Seen | None = None, name: str = "ops"
    ) -> "About":
        """Of what was seen, ``but`` for a part of it: its ops, or their time."""
        but = but or Seen()
        total, squares = (
            getattr(seen, each) - getattr(but, each) for each in (name, f"each_{name}2")
        )
        return About(max(0.0, seen.n - but.n), max(0.0, total), max(0.0, squares), error, bias)

    @property
    def variance(self) -> float:
        """Of each, such that their mean is off by as much as both."""
        return self.error**2 + self.n * self.bias**2


def looked_at(met: Seen, ended: Seen, name: str = "ops") -> list[About]:
    """Gaps that had ops when they were first looked at; some of them were seen to their end."""
    return [
        About.of(ended, NEARLY, name=name),
        About.of(met, LOOKED, SLICES_TELL, but=ended, name=name),
    ]


def seen_whole(seen: Seen, near: Iterable[Group], name: str = "ops") -> About:
    """Gaps that were seen from their beginning to their end, of all that are ``near`` them.

    A loop that lasts for so long has fewer ops, for what seeing these takes: then its own time is
    shorter than that of others. Where two had the same number of ops, it is none.
    """
    error = WHOLE
    if seen.n and not have_the_same(seen):
        near = list(near)
        each_ns = sum(group.own_ns for group in near) / sum(sum(group.n) for group in near)
        error = max(WHOLE, SHORTER * (1 - seen.ns / seen.n / each_ns))
    return About.of(seen, error, name=name)


@dataclass(frozen=True)
class Pooled:
    """What gaps have on average, and how far that may be off; how far they differ. Variances."""

    mean: float
    mean_variance: float
    between: float

    def sum_of(self, known: Sequence[About]) -> tuple[float, float]:
        """Of gaps that are known about, all together, and its variance.

        Each is taken for as far from the mean as is likely: less than it seems to be, if all hardly
        differ. Where the mean is off, the rest of each is.
        """
        ops = variance = by_mean = 0.0
        for about in known:
            error2 = about.variance * self.mean**2
            own = self.between / (self.between + error2) if self.between else 0.0
            ops += own * about.ops + (1 - own) * about.n * self.mean
            variance += about.n * own * error2
            by_mean += about.n * (1 - own)
        return ops, variance + by_mean**2 * self.mean_variance


def pooled(known: Sequence[About]) -> Pooled | None:
    """None where nothing is known, or no gap has ops."""
    known = [about for about in known if about.n > 0]
    n, ops = sum(about.n for about in known), sum(about.ops for about in known)
    if not ops:
        return None
    # As shares of the mean, so that the errors are.
    rough = ops / n
    weights = [1 / about.variance for about in known]
    fixed = _mean(known, weights)
    apart = sum(
        weight * (about.squares - 2 * fixed * about.ops + about.n * fixed**2)
        for weight, about in zip(weights, known, strict=True)
    )
    total = sum(weight * about.n for weight, about in zip(weights, known, strict=True))
    squares = sum(weight**2 * about.n for weight, about in zip(weights, known, strict=True))
    room = total - squares / total
    excess = apart / rough**2 - (n - 1)
    between = excess / room if room > 0 and excess > 0 else 0.0
    weights = [1 / (between + about.variance) for about in known]
    total = sum(weight * about.n for weight, about in zip(weights, known, strict=True))
    mean = _mean(known, weights)
    return Pooled(mean, mean**2 / total, between * rough**2)


def _mean(known: Sequence[About], weights: Sequence[float]) -> float:
    ops = sum(weight * about.ops for weight, about in zip(weights, known, strict=True))
    return ops / sum(weight * about.n for weight, about in zip(weights, known, strict=True))
