"""One run of a graph with each distinct launch timed alone, with the arguments that it gets there.

The arguments are the graph's own: random inputs, and intermediate buffers that the kernels before
have made. Memory therefore stays what the graph itself needs, and index buffers hold valid indices.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from instrumented_backend.bench import stand_ins
from instrumented_backend.bench.fresh_pages import StoragesSeen, give_back
from instrumented_backend.bench.timing import measure_kernel, synchronize
from instrumented_backend.bench.triton_configs import config_records, describe_chosen
from instrumented_backend.kernels.complete import add_launch, add_no_launch, extern_record
from instrumented_backend.kernels.facts import KernelFacts
from instrumented_backend.kernels.parse import GraphSource
from instrumented_backend.kernels.wrapper import KernelCall, Size, Tensor, Value
from instrumented_backend.records import KernelRecord, notes
from instrumented_backend.records.bench import BenchRecord


@dataclass
class Launch:
    """A kernel at one set of shapes: the records made of it, and how often the graph has it."""

    number: int
    name: str
    records: list[BenchRecord] = field(default_factory=list)
    calls: int = 0


@dataclass
class Walk:
    """``begin(launch)`` is called before a launch is timed, ``done(launch)`` when it has been.

    Launches with a number in ``skip`` are not run: an earlier attempt did not survive them. Of
    those below ``resume`` the records are known already.
    """

    source: GraphSource
    device: str
    begin: Callable[[Launch], None]
    done: Callable[[Launch], None]
    all_configs: bool = False
    resume: int = 0
    skip: frozenset[int] = frozenset()
    min_seconds: float = 0.2
    launches: dict[Any, Launch] = field(default_factory=dict)
    course: list[tuple[int, str]] = field(default_factory=list)  # number and name of each launch
    _seen: StoragesSeen = field(default_factory=StoragesSeen)

    def run(self, module: ModuleType, arguments: list[Any]) -> Any:
        """Call the module's ``call``; what it raises is raised, after the launch was reported."""
        self._seen.add(tensors_in(arguments))
        undo = stand_ins.install(module, self.source.sources, self._launched)
        try:
            return module.call(list(arguments))
        finally:
            undo()

    # --- One launch -----------------------------------------------------------------------------

    def _launched(
        self,
        name: str,
        kernel: Any,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        key = (name, _signature(args), _signature(tuple(sorted(kwargs.items()))))
        launch = self.launches.get(key)
        if launch is None:
            launch = Launch(len(self.launches), name)
            self.launches[key] = launch
            first = True
        else:
            first = False
        launch.calls += 1
        self.course.append((launch.number, name))
        left_out = launch.number in self.skip
        if first and launch.number >= self.resume and not left_out:
            self.begin(launch)
            self._time(launch, kernel, function, args, kwargs)
            self.done(launch)
        self._seen.add(tensors_in([*args, *kwargs.values()]))
        failed = any(record.chosen and record.error is not None for record in launch.records)
        if not left_out and not failed:
            return function(*args, **kwargs)
        _fill(self._facts(name), args)
        if name not in self.source.sources and "out" not in kwargs:
            raise NotReached(f"not reached: {name} before it failed")
        return None

    def _time(
        self,
        launch: Launch,
        kernel: Any,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        record = BenchRecord(KernelRecord(launch.name, "unknown"))
        launch.records.append(record)
        try:
            facts = self._facts(launch.name)
            changed = changed_inputs(facts, kernel, args)
            saved = [(tensor, tensor.clone()) for tensor in changed]
            fresh = self._seen.fresh(results(facts, args, kwargs))

            def restore() -> None:
                give_back(fresh)
                for tensor, copy in saved:
                    tensor.copy_(copy)

            undo = restore if saved or fresh else None
            result = kwargs.get("out")
            if facts is None and result is None:
                result = function(*args, **kwargs)
                restore()
            self._describe(record, launch.name, facts, args, kwargs, result)
            del result
            configs: list[BenchRecord] = []
            if self.all_configs:
                configs = config_records(
                    record, kernel, args, kwargs, self.device, undo, self.min_seconds
                )
            measure_kernel(
                record, lambda: function(*args, **kwargs), self.device, undo, self.min_seconds
            )
            synchronize(self.device)
            if fresh:
                record.kernel.add_note(notes.TIME, _FRESH)
            launch.records = describe_chosen(record, configs, kernel)
        except Exception as error:  # one row says it, and the run continues
            record.error = reason(error)
            if is_fatal(error):
                self.done(launch)
                raise

    def _facts(self, name: str) -> KernelFacts | None:
        """Afresh, to be completed; None for an extern kernel."""
        return self.source.facts(name) if name in self.source.sources else None

    def _describe(
        self,
        record: BenchRecord,
        name: str,
        facts: KernelFacts | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        """Complete the record from the real arguments."""
        numbers = {f"#{i}": v for i, v in enumerate(args) if not isinstance(v, torch.Tensor)}
        site = KernelCall(
            kernel=name,
            arguments=[_value(argument) for argument in args],
            keywords={**numbers, **kwargs},
            result=_result(result),
            provenance=None,
        )
        if facts is None:
            record.kernel = extern_record(site)
            record.kernel.device = self.device
            return
        record.kernel = facts.record
        if facts.parameters:
            add_launch(facts, site)
        else:
            add_no_launch(facts.record)


_FRESH = "time: with that for new pages of memory, as in the graph, which it is the first to write"


class NotReached(RuntimeError):
    """The graph cannot be followed beyond a launch that was left out."""


def _signature(value: Any) -> Any:
    """Shapes, strides, dtypes and numbers of some arguments, hashable."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), tuple(value.stride()), value.dtype, str(value.device))
    if isinstance(value, (list, tuple)):
        return tuple(_signature(item) for item in value)
    return repr(value)


def _value(argument: Any) -> Value:
    if isinstance(argument, torch.Tensor):
        return _tensor(argument)
    if isinstance(argument, (list, tuple)):
        return next((_tensor(item) for item in argument if isinstance(item, torch.Tensor)), None)
    if type(argument) is int:
        return Size(str(argument), argument)
    return None


def _tensor(tensor: torch.Tensor) -> Tensor:
    shape = tuple(Size(str(length), length) for length in tensor.shape)
    return Tensor("", shape, str(tensor.dtype).removeprefix("torch."))


def _result(value: Any) -> Tensor | None:
    """What a call returned: a tensor, or several as the parts of one."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (list, tuple)):
        parts = [_tensor(item) for item in value if isinstance(item, torch.Tensor)]
        return Tensor("", parts=parts) if parts else None
    return None


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among some arguments, those in lists too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def changed_inputs(
    facts: KernelFacts | None, kernel: Any, args: tuple[Any, ...]
) -> list[torch.Tensor]:
    """The arguments that a launch reads and changes, so that a second one finds other values."""
    if facts is None:
        schema = getattr(kernel, "_schema", None)
        if schema is None:
            return []
        return [
            tensor
            for argument, value in zip(schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tensors_in(value)
        ]
    passed = dict(zip(facts.parameters, args, strict=False))
    tensors = {key: value for key, value in passed.items() if isinstance(value, torch.Tensor)}
    changed = {key for key in tensors if key.startswith("in_out_ptr")}
    changed |= set(facts.record.mutated_args) | set(getattr(kernel, "mutated_arg_names", ()))
    read_storages = {
        value.untyped_storage().data_ptr()
        for key, value in tensors.items()
        if key in facts.accesses and not facts.accesses[key].writes
    }
    for key, access in facts.accesses.items():
        tensor = tensors.get(key)
        if tensor is None or not access.writes:
            continue
        both = access.reads.keys() & access.writes.keys()
        adds = facts.record.num_atomic_add and both
        if adds or tensor.untyped_storage().data_ptr() in read_storages:
            changed.add(key)
    return [tensors[key] for key in tensors if key in changed]


def results(
    facts: KernelFacts | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """The buffers that a launch writes without reading them first, as far as is known."""
    if facts is None:
        return list(tensors_in(kwargs.get("out")))
    passed = dict(zip(facts.parameters, args, strict=False))
    return [
        tensor
        for name, access in facts.accesses.items()
        if access.writes and name.startswith("out_ptr")
        for tensor in tensors_in(passed.get(name))
    ]


def _fill(facts: KernelFacts | None, args: tuple[Any, ...]) -> None:
    """Give the results of a launch that is left out some values that are valid as indices."""
    passed = dict(zip(facts.parameters, args, strict=False)) if facts is not None else {}
    for name, tensor in passed.items():
        if not isinstance(tensor, torch.Tensor) or facts is None:
            continue
        access = facts.accesses.get(name)
        if access is not None and access.writes:
            tensor.fill_(0.5 if tensor.is_floating_point() else 1)


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "bad_alloc", "cannot allocate memory")
_FATAL = ("illegal memory access", "device-side assert", "unspecified launch failure")


def reason(error: BaseException) -> str:
    """One line on what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        mark in text.lower() for mark in _OUT_OF_MEMORY
    ):
        return f"out of memory: {text[max(text.find('DefaultCPUAllocator'), 0) :]}"
    return f"{type(error).__name__}: {text}"


def is_fatal(error: BaseException) -> bool:
    """Has the error left the device's context unusable?"""
    return any(mark in str(error) for mark in _FATAL)
