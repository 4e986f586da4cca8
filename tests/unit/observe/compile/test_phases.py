"""Exclusive phases from made-up marks, with a clock that the test sets."""

import threading
from typing import Any

import pytest

from instrumented_backend.observe.compile.phases import PHASES, PhaseClock, Span, phase_of


class Marks:
    """A `PhaseClock` fed with (seconds, "B" or "E", name)."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at_run_time: list[Span] = []
        self.clock = PhaseClock(self.at_run_time.append, lambda: self.now)

    def play(self, *marks: tuple[float, str, str], **arguments: Any) -> Span:
        for self.now, kind, name in marks:
            self.clock.mark({"ph": kind, "name": name, "args": arguments})
        span = self.clock.span()
        assert span is not None
        return span


def test_each_moment_belongs_to_the_innermost_step() -> None:
    # 0-10 dynamo, of which 2-9 backend, of which 3-8 Inductor, of which 4-7 codegen, of which
    # 5-6 scheduling: dynamo 2 + 1, AOTAutograd 1 + 1, lowering 1 + 1, codegen 1 + 1, 1.
    span = Marks().play(
        (0, "B", "dynamo"),
        (1, "B", "bytecode_tracing"),  # of dynamo
        (2, "E", "bytecode_tracing"),
        (2, "B", "backend_compile"),
        (3, "B", "inductor_compile"),
        (4, "B", "code_gen"),
        (5, "B", "Scheduler.__init__"),
        (6, "E", "Scheduler.__init__"),
        (7, "E", "code_gen"),
        (8, "E", "inductor_compile"),
        (9, "E", "backend_compile"),
        (10, "E", "dynamo"),
    )
    assert span.seconds == {
        "dynamo": 3,
        "aot_autograd": 2,
        "lowering": 2,
        "codegen": 2,
        "scheduling": 1,
    }
    assert span.total_s == 10


def test_a_compilation_inside_another_is_one_of_its_own() -> None:
    marks = Marks()
    outer = marks.play((0, "B", "dynamo"), (1, "B", "backend_compile"))
    inner = marks.play((2, "B", "dynamo"), (5, "E", "dynamo"))
    assert inner is outer  # the inner one is over, the outer one goes on
    marks.play((6, "E", "backend_compile"), (8, "E", "dynamo"))
    # Of 8 s, 3 are the inner one's: 1 + 2 dynamo, 5 - 3 in the backend.
    assert outer.seconds == {"dynamo": 3, "aot_autograd": 2}


def test_finished_is_called_with_the_whole() -> None:
    marks, seen = Marks(), []
    span = marks.play((0, "B", "dynamo"))
    assert span.total_s is None
    span.finished = lambda done: seen.append(done.total_s)
    marks.play((4, "E", "dynamo"))
    assert seen == [4]


def test_a_backward_is_a_compilation() -> None:
    span = Marks().play((0, "B", "entire_backward_compile"), (2, "E", "entire_backward_compile"))
    assert (span.seconds, span.at_run_time) == ({"aot_autograd": 2}, False)


def test_threads_that_help_are_not_counted_twice() -> None:
    marks = Marks()
    span = marks.play((0, "B", "dynamo"), (1, "B", "async_compile.wait"))

    def helper() -> None:
        marks.clock.mark({"ph": "B", "name": "compile_file"})
        marks.clock.mark({"ph": "E", "name": "compile_file"})

    thread = threading.Thread(target=helper)
    thread.start()
    thread.join()
    marks.play((3, "E", "async_compile.wait"), (4, "E", "dynamo"))
    assert span.seconds == {"kernel_compile": 2, "dynamo": 2}
    assert marks.at_run_time == []


def test_tuning_and_recording_at_run_time() -> None:
    marks = Marks()
    for name in ("CachingAutotuner.benchmark_all_configs", "CUDAGraphNode.record"):
        marks.clock.mark({"ph": "B", "name": name, "args": {"compile_id": "3/0"}})
        marks.now += 2
        marks.clock.mark({"ph": "E", "name": name})
    tuned, recorded = marks.at_run_time
    assert (tuned.seconds, tuned.compile_id, tuned.backward) == ({"autotune": 2}, "3/0", False)
    assert recorded.seconds == {"cudagraphs": 2}
    assert marks.clock.span() is None


def test_marks_that_do_not_match() -> None:
    marks = Marks()
    span = marks.play(
        (0, "E", "never begun"),
        (0, "B", "dynamo"),
        (1, "B", "backend_compile"),
        (2, "B", "inductor_compile"),
        # Both were left by an exception, without their ends.
        (3, "E", "dynamo"),
    )
    assert span.seconds == {"dynamo": 1, "aot_autograd": 1, "lowering": 1}
    assert span.total_s == 3


@pytest.mark.parametrize(
    ("step", "phase"),
    [
        ("mm_template_autotuning", "autotune"),
        ("mm_template_precompiling", "kernel_compile"),
        ("_recursive_post_grad_passes", "passes"),
        ("a step of a later torch", None),
    ],
)
def test_phase_of(step: str, phase: str | None) -> None:
    assert phase_of(step) == phase
    assert phase is None or phase in PHASES
