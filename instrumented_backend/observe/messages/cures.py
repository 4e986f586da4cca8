"""What keeps a guard from failing, and leaves the program's results as they are."""

import re
from collections.abc import Callable

Found = tuple[str, str, str | None, str | None]  # kind, subject, old, new
KEPT = "what was computed before it"  # Dynamo has it on its stack, over a graph break

# Where it is no fault, a graph for each is usual.
ONE_EACH = "one graph for each "
_USUAL = f"{ONE_EACH}is usual"
CURES = {
    "shape": "torch.compile(dynamic=True)",
    "specialized": (
        "the function does something else for each size (a loop over it, a branch on it): pad to "
        "few sizes, or compile what is inside of the loop"
    ),
    "range": "sizes 0 and 1 have graphs of their own: one graph for each is usual",
    "relation": "one graph for each outcome is usual; else take the branch out of the function",
    "stride": "call .contiguous(), or give the tensor the same memory layout each time",
    "rank": _USUAL,
    "dtype": _USUAL,
    "device": _USUAL,
    "requires_grad": f"{_USUAL}: with gradients, and without",
    "int": "torch.compile(dynamic=True)",
    "float": (
        "pass it as a tensor (torch.tensor(value)) where it is computed with, or keep it constant"
    ),
    "bool": "one graph for each value is usual; else compile the two branches apart",
    "str": "one graph for each value is usual; else compile a function for each",
    "global": "pass it as an argument (as a tensor if it keeps changing), or leave it constant",
    "attribute": (
        "keep it constant, or make it a tensor where it is computed with "
        "(in a module: register_buffer(..., persistent=False))"
    ),
    "keys": "pass the same keys (as keyword arguments: the same names) in every call",
    "length": "stack the items into one tensor before the call; else one graph for each is usual",
    "empty": "one graph for each of empty and not empty is usual",
    "type": _USUAL,
    "object": "one graph for each object is usual; else pass the same one every time",
    "function": "one graph for each function is usual; else pass the same one every time",
    "identity": "pass the same tensors in the same places every time",
    "grad_mode": "one graph for each mode is usual: warm up both training and inference",
    "training": "one graph for each mode is usual: warm up both train() and eval()",
    "autocast": "enter autocast in the same way for every call, or inside the function",
    "num_threads": "set it once, before the first call",
    "deterministic_algorithms": "set it once, before the first call",
    "default_dtype": "set it once, before the first call",
}
_ARGUMENT = re.compile(r"[A-Za-z]\w*$")  # not what Dynamo has on its stack, "___stack0"
A_TENSOR = "a tensor"
ON_PARAMETER = "torch._dynamo.config.force_parameter_static_shapes = False, or one size"
AFTER_BREAK = f"mend the graph break that the function goes on after: {KEPT} is from there"


def cure_of(
    found: Found,
    hint: re.Match[str] | None,
    on_parameter: bool,
    is_resumed: bool,
    source: str | None,
) -> str | None:
    kind, subject, *values = found
    if kind == "shape":
        return _cure_of_shape(subject, on_parameter, is_resumed)
    if KEPT in subject and kind not in ("int", "type", "none"):
        return AFTER_BREAK
    rate = _OF_OPTIMIZER.search(subject)
    if rate is not None:
        return _RATE if rate["name"] == "lr" else _NO_RATE
    if kind in _CHANGED and source is not None and _is_changed(subject, source):
        return f"change {_CHANGED[kind](subject)} outside of the compiled function, after the call"
    if kind == "global" and re.fullmatch(r"-?\d+", values[0] or ""):
        return "pass it as an argument, with torch.compile(dynamic=True), or leave it constant"
    if kind == "none":
        return _cure_of_none(subject, values)
    if kind == "attribute" and hint is not None and "allow_unspec_int_on_nn_module" in hint["hint"]:
        return (
            "torch._dynamo.config.allow_unspec_int_on_nn_module = True, with "
            "torch.compile(dynamic=True)"
        )
    return CURES.get(kind)


def _is_changed(subject: str, source: str) -> bool:
    """Does the line assign to it, or add to it? Not by ``f(rate=rate)``."""
    name = re.escape(_changed_name(subject).partition("[")[0].rpartition(".")[2])
    item = rf"\b{name}(?:\[[^]]*\])*"
    changes = rf"(?:^|;)\s*(?:[\w.\[\]]+\.)?{item}\s*[-+*/]?=[^=]", rf"{item}\.(?:{_ADDERS})\("
    return any(re.search(change, source) for change in changes)


def _changed_name(subject: str) -> str:
    name = subject.removeprefix("global ").removeprefix("length of ")
    return re.sub(r"^whether (.*) is empty$", r"\1", name).removeprefix("global ")


_ADDERS = "append|extend|insert|add|update|pop|popleft|appendleft|remove|clear|setdefault"
_CHANGED: dict[str, Callable[[str], str]] = {
    kind: _changed_name for kind in ("global", "attribute", "length", "keys", "empty")
}
_OF_OPTIMIZER = re.compile(r"\bparam_groups\[\d+\]\['(?P<name>\w+)'\]")
_RATE = "give the optimizer lr=torch.tensor(...), which a scheduler then changes in place"
_NO_RATE = "leave the optimizer's step out of what is compiled, or keep it constant"


def _cure_of_shape(subject: str, on_parameter: bool, is_resumed: bool) -> str:
    if on_parameter:
        return ON_PARAMETER
    size = re.match(r"size of (?P<name>\S+) in dimension (?P<index>\d+)$", subject)
    cure = CURES["shape"]
    # Only what the program passes can be marked: no tensor inside a graph, or between two.
    if size is not None and not is_resumed and _ARGUMENT.match(size["name"]):
        call = f"torch._dynamo.maybe_mark_dynamic({size['name']}, {size['index']})"
        cure += f", or {call} before the first call"
    return cure


def _cure_of_none(subject: str, values: list[str | None]) -> str:
    if not _ARGUMENT.match(subject):
        return "set it before the first call; else one graph for each is usual"
    if A_TENSOR in values:
        return f"{_USUAL}; else pass a tensor every time"
    return _USUAL
