"""Descriptors of ours, in a program that may close them and open files under their numbers."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

SOME = 64

Identity = tuple[int, int]


def identity_of(number: int) -> Identity | None:
    """Which file it is; None where it is closed."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def close_own(number: int, identity: Identity | None) -> None:
    """Close it if it still is that file."""
    if identity is not None and identity_of(number) == identity:
        os.close(number)


@contextmanager
def some_more() -> Iterator[None]:
    """For the end of a program that has opened all files that it may; as far as the system allows.

    It often ends for that very reason.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = soft + SOME if hard == resource.RLIM_INFINITY else min(soft + SOME, hard)
    if soft in (resource.RLIM_INFINITY, hard):
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
