"""The fields of a record with their values, for what shows all of them."""

import dataclasses
import functools
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Kind = type[DataclassInstance]


@functools.cache
def field_names(kind: "Kind") -> tuple[str, ...]:
    """In the order in which they are declared."""
    return tuple(field.name for field in dataclasses.fields(kind))


def field_values(record: "DataclassInstance") -> dict[str, Any]:
    """Not ``vars``: of a field that a file does not have, only the class holds the default."""
    return _values(type(record))(record)


@functools.cache
def _values(kind: "Kind") -> "Callable[[DataclassInstance], dict[str, Any]]":
    """Ten thousand kernels have half a million fields: in C, but for one call a record."""
    names = field_names(kind)
    if len(names) < 2:
        return lambda record: {name: getattr(record, name) for name in names}
    values: Callable[[Any], tuple[object, ...]] = attrgetter(*names)
    return lambda record: dict(zip(names, values(record), strict=True))
