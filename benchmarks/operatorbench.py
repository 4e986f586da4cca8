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
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from opbench.input_log import InputLogError
from opbench.progress import Progress, duration
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
BACKENDS = "eager,inductor,instrumented"


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


@click.command()
@click.option(
    "--suite",
    type=click.Choice(SUITES),
    default="torchbench",
    show_default=True,
    help="The shipped inputs: those of models of this kind.",
)
@click.option(
    "--op", default="all", show_default=True, help="An overload, aten.add.Tensor, or all."
)
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
    # Here and not at the top: torch takes seconds, and --help has no need of it.
    import torch
    from opbench.plan import ALL, check_backends, list_operators, plan

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
    asked = {
        **asdict(settings),
        "backends": list(names),
        "inputs": label,
        "op": op,
        "torch": torch.__version__,
    }
    stem = f"operatorbench_{label}_{op}_{dtype}_{device}"
    journal = Journal(out / f"{stem}.jsonl", asked)
    done = _open(journal, resume)
    asked |= {"max_samples": max_samples, "start_idx": start_idx}
    run = Run(asked, {}, planned.skipped, [])
    log = out / f"{stem}.log"  # what compilers and operators print
    worker = Worker(settings, log)
    signal.signal(signal.SIGTERM, _as_keyboard_interrupt)
    started, begin = datetime.now(UTC), time.monotonic()
    stopped = False
    try:
        worker.start()
        for sample in measure_all(planned.tasks, done, worker, journal, names, timeout):
            run.samples.append(sample)
    except KeyboardInterrupt:
        stopped = True
        of = f"{len(run.samples)} of {len(planned.tasks)} samples"
        run.notes.append(f"Stopped after {of}; --resume goes on.")
    except WorkerError as error:
        raise click.ClickException(f"{error}; --resume goes on from here") from None
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
    click.echo("\n" + summary(run))
    click.echo(f"\n{duration(run.machine['wall_s'])} for {len(run.samples)} samples; written:")
    for path in write(run, out, stem, f"timings_{label}_{op}{dtype}.txt" if op == ALL else None):
        click.echo(f"  {path}")
    if log.exists():
        click.echo(f"  {log}, what compilers and operators printed")
    sys.exit(130 if stopped else any(sample.complaint for sample in run.samples))


def _open(journal: Journal, resume: bool) -> list[Sample]:
    """What an earlier run has done, where this one goes on with it."""
    try:
        if resume:
            return journal.resume()
        journal.start()
    except ResultsError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"{journal.path}: {error.strerror}") from None
    return []


def _remove_if_empty(log: Path) -> None:
    if log.exists() and not log.stat().st_size:
        log.unlink()


def _as_keyboard_interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def write(run: Run, out: Path, stem: str, timings: str | None) -> Iterator[Path]:
    """The files at the end, each path as it is written."""
    from instrumented_backend.records.whole_file import write_whole

    texts = {f"{stem}.json": to_json(run), f"{stem}.csv": to_csv(run)}
    if timings is not None:
        texts[timings] = timings_text(run)
    for name, text in texts.items():
        write_whole(out / name, text)
        yield out / name


if __name__ == "__main__":
    main()
