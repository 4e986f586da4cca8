"""Limits and whether they were kept, for other programs: JUnit XML and SARIF 2.1.0."""

import json
import re
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from instrumented_backend.compare.checking import MISSED, UNDECIDED, Finding
from instrumented_backend.compare.items import Item
from instrumented_backend.records.escapes import shown_lines, to_bytes, without_surrogates
from instrumented_backend.views.check import (
    advice,
    figure_name,
    item_line,
    message,
    relative,
    sentence,
)
from instrumented_backend.views.words import beginning

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MAX_RESULTS = 20  # of one limit
Json = dict[str, object]
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


# --- JUnit --------------------------------------------------------------------------------------


def as_junit(name: str, findings: list[Finding]) -> str:
    """A test case for each limit; what could not be decided is skipped."""
    missed = sum(finding.status == MISSED for finding in findings)
    undecided = sum(finding.status == UNDECIDED for finding in findings)
    counts = {
        "tests": str(len(findings)),
        "failures": str(missed),
        "errors": "0",
        "skipped": str(undecided),
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": _xml(name), **counts})
    for finding in findings:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": _xml(f"{name}.rank{finding.rank}"),
                "name": _xml(figure_name(finding)),
            },
        )
        if finding.status == MISSED:
            failure = ElementTree.SubElement(
                case, "failure", {"type": "limit", "message": _xml(sentence(finding))}
            )
            failure.text = _xml("\n".join(_lines(finding)))
        elif finding.status == UNDECIDED:
            why = finding.note or sentence(finding)
            ElementTree.SubElement(case, "skipped", {"message": _xml(why)})
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, "unicode")


def _lines(finding: Finding) -> list[str]:
    lines = [finding.note] if finding.note else []
    for item in finding.guilty[:MAX_RESULTS]:
        lines += _told(item)
    return lines


def _xml(text: str) -> str:
    """XML has no characters for some controls, not even as references."""
    return _NOT_XML.sub("\ufffd", shown_lines(text))


def _told(item: Item) -> list[str]:
    return [beginning(text) for text in (item_line(item), *(f"  {one}" for one in advice(item)))]


# --- SARIF --------------------------------------------------------------------------------------


def as_sarif(version: str, findings: list[Finding]) -> str:
    """A result for each cause of a limit that was missed, at its line."""
    rules: dict[str, Json] = {}
    results = []
    for finding in findings:
        if finding.status != MISSED:
            continue
        rules.setdefault(
            finding.figure,
            {
                "id": finding.figure,
                "name": "".join(part.capitalize() for part in finding.figure.split("_")),
                "shortDescription": {"text": finding.meaning},
                "defaultConfiguration": {"level": "error"},
            },
        )
        index = list(rules).index(finding.figure)
        guilty: list[Item | None] = [*finding.guilty[:MAX_RESULTS]]
        for item in guilty or [None]:
            results.append(_result(finding, item, index))
    run = {
        "tool": {
            "driver": {
                "name": "instrumented-backend",
                "version": version,
                "rules": list(rules.values()),
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri() + "/"}},
        "results": results,
    }
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(without_surrogates(log), indent=1)


def _result(finding: Finding, item: Item | None, index: int) -> Json:
    result: Json = {
        "ruleId": finding.figure,
        "ruleIndex": index,
        "level": "error",
        "message": {"text": message(finding, item)},
    }
    if item is not None and item.file is not None:
        place: Json = {"artifactLocation": _location(item.file)}
        if item.line is not None and item.line > 0:
            region: Json = {"startLine": item.line}
            if item.source:
                region["snippet"] = {"text": beginning(item.source)}
            place["region"] = region
        result["locations"] = [{"physicalLocation": place}]
    if item is not None and item.keys:
        # The same cause in another run, though its line moved.
        result["partialFingerprints"] = {"cause/v1": beginning(item.keys[0])}
    return result


def _location(file: str) -> dict[str, str]:
    name = relative(file)
    uri = quote(to_bytes(name), safe="/:")
    if Path(name).is_absolute():
        return {"uri": f"file://{uri}"}
    return {"uri": uri, "uriBaseId": "SRCROOT"}
