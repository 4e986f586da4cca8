"""Records of generated code, against what the code says to simpler readers and to Inductor."""

import ast
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_data import graph_module, kernel_module, modules, named, only

from instrumented_backend.kernels import triton, triton_syntax
from instrumented_backend.kernels.graph_module import WAIT, KernelName, ParseError, kernel_names
from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.records import KernelRecord

TRITON_MODULES = {**named("plain"), **named("bk")}
OWN_MODULES = {**named("plain", "kernel"), **named("bk", "kernel")}
GRAPHS = {**named("plain", "graph"), **named("bk", "graph")}
# What Inductor calls a kernel, after its decorator.
PREFIXES = {
    "triton_poi": {"pointwise", "combo"},
    "triton_per": {"persistent_reduction"},
    "triton_red": {"reduction"},
    "triton_for": {"foreach"},
    "triton_tem": {"template"},
    "triton_mm": {"template"},
    "triton_spl": {"split_scan"},
    "add_kernel": {"user_autotune"},
    "triton_": {"pointwise", "template"},  # a candidate in tuning, which has no name yet
}


@pytest.mark.parametrize("name", TRITON_MODULES)
def test_every_module_parses(name: str) -> None:
    kernels = parse_module(TRITON_MODULES[name], name)
    assert kernels
    for kernel in kernels:
        if kernel.language == "extern":
            continue
        assert kernel.kernel_category != "unknown"
        prefix = next(p for p in PREFIXES if kernel.kernel_name.startswith(p))
        assert kernel.kernel_category in PREFIXES[prefix]
        assert (kernel.device, kernel.compute_capability) == ("cuda:0", "9.0")
        assert kernel.grid_type
        assert set(kernel.arg_dtypes.values()) <= {
            *("float32", "bfloat16", "int64", "int32", "uint8", "int8", "bool"),
        }


@pytest.mark.parametrize("name", OWN_MODULES)
def test_counts_are_those_of_pytorch(name: str) -> None:
    """PyTorch's table counts the words in the kernel's text (``torch/_inductor/metrics.py``)."""
    text = OWN_MODULES[name]
    kernel = only(text)
    head = re.search(rf"^def {re.escape(_function(text))}\((.*)\):$", text, re.M)
    assert head is not None
    body = text[head.start() :].partition("\n\n\ndef get_args()")[0].rstrip()
    assert kernel.num_load == body.count("tl.load")
    assert kernel.num_store == body.count("tl.store")
    assert kernel.num_for_loop == len(re.findall(r"^ +for ", body, re.M))
    assert kernel.num_atomic_add == body.count("tl.atomic_add")
    assert kernel.num_args == len(head[1].split(","))
    assert kernel.line_of_code == len(body.splitlines())
    hints = re.search(r"size_hints=({[^}]*})", text)
    assert kernel.size_hints == (ast.literal_eval(hints[1]) if hints else None)
    hint = re.search(r"reduction_hint=ReductionHint\.(\w+)", text)
    assert kernel.reduction_hint == (hint[1] if hint else None)
    carried = re.search(r"'kernel_num_gb': ([0-9.e-]+)", text)
    assert kernel.kernel_args_num_gb == (float(carried[1]) if carried else None)
    for numel in ("xnumel", "ynumel", "r0_numel"):
        constants = set(re.findall(rf"^ +{numel} = (\d+)$", body, re.M))
        assert getattr(kernel, numel) == (int(constants.pop()) if len(constants) == 1 else None)
    assert kernel.rnumel == kernel.r0_numel or kernel.kernel_category in ("foreach", "combo")


def _function(text: str) -> str:
    match = re.search(r"@triton\.jit\ndef (\w+)\((?!arg0_0)", text)
    assert match is not None
    return match[1]


@pytest.mark.parametrize("name", OWN_MODULES)
def test_loads_and_stores_are_explained_against_inductors(name: str) -> None:
    kernel = only(OWN_MODULES[name])
    for what, ours, theirs in (
        ("loads", kernel.num_load, kernel.inductor_num_load),
        ("stores", kernel.num_store, kernel.inductor_num_store),
    ):
        if theirs is not None and ours != theirs:
            (note,) = [n for n in kernel.notes if n.startswith(f"{ours} {what} in the body")]
            assert f"Inductor counts {theirs}" in note


def test_an_indirect_load_is_what_inductor_leaves_out() -> None:
    # nll_loss picks with an index that it has loaded: 4 calls of tl.load, 'num_load': 3.
    kernel = only(OWN_MODULES["plain/conv_bn.kernel11.py"])
    assert (kernel.num_load, kernel.inductor_num_load) == (4, 3)
    assert "not the 1 whose index was itself loaded" in kernel.notes[0]


@pytest.mark.parametrize("name", OWN_MODULES)
def test_reading_less_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of arithmetic are not parsed; the record is that of the whole text."""
    text = OWN_MODULES[name]
    quick = triton.read_triton(text)
    assert len(triton_syntax.without_boilerplate(text)) < 0.9 * len(text)
    monkeypatch.setattr(triton, "without_boilerplate", lambda source: source)
    whole = triton.read_triton(text)
    assert quick.record == whole.record and quick.accesses == whole.accesses


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_modules(name: str) -> None:
    text = GRAPHS[name]
    kernels = parse_module(text, name)
    generated = [kernel for kernel in kernels if kernel.language != "extern"]
    assert [kernel.kernel_name for kernel in generated] == re.findall(
        r"^(\w+) = async_compile\.triton\(", text, re.M
    )
    for kernel in generated:
        calls = text.count(f" {kernel.kernel_name}.run(")
        # Once more in the benchmark main of the kernel's own text.
        assert kernel.calls == calls - text.count(f" {kernel.kernel_name}.run(*args")
        assert kernel.path == name
        if kernel.kernel_category != "user_autotune":  # Inductor says where it keeps its own
            assert kernel.kernel_path and kernel.kernel_path.endswith(".py")
        assert kernel.total_bytes is not None
        assert set(kernel.arg_shapes) <= set(kernel.arg_dtypes)
    externs = [kernel for kernel in kernels if kernel.language == "extern"]
    called = len(re.findall(r"^ +(?:buf\d+ = )?(?:extern_kernels|torch\.ops|aten)\.", text, re.M))
    assert sum(kernel.calls or 0 for kernel in externs) == called
    positions = sorted(place for kernel in externs for place in kernel.extern_positions)
    assert positions == list(range(called))


@pytest.mark.parametrize(
    ("code", "positions"),
    [
        ("{}; extern_kernels.addmm(a, b, b, out=c); {}", {"mm": [0, 2], "addmm": [1]}),
        ("if a.item():\n    {}\nelse:\n    extern_kernels.addmm(a, b, b, out=c)", {}),
        ("if a.item():\n    del b\n{}", {"mm": [0]}),
        ("{}\ndef partition_0(args):\n    {}", {}),
    ],
)
def test_the_order_of_extern_calls(code: str, positions: dict[str, list[int]]) -> None:
    """Known where each of them runs once, in the order of the text."""
    text = graph_module("", code.replace("{}", "extern_kernels.mm(a, b, out=c)"))
    found = {kernel.kernel_name: kernel.extern_positions for kernel in parse_module(text)}
    known = {name.partition(".")[2]: places for name, places in found.items() if places}
    assert known == positions


def test_extern_calls_of_several_functions_have_no_order() -> None:
    """`call` calls the partitions, between calls of its own."""
    mm = "extern_kernels.mm(a, b, out=c)"
    (record,) = parse_module(graph_module(f"def partition_0(args):\n    {mm}", mm))
    assert (record.calls, record.extern_positions) == (2, [])
    (record,) = parse_module(graph_module(f"def partition_0(args):\n    {mm}"))
    assert (record.calls, record.extern_positions) == (1, [0])


def test_a_graphs_kernel_is_its_own_modules() -> None:
    """The text of a kernel is in the graph's module and in a file of its own."""
    graph = parse_module(GRAPHS["plain/pointwise.graph1.py"])[0]
    alone = only(OWN_MODULES["plain/pointwise.kernel1.py"])
    from_calls = {
        *("path", "kernel_path", "arg_shapes", "calls", "notes", "aten_ops", "fx_nodes"),
        "note_codes",
        *("total_bytes", "read_bytes", "written_bytes", "bytes_source"),
    }
    for field in dataclasses.fields(KernelRecord):
        if field.name not in from_calls:
            assert getattr(graph, field.name) == getattr(alone, field.name), field.name
    # (777, 1000) float32 twice in, once out.
    assert graph.total_bytes == 3 * 777 * 1000 * 4
    assert graph.aten_ops == ["aten.sin", "aten.mul", "aten.add"]
    assert graph.fx_nodes == ["sin", "mul", "add"]


def test_symbolic_sizes() -> None:
    kernel, *_ = parse_module(GRAPHS["plain/dynamic.graph1.py"])
    assert (kernel.xnumel, kernel.rnumel, kernel.r0_numel) == (None, None, None)
    assert kernel.symbolic_numels == {"xnumel": "s77", "rnumel": "s27", "r0_numel": "s27"}
    assert kernel.arg_shapes["in_ptr0"] == ["s77", "s27"]
    assert any("sizes that the graph was compiled with" in note for note in kernel.notes)


def test_multi_kernels() -> None:
    text = graph_module(
        "triton_per_0 = async_compile.triton('triton_per_0', '''"
        + kernel_module("pass\n", "persistent_reduction")
        + "''')\nmulti_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_per_0])\n",
        "buf0 = empty_strided_cuda((8, ), (1, ), torch.float32)\n"
        "buf1 = empty_strided_cuda((8, ), (1, ), torch.bfloat16)\n"
        "multi_kernel_0.run(buf0, buf1, 4, stream=stream0)",
    )
    choice, multi = parse_module(text)
    assert (multi.kernel_category, multi.calls) == ("multi-kernel", 1)
    assert choice.calls == 0 and "launched, if at all, by multi_kernel_0" in choice.notes
    # (8,) float32 in, (8,) bfloat16 out: for the kernel that may be chosen, and for the choice.
    assert choice.total_bytes == multi.total_bytes == 8 * 4 + 8 * 2
    assert any("those of triton_per_0" in note for note in multi.notes)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("'''def broken(:\\n'''", "its source is not Python, or cut short (line 1"),
        ("'''x = 1'''", "no function under a decorator of Triton's"),
        ("'''@triton.jit\\ndef k(a):\\n    b = t\"{a}\" if a else <newer>\\n'''", "not Python"),
    ],
)
def test_a_kernel_that_cannot_be_read_keeps_its_name(source: str, said: str) -> None:
    (kernel,) = parse_module(
        graph_module(f"triton_0 = async_compile.triton('triton_0', {source})", "triton_0.run(b)")
    )
    assert (kernel.kernel_name, kernel.kernel_category, kernel.calls) == ("triton_0", "unknown", 1)
    assert any(said in note for note in kernel.notes)


def test_a_language_that_is_not_read() -> None:
    text = graph_module("new_0 = async_compile.some_new_language('x')")
    (kernel,) = parse_module(text)
    assert (kernel.language, kernel.kernel_category) == ("unknown", "unknown")
    assert any("some_new_language" in note for note in kernel.notes)
    assert kernel_names(text) == [KernelName("new_0", "unknown")]


@pytest.mark.parametrize("name", [*GRAPHS, *named("cpp")])
def test_names_without_a_parser(name: str) -> None:
    text = modules()[name]
    kernels = [kernel for kernel in parse_module(text) if kernel.language != "extern"]
    assert kernel_names(text) == [KernelName(k.kernel_name, k.language) for k in kernels]


# --- Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not Python at all", "not Python, or cut short (line 1: invalid syntax)"),
        ("", "not generated by Inductor: no function under a decorator of Triton's"),
        ("import os\nprint(os)\n", "not generated by Inductor"),
        ("x = 1\n" * 300_000, "not generated by Inductor: no graph in it, and too long"),
        ("(" * 5000, "not Python"),
        ("a\0b", "null bytes"),
        (GRAPHS["plain/adam.graph1.py"][:3000], "cut short (line"),
        (OWN_MODULES["plain/adam.kernel1.py"][:2000], "cut short (line"),
    ],
)
def test_bad_input_is_one_line(text: str, said: str) -> None:
    with pytest.raises(ParseError, match=re.escape(said)) as caught:
        parse_module(text)
    assert "\n" not in str(caught.value)


def test_a_module_that_is_cut_short_in_its_wrapper() -> None:
    text = GRAPHS["plain/reduction.graph1.py"]
    cut = text[: text.index("buf3 = empty_strided_cuda((64, ")]
    kernels = parse_module(cut + "buf3 = empty_strided_cuda((64, ")
    assert len(kernels) >= 5
    for kernel in kernels[:5]:
        assert kernel.kernel_category != "unknown" and kernel.calls is None
        assert any("the calls are unknown" in note for note in kernel.notes)


@pytest.mark.parametrize("form", ["graph", "kernel"])
def test_nothing_is_run(tmp_path: Path, form: str) -> None:
    """Every place at which importing, calling or evaluating the code would write the file."""
    proof = tmp_path / "was_run"
    bomb = f"__import__('pathlib').Path({str(proof)!r}).touch()"
    kernel = kernel_module(f"tl.store(out_ptr0 + (x0), tl.load(in_ptr0 + ({bomb})))\n")
    kernel = f"{bomb}\n" + kernel.replace("'grid_type'", f"'device': {bomb}, 'grid_type'")
    kernel = kernel.replace("size_hints={'x': 1024}", f"size_hints={bomb}")
    text = kernel
    if form == "graph":
        text = (
            bomb
            + "\n"
            + graph_module(
                f"triton_0 = async_compile.triton('triton_0', '''{kernel}''', x={bomb})\n{bomb}",
                f"buf0 = empty_strided_cuda(({bomb}, 2), (2, 1), torch.float32)\n"
                f"triton_0.run(buf0, {bomb}, stream={bomb})\n"
                f"extern_kernels.mm(buf0, {bomb}, out=buf0)",
            )
        )
    assert parse_module(text)
    file = tmp_path / "module.py"
    file.write_text(text)
    command = [sys.executable, "-m", "instrumented_backend", "kernels", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not proof.exists()
    # The proof proves something: running the text does write the file.
    subprocess.run([sys.executable, str(file)], capture_output=True, cwd=tmp_path)
    assert proof.exists()


def test_parsing_does_not_import_torch() -> None:
    program = (
        "import sys; import instrumented_backend.kernels.code_files;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ})


def test_a_block_that_autotuned_while_compiling() -> None:
    """`standalone_compile` has it at the beginning, with the kernels a second time."""
    text = modules()["plain/pointwise.graph1.py"]
    block = (
        'r"""\nCompile-time auto-tuning block: \n'
        + text.partition(WAIT)[0].replace('"""', r"\"\"\"")
        + WAIT
        + '\n"""\n'
    )
    assert kernel_names(block + text) == kernel_names(text) != []
    with_block, without = parse_module(block + text), parse_module(text)
    assert [record.kernel_name for record in with_block] == [r.kernel_name for r in without]
    assert [record.total_bytes for record in with_block] == [r.total_bytes for r in without]


def test_a_parser_that_another_thread_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python's own is before 3.11.8 and 3.12.2: "AST constructor recursion depth mismatch"."""
    name, text = next(iter(GRAPHS.items()))
    expected = parse_module(text, name)
    parse, calls = ast.parse, iter(range(100))

    def disturbed(*arguments: object, **keywords: object) -> object:
        if next(calls) == 2:
            raise SystemError("AST constructor recursion depth mismatch (before=189, after=27)")
        return parse(*arguments, **keywords)  # type: ignore[call-overload]

    monkeypatch.setattr(ast, "parse", disturbed)
    assert parse_module(text, name) == expected
    assert next(calls) > 4, "it was not disturbed"
