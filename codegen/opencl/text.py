"""What the printers of OpenCL C share: lines of text, arrays in memory, one iteration of a loop.

Owns how a kernel's elements are read and written, singly or in vectors of `W` lanes. The last
vector of a loop is padded with copies of its last element, so an element's bits never depend on
its position. Complex arrays are pointers to their parts: an array need not be aligned to pairs.
Identifiers: a array, p pointer, s stride, e innermost stride, n size, i loop counter, v value,
x scalar, t buffer, acc accumulator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from lazyfuse.codegen.lowering.kernel import Kernel
from lazyfuse.codegen.lowering.printing import Lines, LoopText
from lazyfuse.codegen.lowering.variant import RUN_BLOCK, KernelVariant
from lazyfuse.codegen.opencl import expressions
from lazyfuse.codegen.opencl.expressions import OpenCLValues, c_type

_TAKE = """
static inline {vector} take_{code}(__global const {item} *p, long step, long left)
{{
    if (left >= W)
        return ({vector})(APART(p, step));
    {item} lanes[W];
    for (int k = 0; k < W; k++)
        lanes[k] = p[(k < left ? k : left - 1) * step];
    return *({near} *)lanes;
}}
"""
_GIVE = """
static inline void give_{code}({vector} v, __global {item} *p, long step, long left)
{{
    {item} lanes[W];
    *({near} *)lanes = v;
    for (int k = 0; k < W && k < left; k++)
        p[k * step] = lanes[k];
}}
"""


def memory_code(dtype: str) -> str:
    """The dtype of an element as it lies in memory: truth values are bytes."""
    return "u1" if dtype == "b1" else dtype


def memory_type(dtype: str) -> str:
    """The C type that a pointer to elements points to."""
    return {"c16": "double", "c8": "float"}.get(dtype) or c_type(memory_code(dtype))


def parts(dtype: str) -> int:
    """How many numbers one element has in memory."""
    return 2 if dtype[0] == "c" else 1


def element(pointer: str, place: str, dtype: str) -> str:
    """One element of memory as a value."""
    if dtype[0] == "c":
        at = f"2 * ({place})"
        return f"({c_type(dtype)})({pointer}[{at}], {pointer}[{at} + 1])"
    return expressions.load(pointer, place, dtype)


def assign(pointer: str, place: str, value: str, dtype: str) -> str:
    """The statement that writes a value to one element of memory."""
    if dtype[0] == "c":
        at, pair = f"2 * ({place})", f"const {c_type(dtype)} pair = {value};"
        return f"{{ {pair} {pointer}[{at}] = pair.x; {pointer}[{at} + 1] = pair.y; }}"
    return f"{pointer}[{place}] = {expressions.stored(value, dtype)};"


def near(dtype: str, pointer: str, space: str = "__global const ") -> str:
    """The vector in memory from an element on; in PoCL `vloadn` is a call, not an instruction."""
    return f"*({space}{_near_type(dtype)} *)({pointer})"


def _near_type(dtype: str) -> str:
    return f"U{memory_code(dtype).upper()}"


def lane_helpers(body: str) -> str:
    """The functions `take_*` and `give_*` and the vectors aligned as elements that a text names."""
    functions = ""
    for name, template in (("take", _TAKE), ("give", _GIVE)):
        for code in sorted(set(re.findall(rf"\b{name}_(\w+)\(", body))):
            words = {"vector": c_type(code, True), "item": c_type(code), "near": _near_type(code)}
            functions += template.format(code=code, **words)
    types = ""
    for code in sorted(set(re.findall(r"\bU([FIU][1248])\b", body + functions))):
        types += f"typedef V{code} U{code} __attribute__((aligned({code[1:]})));\n"
    return types + (_strided_load_macro() if "APART" in functions else "") + functions


def _strided_load_macro() -> str:
    """The macro for `W` strided elements; PoCL turns a loop over them into slow gathers."""
    lines = ["#if W == 1", "#define APART(p, step) (p)[0]"]
    for width in (2, 4, 8, 16):
        elements = ", ".join(f"(p)[{k} * (step)]" for k in range(width))
        lines += [f"#elif W == {width}", f"#define APART(p, step) {elements}"]
    return "\n".join([*lines, "#endif\n"])


def parameters(arrays: Sequence[str], scalars: Sequence[str]) -> list[str]:
    """What every kernel takes; programs.py of devices/opencl passes it."""
    words = ["__global const long *table", "const long chunks"]
    words += [f"__global char *b{k}, const long o{k}" for k in range(len(arrays))]
    words += [f"const {c_type(dtype)} x{k}" for k, dtype in enumerate(scalars)]
    return [*words, "__global int *raised"]


class CLines(Lines):
    """Lines of OpenCL C."""

    kernel: Kernel
    arrays: tuple[str, ...]

    def open(self, text: str) -> None:
        self.line(f"{text} {{".lstrip())
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.line("}")

    def pointer_type(self, k: int) -> str:
        constant = "const " if k < len(self.kernel.inputs) else ""
        return f"__global {constant}{memory_type(self.arrays[k])} *"


class Text(CLines, LoopText):
    """A program under construction: a kernel variant and the lines so far."""

    words, block = expressions, RUN_BLOCK
    end, long, true, both = ";", "L", "1", "&&"

    def __init__(self, kernel: Kernel, form: KernelVariant) -> None:
        super().__init__(kernel, form)
        self.vector = expressions.vectorisable(kernel)
        self.values = OpenCLValues(kernel, self.vector)

    def begin(self, word: str, test: str) -> None:
        self.open(f"{word} ({test})")

    def repeat(self, counter: str, stop: str, step: int = 1) -> None:
        further = f"{counter}++" if step == 1 else f"{counter} += {step}"
        self.open(f"for (long {counter} = 0; {counter} < {stop}; {further})")

    def let(self, name: str, value: str, kind: str = "const long ") -> None:
        self.line(f"{kind}{name} = {value};")

    def type_of(self, dtype: str) -> str:
        return f"{c_type(dtype)} "

    # Arrays in memory

    def target(self, k: int, loops: int) -> str:
        return f"a{k}_{loops}"

    def read_at(self, pointer: str, place: str, dtype: str) -> str:
        return element(pointer, place, dtype)

    def put(self, pointer: str, place: str, value: str, dtype: str) -> None:
        self.line(assign(pointer, place, value, dtype))

    def pointers(self, arrays: range, shift: dict[int, str]) -> None:
        for k in arrays:
            self.let(f"p{k}", f"a{k}_{self.outer}{shift.get(k, '')}", self.pointer_type(k))

    def offset(self, k: int, counter: str = "i") -> str:
        """The offset of an array's element in iteration `counter` of the innermost loop."""
        step = self.step(k)
        return {"0": "0", "1": counter, "-1": f"-{counter}"}.get(step, f"{counter} * {step}")

    def step(self, k: int) -> str:
        """The stride of an array on the innermost loop."""
        return {"0": "0", "1": "1", "-": "-1", "s": f"e{k}"}[self.variant.classes[k]]

    def read(self, k: int, pointer: str) -> str:
        """The elements of one iteration: a vector of them in vector text."""
        dtype = self.arrays[k]
        if not self.vector:
            return element(pointer, self.offset(k), dtype)
        code = memory_code(dtype)
        if self.variant.classes[k] == "1":
            here = f"{pointer} + i"
            text = f"left < W ? take_{code}({here}, 1, left) : {near(dtype, here)}"
        else:
            text = f"take_{code}({pointer} + {self.offset(k)}, {self.step(k)}, left)"
        return f"TO_VI1(({text}) != (VU1)(0))" if dtype == "b1" else text

    def write(self, k: int, pointer: str, value: str) -> None:
        """The statements that store the value of one iteration."""
        dtype = self.arrays[k]
        if not self.vector:
            self.line(assign(pointer, self.offset(k), value, dtype))
            return
        code = memory_code(dtype)
        value = expressions.stored(value, dtype, True)
        if self.variant.classes[k] != "1":
            place, step = self.offset(k), self.step(k)
            self.line(f"give_{code}({value}, {pointer} + {place}, {step}, left);")
            return
        self.line("if (left < W)")
        self.line(f"    give_{code}({value}, {pointer} + i, 1, left);")
        self.line("else")
        self.line(f"    {near(dtype, f'{pointer} + i', '__global ')} = {value};")

    # One iteration

    def innermost(self, count: str, print_iteration: Callable[[], None]) -> None:
        """The innermost loop, `W` iterations at a time in vector text."""
        step = "i += W" if self.vector else "i++"
        self.open(f"for (long i = 0; i < {count}; {step})")
        if self.vector:
            self.line(f"const long left = {count} - i;")
        print_iteration()
        self.close()

    def hoist(self) -> None:
        """Read the inputs that are constant along the innermost loop."""
        for k in range(self.first_store):
            if self.variant.classes[k] == "0":
                dtype = self.arrays[k]
                value = element(f"p{k}", "0", dtype)
                if self.vector:
                    value = expressions.spread(value, dtype)
                self.line(f"const {c_type(dtype, self.vector)} h{k} = {value};")

    def compute(self) -> None:
        """All values of one iteration, the exceptions they raise, and the stores."""
        for k in range(self.first_store):
            if self.variant.classes[k] != "0":
                kind = c_type(self.arrays[k], self.vector)
                self.line(f"const {kind} h{k} = {self.read(k, f'p{k}')};")
        for text in self.values.statements():
            self.line(f"const {text}")
        if self.flags:
            for text in self.values.flag_statements():
                self.line(text)
        for k, store in enumerate(self.kernel.stores, self.first_store):
            self.write(k, f"p{k}", self.values.cast(store.value, store.dtype))

    def lanes(self, name: str, value: str, dtype: str) -> str:
        """Split a vector; the text of the value in lane `k`."""
        item = memory_type(dtype)
        value = expressions.stored(value, dtype, True)
        self.line(f"{item} {name}[W];")
        self.line(f"{near(dtype, name, '')} = {value};")
        return element(name, "k", dtype)


def closure(body: str, kernel: Kernel, helpers: Iterable[str]) -> str:
    """A complete text: the preamble, the helpers, and the body."""
    text = "".join(helpers) + "\n" + body
    return expressions.preamble(text, expressions.itemsize(kernel)) + text
