"""The session's one loop over its observers."""

from collections.abc import Iterator

import pytest

from instrumented_backend.observe.observer import Observer
from instrumented_backend.observe.session import Session
from instrumented_backend.records.notes import LOST


class Recorded(Observer):
    def __init__(self, name: str, done: list[str]) -> None:
        self.name = name
        self.done = done

    def start(self) -> None:
        self.done.append(f"start {self.name}")

    def stop(self) -> None:
        self.done.append(f"stop {self.name}")


class Failing(Observer):
    def start(self) -> None:
        raise RuntimeError("injected")

    reset = after_fork = stop = start


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session(lambda report: None, device_time=True)
    yield session
    session._observers = []  # its hook for forks stays


def test_they_stop_in_the_opposite_order(session: Session) -> None:
    done: list[str] = []
    session._observers = [(name, Recorded(name, done)) for name in "ab"]
    session.start()
    session._stop()
    assert done == ["start a", "start b", "stop b", "stop a"]


@pytest.mark.parametrize("step", ["start", "reset", "_after_fork", "_stop"])
def test_one_that_fails_is_lost_and_the_others_go_on(session: Session, step: str) -> None:
    done: list[str] = []
    session._observers = [
        ("notes", session.failures),
        ("a", Recorded("a", done)),
        ("b", Failing()),
        ("c", Recorded("c", done)),
    ]
    getattr(session, step)()
    (note,) = session.failures.notes
    assert note.code == LOST and note.text.startswith("lost: b: RuntimeError: injected")
    assert len(done) == (2 if step in ("start", "_stop") else 0)


def test_the_report_is_made_after_windows_end_and_before_the_op_meter_does(
    session: Session,
) -> None:
    names = [name for name, _ in session._observers]
    assert names.index("ops") < names.index("the report") < names.index("device time")
    assert names[0] == "notes" and len(names) == len(set(names))
