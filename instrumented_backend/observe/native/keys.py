"""The numbers that graphs' directions go by, in the op meter and here."""


def region_key(graph: int | None, backward: bool) -> int:
    """Numbers the graphs' directions from 1."""
    return 0 if graph is None else 2 * graph + backward + 1


def is_backward(key: int) -> bool:
    """Of a key that `region_key` made for a known graph."""
    return key > 0 and not key % 2
