"""A run of the command ``try``, inside of the program: makes the change, finds the steps, ends.

A program is ended at the end of a step, by `os._exit`: what it does at its end, such as saving a
checkpoint, is no part of the trial.
"""

import atexit
import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from instrumented_backend.torch_compat import compiled, hooks
from instrumented_backend.trials import applied, changes, plan, ranks
from instrumented_backend.trials.steps import Steps, Unit


def begin(torch: Any, folder: str) -> None:
    """As soon as torch is imported."""
    _Trial(torch, Path(folder)).begin()


class _Trial:
    def __init__(self, torch: Any, folder: Path) -> None:
        self._torch = torch
        self._folder = folder
        self._plan = plan.read(folder / plan.PLAN, plan.Plan)
        self._pid = os.getpid()
        self._applied = 0
        self._notes: list[str] = []
        self._ready_at: dict[str, float] = {}
        self._before: dict[str, Any] = {}  # reports at the ends of warm-ups
        self._optimizers: dict[int, tuple[Any, str]] = {}
        self._steps = Steps(
            self._plan,
            clock=time.perf_counter,
            compilations=lambda: compiled.compilations() if _has_dynamo() else 0,
            synchronize=self._synchronize,
            warm=self._warm,
            done=self._end,
            ends=ranks.Ends(torch, self._folder),
        )

    def begin(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._stepped)
        self._watch_optimizers()
        hooks.after_dynamo(lambda _: self._watch_calls())
        atexit.register(self._write)
        if self._plan.change is not None:
            applied.apply(
                *(self._torch, self._plan.change, self._count, self._mark_step, self._notes.append)
            )

    def _count(self) -> None:
        self._applied += 1

    def _watch_optimizers(self) -> None:
        """One that is made will step, if late: a step may have many calls of the model."""
        kind = self._torch.optim.Optimizer
        original = kind.__init__

        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self._steps.has_optimizer = True

        kind.__init__ = __init__

    def _watch_calls(self) -> None:
        def made(context: Any, function: Any) -> None:
            what = getattr(function, "__qualname__", type(function).__qualname__)
            name = self._steps.call_of(what)
            compiled.on_call(context, lambda: self._mark(name))

        compiled.patch_compiled(made)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        # In a step that is compiled this is no code at all.
        if not self._torch.compiler.is_compiling():
            self._mark_step(optimizer)

    def _mark_step(self, optimizer: Any) -> None:
        known = self._optimizers.get(id(optimizer))
        if known is None:
            # Kept, or another could get its id.
            known = (optimizer, self._steps.step_of(type(optimizer).__name__))
            self._optimizers[id(optimizer)] = known
        self._mark(known[1])

    def _mark(self, name: str) -> None:
        if os.getpid() == self._pid:
            self._steps.mark(name)

    def _synchronize(self) -> None:
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()

    def _warm(self, unit: Unit) -> None:
        self._ready_at[unit.name] = time.monotonic()
        if self._plan.observe:
            self._before[unit.name] = _report()

    def _end(self) -> NoReturn:
        self._write()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(0)

    def _write(self) -> None:
        if os.getpid() != self._pid:
            return
        atexit.unregister(self._write)
        ran, unit = self._ran()
        if self._plan.observe:
            self._write_reports(ran, unit)
        plan.write(self._folder, f"ran.{ran.pid}.json", ran)

    def _ran(self) -> tuple[plan.Ran, Unit | None]:
        unit = self._steps.found()
        uses_cuda = self._torch.cuda.is_initialized()
        ran = plan.Ran(
            pid=self._pid,
            rank=ranks.rank_of(self._torch) or int(os.environ.get("RANK") or 0),
            marks=sum(unit.count for unit in self._steps.units.values()),
            uses_cuda=uses_cuda,
            peak_rss_bytes=_peak_rss_bytes(),
            peak_cuda_bytes=self._torch.cuda.max_memory_reserved() if uses_cuda else None,
            applied=self._applied,
            notes=self._notes,
        )
        if unit is not None:
            ran.unit, ran.warmup, ran.steps = unit.name, unit.warmup or 0, unit.steps
            ran.seconds, ran.compiled_in_steps = unit.seconds, unit.compiled_in_steps
            ran.ready_at = self._ready_at.get(unit.name)
        if self._plan.change == changes.MATMUL_HIGH:
            precision = self._torch.get_float32_matmul_precision()
            if precision != "high":
                ran.notes.append(f"the program itself set the precision to {precision!r}")
        return ran, unit

    def _write_reports(self, ran: plan.Ran, unit: Unit | None) -> None:
        from instrumented_backend.records.part import part

        whole = _report()
        if whole is None:
            return
        ran.compile_s = whole.compile.total_s
        (self._folder / f"{ran.pid}.{plan.WHOLE}").write_text(whole.to_json())
        before = None if unit is None else self._before.get(unit.name)
        if before is not None:
            measured = part(before, whole)
            (self._folder / f"{ran.pid}.{plan.STEPS}").write_text(measured.to_json())


def _has_dynamo() -> bool:
    return "torch._dynamo" in sys.modules


def _report() -> Any:
    """None where nothing of ours was imported: the program compiled nothing."""
    backend = sys.modules.get("instrumented_backend.backend")
    return None if backend is None else backend.report()


def _peak_rss_bytes() -> int | None:
    """Of this program alone: `getrusage` has what the process had before it, too."""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
