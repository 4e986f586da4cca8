"""What is being compiled now, from torch's marks of time."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from instrumented_backend.observe.compile.live import LiveLog
from instrumented_backend.observe.messages.guards import FailedGuard
from instrumented_backend.observe.messages.reasons import BreakReason, Frame, Reason

PLACE = ("forward", "/home/me/train.py", 39)
SIZE = FailedGuard("shape", "size of x in dimension 1", "64", "48", None, None, "")


class Marks:
    """torch's marks, on a clock that they move, and how often somebody was told of a change."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.changes = 0
        self.place: Callable[[str | None, bool], Any] = lambda compile_id, backward: PLACE
        self.live = LiveLog(
            self.changed, lambda *asked: self.place(*asked), clock=lambda: self.now_s
        )

    def changed(self) -> None:
        self.changes += 1

    def begin(self, name: str, compile_id: str = "0/0") -> None:
        self.live.mark({"name": name, "ph": "B", "args": {"compile_id": compile_id}})

    def end(self, name: str, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.live.mark({"name": name, "ph": "E"})


@pytest.fixture
def marks(caplog: pytest.LogCaptureFixture) -> Marks:
    caplog.set_level(logging.INFO, "instrumented_backend")
    return Marks()


def test_from_its_beginning_to_its_end(marks: Marks, caplog: pytest.LogCaptureFixture) -> None:
    marks.begin("dynamo")
    (one,) = marks.live.compiling()
    assert (one.compile_id, one.function, one.file, one.line, one.why) == ("0/0", *PLACE, None)
    marks.begin("backend_compile")
    marks.end("backend_compile")
    marks.end("dynamo", 23.2)
    assert marks.live.compiling() == []
    assert marks.changes == 2
    assert caplog.messages == [
        "compiling forward (train.py:39)",
        "compiled forward (train.py:39) in 23 s",
    ]


def test_again_and_why(marks: Marks, caplog: pytest.LogCaptureFixture) -> None:
    """The reason comes after the beginning, and is said with it."""
    marks.begin("dynamo", "0/1")
    assert caplog.messages == []
    marks.live.recompiled([replace(SIZE, frame=Frame("me/train.py", 41, "forward"))])
    marks.begin("backend_compile", "0/1")
    (one,) = marks.live.compiling()
    assert one.why == "size of x in dimension 1: 64 → 48"
    # torch shortens paths; that of the function is known.
    assert (one.guard_file, one.guard_line) == ("/home/me/train.py", 41)
    assert caplog.messages == [
        "compiling forward (train.py:39) again: size of x in dimension 1: 64 → 48"
    ]


@pytest.mark.parametrize("decided", ["backend_compile", "dynamo"])
def test_of_another_module_of_the_same_class(
    marks: Marks, caplog: pytest.LogCaptureFixture, decided: str
) -> None:
    """It is compiled for the first time, whatever its number; or skipped before anything else."""
    marks.begin("dynamo", "0/1")
    if decided == "backend_compile":
        marks.begin("backend_compile", "0/1")
    else:
        marks.live.outcome("skipped")
        marks.end("dynamo", 0.25)
    assert caplog.messages[0] == "compiling forward (train.py:39)"
    assert caplog.messages[1:] == (
        [] if decided == "backend_compile" else ["gave up forward (train.py:39) after 0.2 s"]
    )


def test_somebody_elses(marks: Marks, caplog: pytest.LogCaptureFixture) -> None:
    marks.place = lambda compile_id, backward: None
    marks.begin("dynamo")
    marks.live.outcome("failed")
    marks.live.recompiled([SIZE])
    marks.end("dynamo", 1.0)
    assert marks.live.compiling() == caplog.messages == []


def test_the_rest_of_a_function_and_its_backward(
    marks: Marks, caplog: pytest.LogCaptureFixture
) -> None:
    marks.place = lambda compile_id, backward: ("torch_dynamo_resume_in_f_at_9", "/a/t.py", 5)
    marks.begin("entire_backward_compile", "1/0")
    assert [one.direction for one in marks.live.compiling()] == ["backward"]
    marks.end("entire_backward_compile", 1.0)
    assert caplog.messages == [
        "compiling the backward of the rest of f (t.py:9)",
        "compiled the backward of the rest of f (t.py:9) in 1.0 s",
    ]


def test_the_outermost_of_each_thread(marks: Marks) -> None:
    def other() -> None:
        marks.begin("dynamo", "7/0")

    marks.begin("dynamo", "1/0")
    marks.begin("dynamo", "2/0")  # a compilation inside of it
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert sorted(one.compile_id for one in marks.live.compiling()) == ["1/0", "7/0"]
    marks.end("dynamo")
    marks.end("dynamo")
    assert [one.compile_id for one in marks.live.compiling()] == ["7/0"]
    marks.live.clear()
    assert marks.live.compiling() == []


def test_an_end_without_a_beginning(marks: Marks) -> None:
    marks.end("dynamo")
    marks.end("entire_backward_compile")
    assert marks.changes == 0


def test_a_break(marks: Marks, caplog: pytest.LogCaptureFixture) -> None:
    marks.live.broke(BreakReason(Reason("print"), None, Frame("/home/me/train.py", 41, "block")))
    marks.live.broke(BreakReason(Reason("print"), None, None))
    assert caplog.messages == ["graph break at train.py:41 in block: print", "graph break: print"]


def test_nothing_is_said_by_default(marks: Marks, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "instrumented_backend")
    marks.begin("dynamo")
    marks.end("dynamo", 99.0)
    marks.live.broke(BreakReason(Reason("print"), None, None))
    assert caplog.messages == []
