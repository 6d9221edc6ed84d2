"""The operators' eager path in Python, printed as text with all names bound, put on `ndarray`.

It covers two cases: eager operands run in NumPy and the result is wrapped; plain recorded operands
become a node. All else goes to operators.py. Importing this module installs the operators. Those of
the native extension do the same, and get what they need here.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import base, operators
from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.eager_updates import one_at_a_time
from lazyfuse.arrays.ndarray import CANONICAL, caller, ndarray, new, options, wrap
from lazyfuse.arrays.nodes import INSIDE, NUMBERS, constant
from lazyfuse.arrays.operators import PLAIN, SPECS, WEAK, Spec
from lazyfuse.codegen.graph.node import Node
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.scheduling import evaluate

_RETURN_DIRECT = """
if type(result) is Real:
    x = new(ndarray)
    x._eager = result
    x._node = x._storage = x._base = None
    x._may_grow = thin
    return x
return result
"""

_FIND_LINE = """
frame = getframe(1)
if frame.f_globals.get("__package__") in INSIDE or not is_usual():
    where = caller()
else:
    where = (frame.f_code, frame.f_lasti)
"""

_FIND_NUMBER = """
right = other
numbers = NUMBERS.get(small.dtype)
if numbers is not None and numbers.dtype is small.dtype:
    right = (numbers.floats if kind is float else numbers.ints).get(other)
    if right is None:
        right = numbers.make(other, kind)
"""

_BINARY = """
def {name}(self, other):
    small = self._eager
    if small is not None:
        thin = self._may_grow
        if not thin or small.size < options.eager_below:
            kind = type(other)
            if kind is ndarray:
                right = other._eager
                if right is None or (thin or other._may_grow) and small.shape != right.shape:
                    return slow(spec, self, other, {swapped})
            elif kind is float or kind is int:
                {FIND_NUMBER}
                result = {expression} if numbers is None else {call}
                {RETURN_DIRECT}
            elif kind in PLAIN:
                right = other
            else:
                return slow(spec, self, other, {swapped})
            result = {expression}
            {RETURN_DIRECT}
    elif PLAIN_STATE and is_usual() and (node := self._node) is not None and node.perm is None:
        value = node.value
        if value is None or value.size >= options.eager_below:
            kind = type(other)
            dtype = node.dtype
            shape = node.shape
            if kind is ndarray:
                right = other._node
                if right is None or right.perm is not None:
                    return slow(spec, self, other, {swapped})
                if shape is not right.shape and shape != right.shape:
                    return slow(spec, self, other, {swapped})
                loop = loops.get({keys_array})
            elif kind in WEAK:
                loop = loops.get({keys_weak})
                if loop is not None:
                    try:
                        right = constant(other, loop.ins[{position}])
                    except OverflowError:
                        return slow(spec, self, other, {swapped})
            else:
                return slow(spec, self, other, {swapped})
            if loop is not None and shape:
                {FIND_LINE}
                node = Node(op, {nodes}, loop, shape, loop.out, None, where)
                x = new(ndarray)
                x._eager = x._storage = x._base = None
                x._node = node
                note_recorded(node)
                return x
    return slow(spec, self, other, {swapped})
"""

_INPLACE = """
def {name}(self, other):
    small = self._eager
    if small is not None:
        kind = type(other)
        if kind is ndarray:
            right = other._eager
            if right is not None:
                call(small, right, small)
                return self
        elif kind is float or kind is int:
            {FIND_NUMBER}
            call(small, right, small)
            return self
        elif kind in PLAIN:
            small {sign}= other
            return self
    elif PLAIN_STATE and is_usual() and (node := self._node) is not None:
        value = node.value
        if value is None or value.size >= options.eager_below:
            kind = type(other)
            dtype = node.dtype
            shape = node.shape
            loop = right = None
            if kind is ndarray:
                right = other._node
                if right is not None and shape == right.shape:
                    loop = loops.get((dtype, right.dtype))
            elif kind in WEAK:
                loop = loops.get((dtype, kind))
                if loop is not None:
                    right = constant(other, loop.ins[1])
            if loop is not None and loop.out is dtype:
                {FIND_LINE}
                made = Node(op, (node, right), loop, shape, dtype, node.perm, where)
                if self._node is node:  # else another thread has moved the array on
                    self._node = made
                    del node
                    note_recorded(made)
                    return self
    return slow(spec, self, other)
"""

_UNARY = """
def {name}(self):
    small = self._eager
    if small is not None:
        thin = self._may_grow
        if not thin or small.size < options.eager_below:
            result = function(small)
            {RETURN_DIRECT}
    return slow(spec, self)
"""

SCOPE: dict[str, Any] = {
    "__package__": "lazyfuse",
    "__name__": __name__,
    "__warningregistry__": None,  # as in every module: see warning_locations.py
    "CANONICAL": CANONICAL,
    "INSIDE": INSIDE,
    "NUMBERS": NUMBERS,
    "Node": Node,
    "PLAIN": PLAIN,
    "PLAIN_STATE": True,
    "Real": np.ndarray,
    "WEAK": WEAK,
    "caller": caller,
    "constant": constant,
    "getframe": sys._getframe,
    "is_usual": errstate.is_untouched,
    "ndarray": ndarray,
    "new": new,
    "note_recorded": evaluate.note_recorded,
    "options": options,
    "wrap": wrap,
}
"""The globals of every printed operator."""


_BLOCKS = {
    "{FIND_LINE}": _FIND_LINE,
    "{FIND_NUMBER}": _FIND_NUMBER,
    "{RETURN_DIRECT}": _RETURN_DIRECT,
}


def _filled(template: str, **words: Any) -> str:
    """The text of an operator; a block (in capitals) takes the indentation of its line."""
    lines = []
    for line in template.splitlines():
        block = _BLOCKS.get(line.strip())
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(textwrap.indent(block, indent) if block else line.format(**words))
    return "\n".join(lines)


def _compiled(name: str, text: str, **bound: Any) -> Callable[..., Any]:
    """The function `name` of `text`; the bound objects are its own globals."""
    scope = {**SCOPE, **bound}
    exec(compile(text, f"<lazyfuse {name}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    function.__qualname__ = f"ndarray.{name}"
    function.__module__ = "lazyfuse"
    function.__doc__ = getattr(np.ndarray, name).__doc__
    _scopes.append(scope)
    return function


_scopes: list[dict[str, Any]] = []


def _listen(plain: bool) -> None:
    for scope in (SCOPE, *_scopes):
        scope["PLAIN_STATE"] = plain


def _bound(spec: Spec) -> dict[str, Any]:
    """The globals that the text of an operator of two operands names."""
    return {"spec": spec, "op": spec.op, "loops": spec.loops, "call": spec.op.ufunc}


def _binary(spec: Spec, name: str, swapped: bool) -> Callable[..., Any]:
    sign = spec.op.sign
    text = _filled(
        _BINARY,
        name=name,
        swapped=swapped,
        call="call(right, small)" if swapped else "call(small, right)",
        expression=f"right {sign} small" if swapped else f"small {sign} right",
        keys_array="(right.dtype, dtype)" if swapped else "(dtype, right.dtype)",
        keys_weak="(kind, dtype)" if swapped else "(dtype, kind)",
        position=0 if swapped else 1,
        nodes="(right, node)" if swapped else "(node, right)",
    )
    return _compiled(name, text, slow=operators.binary, **_bound(spec))


inplace = one_at_a_time(operators.inplace)
inplace_power = one_at_a_time(operators.inplace_power)


def _inplace(spec: Spec, name: str) -> Callable[..., Any]:
    text = _filled(_INPLACE, name=name, sign=spec.op.sign)
    return _compiled(name, text, slow=inplace, **_bound(spec))


def _unary(spec: Spec, name: str) -> Callable[..., Any]:
    text = _filled(_UNARY, name=name)
    return _compiled(name, text, spec=spec, function=spec.function, slow=operators.unary)


def _later(name: str, make: Callable[..., Any], *arguments: Any) -> None:
    """Print and compile an operator when it is first used: all of them would slow the import."""

    def first(self: ndarray, *others: Any) -> Any:
        function = make(*arguments)
        setattr(ndarray, name, function)
        return function(self, *others)

    first.__name__ = name
    first.__qualname__ = f"ndarray.{name}"
    first.__doc__ = getattr(np.ndarray, name).__doc__
    setattr(ndarray, name, first)


def _register_in_c(spec: Spec) -> bool:
    """Give the native extension an operator's parts; whether `Core` has that operator in C."""
    if not base.COMPILED:
        return False
    op = spec.op
    slow = operators.unary if op.nin == 1 else operators.binary
    told = base.NATIVE.operator(op.name, op.ufunc, spec, op, spec.loops, slow, inplace)
    return bool(told)


def _install() -> None:
    for spec in SPECS.values():
        if _register_in_c(spec) or spec.op.name == "power":  # it has its own methods, below
            continue
        names = spec.names
        if spec.op.nin == 1:
            _later(names[0], _unary, spec, names[0])
            continue
        _later(names[0], _binary, spec, names[0], False)
        if len(names) > 1:
            _later(names[1], _binary, spec, names[1], True)
            _later(names[2], _inplace, spec, names[2])
    _install_special()
    errstate.on_change(_listen)


def __pow__(self: ndarray, other: Any, modulo: Any = None) -> Any:
    small = self._eager
    if small is not None and not self._may_grow and type(other) in PLAIN and modulo is None:
        return wrap(small**other)
    return operators.power(_POWER, self, other, modulo)


def __rpow__(self: ndarray, other: Any, modulo: Any = None) -> Any:
    return NotImplemented if modulo is not None else operators.binary(_POWER, self, other, True)


def power(self: ndarray, other: Any, modulo: Any, swapped: bool) -> Any:
    """`pow(self, other, modulo)` or the reverse, where C has no eager path."""
    return (__rpow__ if swapped else __pow__)(self, other, modulo)


_POWER = SPECS["power"]
_OF_CORE = ("__pow__", "__rpow__", "__matmul__", "__rmatmul__")


def _install_special() -> None:
    def __ipow__(self: ndarray, other: Any) -> Any:
        return inplace_power(_POWER, self, other)

    def __divmod__(self: ndarray, other: Any) -> Any:
        return operators.divide_with_rest(self, other, False)

    def __rdivmod__(self: ndarray, other: Any) -> Any:
        return operators.divide_with_rest(self, other, True)

    def __matmul__(self: ndarray, other: Any) -> Any:
        small = self._eager
        if small is not None and type(other) is ndarray and small.dtype in NUMBERS:
            right = other._eager
            if right is not None and right.dtype in NUMBERS:
                return wrap(small @ right)
        return operators.contract(self, other, False)

    def __rmatmul__(self: ndarray, other: Any) -> Any:
        return operators.contract(self, other, True)

    def __imatmul__(self: ndarray, other: Any) -> Any:
        with array.changing(self):
            return operators.contract_in_place(self, other)

    for function in (
        __pow__, __rpow__, __ipow__, __divmod__, __rdivmod__, __matmul__, __rmatmul__, __imatmul__,
    ):  # fmt: skip
        function.__qualname__ = f"ndarray.{function.__name__}"
        if not (base.COMPILED and function.__name__ in _OF_CORE):
            setattr(ndarray, function.__name__, function)


_install()
