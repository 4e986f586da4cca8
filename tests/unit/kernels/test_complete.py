"""One record, completed by several readers."""

from pathlib import Path

import pytest

from instrumented_backend.kernels.complete import (
    add_generator_facts,
    add_launch,
    add_launches,
    add_no_launch,
    add_provenance,
    add_sidecar,
    add_time,
)
from instrumented_backend.kernels.facts import Access, KernelFacts, TimeFacts
from instrumented_backend.kernels.provenance import Provenance
from instrumented_backend.kernels.sidecar import GeneratorFacts, Sidecar, write_sidecar
from instrumented_backend.kernels.wrapper import KernelCall, Size, Tensor
from instrumented_backend.records import KernelRecord, notes


def facts(own_sum_gb: float | None = None) -> KernelFacts:
    """A kernel that reads one buffer of float32 and writes another."""
    record = KernelRecord("k", "triton", kernel_category="pointwise")
    record.kernel_args_num_gb = own_sum_gb
    record.arg_dtypes = {"in_ptr0": "float32", "out_ptr0": "float32"}
    accesses = {"in_ptr0": Access(reads={"x0": None}), "out_ptr0": Access(writes={"x0": None})}
    return KernelFacts(record, ["in_ptr0", "out_ptr0", "xnumel"], accesses)


def site(length: int | None) -> KernelCall:
    size = Size(str(length), length)
    shape = None if length is None else (size,)
    tensors = [Tensor(name, shape, "float32") for name in ("buf0", "buf1")]
    return KernelCall("k", [*tensors, size], {}, None, None)


def bytes_of(record: KernelRecord) -> tuple[int | None, int | None, int | None, str | None]:
    return record.total_bytes, record.read_bytes, record.written_bytes, record.bytes_source


def test_our_estimate_where_inductor_says_nothing() -> None:
    known = facts()
    add_launch(known, site(10))
    assert bytes_of(known.record) == (80, 40, 40, "estimated")
    assert known.record.note_codes == [notes.BYTES_ESTIMATED]


@pytest.mark.parametrize(
    ("total", "length", "expected", "text"),
    [
        (80, 10, (80, 40, 40, "inductor"), None),
        (60, 10, (60, None, None, "inductor"), ", and the shapes at the call add up to 80 bytes"),
        (60, None, (60, None, None, "inductor"), ""),  # shapes unknown
    ],
)
def test_inductors_sum_takes_precedence_wherever_it_is_from(
    total: int, length: int | None, expected: object, text: str | None
) -> None:
    in_its_code, in_the_side_file = facts(total / 1e9), facts()
    add_launch(in_its_code, site(length))
    add_no_launch(in_its_code.record)
    add_launch(in_the_side_file, site(length))
    add_generator_facts(in_the_side_file.record, GeneratorFacts(total_bytes=total))
    for record in (in_its_code.record, in_the_side_file.record):
        assert bytes_of(record) == expected
        said = "read and written bytes unknown: Inductor's figure is their sum"
        assert record.notes == ([] if text is None else [said + text])


def test_its_own_codes_sum_is_not_replaced_by_the_side_files() -> None:
    known = facts(80 / 1e9)
    add_launch(known, site(10))
    add_generator_facts(known.record, GeneratorFacts(total_bytes=7))
    assert bytes_of(known.record) == (80, 40, 40, "inductor")


def test_the_first_of_several_launches_is_described() -> None:
    known = facts()
    add_launches(known, [site(10), site(20)])
    assert known.record.total_bytes == 80
    assert known.record.note_codes == [notes.BYTES_ESTIMATED, notes.SEVERAL_SIZES]
    nowhere = facts()
    add_launches(nowhere, [])
    assert nowhere.record.notes == ["bytes unknown: no launch of it in this file"]


def test_comments_add_up_and_take_precedence_over_the_side_file() -> None:
    record = KernelRecord("k", "triton")
    add_provenance(record, Provenance(["sin"], ["aten.sin"]))
    add_provenance(record, Provenance(["sin", "cos"], kernel_path="/cache/k.py"))
    add_generator_facts(record, GeneratorFacts(aten_ops=["aten.tan"], source_lines=["model.py:3"]))
    assert record.fx_nodes == ["sin", "cos"] and record.aten_ops == ["aten.sin"]
    assert record.source_lines == ["model.py:3"] and record.kernel_path == "/cache/k.py"


def test_time_gives_bandwidth_and_a_sum_where_the_calls_are_known() -> None:
    record = KernelRecord("k", "triton", total_bytes=6_000_000)
    add_time(record, TimeFacts(mean_us=3.0, calls=10))
    assert (record.device_calls, record.device_time_total_us) == (10, 30.0)
    assert record.gb_per_s == 2_000  # 6 MB in 3 us
    unknown = KernelRecord("k", "triton")
    add_time(unknown, TimeFacts(mean_us=3.0, calls=None))
    assert (unknown.device_time_us, unknown.device_calls, unknown.gb_per_s) == (3.0, None, None)


def test_the_lines_of_each_op(tmp_path: Path) -> None:
    module = tmp_path / "cab.py"
    facts = GeneratorFacts(
        aten_ops=["aten.add", "aten.sin"],
        source_lines=["m.py:3", "m.py:4"],
        op_lines={"aten.add": [0, 1, 7], "aten.sin": [1]},  # there is no eighth
    )
    write_sidecar(str(module), Sidecar({"k": facts}))
    record = KernelRecord("k", "cpp")
    add_sidecar([record], str(module))
    assert record.source_lines == ["m.py:3", "m.py:4"]
    assert record.op_lines == {"aten.add": ["m.py:3", "m.py:4"], "aten.sin": ["m.py:4"]}
