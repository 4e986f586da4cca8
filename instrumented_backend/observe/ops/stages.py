"""Long gaps whose ops come unevenly, as of an evaluation and the checkpoint after it.

Windows see slices of them, some at the beginning and others at the end, and which, is chance: taken
together, they tell more of the one than of the other. So how many ops there are in so much time is
asked of each stage: of what was seen of all gaps when these had gone on for so long.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.pooling import looked_at, pooled, seen_whole
from instrumented_backend.observe.ops.scaled import (
    ABOUT,
    CUT,
    ENOUGH,
    FAR,
    FEW,
    SLICES_TELL,
    UNLIKE,
    Group,
    Scaled,
    are_alike,
    are_bare,
    beginnings,
    far_shorter,
    together,
)
from instrumented_backend.observe.ops.spread import SPREAD, variance_of_windows

NEAR = 1  # octaves
UNEVEN = 0.3  # what part of the ops is elsewhere than where as many came in as much time
KNOWN = 0.5  # of their time, what stages have to tell of
UNLIKE_EACH = 0.2  # by what part the mean of all may differ from what one has


@dataclass(frozen=True)
class _Stage:
    """So much of the time of each gap; what was seen then, or next to it if that is not known."""

    ns: float
    seen: Seen
    is_known: bool

    def rate(self, name: str = "ops") -> float:
        return float(getattr(self.seen, name) / self.seen.ns)


def by_stages(group: Group, after: list[Group]) -> list[Scaled] | None:
    """What stands for those of its gaps that no certain window saw whole.

    ``after`` has all gaps that begin at its mark. None where all are about as long, where too
    little was seen, or so much that stages are not asked, where their ops come evenly, or where all
    that were seen whole have as many.
    """
    if group.octave < UNLIKE or are_alike(group):
        return None
    if all(other.octave > group.octave - FAR for other in after):
        return None
    whole = together([group.first, group.certain, group.random]).seen
    n, ns = sum(group.n) - whole.n, group.own_ns - whole.ns
    # Of gaps that so many windows of chance met each, stages tell less: there windows count by how
    # long they were, and not by what they stand for. Where ops are denser, they are shorter.
    if n <= 0 or ns <= 0 or group.slices[1].seen.windows >= FEW * n:
        return None
    # The last gap of all is as likely like one of its own length, wherever that ends.
    near = [
        other
        for other in after
        if group.to in (other.to, CUT)
        and abs(other.octave - group.octave) <= NEAR
        and are_bare(other) == are_bare(group)
    ]
    slices = together([part for other in near for part in other.slices])
    seen = _by_stage(near)
    if group.to == CUT:
        seen |= _by_stage([group])
    stages = list(_stages(seen, ns / n))
    known_ns = sum(stage.ns for stage in stages if stage.is_known)
    if not slices.seen.ops or known_ns < KNOWN * ns / n or not _are_uneven(stages):
        return None
    # Of the last one, what was seen of itself tells more than what single others had.
    singly = [group] if group.to == CUT and any(part.seen.ns for part in group.slices) else near
    met = _share_met([group] if group.looked.n >= ENOUGH else singly)
    ops, ops_variance = _with_each(group, singly, met, n, "ops", stages)
    op_ns, ns_variance = _with_each(group, singly, met, n, "op_ns", stages)
    op_ns = min(op_ns, ns)  # an op may go on after its stage
    ns_variance += (ABOUT * op_ns) ** 2
    if group.to == CUT:
        unseen = max(0.0, 1 - sum(part.seen.ns for part in group.slices) / ns)
        ops_variance += (unseen * ops / SPREAD) ** 2
        ns_variance += (unseen * op_ns / SPREAD) ** 2
    themselves = [group.random] if group.random.seen.n else []
    certain, random = group.slices
    if random.seen.windows >= FEW and random.seen.ops:
        # Chance's are all over the gaps. A certain window may have seen all of how one begins.
        themselves.append(certain)
        slices = random
        ops = max(random.seen.ops, ops - certain.seen.ops)
        op_ns = max(random.seen.op_ns, op_ns - certain.seen.op_ns)
    factors = ops / slices.seen.ops, op_ns / slices.seen.op_ns if slices.seen.op_ns else 1.0
    doubts = beginnings(far_shorter(group, after), n)
    rest = Scaled(slices, *factors, ops_variance, ns_variance, doubts, in_slices=True)
    return [*(Scaled(part, 1.0, 1.0) for part in themselves), rest]


def _share_met(groups: list[Group]) -> float:
    """Of the gaps that were looked at, how many had ops when they first were.

    The others may have had theirs before, or none at all.
    """
    looked = sum(group.looked.n for group in groups)
    return float(sum(group.met.n for group in groups) / looked) if looked else 1.0


def _with_each(
    group: Group, near: list[Group], share: float, n: float, name: str, stages: list[_Stage]
) -> tuple[float, float]:
    """Of ``n`` gaps, with its variance: by stages, and by what single gaps had.

    How fast an evaluation goes, and so when it ends, differs from the next one's: few slices are
    off by a fifth, where evaluations have as many ops each. What is surer counts for more, and
    stages alone where the others clearly differ, or where there are none. At least a ``share`` of
    the gaps are like these.
    """
    total, variance = _of_all(stages, n, name)
    whole = together([other.random for other in near]).seen
    known = [seen_whole(whole, near, name)]
    for other in near:
        known += looked_at(other.met, other.ended, name)
    each = pooled(known)
    if each is None:
        return total, variance
    is_near = any(other is group for other in near)
    own = looked_at(group.met, group.ended, name) if is_near else []
    known_n = sum(about.n for about in known)
    left = max(0.0, n - sum(about.n for about in own))
    of_own, own_variance = each.sum_of(own)
    by_each = of_own + left * each.mean
    each_variance = own_variance + left * each.between + left * left * each.mean_variance
    alone = ABOUT if known_n < 2 else 0.0  # it tells nothing of how they differ
    each_variance += (((1 - share) / SPREAD) ** 2 + alone**2) * by_each**2
    apart = by_each - total
    if abs(apart) > SPREAD * math.sqrt(variance + each_variance):
        return total, variance
    # Of three lengths in turn, all that were seen may be of one.
    unlike = (UNLIKE_EACH * by_each) ** 2 / known_n
    total += apart * variance / max(1.0, variance + each_variance)
    return total, min(variance, max(each_variance, unlike))


def _by_stage(groups: list[Group]) -> dict[tuple[float, float], Seen]:
    """What was seen of all of these."""
    seen: dict[tuple[float, float], Seen] = {}
    for kind in (kind for group in groups for kind in group.kinds):
        for stage, part in kind.stages.items():
            seen.setdefault(stage, Seen()).add(part)
    return seen


def _stages(seen: dict[tuple[float, float], Seen], gap_ns: float) -> Iterator[_Stage]:
    """Of gaps that take so long, by what was ``seen`` of such gaps."""
    end_ns, last = 0.0, None
    for from_ns, until_ns in sorted(seen):
        if from_ns >= gap_ns:
            break
        part = seen[from_ns, until_ns]
        for side in (last or part, part) if from_ns > end_ns else ():
            yield _Stage((from_ns - end_ns) / 2, side, False)
        end_ns, last = min(until_ns, gap_ns), part
        yield _Stage(end_ns - from_ns, part, True)
    if last is not None and end_ns < gap_ns:
        yield _Stage(gap_ns - end_ns, last, False)


def _are_uneven(stages: list[_Stage]) -> bool:
    mean = _mean(stages)
    elsewhere = sum(stage.ns * abs(stage.rate() - mean) for stage in stages) / 2
    return elsewhere > UNEVEN * mean * sum(stage.ns for stage in stages)


def _mean(stages: list[_Stage], name: str = "ops") -> float:
    """Of so much time."""
    return sum(stage.ns * stage.rate(name) for stage in stages) / sum(stage.ns for stage in stages)


def _of_all(stages: list[_Stage], n: float, name: str) -> tuple[float, float]:
    """Of ``n`` gaps, with its variance: stages differ from gap to gap, each for itself.

    Of one of which no gap or only one was seen, two standard errors are all that it has, or as much
    as in so much time on average.
    """
    total, total_variance, mean = 0.0, 0.0, _mean(stages, name)
    for stage in stages:
        rate = stage.rate(name)
        total += n * stage.ns * rate
        if stage.is_known and stage.seen.windows >= 2:
            times = n * stage.ns / stage.seen.ns
            total_variance += variance_of_windows(stage.seen, name, times)
        else:
            total_variance += (n * stage.ns * max(rate, mean) / SPREAD) ** 2
    return total, total_variance + (SLICES_TELL * total) ** 2
