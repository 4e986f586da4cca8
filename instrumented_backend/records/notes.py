"""Notes: a text for the reader, and a code for the code that has to know what the text is about.

The codes stand here and nowhere else. They are written to files: a new one may be added, none may
change its meaning. They are plain text and no enum, because records are packed by `marshal`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import zip_longest

# --- Of a report --------------------------------------------------------------------------------

LOST = "lost"  # an observer of ours failed
OPS_UNKNOWN = "ops-unknown"  # eager ops were not watched
GPU_UNKNOWN = "gpu-unknown"  # where the time of the GPUs went
CAPTURED_UNKNOWN = "captured-unknown"  # the ops in graphs could not be counted
OPS_UNACCOUNTED = "ops-unaccounted"  # seconds of the run that the windows don't explain
OPS_TOO_MANY_NAMES = "ops-too-many-names"
NOT_LISTED = "not-listed"  # counted, but beyond the number of records that are kept
NOT_WATCHED = "not-watched"  # the program switched off what we listen to
NOT_PARSED = "not-parsed"  # kernels that are known by their names only
SLOWER = "slower"  # a native part is missing, and Python does its work
NOT_KEPT = "not-kept"  # a native part is built by each process anew
GRAPH_STATS_UNKNOWN = "graph-stats-unknown"
PART = "part"  # of a run: what is not known of it
ORIGINS_NOT_KEPT = "origins-not-kept"  # a later, warm run will not know the kernels' origins

# --- Of a kernel --------------------------------------------------------------------------------

BYTES_ESTIMATED = "bytes-estimated"  # and what the estimate leaves out or counts more than once
BYTES_AT_HINTS = "bytes-at-hints"  # at the sizes that the graph was compiled with
BYTES_UNKNOWN = "bytes-unknown"
PARTS_UNKNOWN = "parts-unknown"  # read and written bytes; their sum is known
FLOPS_UNKNOWN = "flops-unknown"
CATEGORY_UNKNOWN = "category-unknown"
COUNTS_DIFFER = "counts-differ"  # loads and stores: in the body, and by Inductor's count
COUNTS_UNKNOWN = "counts-unknown"
COUNTED_WITH_IT = "counted-with-it"  # functions of its sub-kernels
CALLS_UNKNOWN = "calls-unknown"
CALL_TOO_SHORT = "call-too-short"  # fewer arguments than parameters
SEVERAL_SIZES = "several-sizes"
CHOOSES = "chooses"  # a multi-kernel: which of them runs is known at run time only
FIGURES_OF_CHOICE = "figures-of-choice"
LAUNCHED_BY_CHOICE = "launched-by-choice"  # if at all, by a multi-kernel
TIME = "time"  # which launches the time is of
TIME_UNKNOWN = "time-unknown"  # of an extern call, though windows saw its graph
PEAK_UNKNOWN = "peak-unknown"

ABOUT_BYTES = frozenset({BYTES_ESTIMATED, BYTES_AT_HINTS, BYTES_UNKNOWN})

# --- Of a benchmark -----------------------------------------------------------------------------

UNSTEADY = "unsteady"
FROM_CACHE = "from-cache"  # faster than memory
FASTER_THAN_COPY = "faster-than-copy"
TIMED_COLD = "timed-cold"  # with the launch; of releases until 0.1
TIMED_WARM = "timed-warm"  # alone, and with an empty cache it takes longer
TIMED_BY_EVENTS = "timed-by-events"  # with the gaps between launches

# --- Of breaks and of CUDA graphs ---------------------------------------------------------------

RECOMPILE_LIMIT = "recompile-limit"
NEW_SIZES = "new-sizes"
OTHER_GRAPH_BEFORE = "other-graph-before"
INPUT_MOVED = "input-moved"
OUTPUT_ALIVE = "output-alive"
OUTPUT_DEAD = "output-dead"
MUTATED_INPUTS = "mutated-inputs"

# --- Of a torch.compile: why its calls ran eagerly ----------------------------------------------

TORCHS_FRAMES = "torchs-frames"  # Dynamo skips torch's own functions
TORCHS_WRAPPER = "torchs-wrapper"  # those of a wrapper round a model, such as DDP
DISABLED = "disabled"  # by torch.compiler.disable
STANCE = "stance"  # by torch.compiler.set_stance
SWITCHED_OFF = "switched-off"  # by torch._dynamo.config.disable
GRAPH_BREAK = "graph-break"  # at which a function could not be split
NOTHING_TO_COMPILE = "nothing-to-compile"  # traced, and no op was found
NOT_COMPILABLE = "not-compilable"  # Dynamo or the backend failed, or does not support it
SKIPPED = "skipped"  # in Dynamo's own words
UNKNOWN = "unknown"

# What has no code of its own, and what older releases wrote without one.
OTHER = "other"


@dataclass(frozen=True)
class Note:
    """What is unknown, estimated or lost, and why."""

    code: str
    text: str


class Noted:
    """A record with notes: the code of ``notes[i]`` is ``note_codes[i]``.

    Two lists of text, and not one of pairs: ``notes`` was in the files before there were codes.
    """

    __slots__ = ()  # its kinds may have some

    notes: list[str]
    note_codes: list[str]

    def add_notes(self, *notes: Note) -> None:
        if len(self.note_codes) != len(self.notes):  # out of a file that has no codes, or too many
            self.note_codes[:] = [note.code for note in self.coded_notes()]
        for note in notes:
            self.notes.append(note.text)
            self.note_codes.append(note.code)

    def add_note(self, code: str, text: str) -> None:
        self.add_notes(Note(code, text))

    def coded_notes(self, codes: Collection[str] | None = None) -> list[Note]:
        """All of them, or those with one of the ``codes``."""
        pairs = zip_longest(self.notes, self.note_codes[: len(self.notes)], fillvalue=OTHER)
        return [Note(code, text) for text, code in pairs if codes is None or code in codes]

    def drop_notes(self, codes: Collection[str]) -> None:
        kept = [note for note in self.coded_notes() if note.code not in codes]
        self.notes.clear()
        self.note_codes.clear()
        self.add_notes(*kept)
