"""Our own vector `exp`, `log` and `tanh` for machines with AVX-512: shorter than libmvec's.

They are LLVM text instead of calls, so loops keep their registers. They look up the upper bits in a
table of sixteen entries in two registers, and evaluate a polynomial of the rest. `vscalefpd` and
`vgetexppd` handle very small and very large numbers. Errors are below 1.3 (`exp`), 1.8 (`log`) and
3 (`tanh`) units in the last place. The hardware raises the floating-point exceptions: overflow,
underflow, division by zero and invalid arguments as NumPy reports them, and a few more for huge
arguments.

Coefficients: Chebyshev interpolation of (exp(r) - 1 - r) / r**2 on |r| <= log(2) / 32 and of
(log(1 + r) - r + r**2 / 2) / r**3 on -1/32 <= r <= 1/16, in 300 bits. Importing this module is
cheap.
"""

from __future__ import annotations

import struct
from typing import Any

from ..late_imports import module as heavy

LANES = 8  # doubles per vector
NAMES = ("exp", "log", "tanh")
# 1.5 * 2**52: adding it to a number moves the integer part into the lowest bits.
_SHIFT = 6755399441055744.0

_EXP_SCALE = 23.083120654223414  # 16 / log(2)
_EXP_STEP = (0.04332169878489367, 1.0291218489310676e-13)  # log(2) / 16 in two parts
_ROOTS = (
    1.0, 1.0442737824274138, 1.0905077326652577, 1.1387886347566916, 1.189207115002721,
    1.241857812073484, 1.2968395546510096, 1.3542555469368927, 1.4142135623730951,
    1.4768261459394993, 1.5422108254079407, 1.6104903319492543, 1.681792830507429,
    1.7562521603732995, 1.8340080864093424, 1.9152065613971474,
)  # fmt: skip
_ROOTS_REST = (
    0.0, 8.551889705537965e-17, -3.046782079812471e-17, 8.912812676025408e-17,
    3.982015231465646e-17, 4.658027591836937e-17, 2.5382502794888315e-17, 7.70094837980299e-17,
    -9.667293313452913e-17, -3.483994556892796e-17, 7.949834809697621e-17, 2.4707192569797888e-17,
    8.199010020581497e-17, 2.960140695448873e-17, 3.283107224245627e-17, -1.0619946056195963e-16,
)  # fmt: skip
_EXP = (
    0.5, 0.1666666666530169, 0.04166666666496045, 0.008333449701253456, 0.0013889034348599464,
)  # fmt: skip
# One term more, for `tanh`, where the result is the difference itself.
_DIFFERENCE = (
    0.5000000000000001, 0.16666666666666669, 0.041666666663595475, 0.00833333333299209,
    0.0013889063440655327, 0.0001984146378747018,
)  # fmt: skip
_INVERSES = (
    1.0, 0.9140625, 0.86474609375, 0.8203125, 0.7802734375, 0.744140625, 0.7109375, 0.6806640625,
    1.30615234375, 1.2548828125, 1.20751953125, 1.16357421875, 1.123046875, 1.0849609375,
    1.04931640625, 1.0,
)  # fmt: skip
_LOGARITHMS = (
    0.0, 0.08985632912186105, 0.14531934837656488, 0.1980699137620938, 0.24811085983317843,
    0.2955252499128068, 0.34117075740276714, 0.3846863948389292, -0.2670856731707085,
    -0.2270421917298671, -0.1885682813620178, -0.15149649093934373, -0.11604541575784265,
    -0.0815439840401769, -0.04813891048311206, 0.0,
)  # fmt: skip
_LOG = (
    0.3333333333333473, -0.250000000001911, 0.19999999979294283, -0.1666666554164591,
    0.14285753764559234, -0.12501898933868136, 0.111013257360729, -0.09031243897236182,
)  # fmt: skip
_LOG2 = (0.693147180559663, 2.8235290563031577e-13)  # log(2) in two parts


def serves(name: str, size: int, features: str) -> bool:
    """Whether a function of doubles (size 8) or floats (4) is ours on a CPU with these features."""
    enabled = features.split(",")
    return size == 8 and name in NAMES and "+avx512f" in enabled and "+avx512dq" in enabled


def symbol(name: str) -> str:
    """The name of our function in a module."""
    return f"lf_own_{name}"


def define(module: Any, name: str) -> Any:
    """Define the function, from vector to vector, in an llvmlite module."""
    known = module.globals.get(symbol(name))
    return known if known is not None else _Writer(module, name).function


def text(name: str) -> str:
    """The function as LLVM text, for a module that is written as text."""
    module = heavy("llvmlite.ir").Module()
    define(module, name)
    lines = str(module).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("target ", "; Module")))


class _Writer:
    """Writes one function."""

    def __init__(self, module: Any, name: str) -> None:
        ir = self.ir = heavy("llvmlite.ir")
        self.double, self.int64 = ir.DoubleType(), ir.IntType(64)
        self.floats = ir.VectorType(self.double, LANES)
        self.words = ir.VectorType(self.int64, LANES)
        self.module = module
        kind = ir.FunctionType(self.floats, [self.floats])
        self.function = ir.Function(module, kind, symbol(name))
        self.function.linkage = "linkonce_odr"
        for attribute in ("alwaysinline", "nounwind", "willreturn", "memory(none)"):
            set.add(self.function.attributes, attribute)
        self.build = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.build.ret(
            {"exp": self.exp, "log": self.log, "tanh": self.tanh}[name](self.function.args[0])
        )

    # Pieces

    def splat(self, value: float) -> Any:
        return self.ir.Constant(self.floats, [self.ir.Constant(self.double, value)] * LANES)

    def word(self, value: int) -> Any:
        return self.ir.Constant(self.words, [self.ir.Constant(self.int64, value)] * LANES)

    def call(self, name: str, kind: Any, given: list[Any]) -> Any:
        function = self.module.globals.get(name)
        if function is None:
            types = [each.type for each in given]
            function = self.ir.Function(self.module, self.ir.FunctionType(kind, types), name)
        return self.build.call(function, given)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call("llvm.fma.v8f64", self.floats, [a, b, c])

    def masked(self, name: str, *given: Any) -> Any:
        """An AVX-512 instruction on all lanes, in the current rounding mode."""
        ir = self.ir
        every, rounding = ir.Constant(ir.IntType(8), -1), ir.Constant(ir.IntType(32), 4)
        name = f"llvm.x86.avx512.mask.{name}.pd.512"
        rest = [self.splat(0.0), every, rounding]
        return self.call(name, self.floats, [*given, *rest])

    def table(self, entries: tuple[float, ...], index: Any) -> Any:
        """The entry of sixteen that the lowest four bits of `index` select."""
        ir, half = self.ir, len(entries) // 2
        parts = [
            ir.Constant(self.floats, [ir.Constant(self.double, each) for each in part])
            for part in (entries[:half], entries[half:])
        ]
        name = "llvm.x86.avx512.vpermi2var.pd.512"
        return self.call(name, self.floats, [parts[0], index, parts[1]])

    def polynomial(self, x: Any, coefficients: tuple[float, ...]) -> Any:
        """Evaluate by pairs, then pairs of pairs, for short chains of dependent operations."""
        terms = [self.splat(each) for each in coefficients]
        power = x
        while len(terms) > 1:
            pairs = [self.fma(power, terms[k + 1], terms[k]) for k in range(0, len(terms) - 1, 2)]
            terms = pairs + terms[2 * len(pairs) :]
            power = self.build.fmul(power, power) if len(terms) > 1 else power
        return terms[0]

    # Functions

    def exp(self, x: Any) -> Any:
        """2**(k / 16) * exp(r), where x = k * log(2) / 16 + r."""
        build = self.build
        k, index, r = self.parted(x)
        is_usual = build.icmp_unsigned("<", self.magnitude(x), self.word(_bits(1000.0)))
        r = build.select(is_usual, r, self.splat(0.0))
        root = self.table(_ROOTS, index)
        value = self.fma(root, self.less_one(r, _EXP), root)
        return self.masked("scalef", value, build.fmul(k, self.splat(0.0625)))

    def parted(self, x: Any) -> tuple[Any, Any, Any]:
        """`k`, the same as integers, and `r`, where x = k * log(2) / 16 + r."""
        build = self.build
        shifted = self.fma(x, self.splat(_EXP_SCALE), self.splat(_SHIFT))
        k = build.fsub(shifted, self.splat(_SHIFT))
        r = self.fma(k, self.splat(-_EXP_STEP[0]), x)
        r = self.fma(k, self.splat(-_EXP_STEP[1]), r)
        return k, build.bitcast(shifted, self.words), r

    def less_one(self, r: Any, coefficients: tuple[float, ...]) -> Any:
        """exp(r) - 1 for small r."""
        return self.fma(self.build.fmul(r, r), self.polynomial(r, coefficients), r)

    def magnitude(self, x: Any) -> Any:
        """The bits without the sign: in order of magnitude, and comparing NaN raises no flag."""
        return self.build.and_(self.build.bitcast(x, self.words), self.word((1 << 63) - 1))

    def tanh(self, x: Any) -> Any:
        """As e / (e + 2) with the sign of x, where e = exp(2 * abs(x)) - 1."""
        build = self.build
        size = self.magnitude(x)
        is_usual = build.icmp_unsigned("<", size, self.word(_bits(20.0)))
        near = build.select(is_usual, build.bitcast(size, self.floats), self.splat(20.0))
        k, index, r = self.parted(build.fadd(near, near))
        power = build.fmul(k, self.splat(0.0625))
        root = self.masked("scalef", self.table(_ROOTS, index), power)
        rest = self.masked("scalef", self.table(_ROOTS_REST, index), power)
        rest = self.fma(root, self.less_one(r, _DIFFERENCE), rest)
        e = build.fadd(build.fsub(root, self.splat(1.0)), rest)
        value = build.fdiv(e, build.fadd(e, self.splat(2.0)))
        sign = build.and_(build.bitcast(x, self.words), self.word(-(1 << 63)))
        value = build.bitcast(build.or_(build.bitcast(value, self.words), sign), self.floats)
        is_nan = build.icmp_unsigned(">", size, self.word(_bits(float("inf"))))
        return build.select(is_nan, x, value)

    def log(self, x: Any) -> Any:
        """As e * log(2) - log(c) + log(1 + r), where x = 2**e * (1 + r) / c."""
        build, ir = self.build, self.ir
        int32 = ir.IntType(32)
        name = "llvm.x86.avx512.mask.getmant.pd.512"
        every, rounding = ir.Constant(ir.IntType(8), -1), ir.Constant(int32, 4)
        given = [x, ir.Constant(int32, 3), self.splat(0.0), every, rounding]  # in [3/4, 3/2)
        mantissa = self.call(name, self.floats, given)
        e = self.masked("getexp", x)
        bits = build.bitcast(mantissa, self.words)
        is_below = build.icmp_signed("<", bits, self.word(_bits(1.0)))
        e = build.select(is_below, build.fadd(e, self.splat(1.0)), e)
        index = build.lshr(bits, self.word(48))
        r = self.fma(mantissa, self.table(_INVERSES, index), self.splat(-1.0))
        square = build.fmul(r, r)
        high = self.fma(e, self.splat(_LOG2[0]), self.table(_LOGARITHMS, index))
        cubic = self.fma(r, self.polynomial(r, _LOG), self.splat(-0.5))
        low = self.fma(e, self.splat(_LOG2[1]), build.fmul(square, cubic))
        value = build.fadd(high, build.fadd(r, low))
        return self.usual_or_special(x, value)

    def usual_or_special(self, x: Any, value: Any) -> Any:
        """`value`, but for zero, infinity, NaN and negative numbers their special logarithms."""
        build, ir = self.build, self.ir
        bits = build.sub(build.bitcast(x, self.words), self.word(1))
        is_special = build.icmp_unsigned(">=", bits, self.word(_bits(float("inf")) - 1))
        mask = build.bitcast(is_special, ir.IntType(LANES))
        some = build.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(LANES), 0))
        before = build.block
        with build.if_then(some, likely=False):
            root = build.select(is_special, x, self.splat(1.0))
            root = self.call("llvm.sqrt.v8f64", self.floats, [root])
            root = build.fadd(root, self.splat(0.0))  # -0.0 is 0.0
            special = build.fsub(root, build.fdiv(self.splat(1.0), root))
            chosen = build.select(is_special, special, value)
            inner = build.block
        result = build.phi(self.floats)
        result.add_incoming(value, before)
        result.add_incoming(chosen, inner)
        return result


def _bits(value: float) -> int:
    """A double as an integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])
