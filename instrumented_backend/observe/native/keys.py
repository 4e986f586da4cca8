"""The numbers that graphs' directions and the gaps after their calls go by.

A gap is what a thread runs after a call until its next region. Each direction has two: one for its
first three observed calls, whose ops are not extrapolated, and one for all later calls. The op
meter numbers them natively; ``op_meter_gap`` is its owner of that, and a test compares the two.
"""


def region_key(graph: int | None, backward: bool) -> int:
    """Numbers the graphs' directions from 1."""
    return 0 if graph is None else 2 * graph + backward + 1


def is_backward(key: int) -> bool:
    """Of a key that `region_key` made for a known graph."""
    return key > 0 and not key % 2


def early_gap(key: int) -> int:
    """After the direction's first observed calls."""
    return 2 * key


def late_gap(key: int) -> int:
    """After all later ones."""
    return early_gap(key) + 1


def key_before(gap: int) -> int:
    """The direction whose calls the gap follows."""
    return gap // 2
