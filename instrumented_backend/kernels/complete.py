"""Completes a `KernelRecord`: here, and nowhere else, come together what the readers have found.

A record begins with what the kernel's own source tells (`KernelFacts`). Added to it are its launch,
its provenance, what only Inductor's code generator knew, and its time in the run.
"""

import copy

from instrumented_backend.kernels.facts import BytesFacts, KernelFacts, LaunchFacts, TimeFacts
from instrumented_backend.kernels.provenance import Provenance
from instrumented_backend.kernels.sidecar import GeneratorFacts, Sidecar, read_sidecar
from instrumented_backend.kernels.traffic import extern_facts, launch_facts
from instrumented_backend.kernels.wrapper import KernelCall, Size, Tensor
from instrumented_backend.records import KernelRecord, Note, notes

ESTIMATED = "estimated"
INDUCTOR = "inductor"

_NO_CALL = Note(notes.BYTES_UNKNOWN, "bytes unknown: no launch of it in this file")


# --- Bytes: Inductor's sum takes precedence over ours ---------------------------------------------


def _add_bytes(record: KernelRecord, found: BytesFacts) -> None:
    record.add_notes(*found.notes)
    if found.read is None or found.written is None:
        return
    record.read_bytes, record.written_bytes = found.read, found.written
    record.total_bytes, record.bytes_source = found.read + found.written, ESTIMATED
    _add_own_sum(record)


def _add_own_sum(record: KernelRecord) -> None:
    """The sum that Inductor wrote into the kernel's own code, if it did."""
    if record.kernel_args_num_gb is not None:
        _add_inductors_sum(record, round(record.kernel_args_num_gb * 1e9))


def _add_inductors_sum(record: KernelRecord, total: int) -> None:
    """It replaces our estimate. The parts stay where they add up to it."""
    if record.bytes_source == INDUCTOR:
        return
    record.drop_notes(notes.ABOUT_BYTES)
    if record.total_bytes != total:
        reason = "read and written bytes unknown: Inductor's figure is their sum"
        if record.total_bytes is not None:
            reason += f", and the shapes at the call add up to {record.total_bytes} bytes"
        record.add_note(notes.PARTS_UNKNOWN, reason)
        record.read_bytes = record.written_bytes = None
    record.total_bytes, record.bytes_source = total, INDUCTOR


def note_changed_before(facts: KernelFacts, sites: list[KernelCall], changed: set[str]) -> None:
    """Inductor's figure leaves out a buffer that an earlier kernel changed, as it has a new name.

    ``changed`` are the buffers that kernels have changed so far; this one's are added.
    """
    record = facts.record
    for site in sites[:1]:
        passed = list(zip(facts.parameters, site.arguments, strict=False))
        tensors = [(name, value.name) for name, value in passed if isinstance(value, Tensor)]
        by_this_one = {buffer for name, buffer in tensors if name in record.mutated_args}
        users = record.kernel_category == "user_autotune"  # it has no such figure
        for parameter, buffer in tensors:
            is_left_out = buffer in changed - by_this_one and not users
            if is_left_out and record.bytes_source == ESTIMATED:
                record.add_note(
                    notes.BYTES_ESTIMATED,
                    f"bytes: {parameter} was changed by a kernel before; Inductor's own figure "
                    "leaves such a buffer out",
                )
        changed |= by_this_one


# --- The launches ---------------------------------------------------------------------------------


def add_calls(record: KernelRecord, count: int, parent: str | None, problem: str | None) -> None:
    """How often one call of the graph launches it, unless there is a ``problem``.

    ``parent`` is the multi-kernel that may choose this one.
    """
    if problem is not None:
        record.add_note(notes.CALLS_UNKNOWN, problem)
    elif parent is not None:
        record.calls = 0
        record.add_note(notes.LAUNCHED_BY_CHOICE, f"launched, if at all, by {parent}")
    else:
        record.calls = count


def add_launches(facts: KernelFacts, sites: list[KernelCall]) -> None:
    """The record has the first launch's sizes; say so where another differs."""
    if not sites:
        add_no_launch(facts.record)
        return
    add_launch(facts, sites[0])
    if any(_numels(site) != _numels(sites[0]) for site in sites[1:]):
        facts.record.add_note(
            notes.SEVERAL_SIZES, "launched with several sizes: the figures are the first one's"
        )


def _numels(site: KernelCall) -> list[str]:
    return [argument.text for argument in site.arguments if isinstance(argument, Size)]


def add_launch(facts: KernelFacts, call: KernelCall) -> None:
    """What the first call site of a generated kernel tells: shapes, numels, bytes."""
    _add_launch(facts.record, launch_facts(facts, call))


def extern_record(call: KernelCall) -> KernelRecord:
    """One extern call, of which there is no source."""
    record = KernelRecord(kernel_name=call.kernel, language="extern", kernel_category="extern")
    record.num_args = len(call.arguments)
    _add_launch(record, extern_facts(call))
    return record


def _add_launch(record: KernelRecord, found: LaunchFacts) -> None:
    if found.note is not None:
        record.add_notes(found.note)
    record.arg_shapes.update(found.arg_shapes)
    record.arg_dtypes.update(found.arg_dtypes)
    record.symbolic_numels.update(found.symbolic_numels)
    _add_bytes(record, found.bytes)
    if record.flops_source is not None:
        return  # Inductor's figure
    if found.flops is not None:
        record.flops, record.flops_source = found.flops, ESTIMATED
    if found.flops_note is not None:
        record.add_notes(found.flops_note)


def add_no_launch(record: KernelRecord) -> None:
    """A kernel's own module, which has no call in it: Inductor's figure, or none."""
    if record.kernel_args_num_gb is not None:
        _add_own_sum(record)
    elif _NO_CALL not in record.coded_notes():
        record.add_notes(_NO_CALL)


def add_figures_of(record: KernelRecord, subkernel: KernelRecord) -> None:
    """A multi-kernel's subkernels compute the same, from the same arguments."""
    for name in _OF_A_CHOICE:
        setattr(record, name, copy.copy(getattr(subkernel, name)))
    record.add_notes(*subkernel.coded_notes(notes.ABOUT_BYTES | {notes.PARTS_UNKNOWN}))
    record.add_note(
        notes.FIGURES_OF_CHOICE, f"sizes, bytes and flops: those of {subkernel.kernel_name}"
    )


# What the kernels of a multi-kernel share.
_OF_A_CHOICE = (
    *("device", "compute_capability", "arg_dtypes", "arg_shapes", "mutated_args", "num_args"),
    *("xnumel", "ynumel", "znumel", "rnumel", "r0_numel", "r1_numel", "symbolic_numels"),
    *("kernel_args_num_gb", "total_bytes", "read_bytes", "written_bytes", "bytes_source"),
    *("flops", "flops_source"),
)


# --- Where it comes from --------------------------------------------------------------------------


def add_provenance(record: KernelRecord, said: Provenance) -> None:
    """What a comment above its definition or its call says, beside what others said."""
    for known, new in (
        (record.fx_nodes, said.fx_nodes),
        (record.aten_ops, said.aten_ops),
        (record.source_lines, said.source_lines),
    ):
        known += [item for item in new if item not in known]
    record.kernel_path = said.kernel_path or record.kernel_path


def add_sidecar(kernels: list[KernelRecord], module_path: str) -> Sidecar:
    """To the records of a graph's module, what its side file has of them; returns what it has."""
    kept = read_sidecar(module_path)
    for kernel in kernels:
        if kernel.kernel_name in kept.kernels:
            add_generator_facts(kernel, kept.kernels[kernel.kernel_name])
    return kept


def add_generator_facts(record: KernelRecord, facts: GeneratorFacts) -> None:
    """What only Inductor's code generator knew. The comments take precedence over its origins."""
    record.aten_ops = record.aten_ops or facts.aten_ops
    record.fx_nodes = record.fx_nodes or facts.fx_nodes
    record.source_lines = record.source_lines or facts.source_lines
    count = len(facts.source_lines)
    record.op_lines = {
        op: [facts.source_lines[number] for number in numbers if 0 <= number < count]
        for op, numbers in facts.op_lines.items()
    }
    if facts.total_bytes is not None:
        _add_inductors_sum(record, facts.total_bytes)


# --- What ran -------------------------------------------------------------------------------------


def add_time(record: KernelRecord, found: TimeFacts) -> None:
    """Its time in the run itself, and the memory bandwidth that follows from it."""
    record.device_time_us = found.mean_us
    record.library_kernels = dict(found.kernels)
    if found.calls is not None:
        record.device_calls = found.calls
        record.device_time_total_us = found.mean_us * found.calls
    if record.total_bytes is not None and found.mean_us:
        record.gb_per_s = record.total_bytes / found.mean_us / 1e3
    record.add_notes(*found.notes)


def add_text(timed: KernelRecord, parsed: KernelRecord) -> None:
    """To a record of one launch in a benchmark, what only the module's text and side file tell."""
    if timed.language == "unknown":  # nothing of it was measured
        timed.language, timed.kernel_category = parsed.language, parsed.kernel_category
    timed.aten_ops, timed.fx_nodes = parsed.aten_ops, parsed.fx_nodes
    timed.source_lines, timed.op_lines = parsed.source_lines, parsed.op_lines
    timed.kernel_path = timed.kernel_path or parsed.kernel_path
    if parsed.bytes_source == INDUCTOR and parsed.arg_shapes == timed.arg_shapes:
        timed.total_bytes, timed.bytes_source = parsed.total_bytes, parsed.bytes_source
        timed.read_bytes, timed.written_bytes = parsed.read_bytes, parsed.written_bytes
    if timed.total_bytes is None and parsed.total_bytes is not None:
        timed.total_bytes, timed.bytes_source = parsed.total_bytes, parsed.bytes_source
