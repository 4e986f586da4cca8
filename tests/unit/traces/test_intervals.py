import random

import numpy as np

from instrumented_backend.traces.intervals import Intervals, overlay, union


def intervals(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    values = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return values[:, 0], values[:, 1]


def pairs(spans: Intervals) -> list[tuple[int, int]]:
    return list(zip(spans.start.tolist(), spans.end.tolist(), strict=True))


def test_union_of_intervals_out_of_order_that_nest_touch_and_overlap() -> None:
    # [0, 10) holds [2, 4) and meets [10, 12); [20, 25) and [22, 30) overlap; [40, 40) is empty.
    spans, opens = union(*intervals((22, 30), (0, 10), (2, 4), (40, 40), (20, 25), (10, 12)))
    assert pairs(spans) == [(0, 12), (20, 30), (40, 40)]
    assert opens.tolist() == [1, 4, 3]
    assert spans.measure() == 12 + 10 + 0


def test_measure_within_bounds() -> None:
    spans, _ = union(*intervals((0, 10), (20, 30)))
    assert spans.measure(5, 22) == 5 + 2
    assert spans.measure(low=25) == 5
    assert spans.measure(high=3) == 3
    assert spans.measure(12, 18) == 0


def test_contain_takes_the_start_but_not_the_end() -> None:
    spans, _ = union(*intervals((0, 10), (20, 30)))
    times = np.array([-1, 0, 9, 10, 19, 20, 29, 30])
    assert spans.contain(times).tolist() == [False, True, True, False, False, True, True, False]


def test_nothing() -> None:
    spans, opens = union(*intervals())
    assert spans.measure() == 0 and len(opens) == 0
    assert spans.contain(np.array([1])).tolist() == [False]
    assert overlay(spans, spans).measure() == 0


def test_union_and_overlay_against_marked_microseconds() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        sets = [
            [(low, low + chance.randrange(6)) for low in chance.choices(range(60), k=8)]
            for _ in range(2)
        ]
        marked = [{t for low, high in one for t in range(low, high)} for one in sets]
        spans = [union(*intervals(*one))[0] for one in sets]
        assert [one.measure() for one in spans] == [len(one) for one in marked]
        assert overlay(*spans).measure() == len(marked[0] | marked[1])
        assert spans[0].measure(10, 40) == len(marked[0] & set(range(10, 40)))
