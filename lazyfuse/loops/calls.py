"""Calls in loops: functions of Python, `math` and NumPy, and the program's own.

Owns the table of known functions. A function of the program's whose statements only compute is
written where it is called: leaving it, Python calls it again from the beginning.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.expressions import Expressions
from lazyfuse.loops.text import Leaves, Number, Row, Value
from lazyfuse.registry import THEIRS

_DEPTH = 6  # of functions that call functions


class Calls(Expressions):
    """Writes calls."""

    def of_call(self, node: ast.Call, wanted: str = "") -> Value:
        if isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
            owner = None if self.object(node.func) is not None else self.value(node.func.value)
            if isinstance(owner, Row):
                return self.reduced(node.func.attr, owner)
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise Leaves("a call with names")
        function = self.object(node.func)
        if function is None:
            raise Leaves("a call")
        function = THEIRS.get(function, function) if _hashes(function) else function
        if function in (min, max) and len(node.args) >= 2:
            return self._least(node.args, function is max, wanted)
        if function is len and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            return Number(self.array(node.args[0]).sizes[0], "int", kinds.SMALL)
        if function is np.dot and len(node.args) == 2:
            return self.dot(self.value(node.args[0]), self.value(node.args[1]), by_matmul=False)
        if function is np.flip and len(node.args) == 1:
            return self._flipped(self.value(node.args[0]))
        if len(node.args) == 1 and _hashes(function) and function in _REDUCTIONS:
            row = self.value(node.args[0])
            if isinstance(row, Row):
                return self.reduced(_REDUCTIONS[function], row)
        simple = _SIMPLE.get(function) if _hashes(function) else None
        if simple is not None:
            return simple(self, [self.number(each) for each in node.args])
        if type(function) is type(_hashes):
            return self._inlined(function, [self.number(each) for each in node.args], node)
        raise Leaves("a function")

    def _least(self, nodes: list[ast.expr], is_max: bool, wanted: str) -> Value:
        values = [self.number(each) for each in nodes]
        kind = values[0].kind
        both = kinds.union(*[each.kind for each in values])
        if both is not None:
            return self._least_of_both(values, is_max, both)
        if any(each.kind != kind for each in values):
            if not wanted or any(kinds.is_float(x.kind) != kinds.is_float(kind) for x in values):
                raise Leaves("`min` or `max` of several types")
            values = [Number(self.alike(each, wanted), wanted, each.bits) for each in values]
            kind = wanted
        if kinds.is_bool(kind):
            raise Leaves("`min` or `max` of truth values")
        result = self.temp(values[0].text)
        for each in values[1:]:
            held = self.temp(each.text)
            sign = ">" if is_max else "<"
            self.put(f"{result} = {held} if {held} {sign} {result} else {result}")
        return Number(result, kind, max(each.bits for each in values))

    def _least_of_both(self, values: list[Number], is_max: bool, kind: str) -> Number:
        """The same for numbers some of which are NumPy's."""
        result, tag = self.temp(values[0].text), self.temp(self.tag_of(values[0]))
        for each in values[1:]:
            held = self.temp(each.text)
            better = self.temp(f"{held} {'>' if is_max else '<'} {result}")
            self.put(f"{tag} = {self.tag_of(each)} if {better} else {tag}")
            self.put(f"{result} = {held} if {better} else {result}")
        return Number(result, kind, max(each.bits for each in values), tag)

    def _inlined(self, function: Any, given: list[Number], node: ast.Call) -> Number:
        """A call of a function of the program's, whose statements only compute."""
        tree = self.function_of(function)
        names = [] if tree is None else [each.arg for each in tree.args.args]
        if tree is None or len(self.called) >= _DEPTH or len(names) != len(given):
            raise Leaves("a function")
        special = (
            tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs or tree.args.posonlyargs
        )
        if special or tree.decorator_list or function.__closure__ or function.__kwdefaults__:
            raise Leaves("a function with a special signature")
        self.temps += 1
        scope = _Scope(self, f"call{self.temps}__", function)
        for name, value in zip(names, given, strict=True):
            held = self.variable(f"{scope.prefix}{name}", value.kind)
            scope.kinds[name] = self.hold(held, value)
        self.settle()
        self.called.append(scope)
        dead, self.dead = self.dead, False
        loops, self.loops = self.loops, []
        try:
            self.open("while True:")
            self._body_of_call(tree.body)
            if not self.dead:
                raise Leaves("a function that may end without a result")
            self.close()
        finally:
            self.called.pop()
            self.dead, self.loops = dead, loops
        if scope.result is None:
            raise Leaves("a function without a result")
        return scope.result

    def _body_of_call(self, statements: list[ast.stmt]) -> None:
        for each in statements:
            if self.dead:
                return
            if isinstance(
                each, (ast.Return, ast.If, ast.Assign, ast.AugAssign, ast.Pass, ast.Expr)
            ):
                if isinstance(each, ast.Assign) and not all(
                    isinstance(x, ast.Name) for x in each.targets
                ):
                    raise Leaves("a function that writes")
                if isinstance(each, ast.AugAssign) and not isinstance(each.target, ast.Name):
                    raise Leaves("a function that writes")
                if isinstance(each, ast.If):
                    self._if_of_call(each)
                else:
                    getattr(self, "on_" + type(each).__name__.lower())(each)
                    self.settle()
                continue
            raise Leaves("a statement in a function")

    def _if_of_call(self, node: ast.If) -> None:
        scope = self.called[-1]
        test = self.truth(node.test)
        self.settle()
        before = dict(scope.kinds)
        self.open(f"if {test}:")
        self.put("pass")
        self._body_of_call(node.body)
        self.close()
        then, then_dead = scope.kinds, self.dead
        scope.kinds, self.dead = before, False
        if node.orelse:
            self.open("else:")
            self.put("pass")
            self._body_of_call(node.orelse)
            self.close()
        if self.dead:
            scope.kinds, self.dead = then, then_dead
        elif not then_dead:
            scope.kinds = {k: v for k, v in then.items() if scope.kinds.get(k) == v}

    def on_return(self, node: ast.Return) -> None:
        if not self.called or node.value is None:
            raise Leaves("return")
        scope = self.called[-1]
        found = self.number(node.value)
        self.settle()
        held = f"{scope.prefix}result"
        before, made = scope.result, self.hold(held, found)
        if before is None:
            scope.result = made
        elif before.kind != found.kind:
            raise Leaves("a function with results of several types")
        else:
            scope.result = made._replace(bits=max(before.bits, found.bits))
        self.put("break")
        self.dead = True


class _Scope:
    """The names of a function that is expanded where it is called."""

    def __init__(self, writer: Calls, prefix: str, function: Any) -> None:
        self.writer, self.prefix, self.function = writer, prefix, function
        self.kinds: dict[str, Number] = {}
        self.result: Number | None = None
        self.locals = set(function.__code__.co_varnames)

    def name(self, node: ast.Name) -> Number:
        found = self.kinds.get(node.id)
        if found is not None:
            return found
        value = self.object(node.id)
        if type(value) in (int, float, bool):
            constant = self.writer.of_constant(ast.Constant(value))
            assert isinstance(constant, Number)
            return constant
        raise Leaves(node.id)

    def object(self, name: str) -> Any:
        if name in self.locals:
            return None
        scope = self.function.__globals__
        if name not in scope:
            builtin = scope.get("__builtins__")
            scope = builtin if isinstance(builtin, dict) else vars(builtin)
        value = scope.get(name)
        if self.writer.kinds.get(name) is not None and name in self.writer.stored:
            raise Leaves("a name that the loop assigns")
        self.writer.constants.append((scope, name, value))
        return value


def _hashes(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True


def _abs(walk: Calls, given: list[Number]) -> Number:
    (value,) = given
    if kinds.is_float(value.kind):
        return value._replace(text=f"abs({value.text})")
    if value.kind not in ("int", "i8", "int|i8"):
        raise Leaves("abs")
    if value.bits > 62:
        walk.leave(f"{value.text} == {-(1 << 63)}")
    return value._replace(text=f"abs({value.text})")


def _int(walk: Calls, given: list[Number]) -> Number:
    (value,) = given
    if kinds.is_float(value.kind):
        held = walk.temp(value.text)
        walk.leave(f"not (abs({held}) < {float(1 << 62)})")
        return Number(f"int64({held})", "int", 62)
    return Number(walk.widened(value), "int", value.bits)


def _float(walk: Calls, given: list[Number]) -> Number:
    (value,) = given
    return Number(f"float64({walk.widened(value)})", "float")


def _bool(walk: Calls, given: list[Number]) -> Number:
    return Number(walk.as_truth(given[0]), "bool")


def _sqrt(is_numpy: bool) -> Callable[[Calls, list[Number]], Number]:
    def call(walk: Calls, given: list[Number]) -> Number:
        (value,) = given
        if is_numpy and value.kind not in ("f8", "float", "float|f8"):
            raise Leaves("sqrt")
        held = walk.temp(f"float64({walk.widened(value)})")
        walk.leave(f"{held} < 0.0" if is_numpy else f"not ({held} >= 0.0)")
        return Number(walk.temp(f"np.sqrt({held})"), "f8" if is_numpy else "float")

    return call


def _numpy_abs(walk: Calls, given: list[Number]) -> Number:
    if given[0].kind not in ("f8", "float", "float|f8"):
        raise Leaves("abs")
    return Number(f"abs({given[0].text})", "f8")


def _math(name: str) -> Callable[[Calls, list[Number]], Number]:
    """A function of `math`: where its result is not finite, Python decides what that means."""

    def call(walk: Calls, given: list[Number]) -> Number:
        held = [walk.temp(f"float64({walk.widened(each)})") for each in given]
        for each in held:
            walk.leave(f"not (abs({each}) < np.inf)")
        if name == "log":
            walk.leave(f"{held[0]} <= 0.0")
        found = walk.temp(f"libm_{name}({', '.join(held)})")
        walk.leave(f"not (abs({found}) < np.inf)")
        return Number(found, "float")

    return call


def _rounded(name: str) -> Callable[[Calls, list[Number]], Number]:
    """A float as Python's integer."""

    def call(walk: Calls, given: list[Number]) -> Number:
        (value,) = given
        if value.kind != "float":
            raise Leaves(name)
        held = walk.temp(value.text)
        walk.leave(f"not (abs({held}) < {float(1 << 62)})")
        return Number(f"int64(np.{name}({held}))", "int", 62)

    return call


def _is(test: str) -> Callable[[Calls, list[Number]], Number]:
    def call(walk: Calls, given: list[Number]) -> Number:
        held = walk.temp(f"float64({walk.widened(given[0])})")
        return Number(f"({test.format(held)})", "bool")

    return call


_REDUCTIONS: dict[Any, str] = {
    np.sum: "sum",
    np.max: "max",
    np.min: "min",
    np.amax: "max",
    np.amin: "min",
    np.mean: "mean",
    np.argmax: "argmax",
    np.argmin: "argmin",
}
_SIMPLE: dict[Any, Callable[[Calls, list[Number]], Number]] = {
    abs: _abs,
    int: _int,
    float: _float,
    bool: _bool,
    round: _rounded("rint"),
    math.isnan: _is("{0} != {0}"),
    math.isinf: _is("abs({0}) == np.inf"),
    math.isfinite: _is("abs({0}) < np.inf"),
    math.log: _math("log"),
    math.tan: _math("tan"),
    math.sqrt: _sqrt(False),
    math.fabs: lambda walk, given: Number(f"abs(float64({walk.widened(given[0])}))", "float"),
    math.floor: _rounded("floor"),
    math.ceil: _rounded("ceil"),
    math.exp: _math("exp"),
    math.sin: _math("sin"),
    math.cos: _math("cos"),
    math.tanh: _math("tanh"),
    math.atan: _math("atan"),
    math.atan2: _math("atan2"),
    np.sqrt: _sqrt(True),
    np.abs: _numpy_abs,
}
