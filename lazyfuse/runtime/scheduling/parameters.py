"""Parameters of programs: what a caller may bind to them, and the nodes that represent them.

Owns `Parameter` and the checks of a binding. A parameter's node is a host node whose function
refuses to run. So recorded work treats it as pending work of its shape and dtype. Knows nodes and
numpy, but neither arrays nor the modules that run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import HostCall, Node, Where, topological
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import message

Size = int | str | None
"""A size; a name for a size that differs from call to call; None for a size without a name."""

Shape = tuple[int, ...]


class Sizes(dict[str, tuple[int, str]]):
    """The named sizes of one call, each with the parameter that it was read from."""


@dataclass(frozen=True)
class Parameter:
    """What a program expects under one name."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Size, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(_spelled, self.shape))}]"

    @property
    def is_free(self) -> bool:
        """Whether any of the sizes may differ from call to call."""
        return not all(isinstance(size, int) for size in self.shape)

    def check_shape(self, program: str, shape: Shape, sizes: Sizes) -> None:
        """Raise `ValueError` unless `shape` fits, given the named sizes met so far in this call."""
        if shape == self.shape:
            return
        if len(shape) != len(self.shape):
            raise ValueError(self.refusal(program, f"shape {shape}"))
        for wanted, size in zip(self.shape, shape, strict=True):
            if isinstance(wanted, str):
                known, origin = sizes.setdefault(wanted, (size, self.name))
                if known != size:
                    why = f"shape {shape}, where {wanted} is {known} by parameter {origin!r}"
                    raise ValueError(self.refusal(program, why))
            elif wanted is not None and wanted != size:
                raise ValueError(self.refusal(program, f"shape {shape}"))

    def check_dtype(self, program: str, dtype: np.dtype[Any]) -> None:
        """Raise `TypeError` unless NumPy casts `dtype` to ours by its rule "same_kind"."""
        if dtype != self.dtype and not np.can_cast(dtype, self.dtype, "same_kind"):
            raise TypeError(self.refusal(program, f"dtype {dtype.name}", "cast it yourself"))

    def converted(self, program: str, value: Any) -> np.ndarray[Any, np.dtype[Any]]:
        """A NumPy array made of `value`, in our dtype; the same array where it fits."""
        if type(value) is np.ndarray and value.dtype == self.dtype and value.flags.aligned:
            return value
        if type(value) in (bool, int, float, complex):
            return self._number(program, value)
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(self.refusal(program, f"what makes no array ({error})")) from None
        if array.dtype != self.dtype:
            self.check_dtype(program, array.dtype)
            return array.astype(self.dtype)
        return array if array.flags.aligned else array.copy(order="K")

    def _number(self, program: str, value: Any) -> np.ndarray[Any, np.dtype[Any]]:
        if type(value) is not int or self.dtype.kind not in "iu":
            self.check_dtype(program, np.dtype(type(value)))
        try:
            return np.array(value, self.dtype)
        except OverflowError:
            raise ValueError(self.refusal(program, f"{value}, which it cannot hold")) from None

    def refusal(self, program: str, got: str, instead: str = "") -> str:
        """The text of an error about a binding."""
        text = message(program, f"parameter {self.name!r}: expected {self}, got {got}")
        return f"{text}; {instead}" if instead else text


def _spelled(size: Size) -> str:
    return "any" if size is None else str(size)


def describe(name: str, shape: Any, dtype: Any) -> Parameter:
    """A checked parameter from the user's name, shape and dtype."""
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(message("parameter", f"dtype of {name!r}: {error}")) from None
    if found.kind not in "biufc" or not found.isnative:
        got = message("parameter", f"dtype of {name!r}", "numbers in native byte order", found.name)
        raise TypeError(got)
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for size in sizes:
        number = isinstance(size, (int, np.integer)) and size >= 0
        if not (number or size is None or isinstance(size, str)):
            expected = "sizes, names of sizes, or None for any size"
            raise ValueError(message("parameter", f"shape of {name!r}", expected, shape))
    return Parameter(name, found, tuple(int(s) if isinstance(s, np.integer) else s for s in sizes))


class Unbound(HostCall):
    """The argument of a parameter's node. Its function raises and has the attribute `parameter`."""

    __slots__ = ()


_any_made = False


def parameter_node(
    refuse: Callable[[], Any], parameter: Parameter, shape: Shape, perm: Any, where: Where | None
) -> Node:
    """A pending node that represents a parameter; evaluating it calls `refuse`."""
    global _any_made
    _any_made = True
    arg = Unbound(f"parameter {parameter.name}", refuse)
    return Node(ops.HOST, (), arg, shape, parameter.dtype, perm, where)


def is_parameter(node: Node) -> bool:
    """Whether a node represents a parameter."""
    return type(node.arg) is Unbound


def waits(node: Node) -> bool:
    """Whether a pending node needs the value of a parameter, and so cannot be evaluated."""
    return _any_made and any(is_parameter(each) for each in topological([node]))


def below(nodes: Sequence[Node]) -> Iterator[Node]:
    """The parameters' nodes below pending nodes."""
    return (node for node in topological(nodes) if is_parameter(node))


def check_names(program: str, expected: Mapping[str, Parameter], found: Mapping[str, Any]) -> None:
    """Raise `TypeError` unless exactly the expected parameters are bound."""
    missing = [name for name in expected if name not in found]
    if missing:
        wanted = ", ".join(f"{name} = {expected[name]}" for name in missing)
        got = ", ".join(found) or "no bindings"
        raise TypeError(message(program, f"missing: expected {wanted}, got {got}"))
    unknown = [name for name in found if name not in expected]
    if unknown:
        wanted = ", ".join(expected) or "none"
        raise TypeError(message(program, f"unknown parameter {unknown[0]!r}: expected {wanted}"))
