"""Which caches had the graphs, what they saved, and why the other graphs were not there."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from instrumented_backend.observe.messages.cache_keys import Components, key_of
from instrumented_backend.records import (
    Autotuning,
    CacheLookups,
    CachesSection,
    CacheStates,
    GraphRecord,
    KernelCode,
)
from instrumented_backend.torch_compat import inductor

MAX_KEYS = 8
MAX_DIFFERENCES = 5
MAX_ENTRIES = 2_000


class CacheLog:
    """Takes in torch's look-ups in the AOTAutograd and FX graph caches."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._keys: deque[tuple[GraphRecord, Components]] = deque(maxlen=MAX_KEYS)
        self._entries: dict[tuple[str, str], None] = {}
        self.tuning: Counter[str] = Counter()  # "hit", "miss", "only 1 config", "force_disabled"

    def compiled_triton(self, kernels: Mapping[str, Mapping[str, Any]]) -> None:
        """What torch says of each Triton kernel that it compiled, by name."""
        for info in kernels.values():
            self.tuning[str(info.get("autotune_cache_state"))] += 1

    def looked_up(self, name: str, found: Mapping[str, Any], graph: GraphRecord) -> None:
        """``name`` is ``autograd_cache_hit``, ``fx_graph_cache_miss``, ...; ``found`` what it said.

        A hit says how long the graph had taken to compile; a miss of the FX graph cache, what its
        key is made of.
        """
        cache, _, state = name.rpartition("_cache_")
        if cache not in ("autograd", "fx_graph"):
            return
        key = found.get("key")
        if key is not None and len(self._entries) < MAX_ENTRIES:
            self._entries[cache, str(key)] = None
        if state == "hit":
            saved_s = (found.get("time_saved_ms") or 0) / 1e3
            saved_s += (found.get("time_saved_ns") or 0) / 1e9
            graph.saved_s = (graph.saved_s or 0.0) + saved_s
        components = found.get("components")
        if components and cache == "fx_graph":
            key_parts = key_of(components)
            if state == "miss" and graph.cache_reason is None:
                graph.cache_reason = self._nearest(graph, key_parts)
            self._keys.append((graph, key_parts))

    def _nearest(self, graph: GraphRecord, key: Components) -> str | None:
        """What in the key is new, against the most similar one of this process.

        That is one of another compilation of the same function, or one of the same graph: with
        that of any other code there is nothing to compare.
        """
        function = graph.compile_id.rpartition("/")[0]
        nearest = min(
            (
                (differences(key, other_key), other.compile_id)
                for other, other_key in self._keys
                if other is not graph  # nor its other direction
                and (
                    other.compile_id.rpartition("/")[0] == function
                    or other_key.get("gm") == key.get("gm")
                )
            ),
            key=lambda item: len(item[0]),
            default=None,
        )
        if nearest is None or not nearest[0]:
            return None
        different, name = nearest
        more = len(different) - MAX_DIFFERENCES
        listed = ", ".join(different[:MAX_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
        # Dynamo numbers anew after a reset.
        earlier = "the earlier " if name == graph.compile_id else ""
        return f"new key: differs from that of {earlier}{name} in {listed}"

    def bytes_on_disk(self) -> int:
        """Of the entries that were looked up and are there."""
        return sum(inductor.cache_entry_bytes(*entry) for entry in list(self._entries))


def differences(one: Components, other: Components) -> list[str]:
    names = dict.fromkeys([*one, *other])
    return [name for name in names if one.get(name) != other.get(name)]


def describe_caches(record: GraphRecord) -> None:
    """Which caches held the graph, from the counters that its own compilation moved."""
    aot = record.counters.get("aot_autograd", {})
    inductor = record.counters.get("inductor", {})
    fx = CacheLookups(
        hits=inductor.get("fxgraph_cache_hit", 0),
        misses=inductor.get("fxgraph_cache_miss", 0),
        bypasses=inductor.get("fxgraph_cache_bypass", 0),
    )
    record.fx_graph_cache = asdict(fx)
    record.aot_autograd_cache = next(
        (state for state in ("bypass", "miss", "hit") if aot.get(f"autograd_cache_{state}")), "off"
    )
    if record.aot_autograd_cache == "hit":
        record.cache = "hit"
    elif fx.misses:
        record.cache = "miss"
    elif fx.bypasses:
        record.cache = "bypass"
    elif fx.hits:
        record.cache = "hit"
    else:
        record.cache = record.aot_autograd_cache


def cache_section(
    records: list[GraphRecord], counters: Mapping[str, int], steps: Mapping[str, int], log: CacheLog
) -> CachesSection:
    """The report's section; ``counters`` are Inductor's, ``steps`` how often torch did each."""
    states = Counter(record.cache for record in records)
    saved = [record.saved_s for record in records if record.saved_s is not None]
    reasons = Counter(
        record.cache_reason
        for record in records
        if record.cache_reason and "bypass" in (record.cache, record.aot_autograd_cache)
    )
    lookups = sum((Counter(record.fx_graph_cache) for record in records), Counter[str]())
    return CachesSection(
        graphs=CacheStates(states["hit"], states["miss"], states["bypass"], states["off"]),
        # "null" is for graphs that were compiled before a reset: so JSON has it for None.
        aot_autograd=dict(Counter(record.aot_autograd_cache or "null" for record in records)),
        fx_graph=CacheLookups(lookups["hits"], lookups["misses"], lookups["bypasses"]),
        bypass_reasons=dict(reasons),
        saved_s=sum(saved),
        bytes=log.bytes_on_disk(),
        code=KernelCode(
            cpp_files_compiled=steps.get("compile_file", 0),
            # Not ``async_compile_cache_miss``: that is moved for each kernel that is asked for, and
            # once more by a hit in the FX graph cache.
            triton_kernels_compiled=log.tuning.total(),
            triton_kernels_from_cache=counters.get("async_compile_cache_hit", 0),
            triton_files_from_entries=counters.get("triton_bundler_read_and_emit_kernel", 0),
        ),
        autotune=Autotuning(
            kernels_tuned=steps.get("CachingAutotuner.benchmark_all_configs", 0),
            products_tuned=counters.get("select_algorithm_autotune", 0),
            cache_hits=log.tuning["hit"],
            cache_misses=log.tuning["miss"],
        ),
    )
