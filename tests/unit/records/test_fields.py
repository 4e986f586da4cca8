"""The fields of a record with their values."""

from dataclasses import dataclass, field, fields
from functools import cached_property

import pytest

from instrumented_backend.records import GraphRecord, KernelRecord
from instrumented_backend.records.fields import field_values


@dataclass
class Record:
    name: str
    calls: int = 7
    notes: list[str] = field(default_factory=list)

    @cached_property
    def length(self) -> int:
        return len(self.name)


def test_in_the_order_of_their_declaration() -> None:
    record = Record("a", notes=["b"])
    assert list(field_values(record).items()) == [("name", "a"), ("calls", 7), ("notes", ["b"])]


def test_what_only_the_class_holds() -> None:
    record = Record("a", 8)
    del record.calls
    assert list(field_values(record).items()) == [("name", "a"), ("calls", 7), ("notes", [])]


def test_a_property_that_was_asked_for_is_no_field() -> None:
    record = Record("abc")
    assert record.length == 3 and "length" in vars(record)
    assert list(field_values(record)) == ["name", "calls", "notes"]


@pytest.mark.parametrize("record", [GraphRecord(graph=3), KernelRecord("k", "cpp", graph=3)])
def test_records_of_which_there_are_thousands(record: GraphRecord | KernelRecord) -> None:
    """They have slots: a dictionary for each would take more than all that is in it."""
    assert not hasattr(record, "__dict__")
    values = field_values(record)
    assert list(values) == [field.name for field in fields(record)]
    assert values["graph"] == 3 and values["direction"] == record.direction
    assert type(record)(**values) == record


def test_the_record_is_left_as_it_is() -> None:
    record = Record("a")
    field_values(record)["calls"] = 9
    assert record == Record("a")
