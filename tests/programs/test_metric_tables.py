"""Inductor's metric tables with the backend active: cold, warm, off, asked for wrongly."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from metric_csv import table
from programs import RunProgram

VARIABLE = "TORCHINDUCTOR_ENABLED_METRIC_TABLES"

# Trains a small net with a graph break and runs a function whose nodes share buffers that they
# index differently. What Inductor's scheduler decided is recorded where it decides it, and printed;
# the code that Inductor made or loaded goes to stderr.
PROGRAM = """
import json, sys
import torch
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import Scheduler

graphs, failures = [], []
init, decide = Scheduler.__init__, Scheduler.decide_fusion_fail_reason

def observed_init(self, *args):
    init(self, *args)
    graphs.append([self.post_grad_graph_id, self.num_orig_nodes, len(self.nodes)])

def observed_decide(self, node1, node2, names):
    reason = decide(self, node1, node2, names)
    failures.append([node1.get_name(), node2.get_name(), str(list(names)), reason])
    return reason

Scheduler.__init__, Scheduler.decide_fusion_fail_reason = observed_init, observed_decide
GraphLowering.save_output_code = lambda source: print(source, file=sys.stderr)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)

    def forward(self, x):
        x = self.norm(self.linear(x)).relu()
        torch._dynamo.graph_break()
        return torch.softmax(self.linear(x), -1).sum()

def mixed(x, w):
    y = torch.relu(x @ w) * 2 + 1
    return y.t().contiguous() + 1, y.sum(0), y.sum(1)

torch.compile(Net(), backend="instrumented")(torch.ones(4, 16)).backward()
out = torch.compile(mixed, backend="instrumented")(torch.ones(8, 8), torch.eye(8))
print(json.dumps({"graphs": graphs, "failures": failures, "out": [t.sum().item() for t in out]}))
"""


def counts(rows: list[dict[str, str]]) -> list[list[int]]:
    return [[int(value) for value in row.values()] for row in rows]


@pytest.mark.full
def test_cold_and_warm(run_forked: RunProgram, cold_cache: Path, tmp_path: Path) -> None:
    env = {
        VARIABLE: "graph_stats, kernel_metadata,slow_fusion,"
        "fusion_failure_due_to_indexing_mismatch",
        "TORCHINDUCTOR_CACHE_DIR": str(cold_cache),
    }
    cold = run_forked(PROGRAM, env=env)
    warm = run_forked(PROGRAM, env=env)
    truth = json.loads(cold.stdout)
    # y = relu(I·1)·2 + 1 is 1·2 + 1 = 3 in each of the 64 places; the first result adds 64.
    assert truth["out"] == json.loads(warm.stdout)["out"] == [64 * 4, 64 * 3, 64 * 3]
    # A warm process schedules nothing.
    assert json.loads(warm.stdout)["graphs"] == json.loads(warm.stdout)["failures"] == []
    assert warm.report["caches"]["graphs"]["hit"] == 3

    check_graph_stats(truth["graphs"], tmp_path / "reports0", tmp_path / "reports1")
    check_kernels(cold.stderr, tmp_path / "reports0")
    check_kernels(warm.stderr, tmp_path / "reports1")
    # The same rows, in the order in which the graphs were loaded.
    assert Counter(map(repr, table(tmp_path / "reports0", "kernel_metadata"))) == Counter(
        map(repr, table(tmp_path / "reports1", "kernel_metadata"))
    )
    check_fusion_failures(truth["failures"], tmp_path / "reports0")
    # The decisions of a compilation that did not happen are not repeated, as with Inductor.
    assert {path.name for path in (tmp_path / "reports1").glob("metric_table_*")} == {
        "metric_table_graph_stats.csv",
        "metric_table_kernel_metadata.csv",
    }
    for finished in (cold, warm):
        assert "lost" not in finished.report["note_codes"], finished.report["notes"]
    assert not list(tmp_path.glob("metric_table_*"))  # but in INSTRUMENTED_DIR


def check_graph_stats(scheduled: list[list[int]], cold: Path, warm: Path) -> None:
    # Two graphs round the break, each with a backward, and one of `mixed`.
    assert len(scheduled) == 5
    rows = table(cold, "graph_stats")
    assert list(rows[0]) == ["graph_id", "num_nodes_before_fusion", "num_nodes_after_fusion"]
    assert counts(rows) == scheduled
    # On a warm cache the numbers are the cold process's; the ids count what was loaded.
    again = counts(table(warm, "graph_stats"))
    assert [row[0] for row in again] == [0, 1, 2, 3, 4]
    assert sorted(row[1:] for row in again) == sorted(row[1:] for row in scheduled)


def check_kernels(generated: str, folder: Path) -> None:
    defined = re.findall(r"^(\w+) = async_compile\.cpp", generated, re.MULTILINE)
    assert defined and generated.count("\nasync_compile.wait") == 5  # graphs
    rows = table(folder, "kernel_metadata")
    assert Counter(row["kernel_name"] for row in rows) == Counter(defined)
    for row in rows:
        code = Path(row["kernel_path"]).read_text()
        assert f"{row['kernel_name']} = async_compile.cpp" in code
        assert int(row["num_store"]) >= 1 and int(row["line_of_code"]) > 1


def check_fusion_failures(decided: list[list[str]], folder: Path) -> None:
    rows = table(folder, "fusion_failure_due_to_indexing_mismatch")
    assert decided
    assert [
        [row["node1_name"], row["node2_name"], row["common_buffer_names"], row["failure_reason"]]
        for row in rows
    ] == decided
    for row in rows:
        assert row["node1_name"] in Path(row["node1_debug_str"]).read_text()
        assert row["node2_name"] in Path(row["node2_debug_str"]).read_text()
        assert {int(row["pre_grad_graph_id"]), int(row["post_grad_graph_id"])} <= set(range(5))


@pytest.mark.full
def test_the_fx_graph_cache_alone(run_forked: RunProgram, cold_cache: Path, tmp_path: Path) -> None:
    """Without AOTAutograd's cache a warm graph passes through Inductor's own step."""
    env = {VARIABLE: "graph_stats", "TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
    program = (
        "import torch._functorch.config as config; config.enable_autograd_cache = False\n" + PROGRAM
    )
    truth = json.loads(run_forked(program, env=env).stdout)["graphs"]
    warm = run_forked(program, env=env)
    assert json.loads(warm.stdout)["graphs"] == []
    graphs = warm.report["graphs"]
    assert graphs and all(graph["aot_autograd_cache"] != "hit" for graph in graphs)
    # The same order: each backward is compiled, or looked up, when it first runs.
    assert counts(table(tmp_path / "reports1", "graph_stats")) == truth


SMALL = """
import torch
f = torch.compile(lambda x: (x + 1).relu(), backend="instrumented")
print(f(torch.zeros(3)).sum().item())
"""


@pytest.mark.full
def test_the_working_folder(run_forked: RunProgram, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = run_forked(
        "import os, torch; from instrumented_backend import backend; os.chdir('elsewhere')\n"
        + SMALL,
        env={VARIABLE: "graph_stats", "INSTRUMENTED_DIR": None},
    )
    assert done.stdout == "3.0\n"
    assert counts(table(tmp_path / "elsewhere", "graph_stats")) == [[0, 1, 1]]
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [
        "metric_table_graph_stats.csv"
    ]


@pytest.mark.full
def test_a_cache_filled_without_the_numbers(
    run_forked: RunProgram, cold_cache: Path, tmp_path: Path
) -> None:
    env = {VARIABLE: "graph_stats", "TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
    run_forked(SMALL, env=env)
    (kept,) = cold_cache.glob("instrumented/graph_stats/*")
    kept.unlink()
    done = run_forked(SMALL, env=env)
    assert table(tmp_path / "reports1", "graph_stats") == [
        {"graph_id": "0", "num_nodes_before_fusion": "", "num_nodes_after_fusion": ""}
    ]
    assert any("graph_stats" in note and "unknown" in note for note in done.report["notes"])
    kept.write_text('[[1, "')  # damaged: the same
    done = run_forked(SMALL, env=env)
    assert done.stdout == "3.0\n"
    assert table(tmp_path / "reports2", "graph_stats")[0]["num_nodes_before_fusion"] == ""
    assert any("graph_stats" in note and "damaged" in note for note in done.report["notes"])


@pytest.mark.full
def test_the_same_cache_keys_as_inductor(run_forked: RunProgram, cold_cache: Path) -> None:
    """Inductor's config, of which the enabled tables are part, makes the key; we do not."""
    env = {VARIABLE: "kernel_metadata", "TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
    plain = SMALL.replace('"instrumented"', '"inductor"')
    count = "from torch._dynamo.utils import counters\nprint(counters['inductor'])"
    assert "'fxgraph_cache_miss': 1" in run_forked(plain + count, env=env).stdout
    assert "'fxgraph_cache_hit': 1" in run_forked(SMALL + count, env=env).stdout
    env[VARIABLE] = "graph_stats"
    assert "'fxgraph_cache_miss': 1" in run_forked(SMALL + count, env=env).stdout
    assert "'fxgraph_cache_hit': 1" in run_forked(plain + count, env=env).stdout


@pytest.mark.full
def test_tables_by_option_and_by_config(run_forked: RunProgram, tmp_path: Path) -> None:
    done = run_forked(
        """
        import torch
        import torch._inductor.config as config
        option = {"enabled_metric_tables": "graph_stats"}
        one = torch.compile(lambda x: x + 1, backend="instrumented", options=option)
        two = torch.compile(lambda x: x + 2, backend="instrumented")
        print(one(torch.zeros(3)), two(torch.zeros(3)))
        config.enabled_metric_tables = "graph_stats"
        three = torch.compile(lambda x: (x + 3).sum().relu(), backend="instrumented")
        print(three(torch.zeros(3)))
        """
    )
    assert done.stdout == "tensor([1., 1., 1.]) tensor([2., 2., 2.])\ntensor(9.)\n"
    rows = counts(table(tmp_path / "reports0", "graph_stats"))
    assert len(rows) == 2 and rows[0][1:] == [1, 1]


@pytest.mark.full
def test_what_cannot_be_written_is_lost_and_said_once(
    run_forked: RunProgram, tmp_path: Path
) -> None:
    (tmp_path / "metric_table_graph_stats.csv").mkdir()
    two_graphs = SMALL + SMALL.replace("+ 1", "+ 2").replace("import torch", "")
    done = run_forked(two_graphs, env={VARIABLE: "graph_stats", "INSTRUMENTED_DIR": None})
    assert done.stdout == "3.0\n6.0\n"
    assert done.stderr.count("WARNING: lost: a row of metric table graph_stats: IsADir") == 1


@pytest.mark.full
def test_compiled_in_another_process(
    run_program: RunProgram, cold_cache: Path, tmp_path: Path
) -> None:
    """Which has Inductor's own tables; what only it knows is missing, and nothing fails."""
    done = run_program(
        """
        import torch
        if __name__ == "__main__":
            f = torch.compile(lambda x: (x + 1).relu(), backend="instrumented")
            print(f(torch.zeros(3)).sum().item())
        """,
        env={
            VARIABLE: "graph_stats",
            "TORCHINDUCTOR_FX_COMPILE_MODE": "SUBPROCESS",
            "TORCHINDUCTOR_CACHE_DIR": str(cold_cache),
        },
    )
    assert done.stdout == "3.0\n"
    (row,) = table(tmp_path / "reports0", "graph_stats")
    assert row["num_nodes_before_fusion"] == row["num_nodes_after_fusion"] == ""
    assert any("in another process" in note for note in done.report["notes"])


def test_unknown_names(run_forked: RunProgram) -> None:
    env: dict[str, str | None] = {VARIABLE: "graph_stats,nonsense"}
    done = run_forked(SMALL, env=env, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{VARIABLE}='graph_stats,nonsense': unknown metric table")
    assert done.stderr.count("\n") == 1 and "kernel_autotune" in done.stderr
    # A program that merely imports the package, or names another backend, is none of our business.
    other = "import instrumented_backend\n" + SMALL.replace('"instrumented"', '"aot_eager"')
    assert run_forked(other, env=env).stdout == "3.0\n"


STATE = """
from torch._inductor import metrics
table = metrics.get_metric_table("graph_stats")
print(type(table) is metrics.MetricTable, metrics.log_kernel_metadata.__module__)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "env", [{}, {VARIABLE: "slow_fusion", "INSTRUMENTED_DISABLE": "1"}], ids=["off", "disabled"]
)
def test_without_tables_nothing_is_patched(
    run_forked: RunProgram, env: dict[str, str | None]
) -> None:
    done = run_forked(SMALL + STATE, env=env)
    assert done.stdout == "3.0\nTrue torch._inductor.metrics\n"


@pytest.mark.full
def test_inductor_in_the_same_process_is_helped_too(run_forked: RunProgram, tmp_path: Path) -> None:
    plain = SMALL.replace('"instrumented"', '"inductor"').replace("x + 1", "x + 3")
    run_forked(SMALL + plain, env={VARIABLE: "graph_stats"})
    assert len(table(tmp_path / "reports0", "graph_stats")) == 2
