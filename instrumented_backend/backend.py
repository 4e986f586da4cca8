"""The backend: Inductor's ``compile_fx``, each graph observed while it compiles and runs.

Start here. `instrumented` is what Dynamo calls with a graph. Around `compile_fx` it opens a record
(`Session.open_graph`), gives the graph the counters that its compilation moves
(`Session.compiling`), and returns Inductor's function in a region that counts and marks its calls
(`ObservedGraph.forward`).
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from instrumented_backend import settings
from instrumented_backend.logs import LOGGER, configure_logging
from instrumented_backend.observe import notebook
from instrumented_backend.observe.graphs.graph import ObservedGraph
from instrumented_backend.observe.session import Asked, Session
from instrumented_backend.records import Report
from instrumented_backend.records.part import part
from instrumented_backend.torch_compat import compiled as torch_compiled
from instrumented_backend.torch_compat import dynamo, hooks, inductor
from instrumented_backend.views import shown
from instrumented_backend.views.deliver import deliver, show, tell
from instrumented_backend.views.files import CurrentFiles
from instrumented_backend.views.metrics import metrics_of
from instrumented_backend.views.ranks import render_ranks


class InstrumentedInductor(dynamo.InductorWrapper):
    """What ``torch.compile`` builds for Inductor, with our name: same modes, options, checks."""

    compiler_name = hooks.BACKEND_NAME

    def __call__(
        self, model_: Any, inputs_: Any, *, config_patches: dict[str, Any] | None = None
    ) -> Callable[..., Any]:
        name = getattr(self, "name", None)  # from torch 2.12
        return _compile(model_, inputs_, {**self.config, **(config_patches or {})}, name)

    def get_compiler_config(self) -> Any:
        """Called by ``torch.compile``, at its end; it imports Inductor."""
        config = super().get_compiler_config()
        _session.begin()
        _say_where_the_report_is()
        return config

    def __eq__(self, other: object) -> bool:
        # Or a function compiled by plain Inductor would be taken for one of ours.
        return isinstance(other, InstrumentedInductor) and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as in the base class


class AdoptedInductor(InstrumentedInductor):
    """In Inductor's place, under Inductor's name: torch writes it into what it logs and saves."""

    compiler_name = "inductor"


def instrumented(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    config_patches: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile ``gm`` as Inductor does, observed; ``torch.compile``'s ``backend=`` takes this.

    ``mode``, ``options`` and ``name`` are those of ``torch.compile``; a mode or option that
    Inductor doesn't have raises its RuntimeError.
    """
    wrapper = InstrumentedInductor(mode, options, None)
    return _compile(gm, example_inputs, {**wrapper.config, **(config_patches or {})}, name)


@functools.cache
def _say_where_the_report_is() -> None:
    """Nobody sees what a notebook's process prints when it ends."""
    with _session.failures.guard("notebook"):
        if _settings.tables and notebook.is_kernel():
            show("instrumented: in a notebook, instrumented_backend.report() in a cell shows it")


def compile_directly(compile_fx: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``compile_fx`` called by the program itself, as serving engines do; see `adoption`."""
    call = None
    if not _settings.disable and not _session.is_compiling():
        with _session.failures.guard("a graph given to Inductor directly"):
            call = inductor.direct_call(compile_fx, args, kwargs)
    if call is None:
        return compile_fx(*args, **kwargs)
    _session.begin()
    return _observed(
        call.compile_fx, call.inner_compile, call.gm, call.example_inputs, call.config, call.name
    )


def _compile(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    config: dict[str, Any],
    name: str | None,
) -> Callable[..., Any]:
    keywords = inductor.compile_fx_keywords(name)
    compile_fx = functools.partial(
        inductor.compile_fx(), gm, example_inputs, config_patches=config, **keywords
    )
    return _observed(compile_fx, inductor.compile_fx_inner(), gm, example_inputs, config, name)


def _observed(
    compile_fx: Callable[..., Any],
    inner_compile: Callable[..., Any],
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    config: dict[str, Any],
    name: str | None,
) -> Callable[..., Any]:
    """What ``compile_fx`` makes of ``gm``; it lacks its ``inner_compile`` and nothing else."""
    graph = None
    if not _settings.disable:
        with _session.failures.guard("graph"):
            graph = _session.open_graph(gm, example_inputs, name, config)
    if graph is None:
        plain: Callable[..., Any] = compile_fx(inner_compile=inner_compile)
        return plain
    with _session.compiling(graph, in_inductor=False):
        compiled: Callable[..., Any] = compile_fx(
            inner_compile=_observed_inner_compile(graph, inner_compile)
        )
    with _session.failures.guard("forward region"):
        compiled = dynamo.wrap_compiled(compiled, graph.forward)
    return compiled


def _observed_inner_compile(
    graph: ObservedGraph, inner_compile: Callable[..., Any]
) -> Callable[..., Any]:
    """Inductor's step for one post-AOT graph. A backward may come here long after the forward."""

    @functools.wraps(inner_compile)
    def observed_inner_compile(gm: Any, example_inputs: Any, **kwargs: Any) -> Any:
        with _session.compiling(graph, in_inductor=True):
            _session.given_to_inductor(gm)
            compiled: Any = inner_compile(gm, example_inputs, **kwargs)
        with _session.failures.guard("backward region"):
            if kwargs.get("is_backward") and not inductor.is_output_code(compiled):
                compiled = graph.backward(compiled)
        return compiled

    return observed_inner_compile


def report() -> Report:
    """What has been observed so far in this process."""
    return _session.report()


def figures() -> Report:
    """The same without what takes long: code that was not read yet, ops that were not counted."""
    return _session.figures()


@contextlib.contextmanager
def observed() -> Iterator[Report]:
    """A part of the program: the report is about what happens in the ``with`` block, at its end.

    Nothing is forgotten, and parts can be inside of each other. Until the block ends, by an
    exception too, the report is that of an empty part.
    """
    before = _session.report()
    result = part(before, before)
    try:
        yield result
    finally:
        vars(result).update(vars(part(before, _session.report())))


def metrics(prefix: str) -> dict[str, float]:
    """The figures of this moment, for dashboards."""
    return metrics_of(figures(), prefix)


def contained(what: str) -> AbstractContextManager[object]:
    """Contain failures of our own code in a program's training: said once, and kept in notes."""
    return _session.failures.guard(what)


def reset() -> None:
    """Start afresh: forget calls, breaks, recompiles, compile times, counters and notes.

    Graphs that were compiled before are listed again once they are called, with the calls since.
    """
    _session.reset()


def observed_graphs() -> list[ObservedGraph]:
    """The graphs so far, with the ops in each counted where that is possible."""
    return _session.observed_graphs()


def adopted(backend: Any) -> Any:
    """What ``torch.compile`` built for Inductor, as ours; see `adoption`."""
    if _settings.disable:
        return backend
    if isinstance(backend, str):
        return AdoptedInductor(None, None, None)
    wrapper = AdoptedInductor(None, None, backend.dynamic)
    wrapper.__dict__.update(backend.__dict__)
    return wrapper


def off(function: Any) -> None:
    """``torch.compile`` was asked for this backend, and TORCHDYNAMO_DISABLE=1 has it do nothing."""
    if not _settings.disable:
        _session.begin()
        _session.compiled.off(function)


def _off_by_name(backend: Any, function: Any) -> None:
    named = getattr(backend, "compiler_fn", backend)
    if named is instrumented or (isinstance(named, str) and named == hooks.BACKEND_NAME):
        off(function)


def _as_instrumented(backend: Any) -> Any:
    """Replace torch.compile's plain wrapper of our function by Inductor's own kind of wrapper."""
    if getattr(backend, "compiler_fn", None) is instrumented:
        options = dict(backend.kwargs)
        name = options.pop("name", None)
        wrapper = InstrumentedInductor(options.get("mode"), options.get("options"), backend.dynamic)
        wrapper.name = name
        return wrapper
    return backend


def _deliver(report: Report) -> None:
    deliver(report, _settings)
    _files.delivered(report)


shown.install()
# Last: this imports Dynamo, after which `adoption` may call `adopted`.
_settings = settings.of_process()
configure_logging(_settings.log)
for _name, _right in settings.misspelt().items():
    logging.getLogger(LOGGER).warning("%s is not ours; did you mean %s?", _name, _right)
_files = CurrentFiles(_settings.dir, _settings.run)
_session = Session(
    _deliver,
    _settings.ops,
    _settings.print_missing,
    wants_kernels=_settings.dir is not None
    or _settings.html is not None
    or "kernels" in _settings.tables,
    device_time=_settings.device_time,
    # Where a folder or `run` collects the reports of all ranks, nothing goes through the store.
    show_ranks=(
        (lambda run: show(render_ranks(run, None)))
        if _settings.dir is None and _settings.run is None and _settings.tables
        else None
    ),
    saver=_files if _files else None,
    asked=None if _settings.signal is None else Asked(_settings.signal, tell),
)
dynamo.patch_backend_lookup(_as_instrumented)
if torch_compiled.is_off():
    torch_compiled.watch_off(_off_by_name)
if not _settings.disable:
    _session.start()
