"""Ten thousand damaged reports: each one is refused in one line, or drawn.

``REPORT_FUZZ_SEED`` and ``REPORT_FUZZ_COUNT`` choose others. A failure names its report.
"""

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from paths import DATA
from sample_report import sample_on_gpu

from instrumented_backend import settings
from instrumented_backend.records import Report, ReportError, read_report
from instrumented_backend.views.files import write_files
from instrumented_backend.views.text import render

SEED = int(os.environ.get("REPORT_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("REPORT_FUZZ_COUNT", "10000"))
BATCHES = 10
ITEMS = 2  # of each list that are kept: a report takes a millisecond then
DEEP: Any = []
for _ in range(100):
    DEEP = [DEEP]

ANYTHING: list[Any] = [
    *(None, True, False, 0, -1, 2**31, 2**63, -(2**64), 10**400, 0.0, 0.5, 1e308, -1e308),
    *(float("nan"), float("inf"), "", "x", "1", "\0", "\n", "\ud800", "é·µ", "x" * 2000),
    *([], {}, [None], [[]], {"": 0}, {"x": {}}, DEEP),
]
OF_ITS_TYPE: dict[type, list[Any]] = {
    bool: [True, False],
    int: [0, 1, -1, 2**31, 2**63 - 1, 1 - 2**63],
    float: [0.0, -0.0, 1.0, -1.0, 1e-300, 1e308, -1e308],
    str: ["", "x", ":", "\n", "\0", "\ud800", "/a/b:c", "x" * 500, "a b " * 200, "é·µ→"],
    type(None): [None],
    list: [[]],
    dict: [{}],
}


def shortened(value: Any) -> Any:
    if isinstance(value, list):
        return [shortened(item) for item in value[:ITEMS]]
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return value


@pytest.fixture(scope="module")
def originals() -> list[str]:
    files = sorted((DATA / "reports").glob("*.json"))
    assert len(files) >= 3
    texts = [file.read_text() for file in files]
    texts.append(sample_on_gpu().to_json())  # it has the sections of today, too
    return [json.dumps(shortened(json.loads(text))) for text in texts]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or map inside, with each of its indices or keys."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, list | dict):
        for key in range(len(value)) if isinstance(value, list) else list(value):
            found.append((value, key))
            found += places(value[key])
    return found


def damage(data: Any, chance: random.Random) -> None:
    """Change one place, or a few."""
    for _ in range(chance.choice((1, 1, 2, 5))):
        holder, key = chance.choice(places(data))
        kind = chance.random()
        if kind < 0.5:
            holder[key] = copy.copy(chance.choice(OF_ITS_TYPE[type(holder[key])]))
        elif kind < 0.75:
            holder[key] = copy.deepcopy(chance.choice(ANYTHING))
        elif kind < 0.85:
            del holder[key]
        elif isinstance(holder, dict):
            other = chance.choice(("x", "", "where", "total_s", "\n", *list(holder)))
            holder[other] = copy.deepcopy(holder[key])
        else:
            holder += [copy.deepcopy(holder[key])] * chance.choice((1, 200))


def read_and_draw(text: str, chance: random.Random) -> bool:
    """Whether it could be read; raises where that ends otherwise than it should."""
    try:
        report = Report.from_json(text)
    except ReportError as error:
        assert len(str(error).splitlines()) == 1, str(error)
        return False
    tables = ("summary", chance.choice(settings.TABLES), chance.choice(settings.TABLES))
    render(report, tables, chance.choice((20, 80, 200)))
    return True


@pytest.mark.parametrize(
    "batch", [0, *(pytest.param(batch, marks=pytest.mark.full) for batch in range(1, BATCHES))]
)
def test_damaged_values(originals: list[str], batch: int) -> None:
    """Types flipped, keys dropped, values huge, nesting."""
    read = 0
    for number in range(batch, COUNT, BATCHES):
        chance = random.Random(f"{SEED}/{number}")
        data = json.loads(chance.choice(originals))
        damage(data, chance)
        try:
            read += read_and_draw(json.dumps(data), chance)
        except Exception as error:  # any: it is raised again, with the report that it is about
            raise AssertionError(f"report {number} of seed {SEED}") from error
    assert read > 0.2 * COUNT / BATCHES, "hardly any is drawn: the views are not tested"


def test_damaged_text(originals: list[str], tmp_path: Path) -> None:
    """Cut short, and bytes that are others."""
    path = tmp_path / "report.json"
    for number in range(COUNT // 20):
        chance = random.Random(f"{SEED}/text/{number}")
        content = bytearray(chance.choice(originals).encode())
        for _ in range(chance.choice((0, 1, 10))):
            content[chance.randrange(len(content))] = chance.choice(b'\xff\0"[]{},:-0e.\\u')
        path.write_bytes(content[: chance.choice((len(content), chance.randrange(len(content))))])
        try:
            render(read_report(path), ("summary",), 80)
        except ReportError as error:
            assert str(error).startswith(f"{path}: "), number
            assert len(str(error).splitlines()) == 1, number


def test_the_files_of_a_damaged_report(originals: list[str], tmp_path: Path) -> None:
    """What is read can be written and read again."""
    for number in range(COUNT // 200):
        chance = random.Random(f"{SEED}/files/{number}")
        data = json.loads(chance.choice(originals))
        damage(data, chance)
        try:
            report = Report.from_json(json.dumps(data))
        except ReportError:
            continue
        again = Report.from_json(report.to_json())
        assert again == report, number
        write_files(again, tmp_path)
