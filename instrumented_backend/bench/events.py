"""What the process that runs generated code is asked, and what it tells: a line of JSON each."""

from typing import TypeAlias

from msgspec import Struct, json, to_builtins

from instrumented_backend.records.bench import BenchRecord, Peak, Timing
from instrumented_backend.records.escapes import without_surrogates

# --- Requests -----------------------------------------------------------------------------------


class PeakRequest(Struct, tag="peak"):
    """Measure the memory bandwidth of a kind of device."""

    device: str


class ModuleRequest(Struct, tag="module"):
    """Time the kernels of a module; ``resume`` and ``skip`` are numbers of launches."""

    kind: str  # "graph" or "kernel"
    path: bytes  # as the file system has it
    device: str
    all_configs: bool
    without_autotune_cache: bool
    profile: bool
    memory_limit_bytes: int | None
    resume: int
    skip: list[int]


Request: TypeAlias = PeakRequest | ModuleRequest


# --- Events -------------------------------------------------------------------------------------


class PeakMeasured(Struct, tag="peak"):
    peak: Peak


class DeviceMissing(Struct, tag="no device"):
    error: str


class Ready(Struct, tag="ready"):
    """The module is loaded."""


class Begin(Struct, tag="begin"):
    """``number`` is a launch's; None for what is timed besides launches."""

    number: int | None
    name: str


class Rows(Struct, tag="row"):
    """One launch is done; more records than one are its configurations."""

    number: int
    name: str
    records: list[BenchRecord]


class Calls(Struct, tag="calls"):
    """How often one call of the graph makes each launch."""

    calls: dict[int, int]


class WholeCall(Struct, tag="call"):
    timing: Timing


class InPlace(Struct, tag="in place"):
    """Times of launches, by their numbers, in calls of the whole graph."""

    timings: dict[int, Timing]


class Profile(Struct, tag="profile"):
    text: str


class Failed(Struct, tag="failed"):
    """The rest of the module cannot be timed."""

    error: str


class End(Struct, tag="end"):
    pass


class Gone(Struct, tag="gone"):
    """The process is not there any more; said by the parent, of a child that said no `End`."""

    error: str


Event: TypeAlias = (
    PeakMeasured
    | DeviceMissing
    | Ready
    | Begin
    | Rows
    | Calls
    | WholeCall
    | InPlace
    | Profile
    | Failed
    | End
    | Gone
)

_EVENTS: json.Decoder[Event] = json.Decoder(Event)
_REQUESTS: json.Decoder[Request] = json.Decoder(Request)


def to_line(message: Request | Event) -> str:
    try:
        line = json.encode(message)
    except UnicodeEncodeError:  # of an error's text: it is shown, and no more
        line = json.encode(without_surrogates(to_builtins(message)))
    return line.decode()


def read_request(text: str) -> Request:
    return _REQUESTS.decode(text)


def read_event(line: str) -> Event:
    """Raises msgspec.DecodeError."""
    return _EVENTS.decode(line)
