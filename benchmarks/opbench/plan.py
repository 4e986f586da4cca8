"""Which samples of which operators are measured, and why the others are not."""

from dataclasses import dataclass
from pathlib import Path

import click
import torch._dynamo

import instrumented_backend  # noqa: F401  # makes its name known to Dynamo
from opbench.input_log import RENAMED
from opbench.loader import INPUTS_FOLDER, OperatorInputsLoader, load_folder
from opbench.operators import UnknownOperator, find_operator, skip_reason
from opbench.results import by_operator
from opbench.task import Task

ALL = "all"


@dataclass
class Plan:
    """What will be measured, and what will not with the reason."""

    tasks: list[Task]
    skipped: dict[str, str]


def plan(source: Path | None, suite: str, op: str, start_idx: int, max_samples: int) -> Plan:
    """Raises `InputLogError`, and click's exceptions for an operator that isn't there."""
    if source is None:
        loader = load_folder(INPUTS_FOLDER / suite)
    elif source.is_dir():
        loader = load_folder(source)
    else:
        loader = OperatorInputsLoader(source)
    found = Plan([], {})
    op = RENAMED.get(op, op)
    if op != ALL and op not in loader.operator_db:
        raise click.BadParameter(_not_there(op, list(loader.operator_db)), param_hint="--op")
    for name in loader.operator_db if op == ALL else [op]:
        try:
            reason = skip_reason(find_operator(name))
        except UnknownOperator as error:
            reason = str(error)
        inputs = loader.logged_inputs(name)
        if reason is None and start_idx >= len(inputs):
            reason = f"it has {len(inputs)} samples; --start-idx {start_idx} is past the last"
        if reason is not None:
            found.skipped[name] = reason
            continue
        for index in range(start_idx, min(start_idx + max_samples, len(inputs))):
            sample, count = inputs[index]
            found.tasks.append(Task(name, index, str(sample), count))
    return found


def _not_there(op: str, names: list[str]) -> str:
    packet = op.rpartition(".")[0] if op.count(".") > 1 else op
    near = [name for name in names if name.startswith((packet + ".", "aten." + op + "."))]
    hint = f"; it has {', '.join(near)}" if near else "; --list-ops names those that are"
    return f"{op} is not among the inputs{hint}"


def check_backends(names: tuple[str, ...]) -> None:
    """Raises click.BadParameter, naming what there is."""
    known = ["eager", *torch._dynamo.list_backends(exclude_tags=())]
    for name in names:
        if name not in known:
            raise click.BadParameter(
                f"{name!r}; choose from {', '.join(sorted(set(known)))}", param_hint="--backends"
            )
    if len(names) < 2 or len(set(names)) < len(names):
        raise click.BadParameter(
            "at least two different ones; the first is what the others are compared with",
            param_hint="--backends",
        )


def list_operators(source: Path | None, suite: str) -> str:
    """The operators in the inputs, with samples, calls, and why one would be skipped."""
    whole = plan(source, suite, ALL, 0, 10**9)
    lines = []
    for result in by_operator(task.record("ok", "") for task in whole.tasks):
        calls = sum(sample.count for sample in result.samples)
        lines.append(f"{result.operator}: {len(result.samples)} samples, {calls} calls")
    lines += [f"{name}: skipped: {reason}" for name, reason in whole.skipped.items()]
    return "\n".join(lines)
