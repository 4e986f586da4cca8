"""Look-ups in the caches, in the form in which torch 2.13 reports them."""

from instrumented_backend.observe.compile.caches import CacheLog, cache_section, differences
from instrumented_backend.observe.messages.cache_keys import key_of
from instrumented_backend.records import CacheStates, GraphRecord


def components(**values: str) -> list[str]:
    return [f"[hash of {value}] {name}: {value}: more\nlines" for name, value in values.items()]


def test_key_of() -> None:
    one = key_of(components(gm="f", shape="4"))
    assert list(one) == ["gm", "shape"]
    assert differences(one, key_of(components(gm="f", shape="4"))) == []
    assert differences(one, key_of(components(gm="f", shape="5"))) == ["shape"]
    assert differences(one, key_of(components(gm="f", stride="1"))) == ["shape", "stride"]


def test_a_miss_names_what_is_new_in_its_key() -> None:
    log = CacheLog()
    graphs = [GraphRecord(compile_id=name) for name in ("0/0", "1/0", "2/0", "1/1")]
    for graph, values in zip(
        graphs,
        (
            {"gm": "f", "shape": "4", "option": "a"},
            {"gm": "g", "shape": "9", "option": "b"},
            {"gm": "f", "shape": "5", "option": "a"},
        ),
        strict=False,
    ):
        log.looked_up("fx_graph_cache_miss", {"components": components(**values)}, graph)
    assert graphs[0].cache_reason is None  # nothing to compare it with
    assert graphs[1].cache_reason is None  # another graph of another function
    assert graphs[2].cache_reason == "new key: differs from that of 0/0 in shape"
    # The same function again: 3 components are gone, 9 new, and 5 of these 12 are named.
    many = {str(i): "x" for i in range(9)}
    log.looked_up("fx_graph_cache_miss", {"components": components(**many)}, graphs[3])
    reason = graphs[3].cache_reason or ""
    assert reason.startswith("new key: differs from that of 1/0 in ")
    assert reason.endswith(" and 7 more")


def test_compile_ids_come_again_after_a_reset() -> None:
    log = CacheLog()
    first, second = GraphRecord(compile_id="0/0"), GraphRecord(compile_id="0/0")
    for graph, option in ((first, "a"), (first, "c"), (second, "b")):
        found = {"components": components(gm=f"f{option}", option=option, shape="4")}
        log.looked_up("fx_graph_cache_miss", found, graph)
    assert first.cache_reason is None  # its backward's key is not compared with its forward's
    assert second.cache_reason == "new key: differs from that of the earlier 0/0 in gm, option"


def test_what_hits_spared() -> None:
    log = CacheLog()
    graphs = [GraphRecord(compile_id=f"{i}/0") for i in range(3)]
    log.looked_up("autograd_cache_hit", {"time_saved_ms": 2500.0, "components": []}, graphs[0])
    for nanoseconds in (1_000_000_000, 500_000_000):  # forward and backward
        log.looked_up("fx_graph_cache_hit", {"time_saved_ns": nanoseconds}, graphs[1])
    log.looked_up("autograd_cache_miss", {}, graphs[2])
    log.looked_up("something_else", {}, graphs[2])
    assert [graph.saved_s for graph in graphs] == [2.5, 1.5, None]
    log.compiled_triton({"k0": {"autotune_cache_state": "miss"}, "k1": {"compile_time_us": 1}})
    # Of three kernels that were asked for, one was there.
    counters = {"async_compile_cache_miss": 3, "async_compile_cache_hit": 1}
    section = cache_section(graphs, counters, {"compile_file": 2}, log)
    assert section.saved_s == 4.0
    assert section.code.triton_kernels_compiled == 2
    assert section.code.triton_kernels_from_cache == 1
    assert (section.autotune.cache_hits, section.autotune.cache_misses) == (0, 1)
    assert section.code.cpp_files_compiled == 2
    assert section.bypass_reasons == {}


def test_a_bypass_is_counted_by_its_reason() -> None:
    graphs = [GraphRecord(cache="bypass", cache_reason="freezing") for _ in range(2)] + [
        GraphRecord(cache="miss", cache_reason="new key: differs")
    ]
    section = cache_section(graphs, {}, {}, CacheLog())
    assert section.bypass_reasons == {"freezing": 2}
    assert section.graphs == CacheStates(hit=0, miss=1, bypass=2, off=0)
