"""How two sides of a trial differ: their times, and what they print."""

import math
import re
import statistics
from collections.abc import Sequence
from itertools import pairwise

from instrumented_backend.records.trials import Agreement, SpeedUp

# After so many pairs a trial is looked at, and ends if it is settled. Each look is a chance to be
# wrong: at 99 % each, five looks together are wrong in 5 % of trials at most.
LOOKS = (3, 5, 8, 13, 20)
MIN_PAIRS, MAX_PAIRS = LOOKS[0], LOOKS[-1]
WORTH = 0.01  # of a step's time: less is no gain, as in the next steps
_NARROW = 0.02  # an interval within that of 1 settles that there is no difference
# Student's t, 99 % to both sides, for 1, 2, ... degrees of freedom.
_T99 = (
    *(63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169),
    *(3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845),
)
HELPS, HURTS, SAME, UNCLEAR = "helps", "hurts", "no difference", "unclear"


def speed_up(pairs: Sequence[tuple[float, float]]) -> SpeedUp | None:
    """Of seconds before and after, of runs that were made in turn.

    The geometric mean of the ratios; its interval is Student's t on their logarithms, from three
    pairs on. It is one of 95 % for a trial that ends at any of the `LOOKS`. None without pairs.
    """
    logs = [math.log(before / after) for before, after in pairs]
    if not logs:
        return None
    mean = statistics.fmean(logs)
    if len(logs) < MIN_PAIRS:  # t would be 63.7 for two
        return SpeedUp(math.exp(mean), None, None, len(logs))
    t = _T99[min(len(logs) - 1, len(_T99)) - 1]
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return SpeedUp(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def verdict(found: SpeedUp | None) -> str:
    """What an interval settles; unclear without one."""
    if found is None or found.low is None or found.high is None:
        return UNCLEAR
    if found.low > 1 + WORTH:
        return HELPS
    if found.high < 1 - WORTH:
        return HURTS
    if found.low > 1 - _NARROW and found.high < 1 + _NARROW:
        return SAME
    return UNCLEAR


_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")


def agreement(before: Sequence[str], after: str) -> Agreement:
    """What a program prints with the change, against what runs without it print.

    What differs between runs without it, such as times, is no matter of the change.
    """
    if not any(text.strip() for text in before):
        return Agreement("nothing printed" if not after.strip() else "differs")
    if after in before:
        return Agreement("same")
    texts = [*before, after]
    if len({tuple(_words(text)[0]) for text in before}) > 1:
        texts = [_in_order(text) for text in texts]  # as of ranks, whose lines mix as it happens
    *words, (others, numbers) = map(_words, texts)
    if any(alike != words[0][0] for alike, _ in words):
        return Agreement("varies")
    if words[0][0] != others:
        return Agreement("differs")
    largest = 0.0
    for place, number in enumerate(numbers):
        theirs = [known[place] for _, known in words]
        if all(same == theirs[0] for same in theirs) and number != theirs[0]:
            largest = max(largest, _apart(float(theirs[0]), float(number)))
    if math.isinf(largest):
        return Agreement("differs")
    return Agreement("numbers differ", largest) if largest else Agreement("same")


def _in_order(text: str) -> str:
    return "\n".join(sorted(text.split("\n"), key=lambda line: _words(line)[0]))


def _words(text: str) -> tuple[list[str], list[str]]:
    """The text between its numbers, and the numbers."""
    places = [0, *(at for found in _NUMBER.finditer(text) for at in found.span()), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    return [" ".join(piece.split()) for piece in pieces[::2]], pieces[1::2]


def _apart(one: float, other: float) -> float:
    """Relative to the larger; infinite where only one of them is a number."""
    if math.isnan(one) or math.isnan(other):
        return 0.0 if math.isnan(one) and math.isnan(other) else math.inf
    if one == other:
        return 0.0
    if math.isinf(one) or math.isinf(other):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))


def paid_back_after(
    compile_s: float | None, base_compile_s: float | None, gain_s: float
) -> int | None:
    """Steps until what compiling takes longer is won back; None where nothing is won."""
    if compile_s is None or base_compile_s is None or gain_s <= 0:
        return None
    return max(0, math.ceil((compile_s - base_compile_s) / gain_s))
