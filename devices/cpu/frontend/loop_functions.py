"""What texts of compiled loops call: overflow of integers, leaving, and functions of libraries.

Owns how such a text ends: `leave(k)` goes to the one place behind `left()`, from wherever it
stands, with all variables as they are. numba knows none of these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base import C_FUNCTIONS
from ...late_imports import module as heavy
from .kinds import Unsupported
from .values import Value, convert, llvm_type

Function = Callable[[Any, list[Value]], "Value | None"]

DOTS = {"f8": "lf_ddot", "f4": "lf_sdot"}
PYTHONS = {
    "py_append": ("", ("i8", "i8")),
    "py_bool": ("i8", ("i8",)),
    "py_complex": ("i8", ("f8", "f8")),
    "py_float": ("i8", ("f8",)),
    "py_int": ("i8", ("i8",)),
    "py_letter": ("i4", ("i8", "i8")),
    "py_number": ("i8", ("i8", "i8")),
    "py_scalar": ("i8", ("i8", "i8")),
    "py_set": ("", ("i8", "i8", "i8")),
}
"""Such functions: the type of the result and of the arguments; loop_symbols.py has them."""
OF_TWO = ("pow", "fmod", "atan2", "hypot", "copysign")


def _overflows(name: str) -> Function:
    def call(walk: Any, given: list[Value]) -> Value:
        first, second = [convert(walk.builder, each, "i8").ir for each in given]
        both = getattr(walk.builder, f"{name}_with_overflow")(first, second)
        return Value("b1", (walk.builder.extract_value(both, 1),))

    return call


def _begins(walk: Any, given: list[Value]) -> Value:
    """True, which the walk does not know: what follows the block is translated as well."""
    return Value("b1", (llvm_type("b1")(1),))


def _prepare(walk: Any) -> None:
    if walk.exit is None:
        walk.exit = walk.builder.function.append_basic_block("exit")
        with walk.builder.goto_entry_block():
            walk.code = walk.builder.alloca(llvm_type("i8"))


def _leave(walk: Any, given: list[Value]) -> None:
    _prepare(walk)
    walk.builder.store(convert(walk.builder, given[0], "i8").ir, walk.code)
    walk.builder.branch(walk.exit)


def _escape(walk: Any, given: list[Value]) -> None:
    """`escape(n)`: out of n loops."""
    walk.builder.branch(walk.ends[-int(given[0].literal or 1)])


def _left(walk: Any, given: list[Value]) -> Value:
    _prepare(walk)
    walk.builder.branch(walk.exit)
    walk.builder.position_at_end(walk.exit)
    return Value("i8", (walk.builder.load(walk.code),))


def _function(walk: Any, name: str, result: str, kinds: tuple[str, ...]) -> Any:
    ir = heavy("llvmlite.ir")
    found = walk.builder.module.globals.get(name)
    if found is None:
        kind = ir.FunctionType(llvm_type(result), [llvm_type(each) for each in kinds])
        found = ir.Function(walk.builder.module, kind, name)
        found.attributes.add("nounwind")
    return found


def _libm(name: str, count: int) -> Function:
    def call(walk: Any, given: list[Value]) -> Value:
        if len(given) != count:
            raise Unsupported("[translate] a call with other arguments")
        # a name of ours: LLVM would replace pow(x, 2) by a product, which has other bits
        function = _function(walk, f"lf_libm_{name}", "f8", ("f8",) * count)
        args = [convert(walk.builder, each, "f8").ir for each in given]
        return Value("f8", (walk.builder.call(function, args),))

    return call


def _dot(walk: Any, given: list[Value]) -> Value:
    """`blas_dot(n, x, step, y, step)`: the function of NumPy's own BLAS."""
    count, first, step, second, other = given
    kind = first.target
    kinds = ("i8", "*" + kind, "i8", "*" + kind, "i8")
    function = _function(walk, DOTS[kind], kind, kinds)
    args = [
        convert(walk.builder, count, "i8").ir, first.ir, convert(walk.builder, step, "i8").ir,
        second.ir, convert(walk.builder, other, "i8").ir,
    ]  # fmt: skip
    return Value(kind, (walk.builder.call(function, args),))


def _address_of(walk: Any, given: list[Value]) -> Value:
    """`address_of(pointer, k)`: where element k of an array is."""
    pointer, index = given
    place = walk.builder.gep(pointer.ir, [convert(walk.builder, index, "i8").ir])
    return Value("i8", (walk.builder.ptrtoint(place, llvm_type("i8")),))


def _call_loop(walk: Any, given: list[Value]) -> None:
    """`call_loop(words, at, n)`: a loop of NumPy's. From `at` on: its address, what belongs to it,
    how many elements, n addresses of arrays, and n steps in bytes.
    """
    ir, build = heavy("llvmlite.ir"), walk.builder
    words, at, count = given
    byte, word = ir.IntType(8).as_pointer(), llvm_type("*i8")
    kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), word, word, byte]).as_pointer()

    def place(k: int) -> Any:
        return build.gep(words.ir, [llvm_type("i8")(int(at.literal or 0) + k)])

    function = build.inttoptr(build.load(place(0)), kind)
    data = build.inttoptr(build.load(place(1)), byte)
    arrays = build.bitcast(place(3), byte.as_pointer())
    build.call(function, [arrays, place(2), place(3 + int(count.literal or 0)), data])


def _of_python(name: str) -> Function:
    """A function of Python's or NumPy's C interface, for objects by their addresses."""
    result, kinds = PYTHONS[name]

    def call(walk: Any, given: list[Value]) -> Value | None:
        function = _function(walk, f"lf_{name}", result or "i8", kinds)
        pairs = zip(given, kinds, strict=True)
        found = walk.builder.call(function, [convert(walk.builder, *each).ir for each in pairs])
        if name == "py_append":  # the list has a reference of its own
            release = _function(walk, "lf_py_release", "i8", ("i8",))
            walk.builder.call(release, [convert(walk.builder, given[1], "i8").ir])
        return Value(result, (found,)) if result else None

    return call


def _asked(walk: Any, given: list[Value]) -> Value:
    """`asked(address)`: what a function without arguments says, an int32."""
    ir = heavy("llvmlite.ir")
    kind = ir.FunctionType(ir.IntType(32), []).as_pointer()
    address = convert(walk.builder, given[0], "i8").ir
    return Value("i4", (walk.builder.call(walk.builder.inttoptr(address, kind), []),))


FUNCTIONS: dict[str, Function] = {
    "add_overflows": _overflows("sadd"),
    "sub_overflows": _overflows("ssub"),
    "mul_overflows": _overflows("smul"),
    "begins": _begins,
    "escape": _escape,
    "leave": _leave,
    "left": _left,
    "blas_dot": _dot,
    "asked": _asked,
    "address_of": _address_of,
    "call_loop": _call_loop,
}
for _name in PYTHONS:
    FUNCTIONS[_name] = _of_python(_name)
for _name in C_FUNCTIONS:
    FUNCTIONS[f"libm_{_name}"] = _libm(_name, 1)
for _name in OF_TWO:
    FUNCTIONS[f"libm_{_name}"] = _libm(_name, 2)
