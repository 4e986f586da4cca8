"""What reading the reports of a thousand ranks takes: ``python benchmarks/thousand_ranks.py``.

Simulated: one report with as much in it as that of a language model of 24 layers that are compiled
one by one has, a thousand times, one rank of which recompiled a function, and one is missing. Ends
with 1 where `show` needs more than the limits, or does not name what differs.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MAX_S = 10.0
MAX_BYTES = 500_000_000
RANKS = 1_000
ODD, MISSING = 617, 900
LAYERS, KERNELS = 24, 8
START_AT = 1_790_000_000.0


def graph(number: int) -> dict[str, Any]:
    kernels = [f"triton_poi_fused_add_mul_silu_view_{i}" for i in range(KERNELS)]
    return {
        "graph": number,
        "compile_id": f"{number}/0",
        "function": "forward",
        "file": f"/src/model/layer{number}.py",
        "line": 40,
        "ops": 60,
        "calls": 5_000,
        "backward_calls": 5_000,
        "code": [
            {"direction": way, "path": f"/cache/ab/c{number}{way}.py", "kernels": kernels}
            for way in ("forward", "backward")
        ],
        "cache": "miss",
        "compile_s": {f"{way}{i}_s": 0.1 for way in ("", "backward_") for i in range(10)},
        "counters": {"inductor": {f"counter_{i}": i for i in range(20)}},
    }


def kernel(name: str, number: int) -> dict[str, Any]:
    arguments = [f"in_ptr{i}" for i in range(6)]
    return {
        "kernel_name": name,
        "language": "triton",
        "graph": number,
        "direction": "forward",
        "path": f"/cache/ab/c{number}forward.py",
        "kernel_path": f"/cache/cd/{name}.py",
        "arg_dtypes": dict.fromkeys(arguments, "bfloat16"),
        "arg_shapes": {name: [8, 2048, 4096] for name in arguments},
        "aten_ops": ["aten.add", "aten.mul", "aten.silu", "aten.view"],
        "fx_nodes": [f"node_{i}" for i in range(30)],
        "source_lines": [f"/src/model/layer{number}.py:{40 + i}" for i in range(12)],
        "notes": ["estimated from the kernel's index expressions"],
        "note_codes": ["bytes-estimated"],
    }


def compilation(number: int, again: int, start_at: float) -> dict[str, Any]:
    return {
        "compile_id": f"{number}/{again}",
        "direction": "forward",
        "function": "forward",
        "file": f"/src/model/layer{number}.py",
        "line": 40,
        "outcome": "compiled",
        "graphs": [number],
        "phases_s": {f"phase{i}_s": 0.1 for i in range(10)},
        "total_s": 1.0,
        "started_at": start_at,
        "call": 20 if again else 1,
        "guard": "size of x in dimension 0: 4 → 5" if again else None,
    }


def report(rank: int) -> dict[str, Any]:
    graphs = [graph(number) for number in range(LAYERS)]
    compilations = [compilation(number, 0, START_AT + number) for number in range(LAYERS)]
    if rank == ODD:
        compilations.append(compilation(0, 1, START_AT + 600))
    ops: dict[str, Any] = {
        "op": "aten::_foreach_add_",
        "file": "/src/train.py",
        "line": 80,
        "function": "train",
        "count": 5_000,
        "time_us": 1e6,
        "share_pct": 1.0,
    }
    gaps = [
        {
            "group": "0",
            "number": 10 * i,
            "next_group": "0",
            "next_number": 10 * i + 1,
            "start_at": START_AT + 10 * i + 0.001 * rank,
            "seconds": 1.0,
        }
        for i in range(100)
    ]
    return {
        "run": {
            "torch": "2.15.0",
            "device": "cuda",
            "rank": rank,
            "pid": 100 + rank % 8,
            "started": "2026-09-21T13:33:20+00:00",
            "wall_s": 5_000.0 + rank,
            "job": "SLURM_JOB_ID=1 TORCHELASTIC_RUN_ID=5a",
            "world_size": RANKS,
            "host": f"node{rank // 8}",
        },
        "summary": {
            "graphs": LAYERS,
            "graph_calls": 120_000,
            "backward_calls": 120_000,
            "graph_breaks": 0,
            "skipped_functions": 0,
            "recompiles": int(rank == ODD),
            "graph_ops": 1_440,
            "captured_ops": 1,
            "total_ops": 1,
            "pct_ops": 100.0,
            "pct_time": 100.0,
        },
        "graphs": graphs,
        "kernels": [
            kernel(name, number)
            for number in range(LAYERS)
            for name in graphs[number]["code"][0]["kernels"]
        ],
        "ops": {
            "status": "sampled",
            "observed_pct": 1.0,
            "captured": {"ops": 1, "forward_ops": 1, "backward_ops": 0, "time_us": 1.0},
            "total_ops": 1,
            "total_time_us": 1.0,
            "pct_ops_spread": 0.1,
            "pct_time_spread": 0.1,
            "eager": [],
            "missing": [ops] * 200,
            "note": None,
        },
        "breaks": [],
        "recompiles": [],
        "caches": {
            "graphs": {"hit": 0, "miss": LAYERS, "bypass": 0, "off": 0},
            "bypass_reasons": {},
        },
        "counters": {
            "inductor_metrics": {},
            "graphs": {},
            "outside_inductor_metrics": {},
            "outside_graphs": {},
        },
        "compile": {"total_s": 1.0 * len(compilations), "phases": {}, "compilations": compilations},
        "notes": [],
        "collectives": gaps,
        "schema_version": 1,
    }


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0]).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        total = 0
        for rank in range(RANKS):
            if rank != MISSING:
                path = Path(folder) / f"report.rank{rank}.pid{100 + rank % 8}.json"
                total += path.write_text(json.dumps(report(rank)))
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "instrumented_backend", "show", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        took_s = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    names = f"rank {ODD} recompiled" in done.stdout and f"rank {MISSING} of" in done.stdout
    print(done.stdout.partition("\n\n")[0], done.stderr, sep="\n")
    print(f"{RANKS} reports, {total / 1e6:.0f} MB")
    print(f"time    {took_s:6.2f} s   limit {MAX_S:.0f} s")
    print(f"memory  {used / 1e6:6.0f} MB  limit {MAX_BYTES / 1e6:.0f} MB")
    print(f"says what differs: {'yes' if names else 'NO'}")
    return int(took_s > MAX_S or used > MAX_BYTES or not names or done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
