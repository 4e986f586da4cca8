"""Why a guard failed, in the user's terms, out of one of Dynamo's recompilation reasons.

``"4/0: n == 3   # y = x * n  # model.py:15 in f"`` with ``n`` now 4: the value of ``n``, 3 → 4.
"""

import ast
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from instrumented_backend.observe.messages.reasons import Frame, frames, users_frame
from instrumented_backend.torch_compat import dynamo, fx

MAX_TEXT = 300
_IMPORTED = "__import_"  # Dynamo's names for modules in a function's globals
_KEPT = "what was computed before it"  # Dynamo has it on its stack, over a graph break
MAX_VALUE = 60

Scope = tuple[Mapping[str, Any], Mapping[str, Any]]  # locals, globals

_COMPILE_ID = re.compile(r"^!?[\d/]+: ")
_STACK = "\nUser stack trace:\n"
_COMMENT = re.compile(
    r"\s+# (?P<code>.*?)(?:  # (?P<file>\S+):(?P<line>\d+) in (?P<function>\S+))?"
    r"(?: \([^()]*\))?$"  # torch's own line
)
_HINT = re.compile(r" \(HINT: (?P<hint>.*)\)$", re.DOTALL)
_PARAMETER = re.compile(r"\. Guard failed on a parameter.*$", re.DOTALL)  # and torch's advice
_TENSOR = re.compile(
    r"tensor '(?P<name>.*?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<index>\d+))?\. "
    r"[Ee]xpected (?:device index to be |requires_grad=)?(?P<old>.*?)(?:, actual (?P<new>.*))?$",
    re.DOTALL,
)
_EMPTY = re.compile(r"(?P<not>not )?(?P<name>[LG]\[[^=<>!() ]+|[A-Za-z_][\w.\[\]']*)$")
_STATE = re.compile(r"GLOBAL_STATE changed: (?P<names>.*?)\s*$")
_TYPE = re.compile(r"___check_type_id\((?P<name>.*), \d+\), type=<class '(?P<type>[^']*)'>$")
_LENGTH = re.compile(r"len\((?P<name>.*)\) (?:==|>=|<=|<|>|!=) (?P<old>.*)$")
_COMPARED = re.compile(r"(?P<name>[^=<>!]+?) (?P<operator>==|is not|is|in) (?P<old>.+)$", re.DOTALL)
_OBJECT = re.compile(r"___check_obj_id\((?P<name>.*), \d+\)(?:, type=<class '(?P<type>[^']*)'>)?$")
_RANGE = re.compile(r"(?P<least>\d+) <= (?P<size>\S+)$|(?P<size2>\S+) <= (?P<most>\d+)$")
_RELATION = re.compile(r".* (?:<=|<|>=|>|!=|==) .*$", re.DOTALL)
_ANY_SIZE = re.compile(r"(?P<name>[\w.\[\]'()]+)\.(?P<method>size|stride)\(\)\[(?P<index>\d+)\]")
_SIZE = re.compile(r"(?P<name>.+)\.(?P<method>size|stride)\(\)\[(?P<index>\d+)\]$")


@dataclass(frozen=True)
class FailedGuard:
    """One guard that failed: what it was on (``subject``), the value it had, the value it met."""

    kind: str
    subject: str
    old: str | None
    new: str | None
    frame: Frame | None  # the user's line that made the guard, where torch says it
    cure: str | None
    text: str  # torch's own

    @property
    def words(self) -> str:
        """``size of x in dimension 0: 4 → 5``"""
        if self.old is None and self.new is None:
            return self.subject
        return f"{self.subject}: {self.old or 'something else'} → {self.new or 'something else'}"


def failed_guard(reason: str, scope: Scope | None, is_resumed: bool = False) -> FailedGuard:
    """Read one reason; new values that it leaves out are looked up in the call's ``scope``.

    ``is_resumed``: of the rest of a function, after a graph break.
    """
    body, _, stack = reason.partition(_STACK)
    body = _COMPILE_ID.sub("", body.strip())
    frame = users_frame(frames(stack))
    hint = _HINT.search(body)
    if hint is not None:
        body = body[: hint.start()]
    comment = _COMMENT.search(body)
    if comment is not None:
        body = body[: comment.start()]
        if frame is None and comment["file"]:
            line, source = int(comment["line"]), comment["code"].strip()
            frame = Frame(comment["file"], line, comment["function"], source)
    body = body.strip()
    known = _PARAMETER.sub("", body)
    found = None
    for pattern, read in _READERS:
        match = pattern.match(known)
        if match is not None:
            found = read(match, scope)
            if found is not None:
                break
    found = found or ("other", body[:MAX_TEXT], None, None)
    kind, subject, old, new = found
    cure = _cure(found, hint, known != body, is_resumed, frame.source if frame else None)
    return FailedGuard(kind, subject, old, new, frame, cure, body[:MAX_TEXT])


_Found = tuple[str, str, str | None, str | None]  # kind, subject, old, new


def _tensor(match: re.Match[str], scope: Scope | None) -> _Found:
    name, what, old, new = match["name"], match["what"].strip(), match["old"], match["new"]
    if what in ("size", "stride"):
        kind = "shape" if what == "size" else "stride"
        return kind, f"{what} of {_name(name)} in dimension {match['index']}", old, new
    if what == "rank":
        return "rank", f"number of dimensions of {_name(name)}", old, new
    if what == "dispatch key set":
        return _dispatch_keys(name, old, new or "")
    if what == "Tensor device index":
        return "device", f"device index of {_name(name)}", old, new
    if what == "requires_grad":
        was = old.strip() == "1"
        return "requires_grad", f"requires_grad of {_name(name)}", str(was), str(not was)
    return what.replace(" ", "_"), f"{what} of {_name(name)}", old, new


def _dispatch_keys(name: str, old: str, new: str) -> _Found:
    """A device is a dispatch key to guards, and so are subclasses, inference mode, ..."""
    keys = [re.findall(r"\w+", text.removeprefix("DispatchKeySet")) for text in (old, new)]
    gone, came = (
        ", ".join(
            key for key in keys[i] if key not in keys[1 - i] and not key.startswith("Autograd")
        )
        for i in range(2)
    )
    devices = [key[:1] for key in keys]
    if devices[0] != devices[1] and all(devices):
        lower = [(key[0]).lower() for key in devices]
        return "device", f"device of {_name(name)}", *lower
    return "dispatch_keys", f"dispatch keys of {_name(name)}", gone or None, came or None


def _state(match: re.Match[str], scope: Scope | None) -> _Found:
    names = match["names"].split()
    (name, *others) = names or ["unknown"]
    new = None if others else dynamo.global_state(name)
    # What it was, torch does not say.
    old = {"True": "False", "False": "True", None: None}.get(new, "?")
    kind = "autocast" if name.startswith("autocast") else name
    named = [_STATE_NAMES.get(one, one.replace("_", " ")) for one in names or [name]]
    return kind, " and ".join(named), old, new


_STATE_NAMES = {
    "grad_mode": "grad mode (torch.no_grad, enable_grad)",
    "num_threads": "number of threads (torch.set_num_threads)",
    "deterministic_algorithms": "torch.use_deterministic_algorithms",
    "default_dtype": "torch.set_default_dtype",
}


def _type(match: re.Match[str], scope: Scope | None) -> _Found:
    found, value = _look_up(match["name"], scope)
    new = f"{type(value).__module__}.{type(value).__qualname__}" if found else None
    return "type", f"type of {_name(match['name'])}", match["type"], new


def _length(match: re.Match[str], scope: Scope | None) -> _Found:
    found, value = _look_up(match["name"], scope)
    new = str(len(value)) if found and hasattr(value, "__len__") else None
    kind = "keys" if found and isinstance(value, dict) else "length"
    return kind, f"length of {_name(match['name'])}", match["old"], new


def _empty(match: re.Match[str], scope: Scope | None) -> _Found | None:
    """Whether a list or a dict has anything in it."""
    found, value = _look_up(match["name"], scope)
    if not found or not isinstance(value, (list, dict, set, tuple)):
        return None
    states = ("empty", "not empty") if match["not"] else ("not empty", "empty")
    return "empty", f"whether {_name(match['name'])} is empty", *states


def _object(match: re.Match[str], scope: Scope | None) -> _Found:
    """A guard on the very object: torch has its address only."""
    name, kind = match["name"], (match["type"] or "object").removeprefix("__main__.")
    if name.endswith(".__code__"):
        return "function", f"which function {_name(name.removesuffix('.__code__'))} is", None, None
    return "object", f"which {kind} {_name(name)} is", None, None


def _range(match: re.Match[str], scope: Scope | None) -> _Found | None:
    """A bound on a size that is dynamic already."""
    size = _SIZE.match(match["size"] or match["size2"])
    if size is None:
        return None
    found, value = _look_up(size[0], scope)
    bound = f"{match['least']} or more" if match["least"] else f"{match['most']} or less"
    return "range", _size(size), bound, str(value) if found else None


def _relation(match: re.Match[str], scope: Scope | None) -> _Found | None:
    """What a branch on dynamic sizes compared."""
    subject = _ANY_SIZE.sub(_size, match[0])
    return None if subject == match[0] else ("relation", _name(subject), "True", "False")


def _size(match: re.Match[str]) -> str:
    return f"{match['method']} of {_name(match['name'])} in dimension {match['index']}"


def _compared(match: re.Match[str], scope: Scope | None) -> _Found:
    name, operator, old = match["name"].strip(), match["operator"], match["old"].strip()
    size = _SIZE.match(name)
    found, value = _look_up(name, scope)
    new = _describe(value) if found else None
    if size is not None and operator == "==" and size["method"] == "size":
        if _ANY_SIZE.search(old):
            text = f"{_size(size)} == {_name(_ANY_SIZE.sub(_size, old))}"
            return "relation", text, "True", "False"
        return _kind_of_size(old), _size(size), old, new
    if size is not None:
        return "shape" if size["method"] == "size" else "stride", _size(size), old, new
    if operator in ("is", "is not") and old == "None":
        none, other = "None", "not None"
        return "none", _name(name), *((none, new) if operator == "is" else (other, none))
    if operator == "is":
        return "identity", f"{_name(name)} is {_name(old)}", "True", "False"
    if name.endswith(".training") and old in ("True", "False"):
        return "training", f"{_name(name)} (train() and eval())", old, new
    return _value_kind(name, old), _name(name), old, new


def _kind_of_size(old: str) -> str:
    """A size that could have been any other, but for what the program does with it."""
    if old in ("0", "1"):
        return "range"
    return "specialized" if old.isdecimal() else "shape"


def _value_kind(name: str, old: str) -> str:
    if name.startswith("G["):
        return "global"
    try:
        value = ast.literal_eval(old)
    except (ValueError, SyntaxError):
        return "value"
    if "." in _name(name) and isinstance(value, (int, float, bool, str)):
        return "attribute"
    return type(value).__name__ if isinstance(value, (bool, int, float, str)) else "value"


_Reader = Callable[[re.Match[str], Scope | None], _Found | None]
_READERS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (_TENSOR, _tensor),
    (_STATE, _state),
    (_TYPE, _type),
    (_LENGTH, _length),
    (_OBJECT, _object),
    (_COMPARED, _compared),
    (_RANGE, _range),
    (_RELATION, _relation),
    (_EMPTY, _empty),
)


# --- The user's names and values ----------------------------------------------------------------


def _name(expression: str) -> str:
    """``L['x']`` → ``x``, ``G['N']`` → ``global N``, ``m._modules['drop'].p`` → ``m.drop.p``."""
    text = re.sub(r"\b___from_numpy\((.*?)\)", r"\1", expression.strip())
    text = re.sub(r"\bL\['(\w+)'\]", r"\1", text)
    text = re.sub(r"^G\['(\w+)'\]", r"global \1", text)
    text = re.sub(r"\bG\['(\w+)'\]", r"\1", text)
    text = re.sub(r"\.(?:_modules|_parameters|_buffers)\['(\w+)'\]", r".\1", text)
    text = re.sub(rf"\b{_IMPORTED}(\w+?)\.(?=\w)", _module, text)
    text = re.sub(r"\b___stack(\d+)", rf"{_KEPT} (\1)", text)
    return text[:MAX_TEXT]


def _module(match: re.Match[str]) -> str:
    """Dynamo's name for a module's globals."""
    module = match[1].replace("_dot_", ".")
    return "" if module == "__main__" else f"{module}."


def _describe(value: Any) -> str | None:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        text = repr(value)
        return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 3] + "..."
    if fx.device_kind(value) is not None:
        return _A_TENSOR
    return f"a {type(value).__qualname__}"


class _Absent(Exception):
    pass


def _look_up(expression: str, scope: Scope | None) -> tuple[bool, Any]:
    """Follow names, attributes and constant indices, as the guard did a moment ago; call nothing
    but a tensor's ``size`` and ``stride``."""
    if scope is None:
        return False, None
    try:
        return True, _follow(ast.parse(expression.strip(), mode="eval").body, scope)
    except Exception:  # whatever a user's __getattr__ raises: the value is unknown then
        return False, None


def _follow(node: ast.expr, scope: Scope) -> Any:
    locals_, globals_ = scope
    if isinstance(node, ast.Name):
        if node.id in ("L", "G") and node.id not in locals_:
            return locals_ if node.id == "L" else globals_
        if node.id in locals_:
            return locals_[node.id]
        return globals_[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_follow(node.value, scope), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        key, container = node.slice.value, _follow(node.value, scope)
        if isinstance(key, str) and key.startswith(_IMPORTED) and key not in container:
            return sys.modules[key.removeprefix(_IMPORTED).replace("_dot_", ".")]
        return container[key]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("size", "stride")
        and not node.args
    ):
        tensor = _follow(node.func.value, scope)
        if fx.device_kind(tensor) is not None:
            return getattr(tensor, node.func.attr)()
    raise _Absent


# --- What to do ---------------------------------------------------------------------------------

# What leaves the program's results as they are. Where it is no fault, a graph for each is usual.
_USUAL = "one graph for each is usual"
_CURES = {
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
_A_TENSOR = "a tensor"


def _cure(
    found: _Found,
    hint: re.Match[str] | None,
    on_parameter: bool,
    is_resumed: bool,
    source: str | None,
) -> str | None:
    kind, subject, *values = found
    if kind == "shape":
        return _cure_of_shape(subject, on_parameter, is_resumed)
    if _KEPT in subject and kind not in ("int", "type", "none"):
        return f"mend the graph break that the function goes on after: {_KEPT} is from there"
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
    return _CURES.get(kind)


def specialized(guards: list[FailedGuard]) -> list[FailedGuard]:
    """Of one recompilation: a size that two versions have as different numbers.

    Dynamo makes a size dynamic that has changed, unless the program asks what it is.
    """
    known: dict[str, set[str | None]] = {}
    for guard in guards:
        if guard.kind == "shape":
            known.setdefault(guard.subject, set()).add(guard.old)
    apart = {subject for subject, values in known.items() if len(values) > 1}
    if not apart or not dynamo.makes_sizes_dynamic():
        return guards
    return [
        replace(guard, kind="specialized", cure=_CURES["specialized"])
        if guard.kind == "shape" and guard.subject in apart and guard.cure != _ON_PARAMETER
        else guard
        for guard in guards
    ]


def _is_changed(subject: str, source: str) -> bool:
    """Does the line assign to it, or add to it? Not by ``f(rate=rate)``."""
    name = re.escape(_changed_name(subject).partition("[")[0].rpartition(".")[2])
    item = rf"\b{name}(?:\[[^]]*\])*"
    changes = rf"(?:^|;)\s*(?:[\w.\[\]]+\.)?{item}\s*[-+*/]?=[^=]", rf"{item}\.(?:{_ADDERS})\("
    return any(re.search(change, source) for change in changes)


def _changed_name(subject: str) -> str:
    name = subject.removeprefix("global ").removeprefix("length of ")
    return re.sub(r"^whether (.*) is empty$", r"\1", name).removeprefix("global ")


_ON_PARAMETER = "torch._dynamo.config.force_parameter_static_shapes = False, or one size"
_ADDERS = "append|extend|insert|add|update|pop|popleft|appendleft|remove|clear|setdefault"
_CHANGED: dict[str, Callable[[str], str]] = {
    kind: _changed_name for kind in ("global", "attribute", "length", "keys", "empty")
}
_OF_OPTIMIZER = re.compile(r"\bparam_groups\[\d+\]\['(?P<name>\w+)'\]")
_RATE = "give the optimizer lr=torch.tensor(...), which a scheduler then changes in place"
_NO_RATE = "leave the optimizer's step out of what is compiled, or keep it constant"


def _cure_of_shape(subject: str, on_parameter: bool, is_resumed: bool) -> str:
    if on_parameter:
        return _ON_PARAMETER
    size = re.match(r"size of (?P<name>\S+) in dimension (?P<index>\d+)$", subject)
    cure = _CURES["shape"]
    # Only what the program passes can be marked: no tensor inside a graph, or between two.
    if size is not None and not is_resumed and _ARGUMENT.match(size["name"]):
        call = f"torch._dynamo.maybe_mark_dynamic({size['name']}, {size['index']})"
        cure += f", or {call} before the first call"
    return cure


def _cure_of_none(subject: str, values: list[str | None]) -> str:
    if not _ARGUMENT.match(subject):
        return "set it before the first call; else one graph for each is usual"
    if _A_TENSOR in values:
        return f"{_USUAL}; else pass a tensor every time"
    return _USUAL
