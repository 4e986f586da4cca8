"""Dynamo's messages and stacks, in the form of torch 2.13's."""

import json
import os
from pathlib import Path

import pytest
import torch

from instrumented_backend.observe.compile.breaks import BreakLog
from instrumented_backend.observe.messages.reasons import (
    Frame,
    Reason,
    break_reason,
    first_hint,
    is_repetition,
    read_last_reason,
    read_reason,
)

MESSAGE = """\
Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`.
  Hint: Please report an issue to PyTorch.
  Hint: Avoid calling it.

  Developer debug context: builtin print
"""
TORCH = os.path.dirname(torch.__file__)
PACKAGES = os.path.dirname(TORCH)


def payload(stack: str, message: str = MESSAGE, place: str = "/home/me/model.py:17") -> str:
    return (
        f"Graph break in user code at {place}\n"
        f"Graph Break Reason: Encountered graph break when attempting to trace CALL:\n\n{message}\n"
        f"User code traceback:\n{stack}\n\n"
        "Traceback (most recent call last):\n"
        '  File "/somewhere/else.py", line 1076, in wrapper\n    return\n'
    )


def test_a_reason() -> None:
    said = Reason(
        "Failed to trace builtin operator",
        "Dynamo does not know how to trace builtin operator `print`.",
    )
    assert read_reason(MESSAGE) == said
    assert said.text == f"{said.headline}: {said.explanation}"
    assert read_reason("just one line") == Reason("just one line")
    assert read_reason("").text == "unknown"
    assert read_reason("TypeError: no size (3, 4)") == Reason("TypeError", "no size (3, 4)")
    both = (
        f"{MESSAGE}\n*** While handling this graph break, another graph break occurred: ***\n\n"
        "graph break in loop\n  Explanation: A loop.\n  Hint: None of the first's.\n"
    )
    assert read_reason(both) == said
    assert read_last_reason(both) == Reason("graph break in loop", "A loop.")
    assert first_hint(both) == "Avoid calling it."
    assert first_hint("no hint") is None


def test_one_cause_at_another_address_is_the_same() -> None:
    one, other = (
        read_reason(f"Skip\n  Explanation: Skip calling function `<function f at {address}>`")
        for address in ("0x7fdbefe5f920", "0x55d0c0ffee00")
    )
    assert one == other == Reason("Skip", "Skip calling function `<function f>`")


def test_headlines_of_dynamo_are_whole() -> None:
    """Some have a colon: cut there, two kinds of breaks would be one."""
    registry = Path(TORCH, "_dynamo", "graph_break_registry.json").read_text()
    headlines = {entry["Gb_type"] for found in json.loads(registry).values() for entry in found}
    with_colon = {headline for headline in headlines if ": " in headline}
    assert with_colon
    for headline in headlines:
        message = f"{headline}\n  Explanation: Because: of it.\n  Hint: None.\n"
        assert read_reason(message) == Reason(headline.strip(), "Because: of it.")


def test_what_a_reason_is_about() -> None:
    assert read_reason(SKIPPED).disabled_function == ("DistributedDataParallel._inside_ddp_forward")
    assert read_reason(MESSAGE).disabled_function is None
    assert read_reason("Dynamo recompile limit exceeded\n  Explanation: x\n").is_recompile_limit
    # A word of the program's own.
    asked = "Call to graph_break\n  Explanation: User-inserted. Message: recompile limit\n"
    assert not read_reason(asked).is_recompile_limit


def test_the_users_line_is_the_innermost_outside_torch() -> None:
    found = break_reason(
        payload(
            '  File "/home/me/model.py", line 19, in forward\n    x = self.block(layer, x)\n'
            "        ^^^^^^^^^^^^^^^^^^\n"
            '  File "/home/me/model.py", line 17, in torch_dynamo_resume_in_block_at_12\n'
            '    print("hi")\n'
            f'  File "{TORCH}/_dynamo/polyfills/__init__.py", line 505, in instantiate\n'
            "    obj = cls.__new__(cls)\n",
            place=f"{TORCH}/_dynamo/polyfills/__init__.py:505",
        )
    )
    assert found.frame == Frame("/home/me/model.py", 17, "block", 'print("hi")')
    assert found.called_from is None
    assert found.whose is None  # Dynamo's polyfills stand for what the program called
    assert [frame.line for frame in found.stack] == [19, 17, 505]


def test_what_inductor_refuses_is_inductors() -> None:
    found = break_reason(
        payload(
            '  File "/home/me/train.py", line 9, in <module>\n    compiled(x)\n',
            "Backend compiler exception\n"
            "  Explanation: Backend compiler `instrumented` failed with aten.nonzero.default. "
            "Adding a graph break.\n"
            "  Hint: Report an issue to the backend compiler repo.\n",
        )
    )
    assert found.frame == Frame("/home/me/model.py", 17, "")  # not the caller's line
    assert found.hint is None
    assert found.reason.text == (
        "Backend compiler exception: Inductor failed with aten.nonzero.default. "
        "Adding a graph break."
    )


@pytest.mark.parametrize("own", [True, False], ids=["torch's own", "the program's"])
def test_a_break_that_torchs_own_code_asks_for(own: bool) -> None:
    stack = '  File "/home/me/model.py", line 17, in step\n    optimizer.step()\n'
    if own:
        stack += (
            f'  File "{TORCH}/optim/optimizer.py", line 79, in _use_grad\n'
            "    torch._dynamo.graph_break()\n"
        )
    found = break_reason(
        payload(
            stack,
            "Call to `torch._dynamo.graph_break()`\n"
            "  Explanation: User-inserted graph break. Message: None\n"
            "  Hint: Remove the `torch._dynamo.graph_break()` call.\n",
        )
    )
    assert found.hint is not None
    if own:
        assert "nothing in the program to change" in found.hint and found.whose == "torch"
        assert found.reason.text == "torch breaks the graph here itself: _use_grad asks for it"
    else:
        assert "Remove the" in found.hint and found.whose is None
        assert "User-inserted graph break" in found.reason.text


SKIPPED = (
    "Skip calling `torch.compiler.disable()`d function\n"
    "  Explanation: Skip calling function "
    "`<function DistributedDataParallel._inside_ddp_forward at 0x7f>` since it "
    "was wrapped with `torch.compiler.disable` (reason: None)\n"
    "  Hint: Remove the `torch.compiler.disable` call\n"
)
AVOIDED = (
    "Unsupported context manager\n"
    "  Explanation: Dynamo does not know how to enter it\n"
    "  Hint: Avoid calling `DistributedDataParallel._inside_ddp_forward` in your code.\n"
)
SWITCH = (
    "Unsupported Tensor.item() call with capture_scalar_outputs=False\n"
    "  Explanation: Dynamo does not support tracing it\n"
    "  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`\n"
)


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (f"{TORCH}/nn/parallel/distributed.py", "torch"),
        (f"{PACKAGES}/lightning/pytorch/trainer.py", "package"),
    ],
)
def test_what_torch_and_packages_do_is_not_the_users_to_change(file: str, whose: str) -> None:
    stack = f'  File "{file}", line 17, in forward\n    self._inside_ddp_forward(x)\n'
    for message in (SKIPPED, AVOIDED):
        found = break_reason(payload(stack, message))
        assert found.whose == whose
        assert found.hint is not None and found.hint.endswith("nothing in the program to change")
    # A setting is the user's wherever the break is.
    found = break_reason(payload(stack, SWITCH))
    assert found.hint == "Set `torch._dynamo.config.capture_scalar_outputs = True`"


def test_hints_that_would_change_what_a_program_does() -> None:
    stack = '  File "/home/me/model.py", line 17, in forward\n    f(x)\n'
    for message, expected in (
        (SKIPPED, "if it is yours; else call it outside of the compiled function"),
        (
            "Tensor.tolist() with non-integer tensor\n  Explanation: No.\n"
            "  Hint: Ensure the input tensor to `tolist()` is an integer type.\n",
            "call tolist() outside of the compiled function",
        ),
        (
            "logging.Logger method not supported for non-export cases\n  Explanation: No.\n"
            "  Hint: Add the logging method to `torch._dynamo.config.ignore_logging_functions`.\n",
            "log what the function returns, after the call",
        ),
        (
            "Failed to trace builtin operator\n  Explanation: Dynamo does not know how to trace "
            "builtin operator `print` with argument types ['str']\n"
            "  Hint: Avoid calling builtin `print` with argument types ['str'].\n",
            "torch._dynamo.config.reorderable_logging_functions.add(print)",
        ),
    ):
        hint = break_reason(payload(stack, message)).hint
        assert hint is not None and expected in hint


@pytest.mark.parametrize("source", ["if (y > 9).any().item():", "while x.max().item() > 1:"])
def test_a_number_to_branch_on_is_not_captured(source: str) -> None:
    """Captured, it breaks the graph at the branch."""
    place = '  File "/home/me/train.py", line 5, in forward\n    '
    found = break_reason(payload(f"{place}{source}", SWITCH))
    assert found.hint == (
        "choose with torch.where in place of the branch, or branch outside of the compiled function"
    )
    for other in ("n = x.max().item()", "if many: n = x.max().item()"):
        found = break_reason(payload(f"{place}{other}", SWITCH))
        assert found.hint == "Set `torch._dynamo.config.capture_scalar_outputs = True`"


def test_what_is_no_advice_is_not_told() -> None:
    """Not "consider finding a workaround": the next hint."""
    idle = "This graph break is fundamental - it is unlikely that Dynamo will ever be able to"
    message = f"No.\n  Explanation: It is not.\n  Hint: {idle}\n"
    assert first_hint(message) is None
    assert first_hint(f"{message}  Hint: Do it.\n") == "Do it."


def test_a_break_in_a_package_names_the_users_call() -> None:
    found = break_reason(
        payload(
            '  File "/home/me/model.py", line 19, in forward\n    return helper(x)\n'
            f'  File "{PACKAGES}/somebody/__init__.py", line 4, in helper\n    print("hi")\n'
        )
    )
    assert found.frame is not None and found.frame.function == "helper"
    assert found.called_from == Frame("/home/me/model.py", 19, "forward", "return helper(x)")


def test_what_cannot_be_read_is_kept_as_it_is() -> None:
    found = break_reason("something else altogether")
    assert (found.reason.text, found.frame) == ("something else altogether", None)
    placed = break_reason(payload(""))
    assert placed.frame == Frame("/home/me/model.py", 17, "")


def test_messages_said_twice() -> None:
    assert is_repetition("WON'T CONVERT f model.py line 3\n")
    assert not is_repetition(payload(""))


SKIPPED_FUNCTION = (
    "Attempted to call function marked as skipped\n"
    "  Explanation: Dynamo developers have intentionally marked that the function `SGD.step` in "
    "file `lr_scheduler.py` should not be traced.\n"
    "  Hint: Avoid calling the function `SGD.step`.\n"
)


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (SKIPPED_FUNCTION, "call `SGD.step` outside of the compiled function"),
        (
            SKIPPED_FUNCTION.replace("SGD.step", "tqdm.__iter__"),
            "use `tqdm` outside of the compiled function",
        ),
        (
            "Failed to trace builtin operator\n  Explanation: Dynamo does not know how to trace "
            "builtin operator `open` with argument types ['str', 'str'] (has_kwargs False)\n"
            "  Hint: Avoid calling builtin `open` with argument types ['str', 'str']. Consider "
            "using an equivalent alternative function/method to `open`.\n",
            "call `open` outside of the compiled function",
        ),
        (
            "Unsupported context manager\n  Explanation: Dynamo does not know how to enter a "
            "`TextIOWrapper` context manager.\n"
            "  Hint: Avoid using the unsupported context manager.\n",
            "move the `with` statement out of the compiled function, or compile what is in it",
        ),
        (
            "Attempted to call function marked as skipped\n"
            "  Explanation: Dynamo does not know how to trace the builtin `time.perf_counter.` "
            "This function is either a Python builtin (e.g. "
            "_warnings.warn) or a third-party C/C++ Python extension (perhaps of pybind).\n"
            "  Hint: If it is a Python builtin, please file an issue on GitHub so the PyTorch "
            "team can add support for it.\n"
            "  Hint: If it is a third-party C/C++ Python extension, please either wrap it into a "
            "PyTorch-understood custom operator.\n",
            "call `time.perf_counter` outside of the compiled function",
        ),
        # Advice that keeps what the program does stays as it is.
        ("No RNN\n  Explanation: No.\n  Hint: Set x=True.\n", "Set x=True."),
    ],
)
def test_what_cannot_be_traced_is_called_outside(message: str, hint: str) -> None:
    """Not "avoid calling it": the program has to."""
    stack = '  File "/home/me/model.py", line 17, in forward\n    f(x)\n'
    assert break_reason(payload(stack, message)).hint == hint


def test_dynamos_wrapper_around_a_function_of_torchs_is_torchs() -> None:
    """``torch.compile(optimizer.step)``: the line that calls it is nothing to change."""
    stack = (
        '  File "/home/me/train.py", line 13, in <module>\n    step()\n'
        f'  File "{TORCH}/_dynamo/external_utils.py", line 68, in inner\n    return fn(*args)\n'
    )
    found = break_reason(payload(stack, SKIPPED_FUNCTION))
    assert found.whose == "torch"
    assert found.hint is not None and found.hint.endswith("nothing in the program to change")


def test_a_number_in_an_autograd_function_cannot_be_captured() -> None:
    """torch then fails: "Pending unbacked symbols"."""
    stack = '  File "/home/me/model.py", line 8, in forward\n    ctx.n = float(x.sum())\n'
    cause = "Dynamo does not support tracing `Tensor.item()` with capture_scalar_outputs=False."
    hint = "Set `torch._dynamo.config.capture_scalar_outputs = True`"
    log = BreakLog()
    for what in ("Higher Order Operator: autograd.Function", "Unsupported Tensor.item() call"):
        message = f"{what}\n  Explanation: {cause}\n  Hint: {hint}\n"
        assert log.met("0/0", break_reason(payload(stack, message)))
    hints = {record.hint for record in log.records([], None)}
    assert hints == {"keep it a tensor there, or take the number outside of the compiled function"}
