"""The op meter beside others: profilers and observers, exceptions, compilations, Ctrl-C."""

import json

import pytest
import torch
from programs import RunProgram, ops_of

# Six events inside the region and four inside an op, of which the meter has no need.
CROWDED = """
    import collections, json, sys, torch
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile
    from instrumented_backend import backend
    meter = backend._session.ops
    class Cubed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()
        @staticmethod
        def backward(ctx, grad):
            for _ in range(4):
                grad = grad.mul(0.5)
            if grad.isnan().any():
                raise ValueError("nan")
            return grad
    @torch.compile(backend="instrumented")
    def products(x):
        for _ in range(6):
            x = x @ x
        return x
    x = torch.eye(4, requires_grad=True)
    def step(factor=1.0):
        products(x.detach())
        (Cubed.apply(x) * factor).sum().backward()
        x.grad = None
    def seen():
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            step()
        return [event.name for event in profiler.events()]
    for _ in range(3):
        step()
"""


@pytest.mark.full
def test_others_see_the_events_inside_ops_and_regions(run_forked: RunProgram) -> None:
    """While it is alone, the meter has PyTorch make none of them."""
    program = (
        CROWDED
        + """
    from instrumented_backend.observe.ops import work
    def silences():
        return 0 if meter._lib is None else work.done(meter._lib).silences
    before = silences()
    step()
    alone = silences() - before
    step()
    counts = collections.Counter(seen())
    observer = ExecutionTraceObserver().register_callback(sys.argv[0] + ".json")
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    nodes = json.load(open(sys.argv[0] + ".json"))["nodes"]
    traced = collections.Counter(node["name"] for node in nodes)
    both = silences() - before - 2 * alone
    after = collections.Counter(seen())
    print(json.dumps([alone, both, [sorted(c.items()) for c in (counts, traced, after)]]))
"""
    )
    always = run_forked(program, env={"INSTRUMENTED_OPS": "always"})
    alone, beside_others, events = json.loads(always.stdout)
    assert alone >= 2 and beside_others == 0  # the region, the node
    off = run_forked(program, env={"INSTRUMENTED_OPS": "off"})
    assert events == json.loads(off.stdout)[2]
    for found in events:
        assert dict(found)["aten::mul"] >= 4 and dict(found)["aten::mm"] == 6


def test_others_do_not_see_what_a_report_runs(run_forked: RunProgram) -> None:
    """To count a graph's ops, its calls are run once; an observer sees those of all threads."""
    done = run_forked(
        """
        import json, sys, torch
        import instrumented_backend.backend
        from torch.profiler import ExecutionTraceObserver

        @torch.compile(backend="instrumented")
        def product(x):
            return (x @ x).sin()

        x = torch.ones(4, 4)
        instrumented_backend.backend._session._live.snapshots.stop()  # it would have counted them
        product(x)
        observer = ExecutionTraceObserver().register_callback(sys.argv[0] + ".json")
        observer.start()
        during = instrumented_backend.report()
        observer.stop()
        observer.unregister_callback()
        names = {node["name"] for node in json.load(open(sys.argv[0] + ".json"))["nodes"]}
        notes = [note.code for note in during.coded_notes()]
        print(json.dumps([[name for name in names if name[0] != "["], notes]))
        """
    )
    assert done.stdout == '[[], ["captured-unknown"]]\n'
    assert done.report["summary"]["captured_ops"] == 2
    assert "captured-unknown" not in {note["code"] for note in done.report["notes"]}


def test_an_exception_inside_an_op(run_forked: RunProgram) -> None:
    """It ends the op, and what comes after it is seen."""
    program = (
        CROWDED
        + """
    backend._session.reset()
    for _ in range(5):
        try:
            step(float("nan"))
        except ValueError as error:
            print(error)
        x.detach().add(1)
    print(len(seen()) > 10)
"""
    )
    done = run_forked(program, env={"INSTRUMENTED_OPS": "always"})
    assert done.stdout == "nan\n" * 5 + "True\n"
    rows = {row["op"]: row["count"] for row in ops_of(done)["eager"]}
    assert (rows["CubedBackward"], rows["aten::add"]) == (6, 5)


@pytest.mark.full
def test_compilations_inside_an_op_are_not_listened_to(run_forked: RunProgram) -> None:
    """Reentrant checkpointing calls the function in an autograd function's forward and backward."""
    done = run_forked(
        """
        import torch
        from torch.utils.checkpoint import checkpoint

        torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(3))
        compiled = torch.compile(lambda x: x.sin().cos() * 3, backend="instrumented")

        def block(x):
            for _ in range(5):  # inside an op, these are not listened to from the third on
                x = x * 2
            return compiled(x)

        x = torch.ones(8, 8, requires_grad=True)
        checkpoint(block, x, use_reentrant=True).sum().backward()
        """,
        env={"INSTRUMENTED_OPS": "always"},
    )
    eager = {record["op"]: record["count"] for record in ops_of(done)["eager"]}
    assert eager == {
        "aten::ones": 2,
        "CheckpointFunction": 1,
        "CheckpointFunctionBackward": 1,
        "aten::sum": 1,
        "SumBackward0": 1,
        "aten::ones_like": 1,
        "torch::autograd::AccumulateGrad": 1,
    }
    forward = {graph["compile_id"]: graph["forward_ops"] for graph in done.report["graphs"]}
    assert forward == {"0/0": 1, "1/0": 3, "1/1": 3}


@pytest.mark.full
def test_a_profilers_compilations_are_no_ops(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import torch
        compiled = torch.compile(
            lambda x: (x.sin() + 1).sum(), backend="instrumented", dynamic=False
        )
        x = [torch.ones(n, requires_grad=True) for n in (3, 4)]
        compiled(x[0]).backward()
        with torch.profiler.profile():
            compiled(x[1]).backward()
            torch.ones(4).mul(2)
        """,
        env={"INSTRUMENTED_OPS": "always"},
    )
    eager = {record["op"]: record["count"] for record in done.report["ops"]["eager"]}
    assert eager == {
        "aten::ones": 3,
        "aten::ones_like": 2,
        "torch::autograd::AccumulateGrad": 2,
        "aten::mul": 1,
    }


def test_exceptions_out_of_ops_are_the_programs(run_forked: RunProgram) -> None:
    """The first op on a line is always sampled, and while Python has an error that is not to be."""
    with pytest.raises(RuntimeError) as wrong_shapes:
        torch.ones(2, 2).mm(torch.ones(3, 3))
    done = run_forked(
        """
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        class Refuses(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                raise ValueError(function)

        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, gradient):
                raise KeyError("backward")

        torch.compile(lambda x: x.mm(x), backend="instrumented")(torch.ones(2, 2))
        x = torch.ones(2, 2, requires_grad=True)

        def refused():
            with Refuses():
                x.detach()

        def wrong_shapes():
            x.mm(torch.ones(3, 3))

        for function in (refused, wrong_shapes, lambda: Fails.apply(x).sum().backward()):
            for _ in range(3):
                try:
                    function()
                except (ValueError, RuntimeError, KeyError) as error:
                    print(type(error).__name__, str(error)[:20])
        """,
        env={"INSTRUMENTED_OPS": "always", "INSTRUMENTED_TABLES": "none"},
    )
    assert done.stdout.splitlines() == [
        *["ValueError aten.detach.default"] * 3,
        *[f"RuntimeError {str(wrong_shapes.value)[:20]}"] * 3,
        *["KeyError 'backward'"] * 3,
    ]
    assert done.stderr == ""


@pytest.mark.full
def test_graphs_inside_a_graphs_operator(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import torch
        inner = torch.compile(lambda x: x.mm(x).mm(x).mm(x), backend="instrumented")
        @torch.library.custom_op("ops::inner", mutates_args=())
        def operator(x: torch.Tensor) -> torch.Tensor:
            return inner(x).relu()
        operator.register_fake(lambda x: torch.empty_like(x))
        outer = torch.compile(lambda x: operator(x).mm(x), backend="instrumented")
        x = torch.eye(4)
        for _ in range(10):
            outer(x)
        """,
        env={"INSTRUMENTED_OPS": "always"},
    )
    ops, summary = ops_of(done), done.report["summary"]
    assert summary["graph_calls"] == 20
    # The operator, whatever it calls, and the product; and `eye`.
    assert (summary["captured_ops"], summary["total_ops"]) == (20, 21)
    assert (ops["status"], ops["observed_pct"], ops["note"]) == ("exact", 100, None)


@pytest.mark.full
def test_ctrl_c_while_ops_are_sampled_is_the_programs(run_program: RunProgram) -> None:
    """It comes while an op computes, and Python sees it in our callback, where it would be lost."""
    program = """
        import os, signal, threading, torch
        torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(3))
        x = torch.ones(300, 300)
        computing = threading.Event()
        def press():
            for _ in range(20):
                computing.wait()
                computing.clear()
                os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=press, daemon=True).start()
        caught = 0
        for _ in range(20):
            try:
                computing.set()
                for _ in range(100):
                    x @ x
            except KeyboardInterrupt:
                caught += 1
        print(caught)
    """
    env = {"TORCHDYNAMO_PRINT_MISSING": "1", "INSTRUMENTED_OPS": "always"}
    done = run_program(program, env=env)
    assert done.stdout == "20\n", done.stderr
    assert "KeyboardInterrupt" not in done.stderr
