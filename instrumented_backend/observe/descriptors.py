"""Descriptors of ours, in a program that may close them and open files under their numbers."""

import os

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
