"""How much longer a program's eager work takes where each of its ops is seen.

A stretch of eager work lasts for so long, whatever is done in it. With `INSTRUMENTED_OPS=always`
a part of it is what seeing the ops takes, which is of no op: less of the stretch is ops than where
nothing looks on. How much less, a process tells in which turns are looked at and not, one after
the other: processes differ in speed by more.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from truth_programs.run import EAGER, FIRST, Run

TURN_S = 0.04
SETTLE_S = 0.008  # of a turn, until all that sees an op is in the caches, or is out of the way


class Turns:
    """Of one part's times, those in a turn's beginning apart: ``look`` is called for each turn.

    One that follows another has what is between them, such as the program's own clocks: they are
    in what the program says that all of them took.
    """

    def __init__(
        self,
        part: str,
        look: Callable[[bool], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._part, self._look, self._clock = part, look, clock
        self._began_s: float | None = None
        self._last_s: float | None = None  # the end of the part's last time, if it came last
        self._looks = False
        self._took_s: list[float] = []
        self._means_s: dict[bool, list[float]] = {True: [], False: []}

    @contextmanager
    def watch(self, name: str, number: int) -> Iterator[None]:
        if name != self._part or number < FIRST:
            self._last_s = None
            yield
            return
        start_s = self._clock()
        if self._began_s is None or start_s - self._began_s > TURN_S:
            self._end()
            self._looks = not self._looks
            self._look(self._looks)
            self._last_s = None
            start_s = self._began_s = self._clock()
        since_s = start_s if self._last_s is None else self._last_s
        yield
        self._last_s = self._clock()
        if start_s - self._began_s > SETTLE_S:
            self._took_s.append(self._last_s - since_s)

    def _end(self) -> None:
        if self._took_s:
            self._means_s[self._looks].append(statistics.fmean(self._took_s))
        self._took_s = []

    def slower(self) -> float:
        """The time that the part takes where its ops are seen, to that where they are not."""
        self._end()
        pairs = zip(self._means_s[True], self._means_s[False], strict=False)
        return statistics.median(seen / unseen for seen, unseen in pairs)


def slower(name: str, device: str) -> float:
    """Of a program with a part of that kind; in a process with ``INSTRUMENTED_OPS=always``."""
    import torch

    from instrumented_backend import backend
    from truth_programs.catalogue import ALL

    torch.set_num_threads(1)
    meter = backend._session.ops

    def look(on: bool) -> None:
        # At its beginning a window has the GPU time more of its ops than `always` does for the rest
        # of the run.
        meter._lib.op_meter_gpu_forget()
        if on:
            meter._lib.op_meter_open(False)
        else:
            meter._lib.op_meter_close()

    turns = Turns(EAGER, look)
    ALL[name](Run(device, watch=turns.watch))
    return turns.slower()
