"""The events of a Chrome trace, decoded piece by piece, so that memory does not grow with the file.

msgspec decodes each event into the eight fields that are needed and skips the rest
(``benchmarks/trace_speed.py`` has the comparison that chose it). A piece is cut where one event
ends and the next begins. Whether a cut is right shows by itself: cut inside a string or an object,
a piece is no JSON, and the next cut is tried.

What no profiler writes is refused before it fills the memory: an event of more than 16 MB, nesting
beyond Python's own limit of 1,000, a gzip that expands without end. Numbers have 64 bits at most.
"""

import contextlib
import gzip
import json
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec

# The events of a piece fit a core's own cache: pieces of a megabyte take a quarter longer.
PIECE_BYTES = 1 << 17
BLOCK_BYTES = 1 << 20  # what is read at a time
MAX_EVENT_BYTES = 1 << 24  # and of what stands before the events, or after them
MAX_RATIO = 100  # of gzip: profiles reach 10 to 30
_FREE_BYTES = 1 << 25  # may come out of however little
_DIGITS = len(str(2**63))
_MAX_KEYS = 100  # of objects before the events that have a "traceEvents" of their own

_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_NO_EVENTS_KEY = 'no list of "traceEvents": not a Chrome trace'


class TraceError(Exception):
    """A file is not a trace of PyTorch's profiler: one line with the file and what is wrong."""


_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Args(msgspec.Struct, frozen=True, gc=False):
    correlation: _Int | None = None
    device: _Int | str | None = None


_NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """``ts`` and ``dur`` in µs, whatever the file's ``displayTimeUnit`` is; None: not there."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: _Int | str | None = None
    tid: _Int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Args = _NO_ARGS


class Fields(msgspec.Struct):
    """The file's own fields, which stand before the events or after them."""

    traceEvents: list[Event] | None = None
    distributedInfo: Any = None
    deviceProperties: Any = None
    schemaVersion: Any = None


# What msgspec raises for text that is not JSON, or not of these types.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)
_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_fields = msgspec.json.Decoder(Fields).decode


class EventStream:
    """Iterate over it, once, for lists of events in the file's order; raises TraceError.

    ``progress`` is told how many of the file's bytes have been read. When all events have been
    read, ``fields`` has the file's own fields, and ``malformed`` counts the events that were left
    out: no objects, or a field of theirs is of another type than in any profile. ``second_list``:
    the file has a second "traceEvents", which is left out.
    """

    def __init__(self, path: Path, progress: Callable[[int], None] | None = None) -> None:
        self.path = path
        self.fields = Fields()
        self.malformed = 0
        self.second_list = False
        self._progress = progress

    def __iter__(self) -> Iterator[list[Event]]:
        with _opened(self.path) as file:
            yield from self._pieces(file)

    def _pieces(self, file: IO[bytes]) -> Iterator[list[Event]]:
        stream = _uncompressed(file)
        opening, text = self._opening(stream)
        # Events are decoded where they were read to; before `start` there is always one byte.
        buffer = bytearray(max(BLOCK_BYTES, 2 * len(text)))
        start, filled, size = 1, 1 + len(text), PIECE_BYTES
        buffer[start:filled] = text
        while True:
            boundary = _BOUNDARY.search(buffer, start + size, filled)
            if boundary is None:
                rest = buffer[start:filled]
                if len(rest) > MAX_EVENT_BYTES + size:
                    raise self._too_large()
                if 2 * len(rest) >= len(buffer):
                    buffer = bytearray(2 * len(buffer) + 2)
                start, filled = 1, 1 + len(rest)
                buffer[start:filled] = rest
                count = stream.readinto(memoryview(buffer)[filled:])  # type: ignore[attr-defined]
                if not count:
                    break
                filled += count
                if self._progress is not None:
                    self._progress(file.tell())
                continue
            cut = boundary.start() + 1
            behind = buffer[cut]
            buffer[start - 1], buffer[cut] = b"[]"
            events = self._whole_events(memoryview(buffer)[start - 1 : cut + 1])
            if events is None:  # the cut was inside an event, or behind the last one
                buffer[cut] = behind
                size *= 2
                if size > MAX_EVENT_BYTES:
                    raise self._too_large()
                continue
            yield events
            del events  # so that the next piece gets the same memory, still in the cache
            start, size = boundary.end() - 1, PIECE_BYTES
        yield self._last_events(opening + buffer[start:filled])

    def _opening(self, stream: IO[bytes]) -> tuple[bytes, bytes]:
        """What stands before the events, and what has been read from there on."""
        text = stream.read(PIECE_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
        if not text:
            raise TraceError(f"{self.path}: empty file")
        if text.startswith(b"["):
            return b"[", text[1:]
        if not text.startswith(b"{"):
            raise TraceError(f"{self.path}: not JSON")
        searched = tried = 0
        while True:
            for key in _EVENTS_KEY.finditer(text, searched):
                tried += 1
                if tried > _MAX_KEYS:
                    raise TraceError(f"{self.path}: {_NO_EVENTS_KEY}")
                header = _tolerant(text[: key.end()] + b"]}")
                if header is not None:  # else the key is inside another object
                    self._keep_fields(header)
                    return b'{"traceEvents":[', text[key.end() :]
                searched = key.end()
            more = stream.read(len(text))
            if not more:
                return b"", text
            text += more
            if len(text) > 2 * MAX_EVENT_BYTES:
                raise TraceError(f"{self.path}: {_NO_EVENTS_KEY}")

    def _too_large(self) -> TraceError:
        return TraceError(
            f"{self.path}: an event of more than {MAX_EVENT_BYTES >> 20} MB, or not JSON"
        )

    def _whole_events(self, text: memoryview) -> list[Event] | None:
        """None if it is not JSON."""
        try:
            return _decode_events(text)
        except _UNREADABLE:
            values = _tolerant(bytes(text))
            return None if values is None else self._as_events(values)

    def _last_events(self, text: bytes) -> list[Event]:
        """The events that remain, with all that follows them in the file."""
        said = "it ends inside an event"
        try:
            if text.startswith(b"["):
                return _decode_events(text)
            # Of two lists, msgspec would take the last, and the events of the first are half read.
            if text.count(b'"traceEvents"') < 2:
                fields = _decode_fields(text)
                self._keep_fields(msgspec.structs.asdict(fields))
                if fields.traceEvents is None:
                    raise TraceError(f"{self.path}: {_NO_EVENTS_KEY}")
                return fields.traceEvents
        except _UNREADABLE as error:
            said = str(error)
        lists: list[Any] = []

        def first_list(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            lists[:] = [value for key, value in pairs if key == "traceEvents"]
            return dict(pairs) | ({"traceEvents": lists[0]} if lists else {})

        values = _tolerant(text, first_list)
        if values is None:
            raise TraceError(f"{self.path}: not JSON, or cut short: {said}")
        if isinstance(values, dict):
            self.second_list = len(lists) > 1  # of the object that ended last, which is the file
            self._keep_fields(values)
            values = values.get("traceEvents")
        if not isinstance(values, list):
            raise TraceError(f"{self.path}: {_NO_EVENTS_KEY}")
        return self._as_events(values)

    def _keep_fields(self, values: dict[str, Any]) -> None:
        for name in ("distributedInfo", "deviceProperties", "schemaVersion"):
            if values.get(name) is not None:
                setattr(self.fields, name, values[name])

    def _as_events(self, values: list[Any]) -> list[Event]:
        events = []
        for value in values:
            if isinstance(value, dict):
                value = {key: part for key, part in value.items() if part is not None}
            try:
                events.append(msgspec.convert(value, Event, strict=False))
            except (msgspec.ValidationError, UnicodeEncodeError):  # a key that is half a pair
                self.malformed += 1
        return events


def load_events(path: Path) -> list[Any]:
    """All of a trace's events with all that is in them; raises TraceError."""
    with _opened(path) as file:
        text = _uncompressed(file).read()
    try:
        values = msgspec.json.decode(text)
    except _UNREADABLE as error:
        values = _tolerant(text)
        if values is None:
            raise TraceError(f"{path}: not JSON, or cut short: {error}") from None
    events = values.get("traceEvents") if isinstance(values, dict) else values
    if not isinstance(events, list):
        raise TraceError(f"{path}: {_NO_EVENTS_KEY}")
    return events


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open the file; whatever is wrong with it is raised as TraceError."""
    try:
        mode = _mode(path)
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise TraceError(f"{path}: not a file, but a pipe or a device")
        with path.open("rb") as file:
            yield file
    except RecursionError:
        raise TraceError(f"{path}: nested too deep, by more than 1,000") from None
    except EOFError:
        raise TraceError(f"{path}: cut short: the gzip stream does not end") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}: damaged gzip: {error}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except ValueError as error:  # no name that a file can have
        raise TraceError(f"{path}: cannot be read: {error}") from None


def _uncompressed(file: IO[bytes]) -> IO[bytes]:
    """The file itself, or what its gzip holds."""
    is_gzip = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return _Gzip(file) if is_gzip else file  # type: ignore[return-value]


class _Gzip(gzip.GzipFile):
    """Ends what expands without end, before it has been read."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(fileobj=file)
        self._file = file

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))
        data = super().read(size)
        if self.tell() > _FREE_BYTES + MAX_RATIO * self._file.tell():
            raise gzip.BadGzipFile(f"it expands to more than {MAX_RATIO} times its size")
        return data


def _tolerant(text: bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse it with Python's own reader; None if that fails, too.

    Profilers have written NaN, control characters, and names that are not UTF-8. A whole number of
    more than 64 bits becomes its text, which no figure is.
    """
    try:
        return json.loads(
            text.decode("utf-8", "replace"), strict=False, parse_int=_int, object_pairs_hook=pairs
        )
    except ValueError:
        return None


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) < _DIGITS else digits
