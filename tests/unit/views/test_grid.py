"""Tables on narrow terminals: names give way, then columns, and figures never."""

import pytest

from instrumented_backend.views.grid import Column, cut, draw, shorten

KERNEL = "triton_per_fused_native_layer_norm_view_5"


def columns() -> list[Column]:
    return [
        Column("kernel_name", "kernel name", [KERNEL, "mm"], False),
        Column("calls", "calls", ["1234567", "8"], True),
        Column("source", "source", ["estimated", "inductor"], False),
        Column("moved", "moved", ["8.2 KB", "12 GB"], True),
    ]


def test_what_fits_is_whole() -> None:
    # 41 + 7 + 9 + 6 characters, and two between columns.
    assert draw(columns(), 69).splitlines() == [
        f"{'kernel name':41}    calls  source      moved",
        f"{'-' * 41}  -------  ---------  ------",
        f"{KERNEL}  1234567  estimated  8.2 KB",
        f"{'mm':41}        8  inductor    12 GB",
    ]


def test_names_are_shortened_first() -> None:
    lines = draw(columns(), 60).splitlines()
    assert lines[2] == "triton_per_fused_nati…orm_view_5  1234567  estimated  8.2 KB"
    assert len(lines) == 4 and max(map(len, lines)) == 60


def test_then_the_least_columns_go_and_a_line_says_so() -> None:
    # At their narrowest 24 + 7 + 9 + 6, and six between them: 52.
    lines = draw(columns(), 51, least=("source",)).splitlines()
    assert lines[0].split() == ["kernel", "name", "calls", "moved"]
    assert lines[-2:] == ["left out at this width: source; CSV and JSON have", "  all"]


def test_without_a_list_the_last_columns_go() -> None:
    lines = draw(columns(), 45).splitlines()
    assert lines[0].split() == ["kernel", "name", "calls", "source"]


@pytest.mark.parametrize("width", [1, 10, 24])
def test_the_first_column_stays(width: int) -> None:
    lines = draw(columns(), width).splitlines()
    assert lines[2] == "triton_per_fused…_view_5"
    assert "calls" in " ".join(lines) and "1234567" not in " ".join(lines)


def test_sentences_wrap_at_their_spaces() -> None:
    sentence = "a bypass, since the graph has a custom operator in it"
    table = draw([Column("a", "a", ["x"], False), Column("b", "b", [sentence], False)], 30)
    cells = [line[3:] for line in table.splitlines()[2:]]
    assert " ".join(cell.strip() for cell in cells) == sentence
    assert max(map(len, table.splitlines())) <= 30


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abc", 3, "abc"),
        ("abcdefghij", 7, "abcd…ij"),
        (".../instrumented_backend/demo.py:64", 20, ".../instr…demo.py:64"),
        ("a/very_long_name_of_a_file.py:1234", 12, "…ile.py:1234"),
    ],
)
def test_shorten(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


def test_names_in_cpp_lose_their_end_and_are_never_wrapped() -> None:
    name = "at::native::reduce<128, 4, at::native::func<float, float> >(float)"
    table = [
        Column("count", "total us", ["51"], True, is_one_line=True),
        Column("kernel", "kernel", [name], False, is_one_line=True),
    ]
    # "total us" and the gap take 10 of 40.
    assert draw(table, 40).splitlines() == [
        "total us  kernel",
        "--------  ------------------------------",
        "      51  at::native::reduce<128, 4, ...",
    ]
    assert cut("abcdef", 6) == "abcdef" and cut("abcdefg", 6) == "abc..."
