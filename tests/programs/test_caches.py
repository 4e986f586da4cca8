"""The same caches as Inductor: cold and warm runs tell the same story, and either fills them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import BENCHMARKS
from programs import RunProgram

PROGRAM = """
    import json, sys
    sys.path.insert(0, {benchmarks!r})
    from oracles import architectures
    architectures.run_steps("gpt2", {training}, 3, backend={backend!r})
    from torch._dynamo.utils import counters
    from torch._inductor import metrics
    print(json.dumps({{
        "aot": dict(counters["aot_autograd"]), "inductor": dict(counters["inductor"]),
        "metrics": {{name: getattr(metrics, name) for name in metrics.get_metric_fields()}},
    }}))
"""


def program(backend: str, training: bool) -> str:
    return PROGRAM.format(benchmarks=str(BENCHMARKS), backend=backend, training=training)


def told(report: dict[str, Any]) -> list[Any]:
    """What must not depend on the caches."""
    return [
        (
            graph["compile_id"],
            graph["function"],
            graph["file"],
            graph["line"],
            graph["ops"],
            graph["calls"],
            graph["backward_calls"],
            graph["inductor_metrics"],
            sorted((code["direction"], code["path"], *code["kernels"]) for code in graph["code"]),
        )
        for graph in report["graphs"]
    ]


@pytest.fixture(scope="module")
def filled() -> dict[bool, Path]:
    """The caches that Inductor has filled so far: without training, and with it."""
    return {}


@pytest.fixture
def filled_by_inductor(
    run_forked: RunProgram, cold_cache: Path, filled: dict[bool, Path], training: bool
) -> Path:
    if training not in filled:
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
        assert run_forked(program("inductor", training), env=cache).reports == []
        filled[training] = cold_cache
    return filled[training]


BOTH = pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])


@pytest.mark.full
@BOTH
def test_inductor_fills_for_us(
    run_forked: RunProgram, filled_by_inductor: Path, training: bool
) -> None:
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(filled_by_inductor)}
    ours = run_forked(program("instrumented", training), env=cache).report
    assert ours["graphs"]
    assert {graph["aot_autograd_cache"] for graph in ours["graphs"]} == {"hit"}
    assert {graph["cache"] for graph in ours["graphs"]} == {"hit"}
    assert ours["caches"]["fx_graph"]["misses"] == 0


@pytest.mark.full
@BOTH
def test_cold_and_warm_agree(
    run_forked: RunProgram, filled_by_inductor: Path, training: bool, tmp_path: Path
) -> None:
    # Cold for graphs: to build the same kernels again would take most of the time.
    for_kernels = shutil.ignore_patterns("aotautograd", "fxgraph", "instrumented", "*.py")
    cold_graphs = shutil.copytree(filled_by_inductor, tmp_path / "graphs", ignore=for_kernels)
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(cold_graphs)}
    runs = [run_forked(program("instrumented", training), env=cache) for _ in range(2)]
    cold, warm = (run.report for run in runs)
    assert cold["graphs"]
    assert told(cold) == told(warm)
    for report in (cold, warm):
        assert report["ops"]["captured"]["estimated"] == []
    ops = [report["summary"]["captured_ops"] for report in (cold, warm)]
    assert ops[0] == ops[1] > 300
    assert [graph["cache"] for graph in cold["graphs"]] == ["miss"] * len(cold["graphs"])
    assert [graph["cache"] for graph in warm["graphs"]] == ["hit"] * len(warm["graphs"])
    for run in runs:
        # The graphs' own shares, and what no graph repeats when warm, add up to what torch says.
        torch_says = json.loads(run.stdout)
        shares = [graph["inductor_metrics"] for graph in run.report["graphs"]]
        shares.append(run.report["counters"]["outside_inductor_metrics"])
        sums = {name: sum(share[name] for share in shares) for name in torch_says["metrics"]}
        assert sums == torch_says["metrics"]
        for group, name in (("aot_autograd", "aot"), ("inductor", "inductor")):
            summed: dict[str, int] = {}
            for graph in run.report["graphs"]:
                for counter, value in graph["counters"].get(group, {}).items():
                    summed[counter] = summed.get(counter, 0) + value
            assert summed == torch_says[name]
    # And what we have filled serves Inductor.
    counters = json.loads(run_forked(program("inductor", training), env=cache).stdout)
    assert counters["aot"]["autograd_cache_hit"] > 0
    assert "autograd_cache_miss" not in counters["aot"]
    assert "fxgraph_cache_miss" not in counters["inductor"]


@pytest.mark.full
def test_modes_share_the_cache_too(run_forked: RunProgram, cold_cache: Path) -> None:
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
    source = """
        import torch
        f = torch.compile(lambda x: x.sin() + 1, backend={!r}, mode="max-autotune-no-cudagraphs")
        f(torch.ones(8))
    """
    run_forked(source.format("inductor"), env=cache)
    report = run_forked(source.format("instrumented"), env=cache).report
    assert report["graphs"][0]["cache"] == "hit"
    assert report["graphs"][0]["config"]["max_autotune"] == "True"


def test_bypass_and_its_reason(run_forked: RunProgram) -> None:
    report = run_forked("""
        import torch
        import torch._inductor.config as config
        config.freezing = True
        linear = torch.nn.Linear(4, 4).eval()
        f = torch.compile(lambda x: linear(x).relu(), backend="instrumented")
        with torch.no_grad():
            f(torch.ones(2, 4)), f(torch.ones(2, 4))
    """).report
    (graph,) = report["graphs"]
    assert graph["cache"] == "bypass"
    assert graph["cache_reason"] not in (None, "None", "")
    assert graph["calls"] == 2
    assert report["caches"]["bypass_reasons"] == {graph["cache_reason"]: 1}


@pytest.mark.full
def test_no_cache_at_all(run_forked: RunProgram) -> None:
    report = run_forked(
        """
        import torch
        torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(8))
        """,
        env={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
    ).report
    assert report["graphs"][0]["cache"] == "off"
    assert report["graphs"][0]["code"][0]["kernels"]
