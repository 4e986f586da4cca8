"""The layout of the package: who may import whom, in one direction, and how long modules may be."""

import ast
import re
from collections.abc import Iterable, Mapping

from paths import BENCHMARKS, DATA, REPOSITORY, TESTS

PACKAGE = REPOSITORY / "instrumented_backend"
MAX_LINES = 450
OF_EARLIER_RELEASES = ("records/upgrade.py", "compare/baseline.py")  # who read what these wrote

# Who may import whom: folders of the package and modules beside them. "dropins.metrics" is
# that module alone. Within a folder, modules import each other as they like, but never in a circle.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # What imports nothing of ours,
    "demo": (),
    "torch_compat": (),
    "traces": (),
    "units": (),
    # what little needs little,
    "records": ("units",),
    "settings": ("records", "torch_compat"),
    "logs": ("records",),
    # what reads generated code, runs it, and watches a program,
    "kernels": ("records",),
    "bench": ("kernels", "records", "torch_compat", "traces", "units"),
    "dropins": ("bench", "kernels", "records", "settings", "torch_compat", "traces"),
    "observe": ("dropins.metrics", "kernels", "records", "torch_compat", "traces"),
    # what compares records, what draws them and nothing else,
    "compare": ("records",),
    "views": ("compare", "records", "settings", "traces.utilization", "units"),
    # and what people call.
    "backend": ("logs", "observe", "records", "settings", "torch_compat", "views"),
    "metrics": ("dropins",),
    "profiling": ("dropins", "traces"),
    "wrapper_benchmark": ("dropins",),
    "trials": ("records", "torch_compat", "units", "views"),
    "adoption": ("backend", "torch_compat", "trials"),
    "startup": (),
    "integrations": ("__init__", "views"),
    "__init__": ("adoption", "backend", "dropins", "torch_compat", "views"),
    "commands": (
        *("__init__", "adoption", "backend", "bench", "compare", "demo", "kernels", "records"),
        *("settings", "torch_compat", "traces", "trials", "views"),
    ),
    "pytest_plugin": ("__init__", "adoption", "compare", "records", "settings", "views"),
    "__main__": ("commands",),
}

Graph = Mapping[str, Iterable[str]]


def imports(modules: Mapping[str, str], package: str) -> dict[str, set[str]]:
    """What each module imports of its package, wherever in it and if for types alone.

    ``modules`` are sources by dotted names without the package's: "observe.calls",
    "observe.__init__", "__init__". So are the imports.
    """
    found: dict[str, set[str]] = {}
    for name, source in modules.items():
        found[name] = set()
        for node in ast.walk(ast.parse(source)):
            asked: list[str] = []
            if isinstance(node, ast.Import):
                asked = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:  # relative to the module's folder
                    above = [package, *name.split(".")][: -node.level]
                    base = ".".join([*above, *filter(None, [base])])
                asked = [f"{base}.{alias.name}" for alias in node.names]
            for dotted in asked:
                target = _module(dotted, modules, package)
                if target is not None and target != name:
                    found[name].add(target)
    return found


def _module(dotted: str, modules: Mapping[str, str], package: str) -> str | None:
    """The module that a dotted name is, or that has it; None for other packages'."""
    parts = dotted.split(".")
    if parts[0] != package:
        return None
    for end in range(len(parts), 0, -1):
        inner = parts[1:end]
        for name in (".".join(inner), ".".join([*inner, "__init__"])):
            if name in modules:
                return name
    return None


def circle(graph: Graph) -> list[str] | None:
    """One of the graph's circles, its first module again at its end; None where it has none."""
    done: set[str] = set()

    def follow(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        for target in sorted(graph.get(name, ())):
            found = follow(target, [*path, name])
            if found is not None:
                return found
        done.add(name)
        return None

    for name in sorted(graph):
        found = follow(name, [])
        if found is not None:
            return found
    return None


def climbing(graph: Graph, may_import: Mapping[str, Iterable[str]]) -> list[str]:
    """The imports that the table does not allow, one a line."""
    found = []
    for name in sorted(graph):
        room = name.split(".")[0]
        if room not in may_import:
            found.append(f"{room}: has no row in the table")
            continue
        for target in sorted(graph[name]):
            allowed = {room, *may_import[room]}
            if not allowed & {target.split(".")[0], target}:
                found.append(f"{name} imports {target}")
    return found


def long_modules(lines: Mapping[str, int]) -> list[str]:
    return [f"{path}: {count} lines" for path, count in sorted(lines.items()) if count > MAX_LINES]


def includes(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """What each C++ file, by its name, includes of the others."""
    line = re.compile(r'^#include "(.+)"', re.M)
    return {name: set(line.findall(source)) for name, source in sources.items()}


def package_graph() -> dict[str, set[str]]:
    modules = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path.read_text()
        for path in PACKAGE.rglob("*.py")
    }
    return imports(modules, PACKAGE.name)


def test_no_circle_of_imports() -> None:
    assert circle(package_graph()) is None


def test_no_circle_of_includes() -> None:
    native = PACKAGE / "observe" / "native"
    sources = {
        path.name: path.read_text() for end in ("h", "cpp") for path in native.glob(f"*.{end}")
    }
    graph = includes(sources)
    assert "_op_state.h" in graph["_op_gpu.h"]
    assert set().union(*graph.values()) <= set(sources)
    assert circle(graph) is None


def test_imports_go_one_way() -> None:
    assert climbing(package_graph(), MAY_IMPORT) == []


def test_the_table_itself_goes_one_way() -> None:
    """Or it would allow what no module does yet."""
    rooms = {
        room: {target.split(".")[0] for target in targets} for room, targets in MAY_IMPORT.items()
    }
    assert circle({room: targets - {"__init__"} for room, targets in rooms.items()}) is None
    assert set().union(*rooms.values()) <= set(MAY_IMPORT)


def test_no_module_is_too_long() -> None:
    lines = {
        str(path.relative_to(REPOSITORY)): len(path.read_text().splitlines())
        for folder in (PACKAGE, BENCHMARKS, TESTS)
        for path in folder.rglob("*.py")
        if not path.is_relative_to(DATA)
    }
    assert long_modules(lines) == []


# --- The checks themselves ----------------------------------------------------------------------


def reads_prose(source: str) -> list[int]:
    """Lines that look for words in a text: for two of them, or for one and what parts it."""
    methods = {"partition", "rpartition", "split", "rsplit", "find", "rfind", "index", "rindex"}
    return sorted(
        call.lineno
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in methods
        and call.args
        and isinstance(words := call.args[0], ast.Constant)
        and isinstance(words.value, str)
        and " " in words.value
        and words.value.strip()
    )


def test_prose_is_read_where_torchs_words_are_and_nowhere_else() -> None:
    """In records there are fields and codes for what code has to know."""
    folders = ("records", "compare", "views", "commands", "trials", "integrations", "observe")
    found = {}
    for path in (path for folder in folders for path in (PACKAGE / folder).rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("observe/messages/") or name in OF_EARLIER_RELEASES:
            continue
        if lines := reads_prose(path.read_text()):
            found[name] = lines
    assert found == {}


def test_what_reads_prose_is_found() -> None:
    assert reads_prose('reason.partition(": ")[0]\nline.split(" at ")\n') == [1, 2]
    assert reads_prose('path.rpartition(".")\ncommand.split(" ")\nitems.index(2)\n') == []


def test_every_kind_of_import_is_seen() -> None:
    modules = {
        "__init__": "__version__ = '1'",
        "top": "import house.low.one, os\nimport numpy as np",
        "low.__init__": "",
        "low.one": """
from typing import TYPE_CHECKING
from house import __version__, top
from numpy.low import one
if TYPE_CHECKING:
    from house.low.two import Thing
def late():
    from house import low
""",
        "low.two": "from . import one\nfrom .one import late\nfrom ..top import x",
    }
    assert imports(modules, "house") == {
        "__init__": set(),
        "top": {"low.one"},
        "low.__init__": set(),
        "low.one": {"__init__", "top", "low.two", "low.__init__"},
        "low.two": {"low.one", "top"},
    }


def test_circles_are_found() -> None:
    assert circle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}) is None
    assert circle({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]}) == ["b", "c", "d", "b"]
    assert circle({"a": ["b"], "b": ["a"]}) == ["a", "b", "a"]
    assert circle({"a": [], "z": ["z"]}) == ["z", "z"]


def test_what_climbs_is_found() -> None:
    table = {"high": ("middle", "low.plain"), "middle": ("low",), "low": ()}
    allowed = {"high": ["middle.x", "low.plain"], "middle.x": ["low.a", "middle.y"], "low.a": []}
    assert climbing(allowed, table) == []
    assert climbing({"low.a": ["high"]}, table) == ["low.a imports high"]
    assert climbing({"high": ["low.a"]}, table) == ["high imports low.a"]
    assert climbing({"new.x": []}, table) == ["new: has no row in the table"]


def test_long_modules_are_found() -> None:
    assert long_modules({"long.py": 451, "short.py": 450}) == ["long.py: 451 lines"]


def test_views_draw_records_and_no_dictionaries_of_anything() -> None:
    for path in (PACKAGE / "views").rglob("*.py"):
        assert "dict[str, Any]" not in path.read_text(), path
