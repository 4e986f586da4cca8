"""The programs and outputs in the Markdown pages: found, run, compared, written anew.

    python docs/outputs.py              # run every command, write what it prints into its page
    python docs/outputs.py --check      # compare, and write nothing

A comment above a fenced block says what is in it:

    <!-- file: project.py -->                           a program, which the page's commands run
    <!-- output: INSTRUMENTED_OPS=off python project.py -->     what that command prints

A page's commands run in its order and in one folder, with its files in it; the demo, which is our
own file, in the repository. What is compared is the structure (`structure_of`): the labels and
their order, not figures, torch's own words, paths, or where a line is wrapped.
"""

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
REPOSITORY = DOCS.parent
PAGES = (REPOSITORY / "README.md", *sorted(DOCS.glob("*.md")))
# Commands that read what is there, and neither compile nor run a model.
READERS = ("trace", "show", "kernels")

_FENCED = re.compile(
    r"^(?:<!-- (?P<kind>file|output): (?P<about>.+?) -->\n)?```(?P<language>\S*)\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block. ``kind`` is "file" or "output", with the file's name or the command."""

    page: Path
    line: int
    language: str
    text: str
    kind: str | None
    about: str

    @property
    def compiles(self) -> bool:
        """Whether the command that prints it compiles something."""
        return self.kind == "output" and not set(READERS) & set(self.about.split())


def blocks_of(page: Path, text: str | None = None) -> list[Block]:
    text = page.read_text(encoding="utf-8") if text is None else text
    return [
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["language"],
            match["text"],
            match["kind"],
            match["about"] or "",
        )
        for match in _FENCED.finditer(text)
    ]


# --- Running ------------------------------------------------------------------------------------

# What a CUDA build of torch logs where there is no GPU, for one.
_TORCHS_LOG = re.compile(r"^[VDIWE]\d{4} \d\d:\d\d:.*\n", re.MULTILINE)


def split_command(command: str) -> tuple[dict[str, str], list[str]]:
    """``"A=1 python train.py"`` → ``({"A": "1"}, ["python", "train.py"])``; no comment."""
    words = shlex.split(re.sub(r"(?:^|\s)#\s.*", "", command))
    variables = {}
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return variables, words


def run(command: str, folder: Path) -> str:
    """What it prints: a program's report on stderr, or a command's stdout."""
    variables, words = split_command(command)
    is_program = words[0] == "python" and "/" not in words[1]
    demo = words[:2] == ["instrumented-backend", "demo"]
    start = [sys.executable]
    if words[0] == "instrumented-backend":
        start += ["-m", "instrumented_backend"]
    ours = [str(REPOSITORY / word) if "/" in word else word for word in words[1:]]
    environment = {
        **os.environ,
        "COLUMNS": "80",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH")))
        ),
        "INSTRUMENTED_TABLES": "summary",
        **variables,
    }
    done = subprocess.run(
        start + ours,
        cwd=REPOSITORY if demo else folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    text = done.stderr if is_program or demo else done.stdout
    text = _TORCHS_LOG.sub("", text)
    return text[text.index("instrumented: ") :] if demo else text


def printed(blocks: list[Block], folder: Path) -> Iterator[tuple[Block, str]]:
    """Write a page's files into the folder and run its commands there, in order."""
    for block in blocks:
        if block.kind == "file":
            (folder / block.about).write_text(block.text, encoding="utf-8")
        elif block.kind == "output":
            yield block, run(block.about, folder)


# --- Comparing ----------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w#])[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?")
_RULE = re.compile(r"[- ]*---[- ]*")  # below a table's header
# The tables that are no tables.
_BLOCKS = ("What broke graphs", "Functions recompiled", "What to change next")
_IN_BLOCKS = ("  met ", "  ran eagerly as a whole: ", "  size of ", "  try: ")
_PHASE = (
    "(?:dynamo|aot autograd|passes|lowering|scheduling|codegen|kernel compile|load|autotune"
    "|cudagraphs) # TIME"
)
_ROW = "(?:startup|compiling|compiled code|eager ops|data loading|Python) # %"  # of the ledger
_EXACT = "exact, the whole run observed"
_SAMPLED = "sampled, # % of the time observed(?:, ± # points)?"
# What comes from torch or from the machine, and what there may be several of, or none.
_VARYING = (
    (r"# (?:s|ms|us|µs)(?!\w)", "# TIME"),
    (r"# (?:bytes|B|KB|MB|GB)(?![\w/])", "# SIZE"),
    (rf"{_PHASE}(?:, {_PHASE})*", "PHASES"),
    (r"^(graph break at \S+ in \S+:) .*", r"\1 ..."),
    (r"^(ran eagerly: \S+ \S+:) .*", r"\1 ..."),
    (r"^(next:) .*: at most # TIME \(# %.*", r"\1 ..."),
    (r"^(next:) INSTRUMENTED_TABLES=summary,.*", r"\1 ..."),
    (r"^missed \S+ at \S+ ", "missed OP at PLACE "),
    (r"(?<=of op time, )#(?: ± #)? calls?$", "# calls"),
    (r"^\w+: faster than .*", "faster than memory"),
    (r"^\S.*(?=: copies # GB/s)", "DEVICE"),
    (r"(?<=^torch #).*, Python #, .*(?=, # threads$)", ", Python #, DEVICE"),
    (r"^/\S+:", "PATH:"),
    (rf"^# TIME: {_ROW}(?: · {_ROW})*$", "# TIME: ROWS"),
    (rf"(op time \(# %\)|captured #/# ops \(# %\)) · (?:{_EXACT}|{_SAMPLED})", r"\1 · CERTAINTY"),
    (r" \S+\.log, what compilers and operators printed$", ""),  # where any did
)
_OPTIONAL = ("missed ", "faster than ")  # an op with 1 % of the time; data that fit in a cache


def structure_of(text: str) -> list[str]:
    """The labels in what is printed, a line for each line before it is wrapped."""
    lines: list[str] = []
    for paragraph in text.strip("\n").split("\n\n"):
        if paragraph.startswith(_BLOCKS):
            lines += _structure_of_blocks(paragraph.splitlines())
        else:
            lines += _structure_of_lines(paragraph.splitlines())
        lines.append("")
    return lines[:-1]


def _structure_of_blocks(lines: list[str]) -> Iterator[str]:
    """Headlines, and what is said of each; not the words, which are torch's, nor their rests.

    In the order of the alphabet, but for the title and what to do next: what costs most is first
    there, and which that is differs from run to run.
    """
    blocks: list[list[str]] = []
    for line in lines:
        label = next((label for label in _IN_BLOCKS if line.startswith(label)), None)
        if label is not None:
            said = label in ("  met ", "  size of ")
            plain = _plain(line if said else label)
            blocks[-1].append(plain.replace("# eager ops, # TIME", "# eager ops"))
        elif not line.startswith(" "):
            blocks.append([_plain(re.split(r"(?<=^next: )|(?<=: recompiled )", line)[0])])
    title, *others = blocks
    others.sort(key=lambda block: (block[0].startswith("next:"), block))
    for block in (title, *others):
        yield from block


def _structure_of_lines(lines: list[str]) -> Iterator[str]:
    """A table's words in the order of the alphabet: cells wrap as the figures beside them do."""
    rule = next((i for i, line in enumerate(lines) if _RULE.fullmatch(line)), None)
    if rule is not None:
        first, last = rule, rule + 1
        while (first and lines[first - 1][:1] in ("", " ")) or _is_header(lines, first):
            first -= 1
        while last < len(lines) and len(_NUMBER.findall(lines[last])) > 1 and "  " in lines[last]:
            last += 1
        yield from _structure_of_lines(lines[:first])
        words = set(_plain(" ".join(lines[first:last])).split())
        yield " ".join(sorted(word for word in words if re.search(r"[^-#x.]", word)))
        lines = lines[last:]
    previous = None
    for line in _unwrapped(lines):
        plain = _plain(line)
        if plain != previous:
            yield plain
        previous = plain


def _is_header(lines: list[str], line: int) -> bool:
    """Whether the line above is the table's, and not its title."""
    return line > 0 and re.search(r"\S {2,}\S", lines[line - 1]) is not None


def _plain(line: str) -> str:
    line = _NUMBER.sub("#", line)
    for pattern, replacement in _VARYING:
        line = re.sub(pattern, replacement, line)
    return line


def _unwrapped(lines: list[str]) -> Iterator[str]:
    """The rest of a line is indented."""
    joined = ""
    for line in lines:
        if joined and line.startswith("  "):
            joined = f"{joined} {line.strip()}"
        else:
            if joined:
                yield joined
            joined = line
    if joined:
        yield joined


def difference(block: Block, now: str) -> str:
    """Empty where the structures are equal."""
    documented, printed_now = structure_of(block.text), structure_of(now)
    for kind in _OPTIONAL:
        if not _has(documented, kind) or not _has(printed_now, kind):
            documented, printed_now = _without(documented, kind), _without(printed_now, kind)
    return "\n".join(
        difflib.unified_diff(
            documented,
            printed_now,
            f"{block.page.name}:{block.line}",
            f"$ {block.about}",
            lineterm="",
        )
    )


def _has(lines: list[str], kind: str) -> bool:
    return any(line.startswith(kind) for line in lines)


def _without(lines: list[str], kind: str) -> list[str]:
    return [line for line in lines if not line.startswith(kind)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write what the commands print into the pages.")
    parser.add_argument("pages", nargs="*", type=Path, help="Only these. [default: all]")
    parser.add_argument("--check", action="store_true", help="Compare, and write nothing.")
    options = parser.parse_args()
    differences = []
    # Kept between runs, so that little is recompiled; its name is not for the pages.
    cache = os.path.join(tempfile.gettempdir(), "instrumented_backend_docs")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    for page in options.pages or PAGES:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for block, now in printed(blocks_of(page), Path(folder)):
                differences.append(difference(block, now))
                now = now.replace(cache, "/tmp/torchinductor_me").strip("\n") + "\n"
                text = text.replace(f"\n{block.text}```", f"\n{now}```", 1)
        if not options.check:
            page.write_text(text, encoding="utf-8")
    print("\n".join(filter(None, differences)))
    sys.exit(options.check and any(differences))


if __name__ == "__main__":
    main()
