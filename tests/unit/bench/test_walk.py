"""Launches of a graph: which arguments are changed, which are new, what stands in for what."""

import math
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_data import named

from instrumented_backend.bench import kernel_module, stand_ins, timing, triton_configs
from instrumented_backend.bench.fresh_pages import MIN_BYTES, StoragesSeen, give_back
from instrumented_backend.bench.walk import changed_inputs, reason, results
from instrumented_backend.kernels.facts import Access, KernelFacts
from instrumented_backend.kernels.triton import read_triton
from instrumented_backend.records import KernelRecord
from instrumented_backend.records.bench import BenchRecord


def facts(**accesses: str) -> KernelFacts:
    """``in_ptr0="r"``: read; "w": written; "rw": both, with the same index."""
    return KernelFacts(
        KernelRecord("k", "cpp", num_atomic_add=0),
        parameters=list(accesses),
        accesses={
            name: Access({"x0": 1} if "r" in use else {}, {"x0": 1} if "w" in use else {})
            for name, use in accesses.items()
        },
    )


def test_arguments_that_a_launch_changes() -> None:
    a, b, c = (torch.ones(3) for _ in range(3))
    known = facts(in_out_ptr0="rw", in_ptr0="r", out_ptr0="w")
    assert changed_inputs(known, None, (a, b, c)) == [a]
    # An input that is written through another pointer: `x.copy_(...)` on the graph's own.
    found = changed_inputs(facts(in_ptr0="r", out_ptr0="w"), None, (b, b))
    assert len(found) == 1 and found[0] is b
    # A buffer that a reduction writes and reads again holds no input.
    assert changed_inputs(facts(in_ptr0="r", out_ptr0="rw"), None, (a, b)) == []
    adds = facts(in_ptr0="r", out_ptr0="rw")
    adds.record.num_atomic_add = 1
    assert changed_inputs(adds, None, (a, b)) == [b]
    triton = types.SimpleNamespace(mutated_arg_names=["out_ptr0"])
    assert changed_inputs(facts(in_ptr0="r", out_ptr0="w"), triton, (a, b)) == [b]


def test_extern_kernels_say_what_they_change() -> None:
    a, b = torch.ones(3), torch.ones(3)
    assert changed_inputs(None, torch.ops.aten.add_.Tensor, (a, b))[0] is a
    assert changed_inputs(None, torch.ops.aten.add.Tensor, (a, b)) == []
    assert changed_inputs(None, torch.mm, (a, b)) == []
    assert results(None, (a,), {"out": b})[0] is b and results(None, (a,), {}) == []


def test_large_new_results_get_new_pages() -> None:
    seen = StoragesSeen()
    large, small = torch.ones(MIN_BYTES // 4), torch.ones(9)
    assert seen.fresh([large, small])[0] is large and len(seen.fresh([small])) == 0
    seen.add([large])
    assert seen.fresh([large]) == []
    # The address of what has been freed is no longer known.
    address = large.untyped_storage().data_ptr()
    assert address in seen._seen
    del large
    assert seen._seen[address].expired()
    again = torch.ones(MIN_BYTES // 4)
    give_back([again])
    assert again[5000:-5000].count_nonzero() == 0
    again.fill_(2)
    assert again.sum() == 2 * again.numel()


def test_timing_restores_before_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_MAX_SECONDS", math.inf)
    value = torch.zeros(1)

    def restore() -> None:
        value.zero_()

    seen = []
    found = timing.measure(lambda: seen.append(value.add_(1).item()), "cpu", restore, 0.01)
    assert set(seen) == {1.0} and value.item() == 0
    assert found.samples >= timing.MIN_SAMPLES


def test_what_the_stand_ins_catch() -> None:
    module = types.ModuleType("generated")
    caught: list[str] = []
    triton = types.SimpleNamespace(run=lambda x, stream: x + stream, launchers=[1])
    vars(module).update(
        torch=torch,
        aten=torch.ops.aten,
        extern_kernels=torch,
        cpp_k=abs,
        triton_k=triton,
        other=len,
    )

    def launched(name: str, kernel: Any, function: Any, args: Any, kwargs: Any) -> Any:
        caught.append(name)
        return function(*args, **kwargs)

    undo = stand_ins.install(module, ["cpp_k", "triton_k", "missing"], launched)
    a = torch.eye(2)
    source = """
assert cpp_k(-3) == 3 and triton_k.run(1, stream=4) == 5 and triton_k.launchers == [1]
assert other("ab") == 2 and torch.float32.is_floating_point
extern_kernels.mm(a, a)
aten.mm.default(a, a)
torch.ops.aten.sin.default(a)
torch.ops.inductor._reinterpret_tensor(a, (4,), (1,), 0)
"""
    exec(source, vars(module) | {"a": a})
    assert caught == [
        "cpp_k",
        "triton_k",
        "extern_kernels.mm",
        "aten.mm.default",
        "torch.ops.aten.sin.default",
    ]
    undo()
    assert module.torch is torch and module.cpp_k is abs and module.triton_k is triton


def test_reasons_are_one_line() -> None:
    assert reason(RuntimeError("bad\nmore")) == "RuntimeError: bad"
    assert reason(MemoryError()) == "out of memory: MemoryError"
    text = "CUDA out of memory. Tried to allocate 20.00 GiB.\nSee documentation"
    assert reason(torch.OutOfMemoryError(text)).startswith(
        "out of memory: CUDA out of memory. Tried"
    )
    assert reason(KeyError()) == "KeyError: KeyError"


# --- Triton's side, with an autotuner's attributes and no GPU -------------------------------------


class Launcher:
    n_regs, n_spills, shared = 32, 0, 1024

    def __init__(self, config: str) -> None:
        self.config = config

    def __call__(self, *args: Any, stream: Any) -> None:
        if self.config == "too large":
            raise RuntimeError("out of resource: shared memory\nhint")


class Autotuner:
    mutated_arg_names = ()

    def __init__(self) -> None:
        self.launchers: list[Launcher] = []

    def precompile(self) -> None:
        self.launchers = [Launcher("XBLOCK: 1"), Launcher("XBLOCK: 2"), Launcher("too large")]

    def run(self, *args: Any, stream: Any) -> None:
        if len(self.launchers) != 1:
            self.precompile()
            self.launchers = self.launchers[1:2]
        self.launchers[0](*args, stream=stream)


def test_each_configuration_and_the_chosen_one() -> None:
    kernel = Autotuner()
    record = BenchRecord(KernelRecord("k", "triton"))
    configs = triton_configs.config_records(record, kernel, (1,), {"stream": 0}, "cpu", None, 0.01)
    kernel.run(1, stream=0)
    rows = triton_configs.describe_chosen(record, configs, kernel)
    assert [(row.config, row.chosen) for row in rows] == [
        ("XBLOCK: 1", False),
        ("XBLOCK: 2", True),
        ("too large", False),
    ]
    assert rows[0].timing and rows[0].n_regs == 32 and rows[0].shared_bytes == 1024
    assert rows[2].timing is None and rows[2].error == "out of resource: shared memory"
    # A configuration found on the way is not among them.
    kernel.launchers = [Launcher("XBLOCK: 4")]
    rows = triton_configs.describe_chosen(record, configs, kernel)
    assert rows[0] is record and record.config == "XBLOCK: 4" and record.chosen
    assert triton_configs.config_records(record, abs, (1,), {}, "cpu", None, 0.01) == []


@pytest.mark.parametrize("recorded", ["plain", "bk"])
def test_a_kernels_own_module(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its get_args (bk) and without; both launch with Inductor's sizes: 777000 points."""
    text = named(recorded, "kernel")[f"{recorded}/pointwise.kernel1.py"]
    launched: list[Any] = []
    kernel = Autotuner()
    monkeypatch.setattr(kernel, "run", lambda *args, stream: launched.append(args))
    monkeypatch.setattr(kernel_module, "get_triton_kernel", lambda module: kernel)
    module = types.ModuleType("kernel")
    if recorded == "bk":
        # Its own harness, moved to the CPU.
        source = text[text.index("def get_args") : text.index("def call")]
        vars(module).update(torch=torch, rand_strided=None)
        exec(source.replace("cuda:0", "cpu"), vars(module))
    (row,) = kernel_module.bench_kernel_module(module, text, "cpu", False, 0.01)
    assert row.error is None and row.timing is not None
    *tensors, numel = launched[0]
    assert numel == 777000 and [tensor.numel() for tensor in tensors] == [777000] * 3
    # Two loads and a store of 4 bytes.
    assert row.kernel.total_bytes == 12 * 777000


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("template.kernel1", "a template kernel's module does not tell its grid"),
        ("user_triton.kernel2", "a user_autotune kernel's module does not tell its grid"),
        ("scan.kernel1", "its module does not tell"),
        ("dynamic.kernel1", "its module does not tell"),
    ],
)
def test_modules_that_do_not_tell_enough(kernel: str, said: str) -> None:
    text = named("plain", "kernel")[f"plain/{kernel}.py"]
    with pytest.raises(kernel_module.NotAlone, match=said):
        kernel_module.kernel_arguments(types.ModuleType("k"), text, read_triton(text), "cpu")


def test_stand_in_for_a_module_file(tmp_path: Path) -> None:
    """What is loaded is run under one name, whatever the file is called."""
    from instrumented_backend.bench.child import MODULE_NAME, load_module

    path = tmp_path / "any name.py"
    path.write_text("x = __name__")
    assert load_module(str(path)).x == MODULE_NAME
