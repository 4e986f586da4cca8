"""Places in the program, as text."""


def parts(place: str) -> tuple[str, int | None]:
    """File and line of ``"train.py:12"``; the line is None where the text has none."""
    file, separator, line = place.rpartition(":")
    if separator and file and line.isdecimal():
        return file, int(line)
    return place, None
