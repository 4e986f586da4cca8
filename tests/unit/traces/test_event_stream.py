import gzip
import json
import random
import string
from pathlib import Path
from typing import Any

import pytest
from traces import kernel, op, write

from instrumented_backend.traces import event_stream
from instrumented_backend.traces.event_stream import (
    Event,
    EventStream,
    TraceError,
    load_events,
)


def read(path: Path) -> list[Event]:
    return [event for events in EventStream(path) for event in events]


def seen(event: Event) -> tuple[Any, ...]:
    return event.name, event.ts, event.dur


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "PIECE_BYTES", 64)
    monkeypatch.setattr(event_stream, "BLOCK_BYTES", 32)


AWKWARD = [
    "}, {",
    '"}, {"',
    '{"a": [{}, {}, {"b": 1}, {"c": {}}]}, {',
    '], "traceEvents": [',
    "\\",
    '\\"',
    "кернел, 核",
]


@pytest.mark.parametrize("indent", [None, 1])
def test_pieces_cut_at_any_place_lose_nothing(
    tmp_path: Path, small_pieces: None, indent: int | None
) -> None:
    """A few hundred files of awkward names and nested arguments, in pieces of 64 bytes."""
    chance = random.Random(0)
    path = tmp_path / "t.json"
    for _ in range(100):
        events = []
        for i in range(chance.randrange(1, 40)):
            name = chance.choice(AWKWARD) * chance.randrange(3) + chance.choice(
                string.ascii_letters
            )
            args = {"list": [{"k": name}, {}, [{}, {}]], "correlation": i, name: {"deep": [{}]}}
            events.append({**kernel(i, i / 4, name), "args": args, "last": chance.choice(AWKWARD)})
        tail = {"deviceProperties": [{"id": 0}, {"id": 1}], "traceName": "}, {"}
        document = {"displayTimeUnit": "ns", "traceEvents": events, **tail}
        path.write_text(json.dumps(document, indent=indent, ensure_ascii=chance.random() < 0.5))
        stream = EventStream(path)
        got = [event for piece in stream for event in piece]
        assert [seen(e) for e in got] == [(e["name"], e["ts"], e["dur"]) for e in events]
        assert [e.args.correlation for e in got] == list(range(len(events)))
        assert stream.fields.deviceProperties == [{"id": 0}, {"id": 1}]
        assert stream.malformed == 0


def test_memory_is_that_of_a_piece(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [op(i, 1) for i in range(20_000)])
    pieces = [len(events) for events in EventStream(path)]
    assert sum(pieces) == 20_000
    # Two pieces' bytes at most, over the shortest event's.
    assert max(pieces) <= 2 * event_stream.PIECE_BYTES / len(json.dumps(op(0, 1)))


def test_a_bare_list_and_a_byte_order_mark(tmp_path: Path, small_pieces: None) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"\xef\xbb\xbf\n " + json.dumps([kernel(i, 1) for i in range(9)]).encode())
    assert [event.ts for event in read(path)] == list(range(9))


def test_gzip_by_its_content_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(json.dumps([kernel(1, 2)]).encode()))
    assert [seen(event) for event in read(path)] == [("triton_poi_fused_add_0", 1, 2)]


def test_fields_before_and_after_the_events(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ts": 1}], "distributedInfo": {"rank": 3}}'
    )
    stream = EventStream(path)
    assert [event.ts for events in stream for event in events] == [1]
    assert stream.fields.schemaVersion == 1
    assert stream.fields.distributedInfo == {"rank": 3}


def test_events_key_inside_another_object(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"meta": {"traceEvents": [{"ts": 5}]}, "traceEvents" : [{"ts": 1}]}')
    assert [event.ts for event in read(path)] == [1]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (b'"name": "a\nb"', "a\nb"),  # a control character
        (b'"name": "a\xff"', "a\ufffd"),  # no UTF-8
        (b'"name": "a", "bandwidth": NaN', "a"),
    ],
)
def test_what_only_pythons_reader_accepts(
    tmp_path: Path, small_pieces: None, written: bytes, name: str
) -> None:
    path = tmp_path / "t.json"
    good = json.dumps(kernel(1, 2)).encode()
    odd = b'{"ph": "X", ' + written + b', "ts": 3, "dur": 4}'
    path.write_bytes(b'{"traceEvents": [' + b", ".join([good, odd, good] * 5) + b"]}")
    assert [(e.ts, e.dur) for e in read(path)] == [(1, 2), (3, 4), (1, 2)] * 5
    assert {event.name for event in read(path)} == {"triton_poi_fused_add_0", name}
    assert len(load_events(path)) == 15


def test_malformed_events_are_left_out_and_counted(tmp_path: Path) -> None:
    events: list[Any] = [
        kernel(1, 2),
        {**kernel(3, 4), "ts": "5.5"},
        {**kernel(5, 6), "args": None, "tid": None},
        {**kernel(7, 8), "ts": "soon"},
        {**kernel(9, 9), "args": [1]},
        {**kernel(9, 9), "\ud800": 1},
        None,
        7,
    ]
    stream = EventStream(write(tmp_path / "t.json", events))
    assert [event.ts for piece in stream for event in piece] == [1, 5.5, 5]
    assert stream.malformed == 5


def test_progress_goes_up_to_the_end_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [op(i, 1) for i in range(100_000)])
    positions: list[int] = []
    for _ in EventStream(path, positions.append):
        pass
    assert positions == sorted(positions) and len(positions) > 5
    assert positions[-1] == path.stat().st_size


WHOLE = json.dumps({"traceEvents": [kernel(i, 1) for i in range(5000)]}).encode()

BAD = {
    "empty": (b"", "empty file"),
    "blank": (b" \n", "empty file"),
    "text": (b"not a trace", "not JSON"),
    "number": (b"17", "not JSON"),
    "cut inside": (WHOLE[: len(WHOLE) // 2], "not JSON, or cut short"),
    "cut at an event's end": (WHOLE[: WHOLE.rindex(b"}, {") + 1], "not JSON, or cut short"),
    "cut by a byte": (WHOLE[:-1], "not JSON, or cut short"),
    "cut before the events": (b'{"schemaVersion": 1, "tra', "not JSON, or cut short"),
    "broken in the middle": (WHOLE.replace(b'"ts": 2500', b'"ts": 25x'), "not JSON, or cut short"),
    "something after it": (WHOLE + b"{}", "not JSON, or cut short"),
    "cut gzip": (gzip.compress(WHOLE)[:-100], "cut short: the gzip stream does not end"),
    "damaged gzip": (gzip.compress(WHOLE)[:-8] + b"12345678", "damaged gzip"),
    "broken gzip": (gzip.compress(WHOLE)[:20] + b"\xff" * 100, "damaged gzip"),
    "no events": (b'{"a": 1}', 'no list of "traceEvents"'),
    "events in no list": (b'{"traceEvents": {"ts": 1}}', 'no list of "traceEvents"'),
    "null events": (b'{"traceEvents": null}', 'no list of "traceEvents"'),
}


@pytest.mark.parametrize(("content", "said"), BAD.values(), ids=BAD.keys())
def test_bad_files_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    for reader in (read, load_events):
        with pytest.raises(TraceError) as raised:
            reader(path)
        message = str(raised.value)
        assert message.startswith(f"{path}: ") and "\n" not in message
        if reader is read:
            assert said in message


@pytest.mark.parametrize("bare", [True, False])
def test_a_file_cut_anywhere(tmp_path: Path, small_pieces: None, bare: bool) -> None:
    events = [kernel(i, 1, 'a}, {"b') for i in range(3)]
    whole = json.dumps(events if bare else {"traceEvents": events, "traceName": "t"}).encode()
    path = tmp_path / "t.json"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(TraceError):
            read(path)
    path.write_bytes(whole)
    assert len(read(path)) == 3


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "no.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(TraceError, match=f"cannot be read: {said}"):
            read(path)


def test_load_events_keeps_all_of_an_event(tmp_path: Path) -> None:
    events = [{**kernel(1, 2), "bp": "e"}, {"ph": "M", "args": {"labels": "GPU 0"}}]
    assert load_events(write(tmp_path / "t.json", events)) == events
