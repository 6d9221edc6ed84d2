"""Operators on numbers, and numbers as elements of arrays, as Python and NumPy have them.

Owns where an operation leaves: integers of Python beyond 64 bits, divisors that are zero, integers
of NumPy that wrap, and floats of NumPy whose operation would warn. The last are asked for once a
statement, by its results: what is not finite shows in what is computed from it.
"""

from __future__ import annotations

import ast
import sys

from lazyfuse.loops import kinds
from lazyfuse.loops.text import Leaves, Text
from lazyfuse.loops.values import BITS, Number

_COMPLEX: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Pow: "*"}

SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


class Numbers(Text):
    """Writes arithmetic."""

    def settle(self) -> None:
        """Leave where NumPy would have warned of one of this statement's operations."""
        pending, self.pending = self.pending, []
        last = [r for _, _, r in pending if r not in self.covered]
        self.covered.clear()
        if not last:
            return
        tests = " | ".join(f"({r} - {r} != 0.0)" for r in last)
        self.open(f"if {tests}:")
        for a, b, r in pending:
            ends = f"(abs({a}) < np.inf) & (abs({b}) < np.inf)"
            self.leave(
                f"((abs({r}) == np.inf) & {ends}) | (({r} != {r}) & ({a} == {a}) & ({b} == {b}))"
            )
        self.close()

    def watched(self, op: str, kind: str, text: str, *operands: str) -> Number:
        """A float of NumPy's, whose operation warns where its result is not finite."""
        held = self.temp(text)
        if op != "div":
            self.covered.update(operands)
        else:
            self.covered.add(operands[0])
        self.pending.append((operands[0], operands[-1], held))
        return Number(held, kind)

    def binary(self, op: ast.operator, first: Number, second: Number) -> Number:
        """`first op second`."""
        a, b = first.kind, second.kind
        if "|" in a or "|" in b:
            return self._either(op, first, second)
        if kinds.is_complex(a) or kinds.is_complex(b):
            return self._complexes(op, first, second)
        if a in kinds.PYTHON and b in kinds.PYTHON:
            if "float" in (a, b):
                return self._floats(op, first, second, "float")
            return self._integers(op, first, second)
        code = self.promoted(a, b)
        if code is None:
            raise Leaves("types that do not mix")
        if code[0] == "f":
            return self._floats(op, first, second, code)
        if isinstance(op, ast.Div):
            return self._floats(op, first, second, "f8")
        return self._wrapping(op, first, second, code)

    def _either(self, op: ast.operator, first: Number, second: Number) -> Number:
        """An operation on numbers that are Python's or NumPy's: computed as NumPy's."""
        if isinstance(op, (ast.LShift, ast.Pow)):
            raise Leaves("an operator of a number of several types")
        found: dict[tuple[str, str], str | None] = {
            (a, b): self._result(op, a, b)
            for a in first.kind.split("|")
            for b in second.kind.split("|")
        }
        results = {str(each) for each in found.values()}
        kind, tag = results.pop() if len(results) == 1 else kinds.union(*results), ""
        mixed = kind is not None and "|" in kind and kinds.register(kind) != kinds.register("int")
        whole = ("int", "int") in found
        if kind is None or kind == "None" or (whole and mixed and kind[:4] == "int|"):
            raise Leaves("types that do not mix")
        if isinstance(op, ast.Div) and any(
            x.kind == "int" and x.bits > 53 for x in (first, second)
        ):
            raise Leaves("integers or floats that are divided")
        if "|" in kind:
            tagged = [(at, x) for at, x in enumerate((first, second)) if x.tag]
            for pair, result in found.items():
                is_second = any(pair[at] == kinds.numpys(each.kind) for at, each in tagged)
                if is_second != (result == kinds.numpys(kind)):
                    raise Leaves("types that do not mix")
            tag = f"({' | '.join(each.tag for _, each in tagged)})"
        plain = [each._replace(kind=kinds.numpys(each.kind), tag="") for each in (first, second)]
        return self.binary(op, *plain)._replace(kind=kind, tag=tag)

    def _result(self, op: ast.operator, a: str, b: str) -> str | None:
        """The kind of an operation's result; None if there is none."""
        if kinds.is_complex(a) or kinds.is_complex(b):
            return "complex" if self._is_pythons(a, b) else "c16"
        if a in kinds.PYTHON and b in kinds.PYTHON:
            return "float" if "float" in (a, b) or isinstance(op, ast.Div) else "int"
        code = self.promoted(a, b)
        return "f8" if code is not None and code[0] != "f" and isinstance(op, ast.Div) else code

    @staticmethod
    def promoted(first: str, second: str) -> str | None:
        """NumPy's type for two numbers; None if it is not known."""
        are_bools = kinds.is_bool(first) and kinds.is_bool(second)
        return None if are_bools else kinds.promoted(first, second)

    def _integers(self, op: ast.operator, first: Number, second: Number) -> Number:
        """Python's integers: beyond 64 bits Python goes on."""
        if first.kind == second.kind == "bool" and isinstance(
            op, (ast.BitAnd, ast.BitOr, ast.BitXor)
        ):
            sign = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}[type(op)]
            return Number(f"({first.text} {sign} {second.text})", "bool")
        return self._whole(op, first, second, "int")

    def _whole(self, op: ast.operator, first: Number, second: Number, kind: str) -> Number:
        a, b = self.temp(self.widened(first)), self.temp(self.widened(second))
        if isinstance(op, (ast.Add, ast.Sub, ast.Mult)):
            sign, name = {ast.Add: ("+", "add"), ast.Sub: ("-", "sub"), ast.Mult: ("*", "mul")}[
                type(op)
            ]
            bits = first.bits + second.bits if name == "mul" else max(first.bits, second.bits) + 1
            if bits > 62:
                self.leave(f"{name}_overflows({a}, {b})")
            return Number(self.temp(f"{a} {sign} {b}"), kind, min(63, bits))
        if isinstance(op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
            sign = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}[type(op)]
            bits = max(first.bits, second.bits)
            if isinstance(op, ast.BitAnd) and isinstance(second.text, str):
                for each in (first, second):
                    if each.text.startswith("int64(") and each.text[6:-1].isdigit():
                        bits = min(bits, each.bits)
            return Number(f"({a} {sign} {b})", kind, bits)
        if isinstance(op, ast.RShift):
            self.leave(f"{b} < 0")
            return Number(f"({a} >> ({b} if {b} < 63 else 63))", kind, first.bits)
        if isinstance(op, ast.LShift):
            self.leave(f"({b} < 0) | ({b} > 62)")
            moved = self.temp(f"{a} << {b}")
            self.leave(f"({moved} >> {b}) != {a}")
            return Number(moved, kind)
        if isinstance(op, (ast.FloorDiv, ast.Mod)):
            self.leave(f"({b} == 0) | (({b} == -1) & ({a} == {-(1 << 63)}))")
            sign = "//" if isinstance(op, ast.FloorDiv) else "%"
            bits = first.bits if sign == "//" else second.bits
            return Number(self.temp(f"{a} {sign} {b}"), kind, min(63, bits + 1))
        if isinstance(op, ast.Div):
            self.leave(f"{b} == 0")
            for each, text in ((first, a), (second, b)):
                if each.bits > 53:
                    self.leave(f"({text} > {1 << 53}) | ({text} < {-(1 << 53)})")
            return Number(f"({a} / {b})", "float")
        if isinstance(op, ast.Pow) and second.text == "int64(2)":
            if 2 * first.bits > 62:
                self.leave(f"mul_overflows({a}, {a})")
            return Number(f"({a} * {a})", kind, min(63, 2 * first.bits))
        raise Leaves("an operator of integers")

    def _wrapping(self, op: ast.operator, first: Number, second: Number, code: str) -> Number:
        """NumPy's integers: where they wrap, NumPy warns."""
        if isinstance(op, ast.Pow):
            raise Leaves("an operator of integers")
        low, high = kinds.limits(code)
        for each in (first, second):
            if each.kind == "int" and code != "i8":
                held = self.widened(each)
                self.leave(f"({held} < {low}) | ({held} > {high})")
        if isinstance(op, ast.LShift):
            a, b = self.temp(self.widened(first)), self.temp(self.widened(second))
            self.leave(f"({b} < 0) | ({b} > {8 * int(code[1:]) - 1})")
            return Number(
                self.temp(f"int64({kinds.CASTS[code]}({a} << {b}))"), code, BITS.get(code, 63)
            )
        found = self._whole(op, first, second, code)
        if isinstance(op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)) and code != "i8":
            held = self.temp(found.text)
            self.leave(f"({held} < {low}) | ({held} > {high})")
            return Number(held, code, min(63, 8 * int(code[1:])))
        return found._replace(kind=code)

    def as_float(self, value: Number, kind: str) -> str:
        """A number as the float that an operation of that kind takes."""
        text = value.text if kinds.is_float(value.kind) else f"float64({self.widened(value)})"
        if kind == "f4" and value.kind in ("float", "int"):
            single = self.temp(f"float64(float32({text}))")
            self.leave(f"(abs({single}) == np.inf) & (abs({text}) != np.inf)")
            return single
        return text

    def _floats(self, op: ast.operator, first: Number, second: Number, kind: str) -> Number:
        a, b = self.as_float(first, kind), self.as_float(second, kind)
        is_python = kind == "float"
        names = {
            ast.Add: ("+", "add"),
            ast.Sub: ("-", "sub"),
            ast.Mult: ("*", "mul"),
            ast.Div: ("/", "div"),
        }
        if type(op) in names:
            sign, name = names[type(op)]
            if name == "div":
                b = self.temp(b)
                self.leave(f"{b} == 0.0")
            text = f"({a} {sign} {b})"
            if is_python:
                return Number(text, kind)
            a = a if a.isidentifier() else self.temp(a)
            b = b if b.isidentifier() else self.temp(b)
            text = f"({a} {sign} {b})"
            return self.watched(
                name, kind, f"float64(float32({text}))" if kind == "f4" else text, a, b
            )
        if kind == "f4":
            raise Leaves("an operator of single precision")
        if isinstance(op, ast.Pow):
            return self._power(a, b, kind)
        if isinstance(op, (ast.FloorDiv, ast.Mod)):
            a, b = self.temp(a), self.temp(b)
            self.leave(f"not ((abs({a}) < np.inf) & (abs({b}) < np.inf) & ({b} != 0.0))")
            rest = self.temp(f"libm_fmod({a}, {b})")
            differs = self.temp(f"({rest} != 0.0) & (({b} < 0.0) != ({rest} < 0.0))")
            if isinstance(op, ast.Mod):
                zero = f"np.copysign(0.0, {b})"
                return Number(
                    self.temp(
                        f"({rest} + {b} if {differs} else {rest}) if {rest} != 0.0 else {zero}"
                    ),
                    kind,
                )
            whole = self.temp(f"({a} - {rest}) / {b}")
            whole = self.temp(f"{whole} - 1.0 if {differs} else {whole}")
            self.leave(f"abs({whole}) == np.inf")
            down = self.temp(f"np.floor({whole})")
            down = self.temp(f"{down} + 1.0 if {whole} - {down} > 0.5 else {down}")
            return Number(
                self.temp(f"{down} if {whole} != 0.0 else np.copysign(0.0, {a} / {b})"), kind
            )
        raise Leaves("an operator of floats")

    def _complexes(self, op: ast.operator, first: Number, second: Number) -> Number:
        """Complex numbers; those of NumPy leave where the result is not finite."""
        given = {first.kind, second.kind}
        is_python = self._is_pythons(first.kind, second.kind)
        if not given <= {"complex", "c16", "float", "f8", "int", "i8", "bool"}:
            raise Leaves("complex numbers of several types")
        if is_python and len(given) > 1 and sys.version_info >= (3, 14):
            raise Leaves("a complex number and a real one")
        if isinstance(op, ast.Pow):
            if second.text != "int64(2)" or (is_python and sys.version_info >= (3, 14)):
                raise Leaves("a power of a complex number")
            second = first
        a, b = [self.temp(f"complex128({self.widened(each)})") for each in (first, second)]
        if isinstance(op, ast.Div):
            found = self._quotient(a, b, is_python)
        elif type(op) in _COMPLEX:
            found = self.temp(f"{a} {_COMPLEX[type(op)]} {b}")
            if isinstance(op, ast.Pow) and is_python:  # Python begins its powers with 1
                found = self.temp(f"complex(1.0, 0.0) * {found}")
            elif isinstance(op, ast.Pow):  # NumPy's powers of zeros have no signs
                is_zero = f"({a}.real == 0.0) & ({a}.imag == 0.0)"
                found = self.temp(f"complex(0.0, 0.0) if {is_zero} else {found}")
        else:
            raise Leaves("an operator of complex numbers")
        odd = f"({found}.real != {found}.real) & ({found}.imag != {found}.imag)"
        self.leave(
            odd
            if is_python
            else f"not ((abs({found}.real) < np.inf) & (abs({found}.imag) < np.inf))"
        )
        return Number(found, "complex" if is_python else "c16")

    @staticmethod
    def _is_pythons(first: str, second: str) -> bool:
        """Whether Python's complex type computes: to it, NumPy's float64 is a float."""
        plain = first in kinds.PYTHON and second in kinds.PYTHON
        return plain or (first == "complex" and second == "f8")

    def _quotient(self, a: str, b: str, is_python: bool) -> str:
        """Smith's method, as Python and NumPy write it."""
        self.leave(f"not (({b}.real != 0.0) | ({b}.imag != 0.0))")
        self.leave(f"({b}.real != {b}.real) | ({b}.imag != {b}.imag)")
        wide = self.temp(f"abs({b}.real) >= abs({b}.imag)")
        big = self.temp(f"{b}.real if {wide} else {b}.imag")
        small = self.temp(f"{b}.imag if {wide} else {b}.real")
        ratio = self.temp(f"{small} / {big}")
        below = self.temp(f"{big} + {small} * {ratio}")
        x = self.temp(f"{a}.real + {a}.imag * {ratio} if {wide} else {a}.real * {ratio} + {a}.imag")
        y = self.temp(f"{a}.imag - {a}.real * {ratio} if {wide} else {a}.imag * {ratio} - {a}.real")
        if is_python:
            return self.temp(f"complex({x} / {below}, {y} / {below})")
        scale = self.temp(f"1.0 / {below}")
        return self.temp(f"complex({x} * {scale}, {y} * {scale})")

    def _power(self, a: str, b: str, kind: str) -> Number:
        a, b = self.temp(a), self.temp(b)
        self.leave(
            f"(not ((abs({a}) < np.inf) & (abs({b}) < np.inf))) | (({a} == 0.0) & ({b} < 0.0)) | "
            f"(({a} < 0.0) & (np.floor({b}) != {b}))"
        )
        held = self.temp(f"libm_pow({a}, {b})")
        self.leave(f"abs({held}) == np.inf")
        return Number(held, kind)

    def compared(self, operator: ast.cmpop, first: Number, second: Number) -> tuple[str, str]:
        sign = SIGNS.get(type(operator))
        if sign is None:
            raise Leaves("a comparison")
        is_python = first.kind in kinds.PYTHON and second.kind in kinds.PYTHON
        if any(kinds.is_complex(each.kind) for each in (first, second)):
            exact = [each.kind[0] in "fc" or each.bits <= 53 for each in (first, second)]
            if sign not in ("==", "!=") or not all(exact) or "f4" in (first.kind, second.kind):
                raise Leaves("a comparison of complex numbers")
            is_python = self._is_pythons(first.kind, second.kind)
            return f"{first.text} {sign} {second.text}", "bool" if is_python else "b1"
        texts = [self.widened(each) for each in (first, second)]
        floats = [kinds.is_float(each.kind) for each in (first, second)]
        if any(floats) and not all(floats):
            whole = first if floats[1] else second
            if whole.bits > 53:
                held = self.widened(whole)
                self.leave(f"({held} > {1 << 53}) | ({held} < {-(1 << 53)})")
        if not is_python and "f4" in (first.kind, second.kind):
            # NEP 50: a Python number is rounded to single precision first
            if first.tag or second.tag:
                raise Leaves("a comparison of a number of several types")
            texts = [self.as_float(each, "f4") for each in (first, second)]
        return f"{texts[0]} {sign} {texts[1]}", "bool" if is_python else "b1"

    @staticmethod
    def widened(value: Number) -> str:
        return f"int64(1 if {value.text} else 0)" if kinds.is_bool(value.kind) else value.text

    @staticmethod
    def alike(value: Number, code: str) -> str:
        """A number as one of dtype `code`, where both are exact."""
        if (
            code == "f8"
            and not kinds.is_bool(value.kind)
            and (kinds.is_float(value.kind) or value.bits <= 53)
        ):
            return f"float64({value.text})"
        if code[0] in "iu" and value.kind in ("int", code) and value.bits < 8 * int(code[1:]):
            return f"int64({value.text})"
        if value.kind == code:
            return value.text
        raise Leaves("a choice between several types")

    @staticmethod
    def as_truth(found: Number) -> str:
        kind = kinds.register(found.kind)
        if kind == "b1":
            return found.text
        if kind == "c16":
            return f"({found.text} != complex(0.0, 0.0))"
        return f"({found.text} != {'0.0' if kind == 'f8' else '0'})"

    def as_element(self, value: Number, code: str) -> str:
        """A number as an element of that dtype, as NumPy's assignment converts it."""
        kind, text = value.kind, value.text
        if code == "c16":
            return f"complex128({self.widened(value)})"
        if kinds.is_complex(kind):
            raise Leaves("a complex number as a real one")
        if code == "b1":
            if not kinds.is_bool(kind):
                return f"uint8(1 if {text} != 0 else 0)"
            return f"uint8(1 if {text} else 0)"
        if code[0] == "f":
            if kinds.register(kind) == "b1":
                text = f"int64(1 if {text} else 0)"
            if code == "f8":
                return f"float64({text})"
            single = self.temp(f"float32({text})")
            if kind != "f4":
                wide = self.temp(f"float64({text})")
                self.leave(f"(abs(float64({single})) == np.inf) & (abs({wide}) != np.inf)")
            return single
        cast = kinds.CASTS[code]
        if kinds.is_float(kind):
            low, high = kinds.limits(code)
            self.leave(f"not (({text} >= {float(low)}) & ({text} < {float(high + 1)}))")
            return f"{cast}(int64({text}))"
        if kinds.is_bool(kind):
            return f"{cast}(1 if {text} else 0)"
        if kind != code and code != "i8":
            low, high = kinds.limits(code)
            held = self.temp(text)
            self.leave(f"({held} < {low}) | ({held} > {high})")
            text = held
        return f"{cast}({text})"
