"""The fields of a record with their values, for what shows all of them."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Kind = type[DataclassInstance]


@functools.cache
def field_names(kind: "Kind") -> tuple[str, ...]:
    """In the order in which they are declared."""
    return tuple(field.name for field in dataclasses.fields(kind))


def field_values(record: "DataclassInstance") -> dict[str, Any]:
    """Not ``vars``: a record may have slots, and one that was read its defaults in the class."""
    return {name: getattr(record, name) for name in field_names(type(record))}
