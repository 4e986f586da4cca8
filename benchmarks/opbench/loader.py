"""Many logs as one: PyTorch's ``OperatorInputsLoader``, with its methods."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from opbench.input_log import InputLogError, Inputs, Log, read_log
from opbench.operators import UnknownOperator, find_operator
from opbench.tensors import make_arguments

INPUTS_FOLDER = Path(__file__).parents[1] / "operator_inputs"

Operator = torch._ops.OpOverload | str


class OperatorInputsLoader:
    """The operators of one log, or of several merged, with their inputs and counts."""

    def __init__(self, path: str | Path) -> None:
        """Raises `InputLogError` with the file and the line."""
        self.operator_db: Log = read_log(Path(path))

    def get_all_ops(self) -> Iterator[torch._ops.OpOverload]:
        """The operators that this torch has; `unknown_ops` are the others."""
        for name in self.operator_db:
            try:
                yield find_operator(name)
            except UnknownOperator:
                continue

    def unknown_ops(self) -> dict[str, str]:
        """Operators that this torch has not, each with the reason."""
        unknown = {}
        for name in self.operator_db:
            try:
                find_operator(name)
            except UnknownOperator as error:
                unknown[name] = str(error)
        return unknown

    def logged_inputs(self, operator: Operator) -> list[tuple[Inputs, int]]:
        """The distinct inputs of an operator and how often each was met, most frequent first.

        Raises KeyError where the operator isn't in the log.
        """
        name = str(operator)
        if name not in self.operator_db:
            raise KeyError(f"{name} is not in the log; an overload is wanted, as aten.add.Tensor")
        return sorted(self.operator_db[name].values(), key=lambda entry: -entry[1])

    def get_inputs_for_operator(
        self, operator: Operator, dtype: torch.dtype | None = None, device: str = "cuda"
    ) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Arguments with random tensors, made one call at a time; see `make_arguments`."""
        op = find_operator(str(operator))
        for inputs, _ in self.logged_inputs(operator):
            yield make_arguments(op, inputs, dtype, device)

    def get_call_frequency(self, operator: Operator) -> int:
        """How often the operator was called, whatever its inputs."""
        return sum(count for _, count in self.logged_inputs(operator))

    def merge(self, other: "OperatorInputsLoader") -> None:
        """Add what another log has; counts of the same inputs add up."""
        for name, entries in other.operator_db.items():
            ours = self.operator_db.setdefault(name, {})
            for text, (inputs, count) in entries.items():
                ours[text] = (inputs, count + (ours[text][1] if text in ours else 0))

    @staticmethod
    def get_timm_loader() -> "OperatorInputsLoader":
        return load_folder(INPUTS_FOLDER / "timm")

    @staticmethod
    def get_huggingface_loader() -> "OperatorInputsLoader":
        return load_folder(INPUTS_FOLDER / "huggingface")

    @staticmethod
    def get_torchbench_loader() -> "OperatorInputsLoader":
        return load_folder(INPUTS_FOLDER / "torchbench")


def load_folder(folder: Path) -> OperatorInputsLoader:
    """All ``.txt`` logs in a folder, merged; raises `InputLogError`."""
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise InputLogError(f"{folder}: no .txt log of operator inputs in it")
    loader = OperatorInputsLoader(paths[0])
    for path in paths[1:]:
        loader.merge(OperatorInputsLoader(path))
    return loader
