"""Which operations of small arrays wait for the next one of their expression.

`0.5 * (a[1:] + a[:-1])` need not store its sum: the product takes it from Python's stack, and
nothing else can. native/expressions.c puts such an operation off, and does both in one pass. This
module reads the instructions of a place, once: from an operation to the one that takes its result,
do they run code of ours, Python's and NumPy's alone, if what they load is arrays, numbers, slices
and ufuncs? The answer is what they load, for C to look at each time.

Only with the native extension. Owns what stretches.py knows of instructions, too.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.lowering import kernel as kernels
from lazyfuse.codegen.lowering import languages
from lazyfuse.codegen.lowering import variant as variants
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.devices.base import DeviceError, RowProgram
from lazyfuse.devices.caches import cached, register
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate

LOADS = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF")
PAIRS = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
CONSTANTS = ("LOAD_CONST", "LOAD_CONST_IMMORTAL", "LOAD_CONST_MORTAL", "LOAD_SMALL_INT")
SKIPPED = ("CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL")
OPERATORS = frozenset("+ - * / // % ** & | ^ << >>".split())

_NUMBERS_AND_SLICES = (int, float, complex, bool, slice, type(None), type(...))
_TWO = ("BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR")
_ONE = ("UNARY_NEGATIVE", "UNARY_INVERT")
_NAMED = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")
_MADE = ("BUILD_SLICE", "BUILD_TUPLE", "BINARY_SLICE", "CALL")
_PLAIN = frozenset((*LOADS, *PAIRS, *CONSTANTS, *SKIPPED, *_TWO, *_ONE, *_NAMED, *_MADE))
"""Instructions that `_follow` knows."""

Source = tuple[int, int, str, str | None]
"""The place of a local name in the frame (-1: a global one), with how many arguments it is called
(0: it is no function), the name, and the attribute that is loaded from its object."""


@cached(256)
def instructions(code: CodeType) -> tuple[list[dis.Instruction], dict[int, int]]:
    """The instructions of a code object, and the number of each by its offset."""
    steps = list(dis.get_instructions(code))
    return steps, {step.offset: number for number, step in enumerate(steps)}


class _Value:
    """Something on the stack: what it is made of, and the name by which it was loaded, if any."""

    __slots__ = ("name", "sources")

    def __init__(self, sources: frozenset[Source], name: Source | None = None) -> None:
        self.sources = sources
        self.name = name


_Stack = list[_Value | None]  # None: something that is not known


def site(code: CodeType, offset: int) -> tuple[int, tuple[Source, ...]] | None:
    """What is loaded up to the operation that takes the result of the one at `offset`.

    The first number is the place there of the function that this operation calls; -1: it is an
    operator. None: other code may see the result, or it is no operation's.
    """
    if not config.options.eager_fusion:
        return None
    steps, places = instructions(code)
    at = first = places.get(offset, 0)
    while first > 0 and not steps[first].is_jump_target and steps[first - 1].opname in _PLAIN:
        first -= 1
    stack: _Stack = []
    for step in steps[first:at]:
        _follow(step, stack)
    result, function = _operation(steps[at], stack)
    if result is None:
        return None
    own, line = result.sources, _line(steps[at])
    stack.append(result)
    for step in steps[at + 1 :]:
        if step.is_jump_target or step.opname not in _PLAIN:
            return None
        if _arity(step) and (line is None or _line(step) != line):
            return None  # a warning names the line of its operation
        if any(value is result for value in stack[len(stack) - min(_arity(step), len(stack)) :]):
            taker, _ = _operation(step, stack)
            if taker is None:
                return None
            named = tuple(sorted(own | taker.sources, key=repr))
            return (-1 if function is None else named.index(function)), named
        _follow(step, stack)
        if stack[-1] is None:
            return None
    return None


def _line(step: dis.Instruction) -> int | None:
    return step.positions.lineno if step.positions is not None else None


def _arity(step: dis.Instruction) -> int:
    """How many values an instruction takes from the stack for one result; 0: it loads one."""
    name = step.opname
    if name in _TWO:
        return 2
    if name in _ONE:
        return 1
    if name == "BINARY_SLICE":
        return 3
    if name in _MADE:
        return (step.arg or 0) + (name == "CALL")
    return 0


def _operation(step: dis.Instruction, stack: _Stack) -> tuple[_Value | None, Source | None]:
    """Take the operands of an operation that may be one of an expression: its result, and the
    function that it calls.
    """
    name, count = step.opname, _arity(step)
    if name not in ("BINARY_OP", "COMPARE_OP", "CALL", *_ONE) or len(stack) < count:
        return None, None
    if name == "BINARY_OP" and step.argrepr not in OPERATORS:
        return None, None
    callee = stack[-count] if name == "CALL" else None
    result = _joined(step, stack)
    return result, callee.name if callee is not None else None


def _joined(step: dis.Instruction, stack: _Stack) -> _Value | None:
    """Take what an instruction takes from the stack; its result, None: it is not known."""
    count = _arity(step)
    taken = stack[max(len(stack) - count, 0) :]
    del stack[max(len(stack) - count, 0) :]
    if len(taken) < count or any(value is None for value in taken):
        return None
    if step.opname == "CALL" and not _is_function(taken[0], count - 1):
        return None
    return _Value(frozenset().union(*(value.sources for value in taken if value is not None)))


def _is_function(value: _Value | None, arguments: int) -> bool:
    """Whether a value was loaded by its name; notes that it is called."""
    if value is None or value.name is None or not arguments:
        return False
    local, _, name, attribute = value.name
    value.name = local, arguments, name, attribute
    value.sources = frozenset((value.name,))
    return True


def _follow(step: dis.Instruction, stack: _Stack) -> None:
    """Do to the stack what an instruction does."""
    name = step.opname
    if name in SKIPPED:
        return
    if name in CONSTANTS:
        known = isinstance(step.argval, _NUMBERS_AND_SLICES)
        stack.append(_Value(frozenset()) if known else None)
    elif name in LOADS:
        stack.append(_loaded(step.arg or 0, step.argval))
    elif name in PAIRS:
        for at, each in zip(divmod(step.arg or 0, 16), step.argval, strict=True):
            stack.append(_loaded(at, each))
    elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
        stack.append(_loaded(-1, step.argval))
    elif name in _NAMED:
        stack.append(_attribute(stack.pop() if stack else None, step.argval))
    else:
        known = name != "BINARY_OP" or step.argrepr in OPERATORS or step.argrepr == "[]"
        result = _joined(step, stack)
        stack.append(result if known else None)


def _loaded(local: int, name: str) -> _Value:
    source = local, 0, name, None
    return _Value(frozenset((source,)), source)


def _attribute(value: _Value | None, name: str) -> _Value | None:
    """An attribute of an object that was loaded by its name."""
    if value is None or value.name is None or value.name[3] is not None:
        return None
    source = value.name[0], 0, value.name[2], name
    return _Value(frozenset((source,)), source)


# ---------------------------------------------------------------------------------- programs

_Structure = tuple[int, list[tuple[int, int]], list[int], list[tuple[Any, int, int, int]]]
"""The number of loops; dtype and class of stride (0, 1, 2: any) of each array; dtypes of numbers;
operations: a ufunc of NumPy's, the dtype of its loop, operands (arrays, numbers, operations)."""


def program(structure: _Structure) -> Callable[[], Any] | None:
    """A function that asks for the compiled text of an expression; None: there is none.

    It gives the address of the code and what holds it; False while it is being compiled; None if
    there will be none.
    """
    kernel = _kernel(structure)
    device: Any = devices.cpu()
    if kernel is None or devices.current() is not device:
        return None
    rank, arrays, _, _ = structure
    classes = "".join(["01s"[kind] for _, kind in arrays]) + "1"
    variant = variants.KernelVariant("map", (False,) * (rank - 1), 1, classes)
    try:
        source = languages.printer("numba")(kernel, variant)
    except kernels.KernelError:
        return None

    def ask() -> tuple[int, Any] | bool | None:
        try:
            with evaluate.held():
                if device.compiles_ahead() and counters.awaited(device, source):
                    return False
                found = counters.compiled(device, source)
        except DeviceError:
            return None
        return (found.entry, found) if isinstance(found, RowProgram) else None

    return ask if source.exact else None


def _kernel(structure: _Structure) -> kernels.Kernel | None:
    """The expression as a kernel; None: kernels lack an operation, or its bits are not NumPy's."""
    rank, arrays, numbers, operations = structure
    inputs = [_DTYPES[number].str[1:] for number, _ in arrays]
    scalars = [_DTYPES[number].str[1:] for number in numbers]
    body: list[kernels.Instruction] = []
    for ufunc, number, *operands in operations:
        op, dtype = ops.BY_UFUNC.get(ufunc), _DTYPES[number]
        if op is None or not op.is_exact(dtype):
            return None
        loop = promotion.resolve(op, (dtype,) * op.nin)
        if loop.ins != (dtype,) * op.nin or not ops.supports(op, loop).ok:
            return None
        ins = (dtype.str[1:],) * op.nin
        body.append(kernels.Instruction(op.name, tuple(operands[: op.nin]), ins, loop.out.str[1:]))
    store = kernels.Store(len(inputs) + len(scalars) + len(body) - 1, body[-1].out)
    return kernels.Kernel(rank, tuple(inputs), tuple(scalars), tuple(body), (store,))


_DTYPES: dict[int, np.dtype[Any]] = {
    np.dtype(code).num: np.dtype(np.dtype(code).str) for code in "?bBhHiIlLqQfdFD"
}
"""Plain dtypes by their numbers, as op table and kernels have them."""


def use(native: Any) -> None:
    """Let the native extension ask for places and programs."""
    native.bind("expression_site", site)
    native.bind("expression_program", program)
    config.on_change("eager_fusion", lambda value: native.expressions_forget())
    config.on_change("eager_compile_above", native.expressions_compile_above)
    register(
        "runtime.scheduling.eager_fusion.sites",
        native.expressions_count,
        4096,
        native.expressions_forget,
    )
