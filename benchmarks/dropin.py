"""PyTorch's own operators, compiled by us and by Inductor: the same bits, or the same error.

    python benchmarks/dropin.py              # all of them, forward and backward: half an hour
    python benchmarks/dropin.py --tenth 0    # every tenth one, from the first
    python benchmarks/dropin.py --operator nn.functional.pad.reflect

Exit code 1 where one differs. Each tenth runs in a process of its own, because torch.testing's
internals change global settings, and because an operator may crash. `LEFT_OUT` lists what is not
compared.
"""

import faulthandler
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import click
import torch
import torch._dynamo
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import instrumented_backend
from instrumented_backend.records import notes

TENTHS = 10
LIMIT_S = 600  # for one operator
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.float8_e4m3fn)

_MEMORY = "its result is memory that nobody wrote"
_CUDA = "runs on CUDA only"
LEFT_OUT = {
    "empty": _MEMORY,
    "empty_like": _MEMORY,
    "empty_permuted": _MEMORY,
    "empty_strided": _MEMORY,
    "new_empty": _MEMORY,
    "new_empty_strided": _MEMORY,
    "jiterator_2inputs_2outputs": _CUDA,
    "jiterator_4inputs_with_extra_args": _CUDA,
    "jiterator_binary": _CUDA,
    "jiterator_binary_return_by_ref": _CUDA,
    "jiterator_unary": _CUDA,
    "nn.functional.batch_norm.without_cudnn": _CUDA,
    "torch.ops.aten._efficient_attention_forward": _CUDA,
    "torch.ops.aten._flash_attention_forward": _CUDA,
}


def operators() -> dict[str, Any]:
    """``{"nn.functional.pad.reflect": OpInfo}``: by name and variant."""
    return {op.full_name: op for op in op_db if op.full_name not in LEFT_OUT}


def dtype_of(op: Any) -> torch.dtype:
    """float32, or the first of `DTYPES` for operators that are for other types."""
    supported = op.supported_dtypes("cpu")
    return next(dtype for dtype in DTYPES if dtype in supported)


def names_of(tenth: int) -> list[str]:
    return sorted(operators())[tenth::TENTHS]


# --- One run ------------------------------------------------------------------------------------


def run(op: Any, backend: str) -> dict[str, Any]:
    """Everything that a program can see of one call and its backward, each value as bytes."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    sample = first_sample(op)
    if sample is None:
        return {"skipped": "the database has no sample"}
    arguments = (sample.input, *sample.args), sample.kwargs

    def call(args: Any, kwargs: Any) -> Any:
        return op(*args, **kwargs)

    seen: dict[str, Any] = {}
    try:
        torch.manual_seed(1)
        result = torch.compile(call, backend=backend)(*arguments)
        seen["result"] = as_bytes(result)
        seen["gradients"] = as_bytes(gradients(result, arguments))
    except Exception as error:  # any: that it is the same one is what is tested
        seen["error"] = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    seen["arguments"] = as_bytes(arguments)
    seen["random state"] = torch.get_rng_state().numpy().tobytes()
    seen["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return seen


def first_sample(op: Any) -> Any:
    dtype = dtype_of(op)
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    return next(iter(op.sample_inputs("cpu", dtype, requires_grad=backward)), None)


def gradients(result: Any, arguments: Any) -> Any:
    """Of the outputs, weighted at random, by every leaf; () where there is no backward."""
    outputs = [value for value in tensors(result) if value.requires_grad]
    leaves = [value for value in tensors(arguments) if value.requires_grad]
    if not outputs or not leaves:
        return ()
    weights = [
        torch.randn_like(value) if value.layout is torch.strided else value.detach()
        for value in outputs
    ]
    return torch.autograd.grad(outputs, leaves, weights, allow_unused=True)


def tensors(values: Any) -> Iterator[torch.Tensor]:
    return (value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor))


def as_bytes(values: Any) -> list[Any]:
    leaves, spec = pytree.tree_flatten(values)
    return [str(spec), *map(leaf_as_bytes, leaves)]


def leaf_as_bytes(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    facts = (str(type(value)), str(value.dtype), tuple(value.shape), str(value.layout))
    if value.layout is not torch.strided:
        return (*facts, as_bytes(sparse_parts(value)))
    # A clone: a gradient can be a tensor of zeros without memory.
    data = value.detach().clone().resolve_conj().resolve_neg().contiguous().flatten()
    content = data.view(torch.uint8).numpy().tobytes()
    return (*facts, value.stride(), value.requires_grad, content)


def sparse_parts(value: torch.Tensor) -> tuple[torch.Tensor, ...]:
    value = value.detach()
    if value.layout is torch.sparse_coo:
        return value._indices(), value._values()
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        return value.crow_indices(), value.col_indices(), value.values()
    return value.ccol_indices(), value.row_indices(), value.values()


# --- Both backends ------------------------------------------------------------------------------


def compare(op: Any, ours_first: bool) -> dict[str, Any]:
    """What one line of the output holds beside the name; ``differs`` is empty where all is well.

    They share Inductor's caches, so that the first one compiles and the second one loads.
    """
    outcome: dict[str, Any] = {}
    seen = {}
    for backend in ("instrumented", "inductor") if ours_first else ("inductor", "instrumented"):
        instrumented_backend.reset()
        seen[backend] = run(op, backend)
        if backend == "instrumented":
            report = instrumented_backend.report()
    theirs, ours = seen["inductor"], seen["instrumented"]
    outcome["skipped"] = theirs.get("skipped")
    outcome["error"] = theirs.get("error")
    outcome["backward"] = len(theirs.get("gradients", ())) > 1
    outcome["graphs"] = theirs.get("graphs")
    outcome["differs"] = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
    outcome["lost"] = [note.text for note in report.coded_notes({notes.LOST})]
    if outcome["differs"]:
        again = run(op, "inductor")
        outcome["inductor_differs"] = [key for key in theirs if theirs[key] != again.get(key)]
        outcome["errors"] = [theirs.get("error"), ours.get("error")]
    if not outcome["error"] and report.summary.graphs != theirs.get("graphs"):
        outcome["differs"].append(f"graphs observed: {report.summary.graphs}")
    return outcome


def compare_here(names: list[str]) -> None:
    """Print one line of JSON for each operator when it starts, and one when it has ended."""
    found = operators()
    warnings.simplefilter("ignore")
    # More of them in graphs: those that the database calls in a function which sets the seed and
    # breaks the graph, and those whose sizes depend on the data.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    torch._dynamo.config.capture_scalar_outputs = True
    for number, name in enumerate(names):
        print(json.dumps({"operator": name, "started": True}), flush=True)
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        outcome = compare(found[name], ours_first=number % 2 == 1)
        print(json.dumps({"operator": name, **outcome}), flush=True)


def outcomes(names: list[str]) -> list[dict[str, Any]]:
    """What `compare` gives for each, from another process; an operator that ends it is the last."""
    done = subprocess.run(
        [sys.executable, __file__, "--here", *(f"--operator={name}" for name in names)],
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ended = [line for line in lines if "started" not in line]
    if done.returncode:
        last = lines[-1]["operator"] if lines else "importing torch's database"
        ended.append({"operator": last, "differs": [f"ended the process: {done.returncode}"]})
    return ended


def is_wrong(outcome: dict[str, Any]) -> bool:
    return bool(outcome["differs"] or outcome.get("lost") or outcome.get("skipped"))


@click.command()
@click.option("--tenth", type=click.IntRange(0, TENTHS - 1), multiple=True, help="Only this one.")
@click.option("--operator", type=str, multiple=True, help="Only this one, by its full name.")
@click.option("--here", is_flag=True, hidden=True)
def main(tenth: tuple[int, ...], operator: tuple[str, ...], here: bool) -> None:
    """Compare PyTorch's operators, compiled by us and by Inductor, bit for bit."""
    unknown = set(operator) - set(operators())
    if unknown:
        raise click.BadParameter(f"no such operator: {', '.join(sorted(unknown))}")
    parts = [list(operator)] if operator else [names_of(t) for t in tenth or range(TENTHS)]
    if here:
        compare_here([name for names in parts for name in names])
        return
    seen: list[dict[str, Any]] = []
    with click.progressbar(parts, file=sys.stderr) as bar:
        for names in bar:
            seen += outcomes(names)
    wrong = [outcome for outcome in seen if is_wrong(outcome)]
    for outcome in wrong:
        print(json.dumps(outcome))
    print(f"{len(seen)} operators compared, {len(wrong)} differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
