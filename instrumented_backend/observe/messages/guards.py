"""Why a guard failed, in the user's terms, out of one of Dynamo's recompilation reasons.

``"4/0: n == 3   # y = x * n  # model.py:15 in f"`` with ``n`` now 4: the value of ``n``, 3 → 4.
"""

import ast
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from instrumented_backend.observe.messages.cures import (
    A_TENSOR,
    AFTER_BREAK,
    CURES,
    KEPT,
    ON_PARAMETER,
    ONE_EACH,
    Found,
    cure_of,
)
from instrumented_backend.observe.messages.reasons import Frame, frames, users_frame
from instrumented_backend.torch_compat import dynamo, fx

MAX_TEXT = 300
_IMPORTED = "__import_"  # Dynamo's names for modules in a function's globals
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
    def cure_for_all(self) -> str | None:
        """Where several sizes vary: to mark one of them is not enough."""
        general = CURES["shape"]
        is_of_size = self.cure is not None and self.cure.startswith(general)
        return general if self.kind == "shape" and is_of_size else self.cure

    @property
    def is_usual(self) -> bool:
        return self.cure is not None and self.cure.startswith(ONE_EACH)

    @property
    def is_after_break(self) -> bool:
        return self.cure == AFTER_BREAK

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
    cure = cure_of(found, hint, known != body, is_resumed, frame.source if frame else None)
    return FailedGuard(kind, subject, old, new, frame, cure, body[:MAX_TEXT])


def _tensor(match: re.Match[str], scope: Scope | None) -> Found:
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


def _dispatch_keys(name: str, old: str, new: str) -> Found:
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


def _state(match: re.Match[str], scope: Scope | None) -> Found:
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


def _type(match: re.Match[str], scope: Scope | None) -> Found:
    found, value = _look_up(match["name"], scope)
    new = f"{type(value).__module__}.{type(value).__qualname__}" if found else None
    return "type", f"type of {_name(match['name'])}", match["type"], new


def _length(match: re.Match[str], scope: Scope | None) -> Found:
    found, value = _look_up(match["name"], scope)
    new = str(len(value)) if found and hasattr(value, "__len__") else None
    kind = "keys" if found and isinstance(value, dict) else "length"
    return kind, f"length of {_name(match['name'])}", match["old"], new


def _empty(match: re.Match[str], scope: Scope | None) -> Found | None:
    """Whether a list or a dict has anything in it."""
    found, value = _look_up(match["name"], scope)
    if not found or not isinstance(value, (list, dict, set, tuple)):
        return None
    states = ("empty", "not empty") if match["not"] else ("not empty", "empty")
    return "empty", f"whether {_name(match['name'])} is empty", *states


def _object(match: re.Match[str], scope: Scope | None) -> Found:
    """A guard on the very object: torch has its address only."""
    name, kind = match["name"], (match["type"] or "object").removeprefix("__main__.")
    if name.endswith(".__code__"):
        return "function", f"which function {_name(name.removesuffix('.__code__'))} is", None, None
    return "object", f"which {kind} {_name(name)} is", None, None


def _range(match: re.Match[str], scope: Scope | None) -> Found | None:
    """A bound on a size that is dynamic already."""
    size = _SIZE.match(match["size"] or match["size2"])
    if size is None:
        return None
    found, value = _look_up(size[0], scope)
    bound = f"{match['least']} or more" if match["least"] else f"{match['most']} or less"
    return "range", _size(size), bound, str(value) if found else None


def _relation(match: re.Match[str], scope: Scope | None) -> Found | None:
    """What a branch on dynamic sizes compared."""
    subject = _ANY_SIZE.sub(_size, match[0])
    return None if subject == match[0] else ("relation", _name(subject), "True", "False")


def _size(match: re.Match[str]) -> str:
    return f"{match['method']} of {_name(match['name'])} in dimension {match['index']}"


def _compared(match: re.Match[str], scope: Scope | None) -> Found:
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


_Reader = Callable[[re.Match[str], Scope | None], Found | None]
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
    text = re.sub(r"\b___stack(\d+)", rf"{KEPT} (\1)", text)
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
        return A_TENSOR
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
        replace(guard, kind="specialized", cure=CURES["specialized"])
        if guard.kind == "shape" and guard.subject in apart and guard.cure != ON_PARAMETER
        else guard
        for guard in guards
    ]
