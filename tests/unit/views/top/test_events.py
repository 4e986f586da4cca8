"""What happened between two reports, a line for each."""

from live_reports import STARTED_AT, compiling, live

from instrumented_backend.records import BreakRecord, CompileRecord, GuardRecord
from instrumented_backend.records.live import LiveReport
from instrumented_backend.views.top.events import BAD, Event, events, found
from instrumented_backend.views.top.names import Label, guard, together

WHY = "size of x in dimension 1: 64 → 48"
HERE = "forward (.../me/model.py:12)"


def words(now: LiveReport, before: LiveReport | None) -> list[str]:
    return [event.words for event in events(now, before)]


def compiled(report: LiveReport, outcome: str = "compiled", total_s: float = 23.0) -> LiveReport:
    """It has ended the compilation that `compiling` is."""
    record = CompileRecord("0/1", "forward", "forward", "model.py", 12, outcome, [], {}, total_s)
    report.compile.compilations.append(record)
    return report


def test_nothing_has_happened() -> None:
    assert words(live(), live()) == []
    assert words(live(calls=9), live(calls=3)) == []


def test_of_the_past_only_what_goes_on_is_news() -> None:
    assert words(live(recompiles=3), None) == []
    now = live(compiling=[compiling(STARTED_AT + 99, why=WHY)])
    assert words(now, None) == [f"compiling {HERE} again: {WHY}"]


def test_a_compilation_begins_and_ends() -> None:
    before, at = live(recompiles=0), STARTED_AT + 100.5
    under_way = live(recompiles=0, compiling=[compiling(at)])
    (event,) = events(under_way, before)
    assert (event.words, event.at) == (f"compiling {HERE}", at)
    assert words(under_way, under_way) == []
    (event,) = events(compiled(live(recompiles=0, after_s=130)), under_way)
    assert (event.words, event.at) == (f"compiled {HERE} in 23.0 s", at + 23)


def test_a_recompilation_begins_and_ends() -> None:
    under_way = live(recompiles=1, compiling=[compiling(STARTED_AT + 100, why=WHY)])
    ended = compiled(live(recompiles=2))
    assert words(ended, under_way) == [
        f"recompiled {HERE} in 23.0 s: size of x in dimension 1: 64 → 48 → 32"
    ]


def test_recompilations_that_nobody_saw_under_way() -> None:
    """Each report is made after they have ended."""
    assert words(live(recompiles=3), live(recompiles=1)) == [
        f"recompiled {HERE} 2 times: size of x in dimension 1: 64 → 48 → 32 → 16"
    ]
    assert words(live(recompiles=1), live(recompiles=0)) == [
        f"recompiled {HERE}: size of x in dimension 1: 64 → 48"
    ]


def test_only_the_guards_that_failed_now() -> None:
    before, now = live(recompiles=1), live(recompiles=2)
    now.recompiles[0].guards[0].count = 1  # the old one's
    now.recompiles[0].guards.append(GuardRecord("dtype", "dtype of y", ["float32"], count=1))
    assert words(now, before) == [f"recompiled {HERE}: dtype of y: float32 → something else"]


def test_one_compilation_after_another() -> None:
    """The next has begun when the report is made."""
    before = live(recompiles=0, compiling=[compiling(STARTED_AT + 90)])
    now = compiled(live(recompiles=0, compiling=[compiling(STARTED_AT + 99, "block")]))
    assert words(now, before) == [
        f"compiled {HERE} in 23.0 s",
        "compiling block (.../me/model.py:12)",
    ]


def test_what_failed_is_not_compiled() -> None:
    before = live(recompiles=0, compiling=[compiling(STARTED_AT + 90)])
    now = compiled(live(recompiles=0), "failed", 3.0)
    assert words(now, before) == [f"failed to compile {HERE} in 3.00 s"]


def test_what_ended_with_its_program() -> None:
    before = live(recompiles=0, compiling=[compiling(STARTED_AT + 90)])
    assert words(live(recompiles=0, status="interrupted"), before) == []
    assert words(live(recompiles=0), before) == [f"no longer compiling {HERE}"]


def test_short_compilations_are_counted() -> None:
    """Not the one under way, whose graph there is already, nor the recompiled."""
    under_way = [compiling(STARTED_AT + 90, "block")]
    before, now = live(compiling=under_way), live(compiling=under_way)
    now.summary.graphs += 3
    for name, took_s in (("f", 1.0), ("g", 0.25)):
        compiled(now, total_s=took_s).compile.compilations[-1].function = name
    assert words(now, before) == ["compiled 2 more in 1.25 s"]
    now = compiled(live(recompiles=2), total_s=1.0)
    now.compile.compilations[-1].file = "/home/me/model.py"
    assert len(words(now, live(recompiles=1))) == 1


def test_breaks_and_the_limit() -> None:
    before, now = live(), live()
    now.breaks = [*now.breaks, BreakRecord("break", "Unsupported", "/home/me/a.py", 3, "f")]
    now.recompiles[0].limit_hits = 1
    found = list(events(now, before))
    assert [event.words for event in found] == [
        "graph break at .../me/a.py:3: Unsupported",
        f"recompile limit reached: {HERE}: what fits no version of it runs eagerly",
    ]
    assert {event.kind for event in found} == {BAD}
    assert list(events(now, now)) == []


def test_modules_by_their_names() -> None:
    before, now = live(recompiles=0), live(recompiles=1)
    now.recompiles[0].compiled = 0
    now.compiled[0].path = "Model.blocks.3"
    assert words(now, before)[0].startswith("recompiled Model.blocks.3 (.../me/train.py:5): ")
    now.recompiles[0].function = "torch_dynamo_resume_in_forward_at_14"
    assert words(now, before)[0].startswith(
        "recompiled the rest of Model.blocks.3.forward (.../me/model.py:14): "
    )


def test_how_long_it_took_several() -> None:
    event = Event(0, "compiled f", seconds=[2.0, 31.0, 30.0], why="why")
    assert event.words == "compiled f in 2.00 s … 31.0 s: why"
    assert Event(0, "compiled f", seconds=[2.0, 2.001]).words == "compiled f in 2.00 s"


def test_words_of_processes() -> None:
    assert together([Label("rank 0", 0)]) == "rank 0"
    ranks = [Label(f"rank {rank}", rank) for rank in (10, 9, 2, 8)]
    assert together(ranks) == "ranks 2, 8-10"
    assert together([Label("pid 7"), Label("pid 5")]) == "pid 7, pid 5"
    # The name of a file that cannot be read.
    assert together([*ranks, Label("rank one.json")]) == "ranks 2, 8-10, rank one.json"
    assert found(live(), "running") == "running, for 1 min 40 s: train.py --epochs 3"
    assert found(live(), "died") == "died, after 1 min 40 s: train.py --epochs 3"


def test_guards() -> None:
    known = GuardRecord("shape", "size of x in dimension 0", ["4", "5"], more_values=True)
    assert guard(known) == "size of x in dimension 0: 4 → 5 → ..."
    assert guard(GuardRecord("mode", "grad mode")) == "grad mode"
