"""How long a program waits for a build: a busy machine is given more time, what hangs is not."""

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from waiting import wait_until

from instrumented_backend.observe.native import compiler
from instrumented_backend.observe.native.build import LIMIT_S, PATIENCE_S
from instrumented_backend.observe.native.patience import Patience


class Clock(threading.Event):
    """An event that is waited for on a clock of its own, and is set at ``ready_s``."""

    def __init__(self, ready_s: float = math.inf) -> None:
        super().__init__()
        self.now_s = 0.0
        self._ready_s = ready_s

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now_s = max(self.now_s, min(self.now_s + timeout, self._ready_s))
        if self.now_s >= self._ready_s:
            self.set()
        return self.is_set()


def patience(clock: Clock, worked_s: Callable[[float], float]) -> Patience:
    return Patience(lambda: worked_s(clock.now_s), lambda: clock.now_s)


def test_what_hangs_is_given_the_time_of_a_build() -> None:
    clock, looks = Clock(), []
    waiting = patience(clock, lambda now_s: looks.append(now_s) or 3.0)
    waiting.wait(clock, math.inf)
    first_s, looked = clock.now_s, len(looks)
    assert PATIENCE_S <= first_s <= PATIENCE_S + 1
    waiting.wait(clock, math.inf)  # the next call neither waits again nor looks at processes
    assert clock.now_s == first_s and len(looks) == looked > 0


def test_what_works_is_waited_for() -> None:
    clock = Clock(ready_s=35.0)
    patience(clock, lambda now_s: 0.2 * now_s).wait(clock, math.inf)
    assert clock.is_set() and clock.now_s == 35.0


def test_what_works_for_ever_is_given_up() -> None:
    clock = Clock()
    patience(clock, lambda now_s: now_s).wait(clock, math.inf)
    assert LIMIT_S <= clock.now_s <= LIMIT_S + 1


@pytest.mark.parametrize("began_before_s", [0.0, 25.0])
def test_an_exit_waits_for_as_long_as_it_says(began_before_s: float) -> None:
    clock = Clock()
    waiting = patience(clock, lambda now_s: now_s)
    clock.now_s = began_before_s
    waiting.wait(clock, 0.5)
    assert clock.now_s <= began_before_s + 1.0


def test_the_time_of_compilers_is_that_of_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler.working_s() == 0
    loop = "while True: pass"
    process = subprocess.Popen([sys.executable, "-c", loop], start_new_session=True)
    try:
        monkeypatch.setattr(compiler, "_groups", {process.pid, os.getpid() + 10**6})
        wait_until(lambda: compiler.working_s() > 0.1)
    finally:
        process.kill()
        process.wait()
    assert compiler.working_s() == 0
