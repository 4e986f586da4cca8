"""What earlier releases wrote otherwise, brought to the form that is read today.

Fields that they did not have need nothing here: their records have defaults. Only what they wrote
within a text has to be found: codes, headlines, names, lines. This is the only place that reads
them there.
"""

import os
from collections.abc import Iterator
from typing import Any

from instrumented_backend.records import notes
from instrumented_backend.records.places import place

Data = dict[str, Any]  # of a file, unchecked


def upgrade(report: Data) -> None:
    """Change the data of a report's file in place; what is not as it should be stays for later."""
    run = report.get("run")
    if isinstance(run, dict) and "program" not in run and isinstance(run.get("command"), str):
        run["program"] = os.path.basename(run["command"].partition(" ")[0])
    for item in _objects(report.get("breaks")):
        _break(item)
    for item in _objects(report.get("recompiles")):
        for guard in _objects(item.get("guards")):
            cure = guard.get("cure")
            if "is_usual" not in guard and isinstance(cure, str):
                guard["is_usual"] = cure.startswith("one graph for each ")
    for item in _objects(report.get("next_steps")):
        where = item.get("where")
        if "file" not in item and isinstance(where, str):
            item["file"], item["line"] = place(where)
    compiling = report.get("compile")
    if isinstance(compiling, dict):
        _cudagraphs(compiling.get("cudagraphs"))
    texts = report.get("notes")
    if "note_codes" not in report and isinstance(texts, list):
        report["note_codes"] = [
            notes.LOST if isinstance(text, str) and text.startswith("lost: ") else notes.OTHER
            for text in texts
        ]


def _objects(items: Any) -> Iterator[Data]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield item


def _break(item: Data) -> None:
    if item.get("kind") == "skipped" and "skipped" not in item:
        # The first reports listed functions and breaks apart.
        place = {name: item.get(name) for name in ("function", "file", "line")}
        item.update(kind="gave up", skipped=[place])
    reason = item.get("reason")
    if "headline" not in item and isinstance(reason, str):
        item["headline"] = reason.partition(": ")[0]
    if "code" not in item and item.get("kind") == "gave up" and isinstance(reason, str):
        item["code"] = notes.RECOMPILE_LIMIT if "recompile limit" in reason else None


def _cudagraphs(section: Any) -> None:
    if not isinstance(section, dict) or not section or "reason_codes" in section:
        return
    reasons = [
        reason
        for group in (section.get("re_recorded"), section.get("skipped"))
        if isinstance(group, dict)
        for reason in group
    ]
    section["reason_codes"] = {
        reason: notes.NEW_SIZES if reason == "new sizes" else notes.MUTATED_INPUTS
        for reason in reasons
        if reason == "new sizes" or "mutated inputs" in reason
    }
