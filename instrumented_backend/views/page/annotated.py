"""Files by the time that was lost in them, each as its source with what was seen on each line."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from markupsafe import Markup, escape

from instrumented_backend.records import FileRecord, LineRecord, MissingRecord, Report
from instrumented_backend.records.escapes import shown
from instrumented_backend.units import duration
from instrumented_backend.views.page.texts import Reading, source_of
from instrumented_backend.views.words import count, short_path

MAX_LINES = 20_000  # with something to tell: no more are written
MAX_WIDTH = 1_000  # characters of one line
WHOLE = 300  # lines of a file that is shown whole
AROUND = 12  # lines shown before and after one with something to tell, in longer files
MAX_OPS = 6  # names of ops in what is told of a line


@dataclass
class ShownLine:
    """A line as it is drawn. ``code`` is highlighted; ``states`` are "captured", "eager", ..."""

    number: int
    code: Markup
    record: LineRecord | None = None
    states: list[str] = field(default_factory=list)
    marks: str = ""
    eager: list[MissingRecord] = field(default_factory=list)
    title: str = ""
    skipped: int = 0  # lines between the one above and this one
    is_target: bool = False  # something else on the page leads here


@dataclass
class ShownFile:
    """A file with its lines; sums over all of them, of which those with no text have their own."""

    name: str
    path: str
    anchor: str
    records: list[LineRecord]
    lines: list[ShownLine] = field(default_factory=list)
    said: str | None = None  # why there is no source

    @property
    def lost_us(self) -> float:
        """In eager ops, and in recompiling what begins here."""
        return sum((one.eager_time_us or 0.0) + 1e6 * one.recompile_s for one in self.records)

    @property
    def eager_us(self) -> float:
        return sum(one.eager_time_us or 0.0 for one in self.records)

    @property
    def recompile_s(self) -> float:
        return sum(one.recompile_s for one in self.records)

    @property
    def captured_ops(self) -> int | None:
        known = [one.captured_ops for one in self.records if one.captured_ops is not None]
        return sum(known) if known else None

    @property
    def eager_ops(self) -> int | None:
        known = [one.eager_ops for one in self.records if one.eager_ops is not None]
        return sum(known) if known else None

    @property
    def most_us(self) -> float:
        """Of one line."""
        return max((one.eager_time_us or 0.0 for one in self.records), default=0.0)

    @property
    def breaks(self) -> int:
        return sum(len(one.breaks) for one in self.records)

    @property
    def recompiles(self) -> int:
        return sum(one.recompiles for one in self.records)


def shown_files(report: Report, prefix: str, reading: Reading | None) -> list[ShownFile]:
    """Files by the time lost in them, most first; what is on no known line comes last.

    Without ``reading``, no source.
    """
    by_file: defaultdict[str | None, list[LineRecord]] = defaultdict(list)
    for record in report.lines[:MAX_LINES]:
        by_file[record.file].append(record)
    eager: defaultdict[tuple[str | None, int | None], list[MissingRecord]] = defaultdict(list)
    for missed in report.ops.missing:
        eager[missed.file, missed.line].append(missed)
    known = {record.file: record for record in report.files}
    targets = _targets(report)
    files = []
    for number, (file, records) in enumerate(by_file.items()):
        if file is None:
            if not any(map(_tells_something, records)):
                continue
            shown_file = ShownFile("no known line", "", f"{prefix}f-none", records)
            shown_file.said = "ops of threads without a frame of the program's, and library kernels"
        else:
            shown_file = ShownFile(short_path(file, None), file, f"{prefix}f{number}", records)
        files.append(shown_file)
    files.sort(key=lambda each: (not each.path, -each.lost_us, -(each.captured_ops or 0)))
    for each in files:  # in this order: room and colours are for the first
        if each.path:
            entry = known.get(each.path, FileRecord(each.path))
            _add_lines(each, entry, eager, targets[each.path], reading)
    return files


def _targets(report: Report) -> defaultdict[str | None, set[int]]:
    """Lines where no op was seen, and which tables and breaks name."""
    places = [(graph.file, graph.line) for graph in report.graphs]
    places += [(one.file, one.line) for one in report.compiled]
    for broken in report.breaks:
        places.append((broken.called_file, broken.called_line))
        places += [(skipped.file, skipped.line) for skipped in broken.skipped]
    targets: defaultdict[str | None, set[int]] = defaultdict(set)
    for file, line in places:
        if file is not None and line is not None:
            targets[file].add(line)
    return targets


def _tells_something(record: LineRecord) -> bool:
    return bool(states(record) or record.kernels)


def _add_lines(
    file: ShownFile,
    entry: FileRecord,
    eager: dict[tuple[str | None, int | None], list[MissingRecord]],
    targets: set[int],
    reading: Reading | None,
) -> None:
    source, why = source_of(entry, reading) if reading else (None, "left out: --no-source")
    file.said = why
    records = {record.line: record for record in file.records if record.line is not None}
    code = {} if source is None or reading is None else _drawn_lines(source, reading)
    length = 0 if source is None else len(source)
    targets = {line for line in targets if line <= length}
    wanted = _wanted([*records, *targets], length) if source is not None else sorted(records)
    above = 0
    for number in wanted:
        record = records.get(number)
        line = ShownLine(number, code.get(number, Markup("")), record)
        line.skipped = number - above - 1 if source is not None else 0
        line.is_target = number in targets
        if record is not None:
            line.eager = eager.get((file.path, number), [])
            line.states = states(record)
            line.marks = "".join(_MARKS[state] for state in line.states)
            line.title = told(record, line.eager)
        file.lines.append(line)
        above = number


def _wanted(lines: list[int], length: int) -> list[int]:
    """The lines of a file that are shown."""
    if length > WHOLE:
        near = {
            at for line in lines for at in range(line - AROUND, line + AROUND + 1) if at <= length
        }
        return sorted(at for at in near if at > 0)
    return sorted({*range(1, length + 1), *lines})


_MARKS = {"captured": "C", "eager": "E", "broken": "B", "recompiled": "R"}


def states(record: LineRecord) -> list[str]:
    """What a line is: captured, eager, both; broken or recompiled here."""
    found = []
    if record.captured_ops or record.called:
        found.append("captured")
    if record.eager_ops or record.eager_time_us:
        found.append("eager")
    if record.breaks:
        found.append("broken")
    if record.recompiles or record.guards:
        found.append("recompiled")
    return found


def told(record: LineRecord, eager: Sequence[MissingRecord]) -> str:
    """What there is to say of a line, in one sentence."""
    parts = []
    if record.captured_ops:
        names = ", ".join(list(record.called)[:MAX_OPS])
        parts.append(f"{count(record.captured_ops, 'op')} captured{f' ({names})' if names else ''}")
    elif record.called:
        parts.append(f"in a graph that was not called: {', '.join(list(record.called)[:MAX_OPS])}")
    if record.eager_ops:
        names = ", ".join(one.op for one in eager[:MAX_OPS])
        time = duration(record.eager_time_us or 0.0)
        spread = record.eager_ops_spread
        words = count(record.eager_ops, "eager op", spread)
        parts.append(f"{words}, {time}{f' ({names})' if names else ''}")
    if record.breaks:
        parts.append("the graph breaks here")
    if record.recompiles:
        parts.append(f"recompiled {count(record.recompiles, 'time')}")
    elif record.guards:
        parts.append("a guard that failed was made here")
    return "; ".join(parts)


# --- Source -------------------------------------------------------------------------------------


def _drawn_lines(source: list[str], reading: Reading) -> dict[int, Markup]:
    """By line; in colours, if there is room for them."""
    cut = [line if len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]} …" for line in source]
    if reading.has_colours(sum(map(len, cut))):
        return _highlighted(cut)
    return {number: _drawn([("", line)]) for number, line in enumerate(cut, start=1)}


def _highlighted(cut: list[str]) -> dict[int, Markup]:
    """Text that is no Python is shown all the same."""
    from pygments.lexers import PythonLexer
    from pygments.token import STANDARD_TYPES

    lines: list[list[tuple[str, str]]] = [[]]
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens("\n".join(cut)):
        while kind not in STANDARD_TYPES:
            kind = kind.parent
        name = STANDARD_TYPES[kind]
        drawn_as = _CLASSES.get(name) or _CLASSES.get(name[:1], "")
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append((drawn_as, part))
    return {number: _drawn(parts) for number, parts in enumerate(lines, start=1)}


def _drawn(parts: list[tuple[str, str]]) -> Markup:
    drawn = []
    for name, run in groupby(parts, key=lambda part: part[0]):
        text = escape(shown("".join(part for _, part in run).expandtabs(4)))
        drawn.append(f"<i class={name}>{text}</i>" if name else str(text))
    return Markup("".join(drawn))  # what is of the program has been escaped


# Of Pygments' classes, by name or first letter: the last are of names that are defined.
_CLASSES = {"k": "k", "ow": "k", "s": "s", "m": "m", "c": "c", "nf": "f", "nc": "f", "nd": "f"}
