"""Eager against compiled, operator by operator, on the inputs that real models use.

    python benchmarks/operatorbench.py --op aten.add.Tensor --device cuda
    python benchmarks/operatorbench.py --suite huggingface --op all --device cuda

What PyTorch's ``benchmarks/dynamo/microbenchmarks/operatorbench.py`` measures, with this backend's
report joined in: the kernels that each operator compiled to, the bytes that they move, and how near
they come to what the machine reaches. Exit code 1 if a sample failed, 2 for a wrong argument.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from opbench.input_log import RENAMED, InputLogError
from opbench.results import (
    Journal,
    ResultsError,
    Run,
    Sample,
    add_shares,
    by_operator,
    timings_text,
    to_csv,
    to_json,
)
from opbench.task import Settings, Task
from opbench.text import operator_block, summary
from opbench.worker import Worker, WorkerError

SUITES = ("timm", "huggingface", "torchbench")
ALL = "all"
BACKENDS = "eager,inductor,instrumented"


@dataclass
class Plan:
    """What will be measured, and what will not with the reason."""

    tasks: list[Task]
    skipped: dict[str, str]


def plan(source: Path | None, suite: str, op: str, start_idx: int, max_samples: int) -> Plan:
    """Raises `InputLogError`, and click's exceptions for an operator that isn't there."""
    from opbench import loader as loaders
    from opbench.operators import UnknownOperator, find_operator, skip_reason

    if source is None:
        loader = loaders.load_folder(loaders.INPUTS_FOLDER / suite)
    elif source.is_dir():
        loader = loaders.load_folder(source)
    else:
        loader = loaders.OperatorInputsLoader(source)
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
    import torch._dynamo

    import instrumented_backend  # noqa: F401  # makes its name known

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


@dataclass
class Progress:
    """A line on stderr that says what runs and how long it will take; nothing where none reads."""

    total: int
    done: int = 0
    _started: float = 0.0
    _measured: int = 0

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._shown = sys.stderr.isatty()

    def starts(self, task: Task) -> None:
        left = ""
        if self._measured:
            seconds = (time.monotonic() - self._started) / self._measured
            left = f", {_duration(seconds * (self.total - self.done))} left"
        self._show(f"[{self.done + 1}/{self.total}] {task.operator} sample {task.sample}{left}")

    def finished(self) -> None:
        self.done += 1
        self._measured += 1

    def clear(self) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        if self._shown:
            click.echo("\r\033[K" + text[:79], err=True, nl=False)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def measure_all(
    tasks: list[Task],
    done: list[Sample],
    worker: Worker,
    journal: Journal,
    backends: tuple[str, ...],
    timeout: float,
) -> Iterator[Sample]:
    """Every sample, those of an earlier run first; each operator is printed when it is complete."""
    known = {(sample.operator, sample.inputs): sample for sample in done}
    progress = Progress(len(tasks))
    progress.done = sum((task.operator, task.inputs) in known for task in tasks)
    of_operator: list[Sample] = []
    for place, task in enumerate(tasks):
        sample = known.get((task.operator, task.inputs))
        if sample is None:
            progress.starts(task)
            sample = worker.measure(task, timeout)
            journal.append(sample)
            progress.finished()
        if worker.peak is not None:
            add_shares(sample, worker.peak)
        yield sample
        of_operator.append(sample)
        if place + 1 == len(tasks) or tasks[place + 1].operator != task.operator:
            progress.clear()
            click.echo(operator_block(by_operator(of_operator)[0], backends))
            of_operator = []


def list_operators(source: Path | None, suite: str) -> str:
    """The operators in the inputs, with samples, calls, and why one would be skipped."""
    whole = plan(source, suite, ALL, 0, 10**9)
    lines = []
    for result in by_operator(task.record("ok", "") for task in whole.tasks):
        calls = sum(sample.count for sample in result.samples)
        lines.append(f"{result.operator}: {len(result.samples)} samples, {calls} calls")
    lines += [f"{name}: skipped: {reason}" for name, reason in whole.skipped.items()]
    return "\n".join(lines)


@click.command()
@click.option(
    "--suite",
    type=click.Choice(SUITES),
    default="torchbench",
    show_default=True,
    help="The shipped inputs: those of models of this kind.",
)
@click.option("--op", default=ALL, show_default=True, help="An overload, aten.add.Tensor, or all.")
@click.option(
    "--dtype",
    type=click.Choice(["float16", "bfloat16", "float32"]),
    default="float32",
    show_default=True,
    help="float16: inputs as they were logged, in half precision with some float32. bfloat16: in "
    "place of float16. float32: for all floating-point tensors.",
)
@click.option(
    "--max-samples",
    default=15,
    show_default=True,
    type=click.IntRange(1),
    help="Inputs of an operator, the most frequent first.",
)
@click.option(
    "--start-idx",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Leave out that many of each operator's inputs.",
)
@click.option(
    "--accuracy-checking/--no-accuracy-checking",
    default=False,
    show_default=True,
    help="Compare every backend's results with the first's.",
)
@click.option(
    "--repeats",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Rounds in which the backends take turns; their median counts.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default=None,
    help="Default: cuda where there is one, else cpu. On cuda every backend runs as a CUDA graph.",
)
@click.option(
    "--inp-file",
    type=click.Path(exists=True, path_type=Path),
    default=None,
    help="A log of inputs, or a folder of them, instead of a suite.",
)
@click.option("--channels-last", is_flag=True, help="4-dimensional tensors in channels-last.")
@click.option(
    "--backends",
    default=BACKENDS,
    show_default=True,
    help="Comma list; the first is what the others are compared with. Any backend that "
    "torch.compile knows. Kernels are known where instrumented is among them.",
)
@click.option(
    "--timeout",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds for one sample, compilation included; after that it counts as failed.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on where a stopped run with the same options was; what failed is not tried again.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder for the results.  [default: the working folder]",
)
@click.option("--list-ops", is_flag=True, help="Name the operators in the inputs, and end.")
def main(
    suite: str,
    op: str,
    dtype: str,
    max_samples: int,
    start_idx: int,
    accuracy_checking: bool,
    repeats: int,
    device: str | None,
    inp_file: Path | None,
    channels_last: bool,
    backends: str,
    timeout: float,
    resume: bool,
    out: Path,
    list_ops: bool,
) -> None:
    """How much faster is the compiled operator than eager, on the inputs of real models, and how
    near to the machine's limit?

    Each operator gets a line with the 0.2, 0.5 and 0.8 quantiles of its speedup over its samples,
    as in "Inductor Speedups : [0.98, 1.02, 1.31]". Every sample goes into
    operatorbench_<suite>_<op>_<dtype>_<device>.json and .csv: inputs, times with their spread,
    speedup, kernels, GB/s and share of peak; with --op all, the lines go into
    timings_<suite>_all<dtype>.txt as well.

    \b
    Examples:
      operatorbench.py --op aten.add.Tensor --device cpu
      operatorbench.py --suite huggingface --op all --device cuda --dtype float16
      operatorbench.py --inp-file my_model.txt --op all --max-samples 2 --resume

    Each sample is compiled and timed in a process that is killed if it hangs. What failed is listed
    at the end with its reason, and makes the exit code 1.
    """
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise click.BadParameter("this torch sees no CUDA device", param_hint="--device")
    label = suite if inp_file is None else inp_file.stem
    names = tuple(name.strip() for name in backends.split(","))
    try:
        if list_ops:
            click.echo(list_operators(inp_file, suite))
            return
        check_backends(names)
        planned = plan(inp_file, suite, op, start_idx, max_samples)
    except InputLogError as error:
        raise click.UsageError(str(error)) from None
    settings = Settings(names, device, dtype, repeats, accuracy_checking, channels_last)
    stem = f"operatorbench_{label}_{op}_{dtype}_{device}"
    asked = {
        **asdict(settings),
        "backends": list(names),
        "inputs": label,
        "op": op,
        "torch": torch.__version__,
    }
    journal = Journal(out / f"{stem}.jsonl", asked)
    try:
        if resume:
            done = journal.resume()
        else:
            journal.start()
            done = []
    except ResultsError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"{out}: {error.strerror}") from None
    run = Run(
        {**asked, "max_samples": max_samples, "start_idx": start_idx}, {}, planned.skipped, []
    )
    log = out / f"{stem}.log"  # what compilers and operators print
    worker = Worker(settings, log)
    started = datetime.now(UTC)
    begin = time.monotonic()
    stopped = False
    signal.signal(signal.SIGTERM, _as_keyboard_interrupt)
    try:
        worker.start()
        for sample in measure_all(planned.tasks, done, worker, journal, names, timeout):
            run.samples.append(sample)
    except KeyboardInterrupt:
        stopped = True
    except WorkerError as error:
        raise click.ClickException(str(error)) from None
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            worker.stop()
            _remove_if_empty(log)
    if worker.machine is None or worker.peak is None:
        sys.exit(130)  # stopped before there was anything to show
    run.machine = {
        **worker.machine,
        "peak_gb_per_s": worker.peak.gb_per_s,
        "peak_gflop_per_s": worker.peak.gflop_per_s,
        "peak_dtype": worker.peak.compute_dtype,
        "started": started.isoformat(timespec="seconds"),
        "wall_s": round(time.monotonic() - begin, 1),
    }
    if stopped:
        run.notes.append(
            f"Stopped after {len(run.samples)} of {len(planned.tasks)} samples; --resume goes on."
        )
    click.echo("\n" + summary(run))
    click.echo(f"\n{_duration(run.machine['wall_s'])} for {len(run.samples)} samples; written:")
    for path in write(run, out, stem, f"timings_{label}_{op}{dtype}.txt" if op == ALL else None):
        click.echo(f"  {path}")
    if log.exists():
        click.echo(f"  {log}, what compilers and operators printed")
    if stopped:
        sys.exit(130)
    sys.exit(any(sample.complaint for sample in run.samples))


def _remove_if_empty(log: Path) -> None:
    if log.exists() and not log.stat().st_size:
        log.unlink()


def _as_keyboard_interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def write(run: Run, out: Path, stem: str, timings: str | None) -> Iterator[Path]:
    """The files at the end, each path as it is written."""
    from instrumented_backend.whole_file import write_whole

    texts = {f"{stem}.json": to_json(run), f"{stem}.csv": to_csv(run)}
    if timings is not None:
        texts[timings] = timings_text(run)
    for name, text in texts.items():
        write_whole(out / name, text)
        yield out / name


if __name__ == "__main__":
    main()
