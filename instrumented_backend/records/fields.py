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


@functools.cache
def _defaults(kind: "Kind") -> dict[str, Any]:
    return {name: getattr(kind, name, None) for name in field_names(kind)}


def field_values(record: "DataclassInstance") -> dict[str, Any]:
    """Not ``vars`` alone: a field that a file does not have is only in the class, its default."""
    defaults = _defaults(type(record))
    values = {**defaults, **vars(record)}
    if len(values) > len(defaults):  # properties that are kept once they were asked for
        return {name: values[name] for name in defaults}
    return values
