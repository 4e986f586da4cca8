"""Dynamo's messages, many lines long, cut down to one sentence and one place."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from instrumented_backend.observe.messages.user_code import is_installed, is_internal, is_library
from instrumented_backend.records.functions import resumed
from instrumented_backend.torch_compat import hooks

_EXPLANATION = "  Explanation: "
_SECOND_BREAK = "*** While handling this graph break, another graph break occurred: ***"
_FRAME = re.compile(
    r'^  File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$'
    r"(?:\n    (?P<source>.*)$)?",
    re.MULTILINE,
)
_DISABLED = re.compile(
    r"^Skip (?:calling|inlining) function `?<function (?P<name>.+?)>`? since it was wrapped"
)
_RECOMPILE_LIMIT = "recompile limit"
_HINT = "  Hint: "
# Hints that nobody can act upon.
_IDLE_HINTS = (
    "Please report an issue",
    "It may be possible to write Dynamo tracing rules",
    "If it is a Python builtin, please file an issue",
    "Report an issue to the backend compiler repo",
    "This graph break is fundamental",
    "This graph break may be difficult to debug",
    "This is likely to be a Dynamo bug",
)
# Hints for whoever wrote the code that broke: in torch and in packages that is not the user.
_FOR_ITS_AUTHOR = ("Avoid calling", "Remove the", "Consider", "graph_break()", "Ensure")
_TORCHS_OWN = "in torch's own code: nothing in the program to change"
_PACKAGES_OWN = "in the package's own code: nothing in the program to change"
_USERS_BREAK = "User-inserted graph break"
_DISABLED_HINT = "Remove the `torch.compiler.disable` call"
# Such as an autograd.Function, in which torch fails where it captures a number.
IN_OPERATOR = "Higher Order Operator"
_CHOOSE = (
    "choose with torch.where in place of the branch, or branch outside of the compiled function"
)
# A number taken out of a tensor to branch on: captured or not, the branch breaks the graph.
_BRANCHES_ON_ITEM = re.compile(r"(?:if|elif|while)\b[^:]*\.item\(\)")
# Torch's hints that change what the program does, and what does not. By the reason and the hint.
_BETTER_HINTS = (
    (
        re.compile(rf"{IN_OPERATOR}.*capture_scalar_outputs", re.DOTALL),
        "keep it a tensor there, or take the number outside of the compiled function",
    ),
    (re.compile(r"^Data-dependent branching"), _CHOOSE),
    (
        re.compile(r"builtin operator `print`|Avoid calling builtin `print`"),
        "torch._dynamo.config.reorderable_logging_functions.add(print): it prints after the graph",
    ),
    (re.compile(r"logging\.Logger method"), "log what the function returns, after the call"),
    (
        re.compile(r"Tensor\.tolist\(\)|`tolist\(\)`"),
        "call tolist() outside of the compiled function",
    ),
    (
        re.compile(re.escape(_DISABLED_HINT)),
        "take torch.compiler.disable off it if it is yours; else call it outside of the compiled "
        "function",
    ),
)
# What Dynamo does not trace can be called before or after what is compiled.
_AVOIDED = re.compile(
    r"Avoid calling (?:the function |builtin |`)*`?(?P<name>[\w.]+)`?(?: with argument types .*)?"
)
_EXTENSION = re.compile(
    r"does not know how to trace the (?:Python )?builtin `(?P<name>[\w.]+?)\.?`"
)
_CONTEXT = re.compile(r"Avoid using the unsupported context manager")
_SPECIAL = re.compile(r"\.__\w+__$")  # of a class: Python calls it where the class is used
_REFUSED = f"Backend compiler `{hooks.BACKEND_NAME}` failed"
_RAISED = re.compile(rf"^backend='(?:{hooks.BACKEND_NAME}|inductor)' raised:$")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# Said of a break besides its own message, which comes too.
_SAID_TWICE = ("Graph break: torch.compile cannot properly resume", "WON'T CONVERT")
_PLACE = re.compile(r"^Graph break in user code at (?P<file>.*):(?P<line>\d+)$", re.MULTILINE)
MAX_LENGTH = 300


@dataclass(frozen=True)
class Frame:
    """One line of a stack; ``source`` is its text, ``function`` empty where it is not told."""

    file: str
    line: int
    function: str
    source: str | None = None


@dataclass(frozen=True)
class Reason:
    """One of Dynamo's messages in short.

    The ``headline`` names the kind of event; it is the same in another run of the program. The
    ``explanation`` may have names and values of this run.
    """

    headline: str
    explanation: str | None = None

    @property
    def text(self) -> str:
        """``"Failed to trace builtin operator: Dynamo does not know how to trace ..."``"""
        explained = "" if self.explanation is None else f": {self.explanation}"
        return f"{self.headline}{explained}"[:MAX_LENGTH]

    @property
    def disabled_function(self) -> str | None:
        """The name of the function under ``torch.compiler.disable`` that it broke at."""
        match = _DISABLED.match(self.explanation or "")
        return match["name"] if match else None

    @property
    def is_recompile_limit(self) -> bool:
        return _RECOMPILE_LIMIT in self.headline


@dataclass(frozen=True)
class BreakReason:
    """What broke, and the user's lines.

    ``frame`` is the innermost one outside torch and the standard library; ``called_from`` is the
    user's own where that is in an installed package. ``stack`` has all of them, outermost first.
    """

    reason: Reason
    hint: str | None
    frame: Frame | None
    called_from: Frame | None = None
    stack: list[Frame] = field(default_factory=list)
    whose: str | None = None  # "torch" or "package": whose code it is, if not the user's


def read_reason(message: str) -> Reason:
    """What and why, out of one of Dynamo's messages.

    A message is a headline, then ``Explanation:``, ``Hint:`` and context lines, and sometimes
    prose before it or a second message after it. An exception's message has none of these: it
    begins with the exception's type and a colon.
    """
    lines = message.strip().splitlines() or ["unknown"]
    if _RAISED.match(lines[0].strip()):  # the exception is in the next line
        lines[0] = " ".join(["Inductor raised", *(line.strip() for line in lines[1:2])])
    for above, line in pairwise(lines):
        if line.startswith(_EXPLANATION):
            return Reason(_plain(above), _plain(line.removeprefix(_EXPLANATION)) or None)
    headline, _, explanation = _plain(lines[0]).partition(": ")
    return Reason(headline, explanation or None)


def _plain(line: str) -> str:
    """Without an object's address, which would make two causes out of one."""
    # Inductor would refuse the graph without us, too.
    return _ADDRESS.sub("", line.strip()).replace(_REFUSED, "Inductor failed")[:MAX_LENGTH]


def first_hint(message: str) -> str | None:
    """Dynamo's own advice in the first of a message's parts, if it is any."""
    for line in message.partition(_SECOND_BREAK)[0].splitlines():
        hint = line.removeprefix(_HINT)
        if hint != line and not hint.startswith(_IDLE_HINTS):
            return hint.strip()[:MAX_LENGTH]
    return None


def read_last_reason(message: str) -> Reason:
    """The same for the last of several messages: why a whole function was given up."""
    return read_reason(message.rpartition(_SECOND_BREAK)[2])


def frames(stack: str) -> list[Frame]:
    """The lines of a formatted stack, outermost first."""
    return [
        Frame(
            match["file"],
            int(match["line"]),
            resumed(match["function"])[0],
            (match["source"] or "").strip() or None,
        )
        for match in _FRAME.finditer(stack)
    ]


def last_frame(stack: str) -> list[Frame]:
    """The innermost line alone: reading all of them takes many times as long."""
    return frames(stack[stack.rfind('\n  File "') + 1 :])


def users_frame(stack: list[Frame]) -> Frame | None:
    """The innermost frame outside torch and the standard library.

    Code from ``exec`` that has no text stands for its caller, if that has one.
    """
    found = [frame for frame in reversed(stack) if not is_internal(frame.file)]
    with_text = (frame for frame in found if frame.source or not frame.file.startswith("<"))
    return next(with_text, found[0] if found else None)


def is_repetition(payload: str) -> bool:
    """Does the payload tell of a break that has an event of its own?"""
    return payload.startswith(_SAID_TWICE)


def break_reason(payload: str) -> BreakReason:
    """Read the trace log's ``dynamo_graph_break_reason``."""
    head, _, stack = payload.partition("\nUser code traceback:")
    message = head.partition("Graph Break Reason: ")[2] or head
    reason = read_reason(message)
    found = frames(stack.partition("\nTraceback (most recent call last):")[0])
    frame = users_frame(found)
    whose = _whose(found)
    if whose is not None and _USERS_BREAK in reason.text:
        asked = f"{found[-1].function} asks for it"
        reason = Reason(f"{whose} breaks the graph here itself", asked)
    hint = _hint(message, reason.text, whose)
    is_branch = frame is not None and _BRANCHES_ON_ITEM.match(frame.source or "") is not None
    if whose is None and is_branch and "capture_scalar_outputs" in (hint or ""):
        hint = _CHOOSE
    place = _PLACE.search(head)
    # Where Inductor refuses a graph, the stack ends with the caller of its function.
    if place is not None and (frame is None or _REFUSED in message):
        frame = Frame(place["file"], int(place["line"]), "")
    called_from = None
    if frame is not None and is_installed(frame.file):
        own = [one for one in found if not is_internal(one.file) and not is_installed(one.file)]
        called_from = own[-1] if own else None
    return BreakReason(reason, hint, frame, called_from, found, whose)


def _whose(stack: list[Frame]) -> str | None:
    """None for the user's own code, and for what it calls of the standard library."""
    own = [frame for frame in stack if not is_library(frame.file)]
    if not own or own[-1].file.startswith("<"):
        return None
    if is_internal(own[-1].file):
        return "torch"
    return "package" if is_installed(own[-1].file) else None


def _hint(message: str, reason: str, whose: str | None) -> str | None:
    """What to do that leaves the program's results as they are."""
    hint = first_hint(message)
    if whose is not None:
        own = _TORCHS_OWN if whose == "torch" else _PACKAGES_OWN
        return own if hint is None or any(part in hint for part in _FOR_ITS_AUTHOR) else hint
    for pattern, better in _BETTER_HINTS:
        if pattern.search(f"{reason}\n{hint}"):
            return better
    return None if hint is None else _outside(reason, hint)


def _outside(reason: str, hint: str) -> str:
    """Not "avoid it": a program that calls it has to."""
    if _CONTEXT.match(hint):
        return "move the `with` statement out of the compiled function, or compile what is in it"
    found = _AVOIDED.match(hint) or ("C/C++" in hint and _EXTENSION.search(reason)) or None
    if found is None:
        return hint
    name = _SPECIAL.sub("", found["name"])
    verb = "call" if name == found["name"] else "use"
    return f"{verb} `{name}` outside of the compiled function"
