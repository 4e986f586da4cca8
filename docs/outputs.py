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


def split_command(command: str) -> tuple[dict[str, str], list[str]]:
    """``"A=1 python train.py"`` → ``({"A": "1"}, ["python", "train.py"])``; no comment."""
    words = shlex.split(command, comments=True)
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
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    text = done.stderr if is_program or demo else done.stdout
    return text[text.index("instrumented: ") :] if demo else text


def printed(blocks: list[Block], folder: Path) -> Iterator[tuple[Block, str]]:
    """Write a page's files into the folder and run its commands there, in order."""
    for block in blocks:
        if block.kind == "file":
            (folder / block.about).write_text(block.text, encoding="utf-8")
        elif block.kind == "output":
            yield block, run(block.about, folder)


# --- Comparing ----------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w#])[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
_PARAGRAPHS_OF_BLOCKS = ("What broke graphs", "Functions compiled again")
# What comes from torch, or from the machine, where the program prints it.
_NOT_OURS = (
    (re.compile(r"^(graph break at \S+ in \S+:) .*"), r"\1 ..."),
    (re.compile(r"^(ran eagerly: \S+ \S+:) .*"), r"\1 ..."),
    (re.compile(r"^(  ran eagerly as a whole: \S+ \S+:) .*"), r"\1 ..."),
    (re.compile(r"^(next: start with \S+ \S+:) .*"), r"\1 ..."),
    (re.compile(r"^missed \S+ at \S+"), "missed OP at PLACE"),
    (re.compile(r"^\S.*(?=: copies # GB/s)"), "DEVICE"),
    (re.compile(r"^/\S+:"), "PATH:"),
    (re.compile(r"# (?:s|ms|µs)(?!\w)"), "# TIME"),
    # Phases, longest first.
    (re.compile(r"(?:[a-z][a-z ]* # TIME(?: \(# %\))?, )*[a-z][a-z ]* # TIME(?=\)| \(# %\)$)"), "PHASES"),
)


def structure_of(text: str) -> list[str]:
    """A line for each that the program prints, before it wraps them: the labels, in order."""
    lines: list[str] = []
    for paragraph in text.strip("\n").split("\n\n"):
        lines += _structure_of(paragraph.splitlines(), paragraph.startswith(_PARAGRAPHS_OF_BLOCKS))
        lines.append("")
    return lines[:-1]


def _structure_of(lines: list[str], in_blocks: bool) -> Iterator[str]:
    previous = None
    for line in _unwrapped(lines, in_blocks):
        plain = _NUMBER.sub("#", line)
        if in_blocks and not plain.startswith(("  met", "  ran eagerly", "  try", "  size of")):
            plain = "  ..." if plain.startswith(" ") else plain
        for pattern, replacement in _NOT_OURS:
            plain = pattern.sub(replacement, plain)
        if in_blocks and plain.startswith("  try: "):
            plain = "  try: ..."
        plain = re.sub(r"(?<=\S) {2,}", " ", re.sub(r"-{3,}", "", plain)).rstrip()
        if plain and plain != previous:
            yield plain
        previous = plain


def _unwrapped(lines: list[str], in_blocks: bool) -> Iterator[str]:
    """In blocks, what is said of one is indented by 2, and the rest of such a line by 4."""
    joined = ""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        goes_on = indent >= (4 if in_blocks and joined.startswith("  ") else 2)
        starts_block = in_blocks and indent == 2
        if joined and goes_on and not starts_block:
            joined = f"{joined} {line.strip()}"
        else:
            if joined:
                yield joined
            joined = line
    if joined:
        yield joined


def difference(block: Block, now: str) -> str:
    """Empty where the structures are equal."""
    return "\n".join(
        difflib.unified_diff(
            structure_of(block.text),
            structure_of(now),
            f"{block.page.name}:{block.line}",
            f"$ {block.about}",
            lineterm="",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write what the commands print into the pages.")
    parser.add_argument("pages", nargs="*", type=Path, help="Only these. [default: all]")
    parser.add_argument("--check", action="store_true", help="Compare, and write nothing.")
    options = parser.parse_args()
    differences = []
    # Kept between runs, so that little is compiled again; its name is not for the pages.
    cache = os.path.join(tempfile.gettempdir(), "instrumented_backend_docs")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    for page in options.pages or PAGES:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for block, now in printed(blocks_of(page), Path(folder)):
                differences.append(difference(block, now))
                now = now.replace(cache, "/tmp/torchinductor_me").strip("\n") + "\n"
                text = text.replace(block.text, now)
        if not options.check:
            page.write_text(text, encoding="utf-8")
    print("\n".join(filter(None, differences)))
    sys.exit(options.check and any(differences))


if __name__ == "__main__":
    main()
