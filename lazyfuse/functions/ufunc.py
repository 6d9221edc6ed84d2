"""As `numpy.ufunc`: an object for each of NumPy's, which records where NumPy would compute.

Owns the class `ufunc` and the register of its objects. Calls with eager operands or unsupported
arguments run in NumPy at once; their meaning, and every error, is NumPy's.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays import mask_selection
from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.conversion import (
    Kept,
    from_numpy,
    register_paired,
    register_result,
    to_numpy,
    wrap_maybe_shared,
)
from lazyfuse.arrays.eager_functions import is_simple
from lazyfuse.arrays.eager_policy import (
    elementwise,
    has_bits_of_its_own,
    middling_update,
    spares_copy,
    write_to,
)
from lazyfuse.arrays.eager_ufunc import UfuncCore, adopt
from lazyfuse.arrays.exported_memory import finished_later, privately
from lazyfuse.arrays.ndarray import cast_node as cast
from lazyfuse.arrays.ndarray import (
    changing,
    concrete_value,
    from_node,
    ndarray,
    wrap,
    writable,
    write_node,
)
from lazyfuse.arrays.operators import dtype_of, name_steps, operand_key, order_of
from lazyfuse.arrays.recording import (
    as_operand,
    host,
    is_operand,
    map_node,
    may_record,
    may_write,
    shape_of,
)
from lazyfuse.arrays.scalars import deliver_several
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table.op import Op
from lazyfuse.codegen.table.ops import BY_UFUNC, MULTIPLE, TABLE
from lazyfuse.functions import complex_cases
from lazyfuse.functions.reductions import recorded_reduction
from lazyfuse.interop import fallback, overrides
from lazyfuse.kernels import gather as gathers
from lazyfuse.registry import is_numpys, pair
from lazyfuse.registry import ufunc_of as ufunc_of
from lazyfuse.runtime.chunked import write as chunks
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.scheduling import evaluate

_OUT_POSITION = {"reduce": 3, "accumulate": 3, "reduceat": 4}
_SIMPLE = frozenset(("out", "dtype", "casting"))
"""Keywords with which a call may still be recorded."""

_WARN_OF_A_THIRD = (np.maximum, np.minimum)
"""Users take the third operand of these for a value: NumPy warns that it is the output."""

_COMPLEX = frozenset((complex, np.dtype("c8"), np.dtype("c16")))
"""Keys of complex operands, for which complex_cases.py completes some ufuncs."""


class _Kind(type):
    """Makes NumPy's ufuncs instances of lazyfuse's `ufunc` too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or isinstance(instance, np.ufunc)

    @property
    def __signature__(cls) -> inspect.Signature:
        """NumPy's, where it has one: from NumPy 2.4 on."""
        return inspect.signature(np.ufunc)


class _Documentation:
    """`__doc__` of the class and of each object, which users may set as they may NumPy's."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return np.ufunc.__doc__
        return instance.__dict__.get("__doc__", instance._call.__doc__)

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["__doc__"] = value

    def __delete__(self, instance: Any) -> None:
        del instance.__dict__["__doc__"]


@adopt
class ufunc(UfuncCore, metaclass=_Kind):  # noqa: D101, N801  # NumPy's spelling and documentation
    __doc__ = _Documentation()
    __name__ = property(lambda self: self._call.__name__)

    __slots__ = ("__dict__", "__weakref__", "recorder")

    def __init__(self, theirs: np.ufunc) -> None:
        known = is_numpys(theirs)
        row = BY_UFUNC.get(theirs)
        self._takes_weak = row is not None and row.takes_weak_scalars
        self._call = theirs
        self._compute = complex_cases.COMPLETED.get(theirs.__name__, theirs) if known else theirs
        self.nin = theirs.nin
        self.nout = theirs.nout
        self._rows = _rows_of(theirs)
        self._reduction = None if row is None else TABLE.get(f"reduce:{row.name}")
        self.__dict__.update(vars(theirs))  # NumPy's attributes, and those that users added
        self.recorder: Callable[..., Any] | None = None  # matmul: see products.py

    def now(self, *args: Any) -> Any:
        """The call in NumPy, at once."""
        if overrides.of_ufuncs.find(args):
            return overrides.call_ufunc(self._call, args, {})
        return run(self._call, self._compute, args, {})

    def _general(self, *args: Any, **kwargs: Any) -> Any:
        """Everything outside the fast path: overrides, recording, keywords, errors."""
        if array.SELECTIONS and self._rows is not None and not kwargs and len(args) == self.nin:
            found = mask_selection.mapped(self._rows[0], args) if len(self._rows) == 1 else None
            if found is not None:
                return found
        if overrides.of_ufuncs.find(_operands(args, kwargs)):
            return overrides.call_ufunc(self._call, args, kwargs)
        if kwargs.get("subok") is True:  # as without
            kwargs = {name: value for name, value in kwargs.items() if name != "subok"}
        nin = self.nin
        if (
            len(args) > nin
            and "out" not in kwargs
            and len(args) <= nin + self.nout
            and self._call not in _WARN_OF_A_THIRD
        ):
            outs = args[nin:]
            if any(out is ... for out in outs):
                return self._call(*to_numpy(args))  # NumPy raises
            args = args[:nin]
            if any(out is not None for out in outs):
                missing = (None,) * (self.nout - len(outs))
                kwargs = {"out": (*outs, *missing), **kwargs}
        if self._rows is not None and len(args) == nin and may_record():
            out = kwargs.get("out", ())
            outs = out if type(out) is tuple else () if out is None else (out,)
            result = self._recorded(args, kwargs, outs)
            if result is not None:
                return result
        return run(self._call, self._compute, args, kwargs)

    def _has_bits_of_its_own(self, operands: Sequence[Any]) -> bool:
        assert self._rows is not None
        return has_bits_of_its_own(
            self._rows[0], [x._eager if type(x) is ndarray else x for x in operands]
        )

    def _recorded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], outs: tuple[Any, ...]
    ) -> Any:
        """The call as recorded work; None if it should run at once."""
        assert self._rows is not None
        operands = [as_operand(x) for x in args]
        if not all(map(is_operand, operands)):
            return None
        if elementwise(operands) and not self._has_bits_of_its_own(operands):
            return None
        ours = len(outs) == 1 and type(outs[0]) is ndarray
        if ours and middling_update(self._rows[0], outs[0], operands):
            return None
        if not kwargs.keys() <= _SIMPLE:
            return None
        plain = len(self._rows) == 1 and kwargs.keys() <= {"out"}
        if plain and (spares_copy(self._rows[0], [*operands, *outs]) or write_to(outs)):
            return None
        if plain and not outs and (private := privately(operands)) is not None:
            result = self._recorded(tuple(private), {}, ())
            return finished_later(result, operands, private, sys._getframe(2))
        if self._rows[0].kind == "contract":
            return self.recorder(*operands) if not kwargs and self.recorder else None
        if self._compute is not self._call and operand_key(operands[0]) in _COMPLEX:
            return self._completed(operands[0]) if not kwargs else None
        signature = None
        dtype = kwargs.get("dtype")
        if dtype is not None:
            signature = (*(None,) * self.nin, np.dtype(dtype))
            if len(self._rows) > 1:
                return None
        nodes = []
        casting = kwargs.get("casting", "same_kind")
        for row in self._rows:
            try:
                node = map_node(row, operands, signature, casting)
            except ValueError:
                if outs:
                    return None  # NumPy also takes the dtypes and shapes of outputs into account
                raise
            if node is None:
                return None
            nodes.append(node)
        if len(nodes) > 1:
            name_steps(self.__name__, nodes)
        if len(outs) == 1 and outs[0] is ...:  # the user wants an array, even if it has no axes
            return None if nodes[0].shape == () else from_node(nodes[0])
        if outs:
            return _into(nodes, outs, casting)
        results = [from_node(node) for node in nodes]
        return results[0] if self.nout == 1 else deliver_several(results)

    def _completed(self, x: Any) -> Any:
        """A recorded function of complex numbers that complex_cases.py completes."""
        shape = shape_of(x)
        return host(self.__name__, self._compute, (x,), shape, x.dtype, order_of(shape, x))

    # -- methods ---------------------------------------------------------------------------

    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ufunc.reduce`."""
        if args and type(args[0]) is ndarray:
            small = args[0]._eager
            if small is None:
                reducer = _recorded_reduction(self, args, kwargs) if may_record() else None
                if reducer is not None:
                    return reducer
            elif all(map(is_simple, args[1:])) and all(map(is_simple, kwargs.values())):
                result = self._call.reduce(small, *args[1:], **kwargs)
                return wrap(result) if type(result) is np.ndarray else result
        return self._method("reduce", args, kwargs)

    def _general_accumulate(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("accumulate", args, kwargs)

    def _general_reduceat(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("reduceat", args, kwargs)

    def _general_outer(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and not kwargs and self.nin == 2 and self._rows and may_record():
            result = self._outer(*args)
            if result is not None:
                return result
        return self._method("outer", args, kwargs)

    def _outer(self, first: Any, second: Any) -> Any:
        operands = [as_operand(first), as_operand(second)]
        if all(type(x) is ndarray and x._eager is not None for x in operands):
            left, right = operands[0]._eager, operands[1]._eager
            if left.size * right.size < array.options.eager_below:
                return wrap(self._call.outer(left, right)) if self.nout == 1 else None
        if not all(type(x) is ndarray for x in operands) or self.signature is not None:
            return None
        left, right = operands
        return self(left[(..., *(None,) * right.ndim)], right)

    def _general_at(self, *args: Any) -> None:
        if args and type(args[0]) is ndarray and not overrides.of_ufuncs.find(args):
            with changing(args[0]):
                real = [writable(args[0]), *[to_numpy(each) for each in args[1:]]]
                row = self._rows[0] if self._rows and len(self._rows) == 1 else None
                if row is not None and len(real) == 3 and gathers.combine(row, *real):
                    return
                fallback.call(self._call.at, real, {})
            if any(type(x) is ndarray and x._eager is None for x in args):
                numpy_calls.count(f"{self._call.__name__}.at", sys._getframe(1))
            return
        self._method("at", args, {})

    def _method(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = getattr(self._call, method)
        if overrides.of_ufuncs.find(_operands(args, kwargs)):
            return overrides.call_ufunc(function, args, kwargs)
        return run(self._call, function, args, kwargs, method)

    # -- attributes --------------------------------------------------------------------------

    def resolve_dtypes(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ufunc.resolve_dtypes`."""
        return self._call.resolve_dtypes(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_call":  # while being unpickled
            raise AttributeError(name)
        found = getattr(self._call, name)
        if name == "__signature__":  # made on first use and kept, as in NumPy
            self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *dir(self._call)})

    def __repr__(self) -> str:
        return repr(self._call)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same ufunc: lazyfuse's equals NumPy's, as a key of a table too."""
        return self is other or self._call is other

    def __hash__(self) -> int:
        return hash(self._call)

    def __reduce__(self) -> tuple[Any, ...]:
        return ufunc_of, (self._call,)

    def __copy__(self) -> ufunc:
        return self

    def __deepcopy__(self, memo: Any) -> ufunc:
        return self


def _forwarded(name: str) -> property:
    doc = getattr(getattr(np.ufunc, name), "__doc__", None)
    return property(lambda self: getattr(self._call, name), doc=doc)


for _name in ("identity", "nargs", "ntypes", "signature", "types"):
    setattr(ufunc, _name, _forwarded(_name))


def _rows_of(theirs: np.ufunc) -> tuple[Op, ...] | None:
    """The rows of the op table that a call records; None if it is never recorded."""
    row = BY_UFUNC.get(theirs)
    if row is not None:
        return (row,)
    names = MULTIPLE.get(theirs.__name__)
    if names is None or getattr(np, theirs.__name__, None) is not theirs:
        return None
    return tuple(TABLE[name] for name in names)


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments that may override a call."""
    if not kwargs:
        return args
    out = kwargs.get("out")
    return (*args, *(out if type(out) is tuple else (out,)), kwargs.get("where"))


def _into(nodes: Sequence[Node], outs: tuple[Any, ...], casting: str) -> Any:
    """Record writes of `nodes` into lazyfuse arrays; None if NumPy must write at once."""
    if len(outs) != len(nodes):
        return None
    if evaluate.chunked is not None and len(outs) == 1 and chunks.saves(nodes[0], outs[0]):
        return outs[0]
    if not all(_takes(out, node, casting) for out, node in zip(outs, nodes, strict=True)):
        return None
    if len(outs) > 1 and len({id(array.storage_of(out)) for out in outs}) < len(outs):
        return None  # they may share memory: NumPy's order of writing decides
    for out, node in zip(outs, nodes, strict=True):
        write_node(out, cast(node, out.dtype))
    return outs[0] if len(outs) == 1 else outs


def _takes(out: Any, node: Node, casting: str) -> bool:
    if type(out) is not ndarray or not may_write(out) or shape_of(out) != node.shape:
        return False
    return bool(np.can_cast(node.dtype, dtype_of(out), casting))  # type: ignore[arg-type]


def _recorded_reduction(self: ufunc, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A recorded `reduce`, if all its arguments are supported; else None."""
    names = ("axis", "dtype", "out", "keepdims")
    if self._reduction is None or len(args) > 1 + len(names) or not kwargs.keys() <= set(names):
        return None
    named = {"axis": 0, **dict(zip(names, args[1:], strict=False)), **kwargs}
    if len(named) < len(args) - 1 + len(kwargs) or named.get("out") is not None:
        return None
    return recorded_reduction(
        self._reduction, args[0], named["axis"], named.get("dtype"), named.get("keepdims", False)
    )


def run(
    theirs: np.ufunc,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    method: str = "",
) -> Any:
    """Call NumPy at once: it writes to the outputs; the result is a lazyfuse array."""
    outs: Kept = [], []
    named = dict(kwargs)
    given = named.get("out")
    place = _OUT_POSITION.get(method, len(args)) if method else theirs.nin
    last = place + 1 if method else len(args)
    with changing((*args[place:last], *(given if type(given) is tuple else (given,)))):
        if "out" in named:
            named["out"] = _writable_out(given, outs)
        args = [_writable_out(x, outs) if place <= i < last else x for i, x in enumerate(args)]
        real = [x if any(x is out for out in outs[0]) else to_numpy(x) for x in args]
        if named:
            keys = [key for key in named if key != "out"]
            named.update({key: to_numpy(named[key]) for key in keys})
        result = fallback.call(function, real, named)
    if any(type(x) is ndarray and concrete_value(x) is None for x in args):
        numpy_calls.count(f"{theirs.__name__}.{method}".rstrip("."), sys._getframe(1))
    return from_numpy(result, outs[0], outs[1], wrap_maybe_shared)


def _writable_out(out: Any, outs: Kept) -> Any:
    if type(out) is tuple:
        return tuple([_writable_out(item, outs) for item in out])
    if type(out) is not ndarray:
        real = to_numpy(out)
        if type(real) is not np.ndarray:
            return real
    else:
        real = writable(out)
    outs[0].append(real)
    outs[1].append(out)
    return real


pair(np.ufunc, ufunc)
register_paired(ufunc, lambda value: value._call)
register_paired(type(ufunc))
register_result(np.ufunc, ufunc_of)
