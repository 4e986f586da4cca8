"""What the Markdown pages say of commands, variables, files and places: checks that find mistakes.

Each returns complaints, a line each; none where all is well.
"""

import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
from outputs import DOCS, PAGES, blocks_of, split_command
from paths import BENCHMARKS, REPOSITORY

from instrumented_backend import settings
from instrumented_backend.commands import cli

README = REPOSITORY / "README.md"
HOW_IT_WORKS = DOCS / "how-it-works.md"
CHECKED = (
    *PAGES,
    REPOSITORY / "CONTRIBUTING.md",
    BENCHMARKS / "results" / "README.md",
    BENCHMARKS / "operator_inputs" / "README.md",
)
# The reader's own, and PyTorch's.
EXAMPLES = frozenset(
    {"train.py", "module.py", "graph.py", "my_model.txt", "rows.json", "trace.json.gz"}
    | {"report.rank0.pid17.json", "operator_inp_utils.py", "operatorbench.py"}
)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"(?!\.)[\w./-]*\w\.(?:py|cpp|md|svg|json|toml|txt|xz|gz)|[\w./-]+/")
_SHELL = ("cd", "grep", "pip", "pre-commit", "python3", "sphinx-build", "source", ".")


def without_fences(text: str) -> str:
    return _FENCE.sub("", text)


# --- Variables ----------------------------------------------------------------------------------


def variables_in(readme: str) -> dict[str, tuple[str, set[str]]]:
    """``{name: (default, choices)}`` out of the table; an unset one's default is empty."""
    found = {}
    for name, default, choices in re.findall(
        r"^\| `([A-Z_]+)` \| ([^|]*) \| ([^|]*) \|", readme, re.M
    ):
        default = default.strip("` ")
        found[name] = "" if default == "unset" else default, set(_INLINE.findall(choices))
    return found


def choices_of(variable: settings.Variable) -> set[str]:
    """What the message for a wrong value offers; nothing for a folder."""
    if variable.name == "TORCHINDUCTOR_ENABLED_METRIC_TABLES":
        return set(settings.METRIC_TABLES)  # the message has those of this process, too
    try:
        variable.read("/dev/null/?")
    except ValueError as error:
        offered = re.search(r"choose (?:one of|from) (.*)", str(error))
        return set(re.split(r",? or |, (?:or )?", offered[1])) if offered else set()
    raise AssertionError(f"{variable.name} takes anything")


def complaints_about_variables(text: str) -> list[str]:
    """Of all that look like ours, and of values that some are given."""
    known = {variable.name for variable in settings.VARIABLES}
    named = set(re.findall(r"\b(?:INSTRUMENTED|TORCHDYNAMO_PRINT)_[A-Z_]+\b", text))
    complaints = [f"{name}: no such variable" for name in sorted(named - known)]
    for name, value in re.findall(r"\b(INSTRUMENTED_[A-Z_]+)=([\w,]+)", text):
        complaints += _wrong_value(name, value)
    return complaints


def _wrong_value(name: str, value: str) -> list[str]:
    if name == "INSTRUMENTED_DIR":
        return []
    try:
        settings.load({name: value})
    except settings.SettingsError as error:
        return [str(error)]
    return []


# --- Commands -----------------------------------------------------------------------------------


def commands_in(page: Path, text: str) -> Iterator[str]:
    """Those in blocks of commands, in indented lines, in comments above outputs, in the text."""
    for block in blocks_of(page, text):
        if block.language == "bash":
            yield from block.text.splitlines()
        if block.kind == "output":
            yield block.about
    plain = without_fences(text)
    for line in re.findall(r"^ {4}(\S.*)", plain, re.M):
        yield from re.split(r" && | \| ", line)
    for code in _INLINE.findall(plain):
        if re.match(r"(?:[A-Z_]+=\S+ )*(?:instrumented-backend|python|pytest) ", code):
            yield code


def complaints_about_commands(page: Path, text: str) -> list[str]:
    files = {block.about for block in blocks_of(page, text) if block.kind == "file"}
    return [
        f"{command}: {complaint}"
        for command in commands_in(page, text)
        for complaint in _complaints(command, files)
    ]


def _complaints(command: str, files: set[str]) -> list[str]:
    try:
        variables, words = split_command(command.rstrip("\\"))
    except ValueError:
        return []  # a pattern for grep, cut at its bars
    wrong = [text for name, value in variables.items() for text in _wrong_value(name, value)]
    program, arguments = (words[0], words[1:]) if words else ("", [])
    if [program, *arguments[:2]] == ["python", "-m", "instrumented_backend"]:
        program, arguments = "instrumented-backend", arguments[2:]
    if program == "instrumented-backend":
        return wrong + _of_ours(arguments)
    if program == "python":
        return wrong + _of_a_script(arguments, files)
    if program == "pytest":
        paths = [word for word in arguments if "/" in word]
        return wrong + [f"no {path}" for path in paths if not (REPOSITORY / path).exists()]
    if program == "pip":
        return wrong + _of_extras(arguments)
    return wrong if program in _SHELL or not program else [*wrong, f"{program} is not known"]


def _of_ours(arguments: list[str]) -> list[str]:
    name = arguments[0] if arguments else ""
    command = cli.commands.get(name)
    if command is None:
        return [] if name in ("", "...") else [f"no command {name}"]
    if not arguments[1:]:
        return []  # its name alone
    try:
        command.make_context(name, arguments[1:])
    except click.UsageError as error:
        return [error.format_message()]
    return []


def _of_a_script(arguments: list[str], files: set[str]) -> list[str]:
    if not arguments or arguments[0] == "-m":
        return []  # as python -m does
    script, options = arguments[0], [word for word in arguments[1:] if word.startswith("-")]
    if "/" not in script:
        known = script in files | EXAMPLES or script.isupper()
        return [] if known else [f"no page has {script}"]
    path = REPOSITORY / script
    if not path.exists():
        return [f"no {script}"]
    source = path.read_text()
    offered = set(re.findall(r"""["/ ](--?[a-z][\w-]*)""", source))
    return [f"no option {option}" for option in options if option not in offered]


def _of_extras(arguments: list[str]) -> list[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = [name for word in arguments for name in re.findall(r"\[([\w,]+)\]", word)]
    return [
        f"no extra {name}"
        for names in asked
        for name in names.split(",")
        if name not in project["optional-dependencies"]
    ]


# --- Links and files ----------------------------------------------------------------------------


def anchors_of(text: str) -> set[str]:
    """As GitHub makes them of the headings."""
    headings = re.findall(r"^#+ (.*)$", without_fences(text), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def complaints_about_links(page: Path, text: str) -> list[str]:
    complaints = []
    for target in _LINK.findall(without_fences(text)):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file
        if not path.exists():
            complaints.append(f"{target}: no such file")
        elif anchor and anchor not in anchors_of(path.read_text() if file else text):
            complaints.append(f"{target}: no such heading")
    return complaints


@functools.cache
def our_paths() -> frozenset[str]:
    """Of files and, with a slash at the end, of folders; and every ending of each."""
    folders = ("benchmarks", "docs", "instrumented_backend", "tests")
    paths = [path for path in REPOSITORY.iterdir() if path.is_file()]
    paths += [path for folder in folders for path in (REPOSITORY / folder).rglob("*")]
    names = set()
    for path in paths:
        parts = path.relative_to(REPOSITORY).parts
        end = "/" if path.is_dir() else ""
        names |= {"/".join(parts[i:]) + end for i in range(len(parts))}
    return frozenset(names | {f"{folder}/" for folder in folders})


def complaints_about_files(page: Path, text: str) -> list[str]:
    files = {block.about for block in blocks_of(page, text) if block.kind == "file"}
    named = {code for code in _INLINE.findall(without_fences(text)) if _FILE.fullmatch(code)}
    # Of a folder's page, relative to it.
    ours = our_paths() | {path.name for path in page.parent.iterdir()} | files | EXAMPLES
    return [f"`{name}`: no such file of ours" for name in sorted(named - ours)]


def complaints_about_blocks(page: Path, text: str) -> list[str]:
    """A block is of commands, is Python, or says what it is."""
    complaints = []
    for block in blocks_of(page, text):
        if block.language == "python":
            try:
                compile(block.text, f"{page.name}:{block.line}", "exec")
            except SyntaxError as error:
                complaints.append(f"line {block.line}: {error}")
        elif block.language == "text" and block.kind is None:
            complaints.append(f"line {block.line}: of what command is it the output?")
        elif not block.language:
            complaints.append(f"line {block.line}: a block without a language")
    return complaints


# --- How it works -------------------------------------------------------------------------------


def paths_in(text: str) -> list[list[tuple[str, str]]]:
    """The tables with a file and a name in each row."""
    tables = re.findall(r"^\| file \| name \| what happens \|\n.*\n((?:\|.*\n)+)", text, re.M)
    return [re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", table, re.M) for table in tables]


def complaints_about_paths(text: str) -> list[str]:
    complaints = []
    for rows in paths_in(text):
        for file, name in rows:
            path = REPOSITORY / file
            if not path.exists() or not re.search(rf"\b{name}\b", path.read_text()):
                complaints.append(f"{name} is not in {file}")
        if len(rows) > 6 or not rows or not rows[0][0].endswith("/backend.py"):
            complaints.append(f"not from backend.py in six files: {rows[:1]}")
    return complaints


def unnamed_modules(text: str) -> list[str]:
    """Files of the package, of Python and C++, that the text names nowhere."""
    package = REPOSITORY / "instrumented_backend"
    ends = (".py", ".cpp", ".h")
    files = [path for path in sorted(package.rglob("*")) if path.suffix in ends]
    named = {name.split("/")[-1] for name in _INLINE.findall(text)}
    return [str(path) for path in files if path.name not in {*named, "__init__.py"}]
