"""Regions round the kernels of a GPU."""

import collections
from typing import Any

from profiled_steps import profiled_steps


def test_regions_enclose_the_kernels(fresh: None, tmp_path: Any) -> None:
    import json

    prof, _ = profiled_steps("instrumented", "cuda")
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e.get("ph") == "X"]
    regions = [e for e in spans if e["name"].startswith("TORCHDYNAMO") and e["cat"] == "cpu_op"]
    assert collections.Counter(e["name"] for e in regions) == {
        "TORCHDYNAMO": 5,
        "TORCHDYNAMO_BACKWARD": 5,
    }
    launches = {
        e["args"]["correlation"]: e
        for e in spans
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]
    }
    kernels = [e for e in spans if e.get("cat") == "kernel"]
    triton = [e for e in kernels if e["name"].startswith("triton_")]
    assert len(triton) >= 10
    for kernel in triton:
        launch = launches[kernel["args"]["correlation"]]
        assert any(
            region["tid"] == launch["tid"]
            and region["ts"] <= launch["ts"]
            and launch["ts"] + launch["dur"] <= region["ts"] + region["dur"]
            for region in regions
        ), kernel["name"]
