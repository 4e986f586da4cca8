"""Dynamo's recompilation reasons (torch 2.13) in the user's terms."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from instrumented_backend.observe.messages.guards import failed_guard

STACK = (
    "\nUser stack trace:\n"
    '  File "/home/me/model.py", line 3, in forward\n    return self.drop(x)\n'
    f'  File "{torch.__path__[0]}/nn/modules/dropout.py", line 73, in forward\n    return F.dropout'
)
# After the period comes torch's advice.
PARAMETER = (
    ". Guard failed on a parameter, consider using torch._dynamo.config."
    "force_parameter_static_shapes = False to allow dynamism on parameters."
)
MODULE = SimpleNamespace(
    scale=5, _modules={"drop": SimpleNamespace(training=False)}, layers=[SimpleNamespace(p=0.5)]
)
LOCALS: dict[str, Any] = {
    "n": 4,
    "p": 4.5,
    "flag": False,
    "y": torch.ones(2),
    "s": "b" * 100,
    "xs": [1, 2],
    "kwargs": {"a": 1, "b": 2},
    "self": MODULE,
    "z": torch.ones(7, 3),
    "none": None,
}


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        (
            "tensor 'x' size mismatch at index 0. expected 4, actual 5",
            ("shape", "size of x in dimension 0", "4", "5"),
        ),
        (
            "tensor 'x' stride mismatch at index 1. expected 8, actual 1",
            ("stride", "stride of x in dimension 1", "8", "1"),
        ),
        (
            "tensor 'x' rank mismatch. expected 2, actual 1",
            ("rank", "number of dimensions of x", "2", "1"),
        ),
        (
            "tensor 'x' dtype mismatch. expected Float, actual Double",
            ("dtype", "dtype of x", "Float", "Double"),
        ),
        (
            "tensor 'x' requires_grad mismatch. expected requires_grad=0",
            ("requires_grad", "requires_grad of x", "False", "True"),
        ),
        (
            f"tensor 'w' requires_grad mismatch. expected requires_grad=1{PARAMETER}",
            ("requires_grad", "requires_grad of w", "True", "False"),
        ),
        (
            f"tensor 'w' dtype mismatch. expected Float, actual Double{PARAMETER}",
            ("dtype", "dtype of w", "Float", "Double"),
        ),
        (
            f"tensor 'w' size mismatch at index 0. expected 4, actual 8{PARAMETER}",
            ("shape", "size of w in dimension 0", "4", "8"),
        ),
        (
            "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect, "
            "ADInplaceOrView, AutogradCPU), actual DispatchKeySet(CUDA, BackendSelect, "
            "ADInplaceOrView, AutogradCUDA)",
            ("device", "device of x", "cpu", "cuda"),
        ),
        (
            "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect, "
            "ADInplaceOrView, AutogradCPU), actual DispatchKeySet(CPU, BackendSelect)",
            ("dispatch_keys", "dispatch keys of x", "ADInplaceOrView", None),
        ),
        (
            "tensor 'x' Tensor device index mismatch. Expected device index to be 0, actual 1",
            ("device", "device index of x", "0", "1"),
        ),
        ("n == 3", ("int", "n", "3", "4")),
        ("L['n'] == 3", ("int", "n", "3", "4")),
        ("p == 3.5", ("float", "p", "3.5", "4.5")),
        ("flag == True", ("bool", "flag", "True", "False")),
        ("s == 'a'", ("str", "s", "'a'", "'" + "b" * 56 + "...")),
        ("y is None", ("none", "y", "None", "a tensor")),
        ("none is not None", ("none", "none", "not None", "None")),
        ("y is x", ("identity", "y is x", "True", "False")),
        ("G['LIMIT'] == 3", ("global", "global LIMIT", "3", "7")),
        ("self.scale == 2", ("attribute", "self.scale", "2", "5")),
        ("self.layers[0].p == 0.1", ("attribute", "self.layers[0].p", "0.1", "0.5")),
        (
            "self._modules['drop'].training == True",
            ("training", "self.drop.training (train() and eval())", "True", "False"),
        ),
        ("len(xs) == 1", ("length", "length of xs", "1", "2")),
        ("len(kwargs) == 1", ("keys", "length of kwargs", "1", "2")),
        # A size that is dynamic has no guard on what it is, unless the program asks for it.
        ("z.size()[0] == 4", ("specialized", "size of z in dimension 0", "4", "7")),
        ("z.size()[0] == 1", ("range", "size of z in dimension 0", "1", "7")),
        (
            "z.size()[0] == L['x'].size()[1]",
            ("relation", "size of z in dimension 0 == size of x in dimension 1", "True", "False"),
        ),
        ("not xs", ("empty", "whether xs is empty", "empty", "not empty")),
        ("xs", ("empty", "whether xs is empty", "not empty", "empty")),
        ("L['kwargs']['a'] == 2", ("int", "kwargs['a']", "2", "1")),
        ("len(L['xs']) == 1", ("length", "length of xs", "1", "2")),
        (
            "___check_type_id(xs, 94556516164656), type=<class 'tuple'>",
            ("type", "type of xs", "tuple", "builtins.list"),
        ),
        (
            "GLOBAL_STATE changed: default_dtype ",
            ("default_dtype", "torch.set_default_dtype", None, None),
        ),
        ("2 <= z.size()[0]", ("range", "size of z in dimension 0", "2 or more", "7")),
        ("L['z'].size()[1] <= 2", ("range", "size of z in dimension 1", "2 or less", "3")),
        ("z.size()[0] > n", ("relation", "size of z in dimension 0 > n", "True", "False")),
        ("2*z.size()[0] != 6", ("relation", "2*size of z in dimension 0 != 6", "True", "False")),
        ("a < b", ("other", "a < b", None, None)),
        (
            "tensor '___from_numpy(a)' size mismatch at index 0. expected 3, actual 4",
            ("shape", "size of a in dimension 0", "3", "4"),
        ),
        (
            "___check_obj_id(mode, 140521496811856), type=<class '__main__.Mode'>",
            ("object", "which Mode mode is", None, None),
        ),
        (
            "___check_obj_id(L['fn'].__code__, 140522218947568), type=<class 'code'>",
            ("function", "which function fn is", None, None),
        ),
        ("gone == 3", ("int", "gone", "3", None)),
    ],
)
def test_what_failed(reason: str, found: tuple[str, str, str | None, str | None]) -> None:
    guard = failed_guard(f"4/0: {reason}", (LOCALS, {"LIMIT": 7}))
    assert (guard.kind, guard.subject, guard.old, guard.new) == found


def test_global_state_is_that_of_this_moment() -> None:
    with torch.no_grad():
        guard = failed_guard("0/0: GLOBAL_STATE changed: grad_mode ", None)
    assert (guard.kind, guard.old, guard.new) == ("grad_mode", "True", "False")
    with torch.autocast("cpu"):
        guard = failed_guard("0/0: GLOBAL_STATE changed: autocast(cpu)_enabled ", None)
    assert (guard.kind, guard.old, guard.new) == ("autocast", "False", "True")

    # Of others torch does not say what they were, nor which of several it is.
    guard = failed_guard("0/0: GLOBAL_STATE changed: num_threads ", None)
    assert (guard.old, guard.new) == ("?", str(torch.get_num_threads()))
    guard = failed_guard("0/0: GLOBAL_STATE changed: num_threads default_dtype ", None)
    assert (guard.old, guard.new) == (None, None)
    assert guard.subject.endswith(" and torch.set_default_dtype")


def test_a_parameters_size_has_a_cure_of_its_own() -> None:
    text = "0/0: tensor 'w' size mismatch at index 0. expected 4, actual 8"
    cures = [failed_guard(text + more, None).cure or "" for more in ("", PARAMETER)]
    assert "dynamic=True" in cures[0] and "force_parameter_static_shapes" in cures[1]


@pytest.mark.parametrize(
    ("reason", "is_resumed", "cure"),
    [
        # What the program passes can be marked; what it never holds cannot: a tensor on Dynamo's
        # stack, in an attribute or in a list, or a variable of the rest of a function.
        (
            "tensor 'x' size mismatch at index 1. expected 4, actual 8",
            False,
            "torch.compile(dynamic=True), or torch._dynamo.maybe_mark_dynamic(x, 1) before the "
            "first call",
        ),
        (
            "tensor 'hidden' size mismatch at index 1. expected 4, actual 8",
            True,
            "torch.compile(dynamic=True)",
        ),
        *(
            (
                f"tensor '{name}' size mismatch at index 1. expected 4, actual 8",
                False,
                "torch.compile(dynamic=True)",
            )
            for name in ("___stack0", "self.cache.keys", "args[0]", "self._buffers['mask']")
        ),
        ("___stack1 == 3", True, "torch.compile(dynamic=True)"),
        # A model's own setting, which it makes at its first call; an argument; a tensor.
        (
            "self.config.problem_type is None",
            False,
            "set it before the first call; else one graph for each is usual",
        ),
        ("mode is None", False, "one graph for each is usual"),
        ("mask is None", False, "one graph for each is usual; else pass a tensor every time"),
        # No detach(), which would take a decoder's gradients; no other dtype or shape.
        (
            "tensor 'x' requires_grad mismatch. expected requires_grad=0",
            False,
            "one graph for each is usual: with gradients, and without",
        ),
        (
            "tensor 'x' dtype mismatch. expected Float, actual Double",
            False,
            "one graph for each is usual",
        ),
        (
            "tensor 'x' rank mismatch. expected 1, actual 2",
            False,
            "one graph for each is usual",
        ),
    ],
)
def test_cures_leave_the_results_as_they_are(reason: str, is_resumed: bool, cure: str) -> None:
    scope = {"mask": torch.ones(1), "mode": "sum"}, {}
    assert failed_guard(f"4/0: {reason}", scope, is_resumed).cure == cure


def test_the_users_line() -> None:
    # From the stack, past torch's own frames;
    reason = "4/0: self.p == 3     # return F.dropout(x)  # nn/modules/dropout.py:73 in forward"
    frame = failed_guard(reason + STACK, None).frame
    assert frame is not None
    assert (frame.file, frame.line, frame.source) == ("/home/me/model.py", 3, "return self.drop(x)")
    # without one, from the comment.
    frame = failed_guard("4/0: n == 3   # y = x * n  # me/model.py:15 in f", None).frame
    assert frame is not None
    assert (frame.file, frame.line, frame.source) == ("me/model.py", 15, "y = x * n")
    assert failed_guard("4/0: n == 3", None).frame is None


def test_torchs_hint_is_the_cure_where_it_has_one() -> None:
    reason = (
        "9/0: s.scale == 2   # return x * s.scale  # me/model.py:10 in f (HINT: torch.compile "
        "considers integer attributes static: allow_unspec_int_on_nn_module = True)"
    )
    guard = failed_guard(reason, None)
    assert guard.kind == "attribute" and "allow_unspec_int_on_nn_module" in (guard.cure or "")
    assert guard.subject == "s.scale" and guard.old == "2"


def test_looking_up_a_value_calls_nothing() -> None:
    class Touchy:
        def __getattr__(self, name: str) -> int:
            raise RuntimeError(name)

        def size(self) -> list[int]:
            raise AssertionError("called")

    scope: tuple[dict[str, Any], dict[str, Any]] = {"t": Touchy()}, {}
    assert failed_guard("0/0: t.n == 3", scope).new is None
    assert failed_guard("0/0: t.size()[0] == 3", scope).new is None
    assert failed_guard("0/0: exit(3) == 3", scope).new is None


def of_line(guard: str, source: str) -> str:
    return f"0/0: {guard}  # {source}  # me/model.py:9 in forward"


@pytest.mark.parametrize(
    ("guard", "source", "cure"),
    [
        # What the function changes itself cannot be passed, stacked or kept constant.
        (
            "len(self.history) == 1",
            "self.history.append(y.mean())",
            "change self.history outside of the compiled function, after the call",
        ),
        (
            "G['metrics']['loss'] == 0.5",
            'metrics["loss"] += loss.item()',
            "change metrics['loss'] outside of the compiled function, after the call",
        ),
        (
            "G['__import___main__'].acts == 1.5",
            "acts = acts * 2",
            "change acts outside of the compiled function, after the call",
        ),
        (
            "self.blocks.total == 1.5",
            "y = x; self.total += 1",
            "change self.blocks.total outside of the compiled function, after the call",
        ),
        (
            "self.rate == 1.5",
            "return f(x, rate=self.rate)",
            "keep it constant, or make it a tensor",
        ),
        ("G['rate'] == 1.5", "rate == 2.5 and f(x, rate=rate)", "pass it as an argument (as a"),
        ("G['STEP'] == 3", "if STEP % 100 == 0:", "pass it as an argument, with torch.compile("),
        ("G['RATE'] == 0.5", "return x * RATE", "pass it as an argument (as a tensor if"),
        ("len(L['xs']) == 1", "for x in xs:", "stack the items into one tensor"),
        ("self.scale == 1.5", "if self.scale == 2.5:", "keep it constant, or make it a tensor"),
        # A value over a graph break: nobody passes it.
        ("___stack2 == 1.5", "return (loss * 2).sin()", "mend the graph break that"),
        ("___stack0[1] == 'a'", "return d[key]", "mend the graph break that"),
        ("___stack0[0] == 3", "x[:n]", "torch.compile(dynamic=True)"),
        # Of an optimizer.
        (
            "self.param_groups[0]['lr'] == 0.1",
            "for group in self.param_groups:",
            "give the optimizer lr=torch.tensor(...), which a scheduler then changes in place",
        ),
        (
            "self.param_groups[1]['momentum'] == 0.85",
            "for group in self.param_groups:",
            "leave the optimizer's step out of what is compiled, or keep it constant",
        ),
        ("x.size()[0] == 4", "for t in range(x.shape[0]):", "the function does something else"),
    ],
)
def test_cures_that_can_be_followed(guard: str, source: str, cure: str) -> None:
    found = failed_guard(of_line(guard, source), None).cure
    assert found is not None and found.startswith(cure)


def test_the_programs_line_stands_before_torchs() -> None:
    line = of_line("x.size()[0] == 4", "for t in range(x.shape[0]):")
    found = failed_guard(f"{line} (_dynamo/variables/builtin.py:99 in evaluate)", None)
    assert found.frame is not None and found.subject == "size of x in dimension 0"
    assert (found.frame.file, found.frame.line) == ("me/model.py", 9)
    assert found.frame.source == "for t in range(x.shape[0]):"


def test_names_of_dynamos_own_are_not_told() -> None:
    found = failed_guard("1/0: ___stack2 == 1.5", None)
    assert found.subject == "what was computed before it (2)"
    found = failed_guard("1/0: len(G['__import___main__'].acts) == 1", None)
    assert found.subject == "length of global acts"
    found = failed_guard("1/0: G['__import_my_dot_models'].N == 1", None)
    assert found.subject == "global my.models.N"


@pytest.mark.parametrize("kind", ["flag", "s", "n"])
def test_what_is_usual_is_a_sentence(kind: str) -> None:
    cure = failed_guard(f"0/0: {kind} == {({'flag': True, 's': 'a', 'n': 3})[kind]!r}", None).cure
    assert cure is not None and "usual value" not in cure


def test_cures_that_code_tells_apart() -> None:
    scope = ({"x": None}, {})
    size = "tensor 'x' size mismatch at index 0. expected 4, actual 5"
    shape = failed_guard(f"0/0: {size}", scope)
    assert shape.cure is not None and "maybe_mark_dynamic(x, 0)" in shape.cure
    assert shape.cure_for_all == "torch.compile(dynamic=True)" and not shape.is_after_break
    kept = failed_guard("0/0: ___stack0 == 'a'", scope)
    assert kept.is_after_break and kept.cure_for_all == kept.cure
