"""The front end of compiled text: numba's types and values, for every text that it translates."""

from __future__ import annotations

import ast
import ctypes
import functools
import itertools
import operator
import random
import textwrap
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering.kernel import KernelError
from lazyfuse.codegen.numba import expressions, helpers
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import DeviceError, Source
from lazyfuse.devices.cpu import llvm_compiler
from lazyfuse.devices.cpu.frontend import arithmetic, kinds
from lazyfuse.devices.cpu.frontend.kinds import Unsupported
from lazyfuse.devices.cpu.frontend.translate import translate
from lazyfuse.devices.cpu.frontend.values import Value, llvm_type
from lazyfuse.devices.pools import object_code
from tests.campaign import TIMEOUT, rounds
from tests.devices.sources import map_source
from tests.helpers import numba_compiler

pytestmark = TIMEOUT
N = 257


# ---------------------------------------------------------------------------------------- types


@functools.cache
def numbas() -> tuple[Any, dict[str, Any], dict[str, str]]:
    from numba.core import types
    from numba.core.registry import cpu_target

    context = cpu_target.typing_context
    context.refresh()
    known = {code: getattr(types, name) for name, code in kinds.NAMES.items() if name[-1].isdigit()}
    known["b1"] = types.boolean
    return context, known, {str(kind): code for code, kind in known.items()}


def numba_type(function: Any, *codes: str) -> str | None:
    context, known, names = numbas()
    try:
        found = context.resolve_function_type(function, tuple(known[each] for each in codes), {})
    except Exception:
        return None
    return None if found is None else names[str(found.return_type)]


def our_type(walk: Any, *codes: str) -> str | None:
    """The type that an operation on values of these types gives here."""
    from llvmlite import ir

    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), []), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    parts = {code: 2 if code[0] == "c" else 1 for code in codes}
    given = [
        Value(code, (ir.Constant(llvm_type(code), ir.Undefined),) * parts[code]) for code in codes
    ]
    try:
        found: Value = walk(builder, given)
    except Unsupported:
        return None
    return found.kind


BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


@pytest.mark.parametrize("kind", list(BINARY), ids=lambda kind: kind.__name__)
def test_operators_have_numbas_types(kind: type[ast.operator]) -> None:
    known = 0
    for pair in itertools.product(kinds.CODES, repeat=2):
        found = our_type(lambda build, given: arithmetic.binary(build, kind(), *given), *pair)
        if found is not None:
            known += 1
            assert found == numba_type(BINARY[kind], *pair), pair
    assert known >= 41  # all pairs of integers of one sign, at least


def test_comparisons_have_numbas_types() -> None:
    context, known, names = numbas()
    for pair in itertools.product(kinds.CODES, repeat=2):
        types = tuple(known[each] for each in pair)
        signature = context.resolve_function_type(operator.eq, types, {})
        assert {names[str(each)] for each in signature.args} == {kinds.compared(*pair)}, pair


def test_choices_have_numbas_types() -> None:
    context, known, names = numbas()
    for pair in itertools.product(kinds.CODES, repeat=2):
        both = context.unify_pairs(*[known[each] for each in pair])
        assert names[str(both)] == kinds.common(*pair), pair


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        (ast.USub, operator.neg),
        (ast.UAdd, operator.pos),
        (ast.Invert, operator.invert),
        (ast.Not, operator.not_),
    ],
)
def test_signs_have_numbas_types(kind: type[ast.unaryop], theirs: Any) -> None:
    for code in kinds.CODES:
        found = our_type(lambda build, given: arithmetic.unary(build, kind(), *given), code)
        assert found == numba_type(theirs, code) or (found is None and code[0] in "bfc"), code


# --------------------------------------------------------------------------------------- values


def run(code: bytes, arrays: tuple[Any, ...], scalars: tuple[Any, ...]) -> int:
    """Call a program of `map_source` on contiguous arrays; its flags."""
    loaded = object_code.load(code, object_code.ENTRY, fresh=True)
    meta = [N]
    for array in arrays:
        meta += [array.ctypes.data, 1]
    slots = np.zeros((max(len(scalars), 1), 2))
    for slot, each in zip(slots, scalars, strict=False):
        if each.dtype.kind in "biu":
            slot.view(np.int64)[0] = int(each) - (1 << 64) * (int(each) >= 1 << 63)
        else:
            slot[:] = each.real, each.imag
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(loaded.address)
    return int(function(np.array(meta).ctypes.data, slots.ctypes.data))


def samples(code: str, generator: np.random.Generator) -> Any:
    """Ordinary numbers, and those at which rounding, signs and NaN show."""
    dtype = np.dtype(code)
    if dtype.kind == "b":
        return generator.random(N) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        found = generator.integers(max(info.min, -50), min(info.max, 50), N, endpoint=True)
        found = found.astype(dtype)
        found[::9] = info.max
        found[4::9] = info.min
        return found
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-310, 1e300, 0.5, -1.5, 2.5]
    with np.errstate(all="ignore"):
        found = (generator.normal(size=N) * 20).astype(
            f"f{dtype.itemsize // (1 + (code[0] == 'c'))}"
        )
        found[: len(special)] = special
        if code[0] != "c":
            return found
        return (found + 1j * np.roll(found, 3)).astype(dtype)


class Text:
    """A random text: statements on variables of all types."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arrays = tuple(self.random.choice(kinds.CODES) for _ in range(4))
        self.scalars = tuple(self.random.choice(kinds.CODES) for _ in range(2))
        self.types: dict[str, str] = {}
        self.lines: list[str] = []
        for k, code in enumerate(self.arrays):
            self.lines.append(f"h{k} = a{k}[i]" + " != 0" * (code == "b1"))
            self.types[f"h{k}"] = code
        for k, code in enumerate(self.scalars):
            self.types[f"x{k}"] = code
        for k in range(self.random.randint(3, 9)):
            self.statement(f"v{k}")
        self.outs = tuple(self.types[f"v{k}"] for k in range(self.count()))
        for k, code in enumerate(self.outs):
            value = f"uint8(v{k})" if code == "b1" else f"v{k}"
            self.lines.append(f"a{len(self.arrays) + k}[i] = {value}")

    def count(self) -> int:
        return sum(name[0] == "v" for name in self.types)

    def source(self) -> Source:
        body = "\n".join(self.lines)
        text = helpers.source(HELPED) + "\n\n"
        return map_source(body, self.arrays + self.outs, self.scalars, before=text)

    def statement(self, name: str) -> None:
        kind = self.random.choice(kinds.CODES)
        typed = expressions.typed
        lines = [f"{name} = {typed(self.value(kind), kind)}"]
        shape = self.random.random()
        if shape < 0.2:
            lines += [f"if {self.value('b1')}:", f"    {name} = {typed(self.value(kind), kind)}"]
            if self.random.random() < 0.5:
                lines += ["else:", f"    {name} = {typed(self.value(kind), kind)}"]
        elif shape < 0.35 and kind in ("f4", "f8", "i8", "u8", "c16"):
            step = typed(self.value(kind), kind)
            lines += [
                f"for j{name} in range({self.random.randint(0, 4)}):",
                f"    if {self.value('b1')}:",
                f"        {self.random.choice(('break', 'continue'))}",
                f"    {name} {self.random.choice(('+=', '*='))} {step}",
            ]
        elif shape < 0.45:
            lines += [
                f"k{name} = 0",
                "while True:",
                f"    k{name} = k{name} + 1",
                f"    if (k{name} > 3) or {self.truth(2)}:",
                "        break",
                f"    {name} = {typed(self.value(kind), kind)}",
            ]
        self.lines += lines
        self.types[name] = kind

    def value(self, kind: str, depth: int = 3) -> str:
        """An expression that converts to `kind`: a complex number to complex alone."""
        wanted = kinds.CODES if kind[0] == "c" else [x for x in kinds.CODES if x[0] != "c"]
        if kind[0] in "iu":  # a float may be out of range
            wanted = [x for x in wanted if x[0] != "f"]
        return self.expression(self.random.choice(wanted), depth)

    def expression(self, kind: str, depth: int) -> str:
        """An expression of about this type: an operator may widen it."""
        pick = self.random
        named = [name for name, code in self.types.items() if code == kind]
        if depth <= 0 or pick.random() < 0.2:
            if named and pick.random() < 0.8:
                return pick.choice(named)
            return expressions.typed(self.number(kind), kind)
        smaller = functools.partial(self.expression, depth=depth - 1)
        if pick.random() < 0.1:
            return f"({smaller(kind)} if {self.value('b1', depth - 1)} else {smaller(kind)})"
        if pick.random() < 0.1:
            return f"select({self.truth(depth - 1)}, {self.same(kind)}, {self.same(kind)})"
        if kind == "b1":
            return self.truth(depth)
        if kind[0] == "c":
            sign = pick.choice("+-*")
            return pick.choice(
                (
                    f"({smaller(kind)} {sign} {smaller(kind)})",
                    f"(-{smaller(kind)})",
                    f"{smaller(kind)}.conjugate()",
                    f"complex({smaller(kinds.part(kind))}, {smaller(kinds.part(kind))})",
                    f"divide_c16(complex128({smaller('c16')}), {self.same('c16')})",
                )
            )
        if kind[0] == "f":
            narrow = pick.choice(("i2", "u1", "f4"))
            functions = ("np.floor", "np.trunc", "np.ceil", "np.rint", "np.sqrt", "abs")
            return pick.choice(
                (
                    f"({smaller(kind)} {pick.choice('+-*/')} {smaller(kind)})",
                    f"({smaller(kind)} {pick.choice('+-*')} {smaller(narrow)})",
                    f"{pick.choice(functions)}({smaller(kind)})",
                    f"np.copysign({self.same(kind)}, {self.same(kind)})",
                    f"np.fmod({self.same(kind)}, {self.same(kind)})",
                    f"{pick.choice(('min', 'max'))}({smaller(kind)}, {smaller(kind)})",
                    f"remainder_f8(float64({smaller('f8')}), {self.same('f8')})",
                    f"({smaller('c8')}).{pick.choice(('real', 'imag'))}",
                )
            )
        return self.integer(kind, depth)

    def integer(self, kind: str, depth: int) -> str:
        pick, smaller = self.random, functools.partial(self.expression, depth=depth - 1)
        other = pick.choice(("i1", "i4", "i8", "u2", "u8"))
        word = kinds.word(kind)
        seven = "uint64(7)" if word == "u8" else "7"
        divisor = f"({expressions.typed(smaller(kind), word)} & {seven})"
        return pick.choice(
            (
                f"({smaller(kind)} {pick.choice('+-*&|^')} {smaller(other)})",
                f"({smaller(kind)} {pick.choice(('//', '%'))} {divisor})",
                f"({smaller(kind)} {pick.choice(('<<', '>>'))} ({smaller(kind)} & {seven}))",
                f"(~{smaller(kind)})",
                f"(-{smaller(kind)})",
                f"abs({smaller(kind)})",
                f"{pick.choice(('min', 'max'))}({smaller(kind)}, {smaller(kind)})",
                f"count_bits(uint64({smaller(kind)}))",
                f"truncate_i8(float64({smaller('f8')}))",
                f"gcd_unsigned(uint64({smaller(kind)}), uint64({smaller(kind)}))",
                f"bits_f8({self.same('f8')} + 0.0)",
            )
        )

    def truth(self, depth: int) -> str:
        pick, kind = self.random, self.random.choice(kinds.CODES)
        signs = ("==", "!=") if kind[0] == "c" else ("<", "<=", ">", ">=", "==", "!=")
        first, second = (self.expression(kind, depth - 1) for _ in range(2))
        if pick.random() < 0.6:
            return f"({first} {pick.choice(signs)} {second})"
        a, b = (self.truth(depth - 1) if depth > 1 else self.same("b1") for _ in range(2))
        sign = pick.choice(("&", "|", "^", "and", "or"))
        return f"({a} {sign} {b})" if pick.random() < 0.8 else f"(not {a})"

    def same(self, kind: str) -> str:
        """An expression of exactly this type."""
        return expressions.typed(self.expression(kind, 0), kind)

    def number(self, kind: str) -> str:
        if kind == "b1":
            return self.random.choice(("True", "False"))
        if kind[0] == "c":
            return "complex(1.5, -0.5)"
        if kind[0] == "f":
            return self.random.choice(("0.5", "-2.25", "1e10", "np.inf", "3"))
        return self.random.choice(("0", "1", "7", "100"))


HELPED = "divide_c16 remainder_f8 count_bits truncate_i8 gcd_unsigned bits_f8".split()


def check(seed: int) -> str:
    """Both compilers' programs give the same values and flags; "", or why there is no program."""
    text, generator = Text(seed), np.random.default_rng(seed)
    source = text.source()
    try:
        ours = llvm_compiler.compile_source(source)
    except DeviceError as error:
        return str(error)
    try:
        theirs = numba_compiler.compile_source(source)
    except DeviceError as error:
        return str(error)
    inputs = tuple(samples(code, generator) for code in text.arrays)
    scalars = tuple(samples(code, generator)[20] for code in text.scalars)
    found = []
    for code in (ours, theirs):
        outs = tuple(np.zeros(N, each) for each in text.outs)
        run(code, (*inputs, *outs), scalars)
        found.append(outs)
    for k, (mine, other) in enumerate(zip(*found, strict=True)):
        same = (mine == other) | ((mine != mine) & (other != other))
        where = f"seed {seed}: v{k} ({text.outs[k]})\n{source.text}"
        assert same.all(), where
        if text.outs[k][0] == "f":
            signs = np.signbit(mine) == np.signbit(other)
            assert (signs | (mine != mine)).all(), where
    return ""


@rounds(12)
def test_random_texts_have_numbas_values(seeds: range) -> None:
    reasons = [check(seed) for seed in seeds]
    assert reasons.count("") > 0.6 * len(reasons), reasons


UFUNCS = sorted(name for name, row in ops.TABLE.items() if row.kind == "map" and row.ufunc)


@pytest.mark.parametrize("name", UFUNCS)
def test_every_operation_is_translated(name: str) -> None:
    """No operation of the table needs numba."""
    translated = 0
    for ins, out in _loops(ops.TABLE[name].ufunc):
        args = tuple(f"h{k}" for k in range(len(ins)))
        try:
            value = expressions.expression(name, ins, out, args)
        except KernelError:  # it is NumPy's
            continue
        body = [f"h{k} = a{k}[i]" + " != 0" * (ins[k] == "b1") for k in range(len(ins))]
        body.append(f"a{len(ins)}[i] = {expressions.stored(value, out)}")
        text = helpers.source(helpers.names_in(value)) + "\n\n"
        translate(map_source("\n".join(body), (*ins, out), before=text), "entry", "+avx2")
        translated += 1
    assert translated


def _loops(ufunc: np.ufunc) -> set[tuple[tuple[str, ...], str]]:
    """The loops of NumPy's that have one result of a type of ours, by dtype codes."""
    found = set()
    for each in ufunc.types:
        ins, out = each.split("->")
        codes = [np.dtype(letter).str[1:] for letter in (*ins, out[0])]
        if set(codes) <= set(kinds.CODES):
            found.add((tuple(codes[:-1]), codes[-1]))
    return found


# ------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "body",
    [
        "a1[i] = a0[i] ** 2",
        "t = a0[i]\nt = int64(3)\na1[i] = t",
    ],
)
def test_other_texts_are_refused(body: str) -> None:
    with pytest.raises(DeviceError, match="translate"):
        llvm_compiler.compile_source(map_source(body, ("f8", "f8")))


def test_a_chain_of_comparisons_is_all_of_them() -> None:
    source = map_source("a1[i] = 1.0 if 0.0 < a0[i] <= 1.0 != a0[i] else 2.0", ("f8", "f8"))
    values, out = np.linspace(-2.0, 2.0, N), np.empty(N)
    run(llvm_compiler.compile_source(source), (values, out), ())
    np.testing.assert_array_equal(out, np.where((values > 0) & (values < 1), 1.0, 2.0))


def test_a_deep_text_is_no_failure_of_ours() -> None:
    source = map_source("a1[i] = " + " + ".join(["a0[i]"] * 3000), ("f8", "f8"))
    with pytest.raises(DeviceError, match=r"\[compile\] k:"):
        llvm_compiler.compile_source(source)


def test_a_module_that_an_interrupt_leaves_ends_before_its_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector ends them in any order: after the context, the module is freed twice."""

    def interrupted(machine: Any, module: Any) -> None:
        left.append(module)
        raise KeyboardInterrupt

    left: list[Any] = []
    monkeypatch.setattr(llvm_compiler, "inline_vector_math", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llvm_compiler.compile_source(map_source("a1[i] = vm_sin(a0[i])", ("f8", "f8")))
    assert left[0].closed
    left.append(left)


def test_division_of_integers_by_zero_is_zero() -> None:
    body = "a2[i] = a0[i] // a1[i]\na3[i] = a0[i] % a1[i]"
    for code in ("i8", "u8"):
        source = map_source(body, (code,) * 4)
        a, b = samples(code, np.random.default_rng(1)), np.zeros(N, code)
        b[::2] = 3
        outs = np.empty(N, code), np.empty(N, code)
        run(llvm_compiler.compile_source(source), (a, b, *outs), ())
        for out, function in zip(outs, (np.floor_divide, np.remainder), strict=True):
            np.testing.assert_array_equal(out[::2], function(a[::2], b[::2]))
            assert not out[1::2].any()


def test_the_least_integer_is_signed() -> None:
    source = map_source("a1[i] = 1 if a0[i] == -0x8000000000000000 else 0", ("i8", "i8"))
    a = np.array([-(2**63), 2**63 - 1, 0] * (N // 3 + 1))[:N]
    out = np.empty(N, "i8")
    run(llvm_compiler.compile_source(source), (a, out), ())
    np.testing.assert_array_equal(out, a == -(2**63))


def test_what_is_compiled_needs_no_numba() -> None:
    import subprocess
    import sys

    script = textwrap.dedent("""
        import sys
        import lazyfuse as np
        with np.options(compile_ahead=False, cache_dir=""):
            x = np.arange(100_000.0)
            float((np.sqrt(x * x + 1.0) / (x + 2.0)).sum())
            np.sort(x - 5.0)
        print(np.programs()["built"] if hasattr(np, "programs") else "", "numba" in sys.modules)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split()[-1] == "False"
