"""The eager path of ufunc calls: eager arrays and numbers, and recorded arrays with a known loop.

Owns `UfuncCore`, the base of `ufunc` (ufunc.py), which has the general path. In C: native/ufunc.c.
"""

from __future__ import annotations

from typing import Any, Final

from lazyfuse.arrays.base import (
    COMPILED,
    HOOKS,
    NATIVE,
    NOTE,
    OPTIONS,
    REAL,
    Core,
    alone,
    direct,
    new,
)
from lazyfuse.arrays.nodes import PLAIN, WEAK, caller, constant, number
from lazyfuse.codegen.graph.node import Node
from lazyfuse.runtime.numerics.errstate import is_untouched


class Absent:
    """An argument that was not given."""


ABSENT: Final[Any] = Absent()


class UfuncCore:
    """A ufunc: NumPy's ufunc that it calls, and its eager path."""

    __slots__ = ("_call", "_compute", "_loops", "_reduction", "_rows", "_takes_weak", "nin", "nout")

    _takes_weak: bool  # whether kept arrays may replace Python's numbers: Op.takes_weak_scalars
    _call: Any
    _compute: Any  # `_call`, or a function around it: see complex_cases.py
    _loops: Any
    _reduction: Any
    _rows: Any
    nin: int
    nout: int
    _general_accumulate: Any  # of any operands: `ufunc` has these
    _general_reduceat: Any
    _general_outer: Any
    _general_at: Any

    def accumulate(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ufunc.accumulate`."""
        return self._general_accumulate(*args, **kwargs)

    def reduceat(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ufunc.reduceat`."""
        return self._general_reduceat(*args, **kwargs)

    def outer(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ufunc.outer`."""
        return self._general_outer(*args, **kwargs)

    def at(self, *args: Any) -> None:
        """As `numpy.ufunc.at`."""
        self._general_at(*args)

    def __call__(
        self, first: Any = ABSENT, second: Any = ABSENT, /, *rest: Any, **kwargs: Any
    ) -> Any:
        args: tuple[Any, ...]
        if kwargs:
            if len(kwargs) == 1 and not rest and self.nout == 1:
                out = kwargs.get("out")
                if type(out) is HOOKS.array and self._into(first, second, out):
                    return out
        elif not rest:
            if second is ABSENT:
                if self.nin == 1:
                    kind = type(first)
                    if kind is HOOKS.array:
                        ours: Core = first
                        small = ours._eager
                        if small is not None and (
                            not ours._may_grow or small.size < OPTIONS.eager_below
                        ):
                            result = self._compute(small)
                            if type(result) is not REAL:
                                return _parts(result)
                            made = new(HOOKS.array)
                            made._eager = result
                            made._node = None
                            made._storage = None
                            made._base = None
                            made._may_grow = ours._may_grow
                            return made
                        if small is None:
                            found = self._quick(ours, ABSENT)
                            if found is not None:
                                return found
                    elif kind in PLAIN:
                        return self._compute(first)
            elif self.nin == 2:
                left = first
                kind = type(first)
                if kind is HOOKS.array:
                    one: Core = first
                    small = one._eager
                    left = None if small is None or one._may_grow else small
                elif kind not in PLAIN:
                    left = None
                right = second
                kind = type(second)
                if kind is HOOKS.array:
                    other: Core = second
                    small = other._eager
                    right = None if small is None or other._may_grow else small
                elif kind not in PLAIN:
                    right = None
                if left is not None and right is not None:
                    if self._takes_weak:
                        kind = type(right)
                        if kind is float or kind is int:
                            if type(left) is REAL:
                                right = number(left, right, kind)
                        else:
                            kind = type(left)
                            if (kind is float or kind is int) and type(right) is REAL:
                                left = number(right, left, kind)
                    result = self._call(left, right)
                    if type(result) is not REAL:
                        return _parts(result)
                    made = new(HOOKS.array)
                    made._eager = result
                    made._node = None
                    made._storage = None
                    made._base = None
                    made._may_grow = False
                    return made
                if type(first) is HOOKS.array:
                    recorded: Core = first
                    if recorded._eager is None:
                        found = self._quick(recorded, second)
                        if found is not None:
                            return found
        if second is not ABSENT:
            args = (first, second, *rest)
        else:
            args = () if first is ABSENT else (first,)
        return self._general(args, kwargs)

    def _into(self, first: Any, second: Any, out: Any) -> bool:
        """Call into `out` if all operands are eager arrays and numbers; whether it was done."""
        if (second is ABSENT) != (self.nin == 1) or self.nin > 2:
            return False
        target: Core = out
        memory = target._eager
        left = _quick_operand(first)
        if memory is None or left is None:
            return False
        if second is ABSENT:
            self._compute(left, out=memory)
            return True
        right = _quick_operand(second)
        if right is None:
            return False
        self._call(left, right, out=memory)  # by keyword: `maximum` warns of a third operand
        return True

    def _general(self, args: Any, kwargs: Any) -> Any:
        """The general path: ufunc.py has it."""
        raise NotImplementedError

    def _quick(self, x: Core, other: Any) -> Any:
        """A call on plain recorded arrays whose loop is known; None for every other call."""
        node = x._node
        if node is None or node.perm is not None or not node.shape:
            return None
        if not (HOOKS.plain and is_untouched()):
            return None
        if node.value is not None and node.value.size < OPTIONS.eager_below:
            return None
        nodes: tuple[Any, ...]
        if other is ABSENT:
            loop = self._loops.get(node.dtype)
            if loop is None:
                return None
            nodes = (node,)
        else:
            kind = type(other)
            if kind is HOOKS.array:
                second: Core = other
                right = second._node
                if right is None or right.perm is not None or right.shape != node.shape:
                    return None
                loop = self._loops.get((node.dtype, right.dtype))
                if loop is None:
                    return None
            elif kind in WEAK:
                loop = self._loops.get((node.dtype, kind))
                if loop is None:
                    return None
                try:
                    right = constant(other, loop.ins[1])
                except OverflowError:
                    return None
            else:
                return None
            nodes = (node, right)
        made = Node(self._rows[0], nodes, loop, node.shape, loop.out, None, caller())
        NOTE(made)
        return alone(made)


def _quick_operand(x: Any) -> Any:
    """The numpy array of an eager array, or a number; None for all else."""
    kind = type(x)
    if kind is HOOKS.array:
        ours: Core = x
        return ours._eager
    return x if kind in PLAIN else None


def _parts(result: Any) -> Any:
    """The results of a ufunc that gave several, or one that is no array, as ours."""
    if type(result) is tuple:
        return tuple([direct(each) if type(each) is REAL else each for each in result])
    return result


def adopt(kind: Any) -> Any:
    """Decorator of `ufunc`: has the native extension, where it is built, call its objects."""
    if COMPILED:
        NATIVE.adopt_ufunc(kind)
    return kind


if COMPILED:
    globals()["UfuncCore"] = NATIVE.UfuncCore
