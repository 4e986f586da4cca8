"""A Triton kernel's module, read with `ast`: never imported, never run."""

import ast
import re

from instrumented_backend.kernels.facts import NUMELS, Access, KernelFacts, Part
from instrumented_backend.kernels.triton_syntax import (
    META_KEYS,
    NoKernel,
    arguments_of,
    chosen,
    dispatch,
    dtype_of,
    is_constexpr,
    is_pointer,
    kernel_function,
    last_name,
    literal,
    nodes_of,
    sizes,
    without_boilerplate,
)
from instrumented_backend.records import KernelRecord, notes

_BENCHMARK_MAIN = "\n\n\ndef get_args():\n"

_REDUCTIONS = frozenset(
    {
        *("sum", "max", "min", "reduce", "argmax", "argmin", "xor_sum"),
        *("max2", "min2", "prod", "any", "max_with_index", "min_with_index", "welford"),
        *("online_softmax_reduce",),
    }
)
_DESCRIPTOR_LOADS = frozenset(
    {
        "load_tensor_descriptor",
        "_experimental_descriptor_load",
        "experimental_descriptor_load",
    }
)
_DESCRIPTOR_STORES = frozenset(
    {
        "store_tensor_descriptor",
        "_experimental_descriptor_store",
        "experimental_descriptor_store",
    }
)
_LOADED = re.compile(r"\btmp\d")  # Inductor's values; its indices are x0, r0_1, ...
_COUNTS = (
    *("load", "store", "atomic_add", "for", "reduction", "indirect"),
    *("workspace_load", "workspace_store"),
)
_WORKSPACES = ("ws_ptr", "sem_ptr", "semaphores_ptr")
_GENERATED = "those that it generated, before it removed or repeated any"


def read_triton(source: str, name: str | None = None) -> KernelFacts:
    """The facts of the one kernel in a module, which may define helper functions beside it.

    Raises SyntaxError, or `NoKernel`.
    """
    source = source.partition(_BENCHMARK_MAIN)[0]
    try:
        reader = _Reader(without_boilerplate(source))
        if reader.lost_address:
            reader = _Reader(source)
    except (SyntaxError, NoKernel):
        reader = _Reader(source)  # raises again, with the right line, unless we left out too much
    return reader.facts(name)


class _Reader:
    """Walks one kernel's function."""

    def __init__(self, source: str) -> None:
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
        function, decorator = kernel_function(functions)
        self.functions = {node.name: node for node in functions}
        self.lines = source.split("\n")
        self.function = function
        words = {word.arg: word.value for word in decorator.keywords} if decorator else {}
        self.category = last_name(decorator.func) if decorator else None
        self.size_hints = literal(words.get("size_hints"))
        self.reduction_hint = words.get("reduction_hint")
        self.triton_meta = chosen(words.get("triton_meta"), ("signature", "device", "constants"))
        self.meta = chosen(words.get("inductor_meta"), META_KEYS)
        arguments = arguments_of(function)
        self.parameters = [argument.arg for argument in arguments]
        self.constexprs = {
            argument.arg for argument in arguments if is_constexpr(argument.annotation)
        }
        self.signature: dict[str, str] = {}  # each run-time parameter, Triton's word for its type
        self.passed: list[str] = []  # what a call passes: those, and numels that are always 1
        self._read_signature()
        self.origin = {name: name for name in self.signature}  # a variable → its parameter
        self.parts: list[Part] = []
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.body_lines = (function.end_lineno or function.lineno) - function.lineno + 1
        self.numels: dict[str, list[ast.expr]] = {}
        self._part_numels: dict[str, ast.expr] = {}  # of the part that is being read
        self._bodies_read: set[str] = set()  # functions of sub-kernels
        self.constants: dict[str, int | str] = {}
        self.lost_address = False  # a load or store of which the pointer is not known
        self._walk()

    def _read_signature(self) -> None:
        given = self.triton_meta.get("signature")
        if not isinstance(given, dict):
            given = {}
        constants = self.triton_meta.get("constants")
        fixed = set(constants) if isinstance(constants, dict) else set()
        for i, name in enumerate(self.parameters):
            kind = given.get(name, given.get(i))  # before 2.6 the keys were positions
            # One that a user's kernel has a default for may be in neither.
            if name in self.constexprs or (kind is None and (given or name in fixed)):
                continue
            self.passed.append(name)
            if kind != "constexpr":
                self.signature[name] = str(kind) if kind is not None else "unknown"

    def facts(self, name: str | None) -> KernelFacts:
        record = KernelRecord(kernel_name=name or self.function.name, language="triton")
        self._describe(record)
        self._describe_launch(record)
        pointers = [
            name
            for name, kind in self.signature.items()
            if is_pointer(kind) and not name.startswith(_WORKSPACES)
        ]
        facts = KernelFacts(
            record=record,
            parameters=self.passed,
            accesses={name: self._all_accesses(name) for name in pointers},
            parts=self.parts,
            constants=self.constants,
            whole_buffers=record.kernel_category in ("template", "user_autotune", "unknown"),
        )
        self._describe_mutations(record, facts)
        return facts

    def _describe(self, record: KernelRecord) -> None:
        record.kernel_category = self._category(record)
        record.line_of_code = self.body_lines
        record.num_load = self.counts["load"]
        record.num_store = self.counts["store"]
        record.num_for_loop = self.counts["for"]
        record.num_atomic_add = self.counts["atomic_add"]
        record.num_args = len(self.parameters)
        record.inductor_num_load = self._number("num_load")
        record.inductor_num_store = self._number("num_store")
        reductions = self._number("num_reduction")
        record.num_reduction = self.counts["reduction"] if reductions is None else reductions
        record.size_hints = sizes(self.size_hints)
        if self.reduction_hint is not None:
            record.reduction_hint = last_name(self.reduction_hint)
        record.arg_dtypes = {name: dtype_of(kind) for name, kind in self.signature.items()}
        gigabytes = self.meta.get("kernel_num_gb")
        record.kernel_args_num_gb = gigabytes if type(gigabytes) in (int, float) else None
        self._explain_counts(record)
        if self._bodies_read:
            said = f"counted with it: its sub-kernels' {len(self._bodies_read)} functions"
            record.add_note(notes.COUNTED_WITH_IT, said)
        flops = self._number("kernel_flop")
        # Inductor says 0 where it knows none, and a template without operations is none.
        if flops or (flops == 0 and record.kernel_category != "template"):
            record.flops, record.flops_source = flops, "inductor"

    def _explain_counts(self, record: KernelRecord) -> None:
        """Note why counts differ: ours are the calls in the text, Inductor's what it asked for."""
        loads, stores = record.inductor_num_load, record.inductor_num_store
        if loads is not None and loads != record.num_load:
            indirect = self.counts["indirect"]
            workspace = self.counts["workspace_load"]
            reason = _GENERATED
            if indirect and loads + indirect == record.num_load:
                reason = f"not the {indirect} whose index was itself loaded"
            elif workspace and loads + workspace == record.num_load:
                reason = f"not the {workspace} from its workspace"
            record.add_note(
                notes.COUNTS_DIFFER,
                f"{record.num_load} loads in the body; Inductor counts {loads}: {reason}",
            )
        if stores is not None and stores != record.num_store:
            atomics, workspace = self.counts["atomic_add"], self.counts["workspace_store"]
            reason = _GENERATED
            if atomics and stores == (record.num_store or 0) + atomics:
                reason = f"the {atomics} atomic adds too"
            elif workspace and stores + workspace == record.num_store:
                reason = f"not the {workspace} to its workspace"
            record.add_note(
                notes.COUNTS_DIFFER,
                f"{record.num_store} stores in the body; Inductor counts {stores}: {reason}",
            )

    def _category(self, record: KernelRecord) -> str:
        if self.category is None:
            record.add_note(
                notes.CATEGORY_UNKNOWN,
                "category unknown: under triton.jit only, none of Inductor's",
            )
            return "unknown"
        if self.meta.get("combo_grid_meta") is not None and self.category != "foreach":
            return "combo"
        return self.category

    def _number(self, key: str) -> int | None:
        value = self.meta.get(key)
        return value if type(value) is int else None

    def _describe_launch(self, record: KernelRecord) -> None:
        grid = self.meta.get("grid_type")
        record.grid_type = grid if isinstance(grid, str) else None
        device = self.triton_meta.get("device")
        if isinstance(device, dict):
            index = device.get("index")
            kind = device.get("type")
            if isinstance(kind, str):
                record.device = kind if index is None else f"{kind}:{index}"
            capability = device.get("cc")
            if isinstance(capability, int) and kind == "cuda":
                record.compute_capability = f"{capability // 10}.{capability % 10}"
            elif capability is not None:
                record.compute_capability = str(capability)
        for name in NUMELS:
            if name not in self.numels and not any(name in part.numels for part in self.parts):
                continue
            value = self._numel(name)
            if value is None:
                record.symbolic_numels[name] = self._numel_text(name)
            setattr(record, name, value)

    def _numel(self, name: str) -> int | None:
        """The one number that the body gives to ``xnumel``; a combo may give several."""
        values = {self._value(node) for node in self.numels.get(name, [])}
        for part in self.parts:
            if isinstance(part.numels.get(name), str):
                return None
        return values.pop() if len(values) == 1 else None

    def _value(self, node: ast.expr) -> int | None:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int) else None
        if isinstance(node, ast.Name):
            return self._numel(node.id) if node.id in NUMELS else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left, right = self._value(node.left), self._value(node.right)
            return None if left is None or right is None else left * right
        return None

    def _numel_text(self, name: str) -> str:
        given = (part.numels[name] for part in self.parts if name in part.numels)
        return ", ".join(map(str, given)) or ", ".join(map(ast.unparse, self.numels[name]))

    def _describe_mutations(self, record: KernelRecord, facts: KernelFacts) -> None:
        named = self.meta.get("mutated_arg_names")
        if isinstance(named, list):
            record.mutated_args = [str(name) for name in named]
        elif record.kernel_category in ("user_autotune", "unknown", "template"):
            template = record.kernel_category == "template"
            record.mutated_args = [
                name
                for name, use in facts.accesses.items()
                if use.writes and not (template and name.startswith("out_ptr"))
            ]

    # --- The body -------------------------------------------------------------------------------

    def _walk(self) -> None:
        """Visit each node of the body once, statements in order: aliases precede their uses."""
        before = self.function.body
        branches: list[list[ast.stmt]] = []
        after: list[ast.stmt] = []
        if self.category == "foreach" or self.meta.get("combo_grid_meta") is not None:
            before, branches, after = dispatch(self.function.body)
        self._begin_part()
        self._visit(before)
        if not branches:
            self._end_part(None)
            return
        origin = self.origin
        for number, branch in enumerate(branches):
            self.origin = dict(origin)
            self._begin_part()
            self._visit(branch)
            self._visit(after, again=number > 0)
            self._end_part(number)

    def _begin_part(self) -> None:
        self.accesses: dict[str, Access] = {}
        self._part_numels = {}

    def _end_part(self, number: int | None) -> None:
        """``number`` of a combo's sub-kernel: its numels may be parameters, ``xnumel_0``."""
        numels: dict[str, int | str] = {}
        for name in NUMELS:
            node = self._part_numels.get(name)
            if name == "rnumel" and node is not None:
                continue  # it is the product of r0_numel and r1_numel
            if isinstance(node, ast.Constant) and type(node.value) is int:
                numels[name] = node.value
            elif isinstance(node, ast.Name):
                numels[name] = node.id
            elif f"{name}_{number}" in self.passed:
                numels[name] = f"{name}_{number}"
            elif node is None and name in self.passed:
                numels[name] = name
        self.parts.append(Part(self.accesses, numels))

    def _all_accesses(self, pointer: str) -> Access:
        found = Access()
        for part in self.parts:
            access = part.accesses.get(pointer)
            if access is not None:
                found.reads.update(access.reads)
                found.writes.update(access.writes)
        return found

    def _visit(self, statements: list[ast.stmt], again: bool = False) -> None:
        """``again``: what is there has been counted."""
        counts = dict(self.counts)
        for node in nodes_of(statements):
            kind = type(node)
            if kind is ast.Call:
                self._call(node)
            elif kind is ast.Assign:
                self._assign(node.targets[0], node.value)
            elif kind is ast.AnnAssign and node.value is not None:
                self._assign(node.target, node.value)
            elif kind is ast.For:
                self.counts["for"] += 1
        if again:
            self.counts = counts

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            return
        name = target.id
        if name in NUMELS:
            self.numels.setdefault(name, []).append(value)
            self._part_numels[name] = value
        elif isinstance(value, ast.Constant) and type(value.value) is int:
            self.constants[name] = value.value
        else:
            origin = self._origin(value)
            if origin is not None:
                self.origin[name] = origin
            elif self.category == "template" and name.isupper():
                self.constants.setdefault(name, ast.unparse(value))

    def _enter(self, function: ast.FunctionDef, call: ast.Call) -> None:
        """A sub-kernel in a function of its own (from torch 2.15): its names are not ours."""
        parameters = [argument.arg for argument in arguments_of(function)]
        bound = dict(zip(parameters, call.args, strict=False))
        origins = {name: self._origin(node) for name, node in bound.items()}
        caller = self.origin
        self.origin = {name: origin for name, origin in origins.items() if origin is not None}
        for name, node in bound.items():
            if name in NUMELS:
                self._assign(ast.Name(name), node)
        again = function.name in self._bodies_read
        if not again:
            self._bodies_read.add(function.name)
            self.body_lines += (function.end_lineno or function.lineno) - function.lineno + 1
        self._visit(function.body, again)
        self.origin = caller

    def _origin(self, node: ast.expr) -> str | None:
        """The pointer that an address starts from: ``in_ptr0 + (x0)`` → ``in_ptr0``."""
        while True:
            if isinstance(node, ast.Name):
                origin = self.origin.get(node.id)
                return origin if origin and is_pointer(self.signature[origin]) else None
            if isinstance(node, ast.BinOp):
                left = self._origin(node.left)
                if left is not None:
                    return left
                node = node.right
            elif isinstance(node, ast.Call):
                name = last_name(node.func)
                if name in ("load", "store"):
                    return None
                if node.args and name in (
                    *("make_block_ptr", "make_tensor_descriptor", "advance"),
                    *("_experimental_make_tensor_descriptor", "multiple_of", "max_contiguous"),
                ):
                    node = node.args[0]
                elif name == "to" and isinstance(node.func, ast.Attribute):
                    node = node.func.value
                else:
                    return next(
                        (
                            word_origin
                            for word in node.keywords
                            if word.arg == "base" and (word_origin := self._origin(word.value))
                        ),
                        None,
                    )
            elif isinstance(node, ast.Subscript):
                node = node.value
            else:
                return None

    def _call(self, call: ast.Call) -> None:
        function = call.func
        if not isinstance(function, ast.Attribute):
            body = self.functions.get(function.id) if isinstance(function, ast.Name) else None
            if body is not None and body.name.startswith(f"{self.function.name}_body_"):
                self._enter(body, call)
            return
        name = function.attr
        if name == "load" or name in _DESCRIPTOR_LOADS:
            self.counts["load"] += 1
            self._access(call, function, writes=False)
        elif name == "store" or name in _DESCRIPTOR_STORES:
            self.counts["store"] += 1
            self._access(call, function, writes=True)
        elif name.startswith("atomic_"):
            if name == "atomic_add":
                self.counts["atomic_add"] += 1
            self._access(call, function, writes=True)
        elif name in _REDUCTIONS:
            self.counts["reduction"] += 1

    def _access(self, call: ast.Call, function: ast.Attribute, writes: bool) -> None:
        in_module = isinstance(function.value, ast.Name) and function.value.id in ("tl", "triton")
        if in_module and call.args:
            address = call.args[0]
        elif in_module:
            address = next((w.value for w in call.keywords if w.arg == "pointer"), function.value)
        else:
            address = function.value  # a descriptor's own method
        origin = self._origin(address)
        if origin is None:
            self.lost_address = True
            return
        access = self.accesses.setdefault(origin, Access())
        index = self._text(address if in_module else call)
        if origin.startswith(_WORKSPACES):
            self.counts["workspace_store" if writes else "workspace_load"] += 1
        elif not writes and _LOADED.search(index):
            self.counts["indirect"] += 1
        (access.writes if writes else access.reads)[index] = None

    def _text(self, node: ast.expr) -> str:
        if node.lineno == node.end_lineno:
            line = self.lines[node.lineno - 1]
            if line.isascii():  # the offsets are in bytes
                return line[node.col_offset : node.end_col_offset]
        return ast.unparse(node)
