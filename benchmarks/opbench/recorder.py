"""Records the operators that a program calls, with their inputs, in PyTorch's log format.

    with OperatorInputsMode() as recorded:
        model(inputs).sum().backward()
    recorded.log_to_file("model_training.txt")

Fake tensors do as well as real ones: a model of any size is recorded without memory or compute.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from instrumented_backend.records.whole_file import write_whole
from opbench.input_log import (
    MAX_ELEMENTS,
    DtypeName,
    Inputs,
    Log,
    SparseSpec,
    TensorSpec,
    TorchName,
    log_text,
    to_text,
)
from opbench.operators import find_operator, is_compute
from opbench.tensors import short_name, tensors_in

_SPARSE = {
    *(torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc),
}


class _CannotLog(ValueError):
    """An argument that the format has no way to write."""


class OperatorInputsMode(TorchDispatchMode):
    """While it is entered, every operator on tensors is counted, by its inputs.

    ``func_db`` has what was recorded; ``left_out`` counts calls that a log can't hold, by reason.
    """

    def __init__(self, func_db: Log | None = None) -> None:
        super().__init__()
        self.func_db: Log = {} if func_db is None else func_db
        self.left_out: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        wanted = bool(tensors_in((args, kwargs))) and not _of_a_constructor([args, kwargs])
        text, inputs = "", None
        if wanted:  # before the call, which may change its arguments
            try:
                inputs = Inputs(_spec(tuple(args)), _spec(dict(kwargs)))
                text = str(inputs)
            except (_CannotLog, TypeError) as error:
                self.left_out[f"{func}: {error}"] += 1
        result = func(*args, **kwargs)
        if inputs is not None and tensors_in(result):
            entries = self.func_db.setdefault(str(func), {})
            entries[text] = (inputs, entries[text][1] + 1 if text in entries else 1)
        return result

    def log_to_file(self, path: str | Path, *, skip_non_compute_operators: bool = True) -> None:
        """Write the log; views and constructors are left out unless they are asked for."""
        log = {
            name: entries
            for name, entries in self.func_db.items()
            if not skip_non_compute_operators or is_compute(find_operator(name))
        }
        write_whole(Path(path), log_text(log))


def _of_a_constructor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_of_a_constructor, value))
    if isinstance(value, dict):
        return any(map(_of_a_constructor, value.values()))
    return isinstance(value, torch.memory_format | torch.UntypedStorage)


def _spec(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return _tensor(value)
        case torch.dtype():
            return DtypeName(_dtype(value))
        case torch.layout():
            return TorchName(str(value).removeprefix("torch."))
        case torch.device():
            return _device(value)
        case None | bool() | int() | float() | complex() | str():
            to_text(value)
            return value
        case torch.Size() | list():
            return [_spec(item) for item in value]
        case tuple():
            return tuple(map(_spec, value))
        case dict():
            return {key: _spec(item) for key, item in value.items()}
    raise _CannotLog(f"a log has no way to write a {type(value).__name__}")


def _tensor(tensor: torch.Tensor) -> TensorSpec | SparseSpec:
    dtype = _dtype(tensor.dtype)
    shape = _sizes(tensor.shape)
    if tensor.layout in _SPARSE:
        layout = str(tensor.layout).removeprefix("torch.")
        fake = isinstance(tensor, torch._subclasses.FakeTensor)
        coo = tensor.layout == torch.sparse_coo
        nnz = None if fake else tensor._nnz()
        return SparseSpec(shape, dtype, layout, coo and tensor.is_coalesced(), nnz)
    if tensor.layout != torch.strided:
        raise _CannotLog(f"a tensor of layout {tensor.layout}")
    stride = None if tensor.is_contiguous() else _sizes(tensor.stride())
    spec = TensorSpec(shape, dtype, stride)
    if spec.extent > MAX_ELEMENTS or tensor.numel() > MAX_ELEMENTS:
        raise _CannotLog(f"a tensor of more than {MAX_ELEMENTS} elements")
    return spec


def _dtype(dtype: torch.dtype) -> str:
    try:
        return short_name(dtype)
    except KeyError:
        raise _CannotLog(f"the format has no name for {dtype}") from None


def _sizes(values: Any) -> tuple[int, ...]:
    if not all(type(value) is int for value in values):
        raise _CannotLog("sizes that are symbols")
    return tuple(values)


def _device(device: torch.device) -> str:
    # Meta tensors, fake ones too, are what operators give on a GPU; a log speaks of real devices.
    return "cuda" if device.type == "meta" else device.type
