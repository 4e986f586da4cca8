"""Bytes moved and floating-point operations of one launch, from what is passed to it.

The rule is Inductor's own (``estimate_kernel_num_bytes`` in ``torch/_inductor/codegen/simd.py``):
each pointer counts its buffer once, whatever the number of loads; a buffer larger than the launch
has points counts one launch for each distinct index; what is read and written counts twice.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from instrumented_backend.kernels.expressions import evaluate
from instrumented_backend.kernels.facts import (
    DTYPE_BYTES,
    NUMELS,
    Access,
    BytesFacts,
    KernelFacts,
    LaunchFacts,
    Part,
)
from instrumented_backend.kernels.wrapper import KernelCall, Size, Tensor, Value
from instrumented_backend.records import Note, notes

_FROM_CALL = Note(notes.BYTES_ESTIMATED, "bytes: estimated, from the shapes at the call")
_HINTED = Note(notes.BYTES_AT_HINTS, "bytes: at the sizes that the graph was compiled with")


def launch_facts(facts: KernelFacts, call: KernelCall) -> LaunchFacts:
    """What a call site tells of a generated kernel: shapes, numels, bytes."""
    found = LaunchFacts()
    record = facts.record
    passed = dict(zip(facts.parameters, call.arguments, strict=False))
    if len(call.arguments) < len(facts.parameters):
        found.note = Note(
            notes.CALL_TOO_SHORT, "the call passes fewer arguments than the kernel has parameters"
        )
    for name, value in passed.items():
        if isinstance(value, Tensor) and value.shape is not None:
            found.arg_shapes[name] = _shape(value)
    found.symbolic_numels = _numels_at(record.symbolic_numels, passed)
    product = _Product.of(facts, passed)
    operands = {} if product is None else product.operands(record.language)
    found.bytes = _generated_bytes(facts, passed, operands)
    if record.kernel_category == "template":
        found.flops = _template_flops(facts, passed, product)
        if found.flops is None:
            found.flops_note = Note(
                notes.FLOPS_UNKNOWN,
                "flops unknown: no matrix product of two operands of known shapes",
            )
    return found


def _numels_at(numels: dict[str, str], passed: dict[str, Value]) -> dict[str, str]:
    """The symbolic numels, each parameter's name replaced by what is passed for it."""
    found = {
        name: ", ".join(
            value.text if isinstance(value := passed.get(word), Size) else word
            for word in text.split(", ")
        )
        for name, text in numels.items()
    }
    inner = found.get("rnumel")
    if inner is not None and inner in NUMELS:
        found["rnumel"] = found.get(inner, inner)
    return found


def _shape(tensor: Tensor) -> list[int | str]:
    return [size.text if size.exact is None else size.exact for size in tensor.shape or ()]


# --- Bytes of generated kernels -----------------------------------------------------------------


def _generated_bytes(
    facts: KernelFacts, passed: dict[str, Value], operands: dict[str, int]
) -> BytesFacts:
    """``operands``: elements of a matrix product's operands, which may be parts of buffers."""
    record = facts.record
    if not facts.accesses:
        return _unknown_bytes("its own code names no buffer")
    parts = facts.parts or [Part(facts.accesses)]
    points = [None if facts.whole_buffers else _points(part, passed) for part in parts]
    sizes = _sizes(passed)
    read = written = 0
    hinted = False
    same: list[str] = []
    sliced: dict[str, str] = {}  # a buffer of which parts are used, and through which pointer
    for name, whole in facts.accesses.items():
        value = passed.get(name)
        tensor = value if isinstance(value, Tensor) else Tensor(name)
        numel = tensor.numel
        size = DTYPE_BYTES.get(record.arg_dtypes.get(name, ""), DTYPE_BYTES.get(tensor.dtype or ""))
        if size is None or numel is None or numel.known is None:
            what = "dtype" if size is None else "shape"
            detail = "" if numel is None or size is None else f" ({numel.text})"
            return _unknown_bytes(f"the {what} of {name}{detail} is not known")
        hinted |= numel.exact is None
        used = [
            (part.accesses[name], n)
            for part, n in zip(parts, points, strict=True)
            if name in part.accesses
        ] or [(whole, None)]
        for access, count in used:
            if count is not None and numel.known > count:
                first = sliced.setdefault(tensor.name, name)
                if first != name:
                    same.append(f"{first} and {name}")
            whole_numel = min(numel.known, operands.get(name, numel.known))
            reads, writes = _elements(name, access, whole_numel, count, sizes)
            read += reads * size
            written += writes * size
    said = [_FROM_CALL]
    if hinted:
        said.append(_HINTED)
    reason = _what_is_counted(facts)
    if reason is not None:
        said.append(Note(notes.BYTES_ESTIMATED, reason))
    if same:
        reason = (
            f"bytes: {'; '.join(same)} are one buffer, of which parts are used; Inductor counts "
            "the parts of both for each"
        )
        said.append(Note(notes.BYTES_ESTIMATED, reason))
    return BytesFacts(read, written, said)


def _unknown_bytes(reason: str) -> BytesFacts:
    return BytesFacts(notes=[Note(notes.BYTES_UNKNOWN, f"bytes unknown: {reason}")])


def _what_is_counted(facts: KernelFacts) -> str | None:
    category = facts.record.kernel_category
    names = [name for part in facts.parts for name in part.accesses]
    if len(names) > len(set(names)):
        return f"bytes: a buffer counts for each of the {category}'s loops that use it"
    if category in ("user_autotune", "unknown"):
        return "bytes: each buffer counted whole, since how much of it is used is not known"
    if category == "template":
        fused = [name for name in facts.accesses if name.startswith("in_ptr")]
        if fused:
            return (
                f"bytes: each operand once, with {', '.join(fused)} of what was fused in; Inductor "
                "counts what the product had before that"
            )
        return "bytes: each operand once, as Inductor counts a template"
    return None


def _points(part: Part, passed: dict[str, Value]) -> int | None:
    """The product of the numels, those that are symbols by their hints.

    A C++ kernel has none: its accesses have their own counts.
    """
    points = 1
    for name in ("xnumel", "ynumel", "znumel", "r0_numel", "r1_numel"):
        numel = part.numels.get(name, 1)
        if isinstance(numel, str):
            size = passed.get(numel)
            known = size.known if isinstance(size, Size) else None
            if known is None:
                return None
            numel = known
        points *= numel
    return points if part.numels else None


def _sizes(passed: dict[str, Value]) -> dict[str, int]:
    """The arguments that are numbers, or symbols with a hint."""
    return {
        name: size
        for name, value in passed.items()
        if isinstance(value, Size) and (size := value.known) is not None
    }


def _elements(
    name: str, access: Access, numel: int, points: int | None, sizes: dict[str, int]
) -> tuple[int, int]:
    """Elements read and written through one pointer."""
    reads = bool(access.reads) or name.startswith(("in_ptr", "in_out_ptr"))
    writes = bool(access.writes) or name.startswith(("out_ptr", "in_out_ptr"))
    if not reads and not writes:
        reads = not name.lower().startswith(("out", "y"))
        writes = not reads
    indices = {**access.reads, **access.writes}
    reached = numel
    if points is not None:
        if numel > points:
            reached = max(len(indices), 1) * points
    elif indices:
        counts = [
            evaluate(count, sizes) if isinstance(count, str) else count
            for count in indices.values()
        ]
        known = [max(count, 0) for count in counts if count is not None]
        if len(known) == len(counts):
            reached = min(numel, sum(known))
    if reads and writes and name.startswith("out_ptr"):
        reads = False  # reads what it has just written
    return reached * reads, reached * writes


# --- Operations of matrix products --------------------------------------------------------------


@dataclass
class _Product:
    """A template's matrix product: ``batch`` times (M, K) by (K, N), and for mm_plus_mm a second.

    The sizes are in the body; what was fused in may have taken the place of an operand.
    """

    batch: int
    m: int
    n: int
    ks: list[int]

    @staticmethod
    def of(facts: KernelFacts, passed: dict[str, Value]) -> "_Product | None":
        if facts.record.kernel_category != "template":
            return None
        sizes = _template_sizes(facts, passed)
        ks = [sizes[name] for name in ("K", "K1", "K2") if name in sizes]
        if not {"M", "N"} <= set(sizes) or not ks:
            return None
        m, n = sizes["M"], sizes["N"]
        if facts.record.language == "cpp":  # several of one input, each with its weight
            weights = sum(name.rstrip("0123456789") == "W" for name in facts.accesses)
            return _Product(sizes.get("B", 1), m, n, ks * weights)
        written = [
            value.numel
            for name, value in passed.items()
            if name.startswith("out_ptr") and isinstance(value, Tensor)
        ]
        numel = written[0].known if written and written[0] is not None else None
        if not numel or not m or not n or numel % (m * n) or "G" in facts.constants:
            return None
        return _Product(numel // (m * n), m, n, ks)

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * sum(self.ks)

    def operands(self, language: str) -> dict[str, int]:
        if language == "cpp":
            return {"X": self.batch * self.m * self.ks[0]}
        names = iter(("arg_A", "arg_B", "arg_C", "arg_D"))
        return {next(names): self.batch * side * k for k in self.ks for side in (self.m, self.n)}


def _template_sizes(facts: KernelFacts, passed: dict[str, Value]) -> dict[str, int]:
    """``M = ks0`` as a number, where the call tells."""
    known = _sizes(passed)
    sizes = {}
    for name, value in facts.constants.items():
        size = value if isinstance(value, int) else evaluate(value, known)
        if size is not None:
            sizes[name] = size
    return sizes


def _template_flops(
    facts: KernelFacts, passed: dict[str, Value], product: _Product | None
) -> int | None:
    sizes = _template_sizes(facts, passed)
    if set(sizes) >= _CONVOLUTION:
        flops = 2 * math.prod(sizes.get(name, 1) for name in (*_CONVOLUTION, "OUT_D", "KERNEL_D"))
        return flops // sizes.get("GROUPS", 1)
    if product is not None:
        return product.flops
    if "arg_DO" not in passed:  # which attention's backward has
        for names in (("arg_Q", "arg_K", "arg_V"), ("query", "key", "value")):
            if set(names) <= set(passed):
                return _attention_flops(*(passed[name] for name in names))
    return None


_CONVOLUTION = {"OUT_C", "OUT_H", "OUT_W", "KERNEL_H", "KERNEL_W", "BATCH", "IN_C"}


def _known_shape(value: Value) -> list[int] | None:
    if not isinstance(value, Tensor) or value.shape is None:
        return None
    known = [size.known for size in value.shape]
    return None if None in known else known  # type: ignore[return-value]


def _product_flops(left: Value, right: Value) -> int | None:
    """2 M N K for each of a batch."""
    a, b = _known_shape(left), _known_shape(right)
    if a is None or b is None or len(a) != len(b) or len(a) not in (2, 3):
        return None
    if a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    return 2 * math.prod(a) * b[-1]


def _attention_flops(query: Value, key: Value, value: Value) -> int | None:
    """Both products of attention without a mask: Q (B, H, M, D) by K, the scores by V."""
    q, k, v = _known_shape(query), _known_shape(key), _known_shape(value)
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) == 4:
        return None
    return 2 * math.prod(q[:3]) * k[2] * (q[3] + v[3])


# --- Extern calls -------------------------------------------------------------------------------


def extern_facts(call: KernelCall) -> LaunchFacts:
    """One extern call: its shapes where they are static, its bytes and operations if known."""
    found = LaunchFacts()
    tensors = [value for value in call.arguments if isinstance(value, Tensor)] + call.listed
    for i, tensor in enumerate(tensors):
        _add_operand(found, f"arg{i}", tensor)
    result = call.result
    if result is not None:
        _add_operand(found, "out", result)
    found.bytes = _extern_bytes(tensors, result)
    count = _FLOPS.get(_operation(call.kernel))
    if count is not None:
        found.flops = count(call)
        if found.flops is None:
            found.flops_note = Note(
                notes.FLOPS_UNKNOWN, "flops unknown: the operands' shapes are not known"
            )
    return found


def _operation(name: str) -> str:
    """``torch.ops.aten.convolution_backward.default`` → ``convolution_backward``."""
    parts = name.split(".")
    if name.startswith("torch.ops.") and len(parts) > 3:
        return parts[3]
    return parts[1] if len(parts) > 1 else name


def _add_operand(found: LaunchFacts, name: str, tensor: Tensor) -> None:
    if tensor.dtype is not None:
        found.arg_dtypes[name] = tensor.dtype
    if tensor.shape is not None:
        found.arg_shapes[name] = _shape(tensor)


def _extern_bytes(tensors: list[Tensor], result: Tensor | None) -> BytesFacts:
    """Each operand once, and the result: what any kernel for it has to move."""
    results = [] if result is None else (result.parts or [result])
    dtype = next((tensor.dtype for tensor in tensors if tensor.dtype), None)
    read = [_bytes(tensor, dtype) for tensor in tensors]
    written = [_bytes(tensor, dtype) for tensor in results]
    if None in read or None in written or not (read or written):
        return _unknown_bytes("not every operand's shape and dtype is in the file")
    said = [Note(notes.BYTES_ESTIMATED, "bytes: estimated, each operand once")]
    every = [*tensors, *results]
    if any(tensor.numel is not None and tensor.numel.exact is None for tensor in every):
        said.append(_HINTED)
    return BytesFacts(sum(count or 0 for count in read), sum(count or 0 for count in written), said)


def _bytes(tensor: Tensor, dtype: str | None) -> int | None:
    size = DTYPE_BYTES.get(tensor.dtype or dtype or "")
    numel = tensor.numel
    if size is None or numel is None or numel.known is None:
        return None
    return size * numel.known


def _mm(call: KernelCall, first: int = 0) -> int | None:
    tensors = call.arguments[first : first + 2]
    return _product_flops(*tensors) if len(tensors) == 2 else None


def _convolution(call: KernelCall) -> int | None:
    """2 × each output × the weights that it is made from; transposed: each input."""
    if len(call.arguments) < 2:
        return None
    inputs, weight = _known_shape(call.arguments[0]), _known_shape(call.arguments[1])
    outputs = _known_shape(call.result)
    transposed = call.keywords.get("transposed", call.keywords.get("#6", False))
    points = inputs if transposed else outputs
    if points is None or weight is None or len(weight) < 3:
        return None
    return 2 * math.prod(points) * math.prod(weight[1:])


def _convolution_backward(call: KernelCall) -> int | None:
    """One convolution's worth for the input's gradient, one for the weight's."""
    if len(call.arguments) < 3:
        return None
    gradient, weight = _known_shape(call.arguments[0]), _known_shape(call.arguments[2])
    inputs = _known_shape(call.arguments[1])
    transposed = call.keywords.get("#7", False)
    mask = call.keywords.get("#10")
    points = inputs if transposed else gradient
    if points is None or weight is None or len(weight) < 3 or not isinstance(mask, list):
        return None
    return 2 * math.prod(points) * math.prod(weight[1:]) * sum(map(bool, mask[:2]))


_FLOPS: dict[str, Callable[[KernelCall], int | None]] = {
    "mm": _mm,
    "bmm": _mm,
    "_int_mm": _mm,
    "_scaled_mm": _mm,
    "addmm": lambda call: _mm(call, 1),
    "bias_addmm": lambda call: _mm(call, 1),
    "baddbmm": lambda call: _mm(call, 1),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
