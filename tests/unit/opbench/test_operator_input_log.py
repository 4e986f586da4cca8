"""Logs of operator inputs: what is read, what is refused, and that nothing is evaluated."""

import math
from pathlib import Path

import pytest
from opbench.input_log import (
    DtypeName,
    InputLogError,
    Inputs,
    SparseSpec,
    TensorSpec,
    TorchName,
    extent,
    log_text,
    parse_inputs,
    read_log,
)
from paths import DATA

GPT2 = DATA / "operator_inputs/GPT2ForSequenceClassification_training.txt"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "log.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_pytorchs_own_log_of_gpt2() -> None:
    log = read_log(GPT2)
    # grep -c '^Operator' gives 34, grep -c '^cnt' 72; sum.SymInt and sum.dim_IntList are one.
    assert len(log) == 33
    assert sum(map(len, log.values())) == 72
    assert "aten.sum.SymInt" not in log
    assert len(log["aten.sum.dim_IntList"]) == 5
    add = log["aten.add.Tensor"]
    assert [count for _, count in add.values()] == [1, 48, 36, 12]
    inputs, count = add["((T([4, 1024, 3072], f16), 1.0), {})"]
    assert (inputs, count) == (Inputs((TensorSpec((4, 1024, 3072), "f16"), 1.0), {}), 12)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    log = read_log(GPT2)
    assert read_log(write(tmp_path, log_text(log))) == log


@pytest.mark.parametrize(
    "text, args, kwargs",
    [
        ("((), {})", (), {}),
        ("((T([], f32),), {})", (TensorSpec((), "f32"),), {}),
        (
            "(([T([2], i64), None], (1, -2)), {'value': -inf})",
            ([TensorSpec((2,), "i64"), None], (1, -2)),
            {"value": -math.inf},
        ),
        (
            "((T([2, 3], c64, stride=(1, 2)),), {'dtype': torch.bool, 'layout': th.strided})",
            (TensorSpec((2, 3), "c64", (1, 2)),),
            {"dtype": DtypeName("b8"), "layout": TorchName("strided")},
        ),
        (
            "((ST([9, 4], f16, torch.sparse_coo, True, 7), 'f16'), {'device': device('cuda', 1)})",
            (SparseSpec((9, 4), "f16", "sparse_coo", True, 7), DtypeName("f16")),
            {"device": "cuda"},
        ),
        ("((-9223372036854775808, 2j, 'sum', True), {})", (-(2**63), 2j, "sum", True), {}),
    ],
)
def test_each_kind_of_value(text: str, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    inputs = parse_inputs(text)
    assert inputs == Inputs(args, kwargs)
    assert parse_inputs(str(inputs)) == inputs


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("cnt: 1, ((__import__('os').system('touch HIT'),), {})", "only T(...), ST(...)"),
        ("cnt: 1, ((T.__class__,), {})", "'T.__class__': Attribute is not allowed"),
        ("cnt: 1, ((torch.load,), {})", "torch.load is no dtype"),
        ("cnt: 1, ((open('HIT', 'w'),), {})", "only T(...), ST(...)"),
        ("cnt: 1, (([x for x in ()],), {})", "ListComp is not allowed"),
        ("cnt: 1, ((lambda: 0,), {})", "Lambda is not allowed"),
        ("cnt: 1, ((f'{1}',), {})", "JoinedStr is not allowed"),
        ("cnt: 1, ((*(1,),), {})", "Starred is not allowed"),
        ("cnt: 1, ((9**9**9,), {})", "BinOp is not allowed"),
        ("cnt: 1, ((), {**{}})", "a keyword is not a string"),
        ("cnt: 1, ((b'x',), {})", "Constant is not allowed"),
        ("cnt: 1, " + "(" * 200 + ")" * 200, "nested more than 16 deep"),
        ("cnt: 1, ((" + "-" * 500_000 + "1,), {})", "cannot be parsed"),
        ("cnt: 1, ((a" + ".a" * 100_000 + ",), {})", "cannot be parsed"),
        ("cnt: 1, ((" + "9" * 5000 + ",), {})", "digits"),
        ("cnt: 1, ((9223372036854775808,), {})", "more than 64 bits"),
        ("cnt: 1, ((T([1000000000], f32),), {})", "too many elements"),
        ("cnt: 1, ((T([100000, 100000], f32, stride=(0, 0)),), {})", "too many elements"),
        ("cnt: 1, ((T([2], f32, stride=(1000000000,)),), {})", "too many elements"),
        ("cnt: 1, ((T([-1], f32),), {})", "'-1' is no size"),
        ("cnt: 1, ((T([True], f32),), {})", "'True' is no size"),
        ("cnt: 1, ((T([2], f32, stride=(1, 1)),), {})", "2 strides for 1 dimensions"),
        ("cnt: 1, ((T([2], f32, device='cuda'),), {})", "has no device"),
        ("cnt: 1, ((T([2]),), {})", "a tensor is T([sizes], dtype)"),
        ("cnt: 1, ((ST([2], f32),), {})", "a sparse tensor is ST("),
        ("cnt: 1, ((T([2], f31),), {})", "f31 is unknown; dtypes are f16"),
        ("cnt: 1, ((T([2], f32),))", "expected a pair"),
        ("cnt: 1, (T([2], f32), {})", "expected a pair"),
        ("cnt: 1, ((T([2], f32), {}", "not Python's syntax"),
        ("cnt: 1, (('\\d',), {})", "not Python's syntax"),
        ("((T([2], f32),), {})", "expected 'cnt: N, (args, kwargs)'"),
        ("cnt: , ((T([2], f32),), {})", "expected 'cnt: N, (args, kwargs)'"),
        ("cnt: -1, ((T([2], f32),), {})", "expected 'cnt: N, (args, kwargs)'"),
        ("cnt: 0, ((T([2], f32),), {})", "count 0; expected 1"),
        ("cnt: 1, ((T([2], f32),), {})\r", "CR LF"),
        ("Operator: aten.add", "expected 'Operator: aten.add.Tensor'"),
        ("Operator: __import__('os')", "expected 'Operator: aten.add.Tensor'"),
        ("cnt: 1, (('ü',), {})", "not ASCII, at byte 12"),
    ],
    ids=lambda text: text[:40],
)
def test_a_hostile_line(
    line: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = "Operator: aten.relu.default\ncnt: 2, ((T([2], f32),), {})\n"
    path = write(tmp_path, good + line + "\n")
    with pytest.raises(InputLogError) as caught:
        read_log(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:3: ")
    assert complaint in message
    # The path is the machine's, and may be long.
    assert "\n" not in message and len(message.removeprefix(str(path))) < 350
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.txt"]


@pytest.mark.parametrize(
    "content, complaint",
    [
        (b"", ": no operator in it"),
        (b"\n\n", ": no operator in it"),
        (b"cnt: 1, ((), {})\n", ":1: expected 'Operator:"),
        (b"Operator: aten.relu.default\ncnt: 1, (('\xff',), {})\n", ":2: not UTF-8, at byte 12"),
        (b"Operator: aten.relu.default\r\n", ":1: ends with CR LF"),
        (b"\x00\x01\x02", ":1: "),
        (b"Operator: aten.relu.default\ncnt: 1, ((\x00,), {})\n", ":2: "),
        (b"x" * 1_000_001, ":1: 1000001 characters"),
    ],
)
def test_a_file_that_is_no_log(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputLogError) as caught:
        read_log(path)
    assert str(caught.value).startswith(f"{path}{complaint}")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputLogError, match=r"gone.txt: cannot be read: No such file"):
        read_log(tmp_path / "gone.txt")


def test_same_inputs_in_one_file_add_up(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "Operator: aten.sum.SymInt\ncnt: 2, ((T([4], f16), [0]), {})\n"
        "Operator: aten.sum.dim_IntList\ncnt: 3, ((T([4], 'f16'), [0]), {})\n",
    )
    entries = read_log(path)["aten.sum.dim_IntList"]
    assert [count for _, count in entries.values()] == [5]


def test_extent() -> None:
    assert extent((2, 3), None) == 6
    assert extent((2, 3), (10, 1)) == 13  # 1·10 + 2·1 + 1
    assert extent((5, 3), (0, 1)) == 3  # expanded
    assert extent((5, 0), (3, 1)) == 0
    assert extent((), ()) == 1
