"""The ops that graphs would dispatch, against Dynamo's graphs run op by op under torch.profiler."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
import torch.utils.checkpoint
from oracles import architectures, oracle
from oracles.oracle import Profiled, profile
from speeds import full_but

from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.ops import op_counter
from instrumented_backend.observe.ops.captured import Call, GraphOps
from instrumented_backend.observe.ops.lines import UNKNOWN
from instrumented_backend.observe.ops.op_counter import OneThread, OpCounter


class Harness:
    """A Dynamo backend that counts each graph's ops, and runs the graph as it is."""

    def __init__(self) -> None:
        self.thread = OneThread(native.load())
        self.counter = OpCounter()
        self.graphs: list[GraphOps] = []

    def backend(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., object]:
        self.graphs.append(self.counter.add(gm))
        return oracle.run_in_region(gm, inputs)

    def forward(self) -> int:
        self.counter.count_all(self.thread)
        return sum(ops.forward or 0 for ops in self.graphs)

    def backward(self) -> int:
        return sum(ops.backward or 0 for ops in self.graphs)

    def compare(self, function: Callable[..., Any], step: Callable[[Any], object]) -> Profiled:
        """Compile, run once, then profile one more step."""
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=self.backend)
        step(compiled)
        return profile(lambda: step(compiled))


@pytest.fixture
def harness() -> Iterator[Harness]:
    torch._dynamo.reset()
    yield Harness()
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "training",
    [
        pytest.param(True, id="training"),
        pytest.param(False, id="inference", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("name", full_but(architectures.ALL_ARCHITECTURES))
def test_architectures(harness: Harness, name: str, training: bool) -> None:
    """The limits are the issue's: 1 % of the forward's ops, 2 % of the autograd nodes."""
    model, inputs = architectures.ALL_ARCHITECTURES[name]()
    model.train(training)

    def step(compiled: Any) -> None:
        if training:
            compiled(**inputs).loss.backward()
        else:
            with torch.no_grad():
                compiled(**inputs)

    truth = harness.compare(model, step)
    assert truth.inside.total() > 30
    assert harness.forward() == pytest.approx(truth.inside.total(), rel=0.01)
    assert (truth.backward > 20) == training
    assert harness.backward() == pytest.approx(truth.backward, rel=0.02)
    assert not any(ops.estimated for ops in harness.graphs)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin() * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0] * x.cos() * 2


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    layer = torch.utils.checkpoint.checkpoint(lambda y: y.relu().sin(), x, use_reentrant=False)
    return layer.sum()


def indexed(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[0] = 1.0
    y[:, 1:] += 2
    return (y[:, 1:, ..., 0] * y[0, 1, 2] + y[:, [0]].sum()).sum()


def autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return functional.linear(x, x).float().sum()


def convolution_under_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = functional.linear(x, torch.eye(8))
        return functional.conv1d(half, torch.ones(3, 2, 3)).float().sum()


def factories(x: torch.Tensor) -> torch.Tensor:
    made = torch.randn(8) + torch.arange(8) + torch.zeros(8, device=x.device)
    return (x + torch.rand_like(x) + made).sum()


attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "checkpoint": checkpointed,
    "autograd function": lambda x: Doubled.apply(x * 3).sum(),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x).sum(),
    "multi-head attention": lambda x: attention(x, x, x, need_weights=False)[0].sum(),
    "indexing": indexed,
    "autocast": autocast,
    "convolution under autocast": convolution_under_autocast,
    "factories": factories,
    "already contiguous": lambda x: x.contiguous().transpose(0, 1).contiguous().sum(),
    "sizes": lambda x: x.view(x.shape[0] * x.shape[1], -1).sum() * x.numel(),
    "vmap": lambda x: torch.vmap(lambda y: (y.sin() * 2).sum())(x).sum(),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones(4, 2, 8),))[1].sum(),
    "interpolation": lambda x: functional.interpolate(
        functional.interpolate(x.sin(), scale_factor=2, mode="linear").relu(), 3
    ).sum(),
    "several results": lambda x: sum(part.sum() for part in x.chunk(2)) + x.max(dim=0)[0].sum(),
}


@pytest.mark.parametrize("requires_grad", [True, False], ids=["training", "inference"])
# torch 2.11 has a call of _make_dual in jvp's graph, whose ops are estimated, which is said.
@pytest.mark.parametrize("name", full_but(FUNCTIONS, *FUNCTIONS.keys() - {"jvp"}))
def test_functions(harness: Harness, name: str, requires_grad: bool) -> None:
    shape = (8, 8) if name == "autocast" else (4, 2, 8)
    x = torch.randn(shape, requires_grad=requires_grad)

    def step(compiled: Any) -> None:
        result = compiled(x)
        if result.requires_grad:
            result.backward()

    truth = harness.compare(FUNCTIONS[name], step)
    assert harness.forward() == truth.inside.total() > 0, truth.inside
    assert harness.backward() == truth.backward, truth.nodes
    assert not any(ops.estimated for ops in harness.graphs)


def changed(h: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    h.mul_(2)
    h.add_(weight.sin())
    return h


def only_changed(h: torch.Tensor, weight: torch.Tensor) -> None:
    changed(h, weight)


# The function; its inputs, made from a leaf; how many nodes the inputs themselves have.
INPUTS: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], tuple[Any, ...]], int]] = {
    "as they are": (lambda y: y.sin(), lambda x: (x,), 0),
    "with a history": (lambda y: y.sin() * 2, lambda x: (x * 1,), 1),
    "a view": (lambda y: y.sin(), lambda x: ((x * 1).view(6, 4),), 2),
    "a view of views": (lambda y: y.sin(), lambda x: ((x * 1).view(6, 4).t()[1:],), 4),
    "two views": (lambda y, z: y.sin() + z.cos(), lambda x: (x * 1).unbind(0), 2),
    "changed": (only_changed, lambda x: (torch.zeros(2, 3, 4), x), 0),
    "changed, with a history": (only_changed, lambda x: (x * 1, x), 1),
    "changed and returned": (changed, lambda x: (torch.zeros(2, 3, 4), x), 0),
}


@pytest.mark.parametrize("case", INPUTS)
def test_inputs(harness: Harness, case: str) -> None:
    """Eager's own nodes, those of the inputs less; and a view's history is the program's."""
    function, make, of_inputs = INPUTS[case]
    leaf = torch.randn(2, 3, 4, requires_grad=True)
    inputs = make(leaf)
    result = function(*inputs)
    end = inputs[0] if result is None else result
    truth = profile(lambda: end.backward(torch.ones_like(end)))
    torch.compile(function, backend=harness.backend)(*make(leaf))
    assert harness.backward() == truth.backward - of_inputs > 0, truth.nodes


def test_a_size_is_no_op(harness: Harness) -> None:
    compiled = torch.compile(lambda x: x.nonzero() * 2, backend=harness.backend, fullgraph=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled(torch.ones(3))
    assert harness.forward() == profile(lambda: torch.ones(3).nonzero() * 2).outside.total() - 1


def test_gradients_inside_a_graph(harness: Harness) -> None:
    """The oracle keeps the autograd nodes apart that the graph's forward runs."""
    x = torch.randn(4)
    truth = harness.compare(
        torch.func.grad(lambda y: (y.sin() * 2).sum()), lambda compiled: compiled(x)
    )
    # sin, mul, sum, ones_like, and the nodes of the first three.
    assert harness.forward() == truth.inside.total() + truth.backward == 4 + 3
    assert harness.backward() == 0


def test_a_region_that_is_compiled_once(harness: Harness) -> None:
    @torch.compiler.nested_compile_region
    def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x @ weight).relu() @ weight + x

    def model(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for weight in weights:
            x = layer(x, weight)
        return x.sum()

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        harness.graphs.append(harness.counter.add(gm))
        return lambda *_: (torch.zeros(()),)

    weights = [torch.randn(4, 4, requires_grad=True) for _ in range(4)]
    torch.compile(model, backend=backend)(torch.randn(4, 4), weights)
    # Four layers of four ops and nodes, and the sum: as without the decorator.
    assert (harness.forward(), harness.backward()) == (17, 17)


def test_a_hook_is_no_op(harness: Harness) -> None:
    def hooked(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda gradient: gradient * 3)
        return y.sin()

    names = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        names.extend(node.name for node in gm.graph.nodes)
        return harness.backend(gm, inputs)

    torch.compile(hooked, backend=backend)(torch.randn(4, requires_grad=True))
    if not any("register_hook" in name for name in names):
        pytest.skip("before torch 2.13, Dynamo makes an autograd.Function of a hook")
    assert harness.forward() == 2 and not harness.graphs[0].estimated


def test_the_programs_own_functions_are_not_run_again(harness: Harness) -> None:
    runs = []

    @torch._dynamo.allow_in_graph
    def opaque(x: torch.Tensor) -> torch.Tensor:
        runs.append("function")
        return x.sin() + 1

    @torch.library.custom_op("captured::labelled", mutates_args=())
    def labelled(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    @labelled.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        runs.append("operator")
        return torch.empty_like(x)

    torch.compile(lambda x: labelled(opaque(x)) * 2, backend=harness.backend)(torch.randn(4))
    assert set(runs) == {"function", "operator"}  # Dynamo's own runs
    runs.clear()
    # The operator is one op; the function, which is two, counts as one, and that is said.
    assert harness.forward() == 3
    assert harness.graphs[0].estimated == {"a call of opaque": 1}
    assert not runs


def test_warnings_are_not_repeated(harness: Harness) -> None:
    compiled = torch.compile(lambda x: functional.kl_div(x, x), backend=harness.backend)
    with pytest.warns(UserWarning, match="batchmean"):
        compiled(torch.rand(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert harness.forward() == 1
    assert not harness.graphs[0].estimated


def test_dynamic_shapes_count_without_a_guard(harness: Harness) -> None:
    compiled = torch.compile(
        lambda x: (x.view(x.shape[0], 2, -1) * x.shape[0]).sum(),
        backend=harness.backend,
        dynamic=True,
    )
    for rows in (3, 5, 7, 11):
        compiled(torch.randn(rows, 8))
    assert len(harness.graphs) == 1
    # view, mul, sum; what is done with the sizes is no op.
    assert harness.forward() == 3


def test_counting_leaves_the_random_state_alone(harness: Harness) -> None:
    torch.compile(factories, backend=harness.backend)(torch.randn(4, 8))
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    harness.forward()
    assert torch.equal(torch.rand(3), expected)


def test_a_branch_is_estimated_and_says_so(harness: Harness) -> None:
    torch.compile(
        lambda x: torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y.cos(), (x,)),
        backend=harness.backend,
    )(torch.randn(4))
    # sum and gt for certain; the branch that will be taken is not known, and counts as one.
    assert harness.forward() == 3
    assert list(harness.graphs[0].estimated) == ["higher-order operator cond"]


def test_a_call_that_cannot_run_counts_as_one(harness: Harness) -> None:
    def fails() -> None:
        raise ValueError("no")

    ops = GraphOps()
    call = Call("call_function", fails, (), {})
    ops.calls[call.digest(), UNKNOWN] = 2
    harness.counter._graphs.append(ops)
    harness.counter._waiting[call.digest()] = call
    harness.graphs.append(ops)
    assert harness.forward() == 2
    assert ops.estimated == {"a call of fails": 2}


def test_calls_for_which_no_time_is_left_count_as_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(op_counter, "LONGEST_S", -1.0)
    compiled = torch.compile(lambda x: functional.linear(x, x).sin(), backend=harness.backend)
    compiled(torch.randn(4, 4))
    assert harness.forward() == 2
    assert harness.graphs[0].estimated == {"a call of one of too many functions": 2}


def test_no_call_is_run_while_others_would_see_it(harness: Harness) -> None:
    compiled = torch.compile(lambda x: functional.linear(x, x).sin(), backend=harness.backend)
    compiled(torch.randn(4, 4))
    with torch.profiler.profile() as profiler:
        harness.counter.count_all(harness.thread)
    assert not profiler.events()
    assert harness.graphs[0].forward is None and harness.counter.waiting == 2
    assert harness.counter.problem == op_counter.OTHERS_LISTEN
    assert harness.forward() == 2 and not harness.graphs[0].estimated
    assert harness.counter.problem is None


def test_equal_layers_are_run_once(harness: Harness) -> None:
    def layers(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x.sin() * 2
        return x

    torch.compile(layers, backend=harness.backend)(torch.randn(4))
    assert harness.counter.waiting == 2
    assert harness.forward() == 20
