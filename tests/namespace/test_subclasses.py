"""Classes derived from `ndarray`, and `ndarray.name` for our arrays, theirs and NumPy's."""

from __future__ import annotations

import inspect
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse
from tests.helpers.compare import MODES, mode

OBJECTS = ("__delattr__", "__dir__", "__getstate__", "__sizeof__")
NAMES = sorted(set(dir(np.ndarray)) - {"__class__", "__doc__", "__hash__", *OBJECTS})
"""What is left out differs by its nature: the class, its text, and what Python says of objects."""

BINARY = """add and divmod eq floordiv ge gt iadd iand ifloordiv ilshift imatmul imod imul ior ipow
irshift isub itruediv ixor le lshift lt matmul mod mul ne or pow radd rand rdivmod rfloordiv rlshift
rmatmul rmod rmul ror rpow rrshift rshift rsub rtruediv rxor sub truediv xor""".split()

ARGUMENTS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "__array_function__": lambda xp, x: (xp.sum, (type(x),), (x,), {}),
    "__array_ufunc__": lambda xp, x: (xp.add, "__call__", x, 1),
    "__array_wrap__": lambda xp, x: (xp.arange(3),),
    "__class_getitem__": lambda xp, x: (int,),
    "__contains__": lambda xp, x: (1,),
    "__deepcopy__": lambda xp, x: ({},),
    "__delitem__": lambda xp, x: (0,),
    "__format__": lambda xp, x: ("",),
    "__getattribute__": lambda xp, x: ("shape",),
    "__getitem__": lambda xp, x: (xp.array([2, 0]),),
    "__new__": lambda xp, x: ((0, 2), "i4"),
    "__reduce_ex__": lambda xp, x: (2,),
    "__setattr__": lambda xp, x: ("shape", (x.size,)),
    "__setitem__": lambda xp, x: (slice(0, 3), xp.array([5, 6, 7])),
    "__setstate__": lambda xp, x: ((1, (2,), xp.dtype("i8"), False, bytes(16)),),
    "argpartition": lambda xp, x: (1,),
    "astype": lambda xp, x: ("f4",),
    "choose": lambda xp, x: ([x + 10] * 40,),
    "compress": lambda xp, x: (xp.array([True, False, True]),),
    "dot": lambda xp, x: (x,),
    "dump": lambda xp, x: (io.BytesIO(),),
    "fill": lambda xp, x: (3,),
    "getfield": lambda xp, x: ("i4",),
    "item": lambda xp, x: (1,),
    "partition": lambda xp, x: (1,),
    "put": lambda xp, x: (xp.array([0]), 9),
    "repeat": lambda xp, x: (2,),
    "reshape": lambda xp, x: (-1, 1),
    "resize": lambda xp, x: (x.size,),
    "searchsorted": lambda xp, x: ([1, 3],),
    "setfield": lambda xp, x: (1, "i4"),
    "swapaxes": lambda xp, x: (0, 0),
    "take": lambda xp, x: (xp.array([1, 0]),),
    "to_device": lambda xp, x: ("cpu",),
    "tofile": lambda xp, x: ("/dev/null",),
    "view": lambda xp, x: (xp.ndarray,),
    **{f"__{name}__": lambda xp, x: (xp.full(x.shape, 2),) for name in BINARY},
}


def tagged(xp: Any) -> Any:
    class Tagged(xp.ndarray):  # type: ignore[misc]
        def __array_finalize__(self, source: Any) -> None:
            self.tag = getattr(source, "tag", "new")

    return Tagged


def receiver(kind: str, xp: Any, size: int) -> Any:
    """An array on which the methods are called: of `xp`, of a class derived from its, NumPy's."""
    x = xp.arange(size) % 37
    if kind == "derived":
        x = x.view(tagged(xp))
        x.tag = "mine"
    return np.arange(size) % 37 if kind == "numpy" else x


def outcome(call: Callable[[], Any], xp: Any) -> Any:
    try:
        return described(call(), xp)
    except Exception as error:
        text = str(error).replace("lazyfuse.", "numpy.")
        return type(error).__name__, text if "argument" not in text else ""


def described(value: Any, xp: Any) -> Any:
    """A result as plain objects. The name `ndarray` stands for the class that programs see."""
    if isinstance(value, np.ndarray) or type(value) is lazyfuse.ndarray:
        real = np.asarray(value)
        kind = "ndarray" if type(value) in (xp.ndarray, np.ndarray) else type(value).__name__
        tag = getattr(value, "tag", None)
        return kind, real.dtype.str, real.shape, real.tolist(), tag
    if isinstance(value, np.generic):
        return described(np.asarray(value)[()].item(), xp)
    if isinstance(value, (list, tuple)):
        return [described(each, xp) for each in value]
    if callable(value) or inspect.ismodule(value):
        return getattr(value, "__name__", "").replace("lazyfuse", "numpy")
    return type(value).__name__, repr(value) if " at 0x" not in repr(value) else ""


def results(name: str, kind: str, xp: Any, size: int) -> list[Any]:
    """What `ndarray.name` does for an array, and what the array is afterwards."""
    x = receiver(kind, xp, size)
    found = getattr(xp.ndarray, name)
    if name == "__iter__":
        return [described(list(found(x)), xp)]
    if name == "flags":
        return [str(found.__get__(x))]
    if name in ("__init_subclass__", "__subclasshook__", "__class_getitem__", "__new__"):
        first = () if name != "__new__" else (type(x),)
        call = lambda: found(*first, *ARGUMENTS.get(name, lambda *_: ())(xp, x))
    elif inspect.isdatadescriptor(found):
        call = lambda: found.__get__(x, type(x))
    else:
        call = lambda: found(x, *ARGUMENTS.get(name, lambda *_: ())(xp, x))
    bare = lambda: found(*())  # a call that Python 3.11 compiles otherwise: `found()` crashes it
    return [outcome(call, xp), described(x, xp), outcome(bare, xp)[:1]]


_BYTES = ("__reduce__", "__reduce_ex__", "dumps", "ctypes", "data", "flat", "__array_struct__")
"""Results that are compared by what they are made of, elsewhere."""


@pytest.mark.parametrize("eager_below", MODES)
@pytest.mark.parametrize("kind", ["ours", "derived", "numpy"])
@pytest.mark.parametrize("name", NAMES)
def test_the_class_has_every_name_for_every_array(
    name: str, kind: str, eager_below: int | None
) -> None:
    for size in (37, 40_000):
        theirs = results(name, kind, np, size)
        with mode(eager_below):
            ours = results(name, kind, lazyfuse, size)
        if name in _BYTES or name == "__array_interface__":
            ours[0], theirs[0] = ours[0][0], theirs[0][0]
            assert kind == "ours" or ours[0] == theirs[0] or name == "flat"
            ours[0] = theirs[0]
        assert ours == theirs


@pytest.mark.parametrize("name", sorted(vars(np.ndarray)))
def test_what_the_class_has_looks_like_numpys(name: str) -> None:
    theirs, ours = getattr(np.ndarray, name), getattr(lazyfuse.ndarray, name)
    assert ours is getattr(lazyfuse.ndarray, name) or name == "__class_getitem__"
    assert callable(ours) == callable(theirs) or name == "__hash__"
    for told in ("__name__", "__doc__"):
        if hasattr(theirs, told) and name not in (
            "__class_getitem__",
            "__array_ufunc__",
            "__new__",
        ):
            assert getattr(ours, told) == getattr(theirs, told)
    if callable(theirs) and name != "__class_getitem__":
        assert signature(ours) == signature(theirs)


def signature(function: Any) -> str:
    try:
        return str(inspect.signature(function))
    except ValueError:
        return "none"


@pytest.mark.parametrize("name", ["shape", "dtype", "strides", "flat", "real", "imag", "T", "base"])
@pytest.mark.parametrize("kind", ["ours", "derived", "numpy"])
def test_attributes_are_written_through_the_class(name: str, kind: str) -> None:
    values = {"shape": (8, -1), "dtype": "i4", "strides": (16,), "flat": 3, "real": 2, "imag": 1}

    def write(xp: Any) -> Any:
        x = receiver(kind, xp, 40)[:20]
        getattr(xp.ndarray, name).__set__(x, values.get(name, 0))
        return x

    theirs = outcome(lambda: write(np), np)
    assert outcome(lambda: write(lazyfuse), lazyfuse) == theirs


def test_methods_found_in_the_class_bind_and_pickle() -> None:
    class Kept(lazyfuse.ndarray):
        plain_copy = lazyfuse.ndarray.copy

    x = lazyfuse.arange(3).view(Kept)
    assert type(x.plain_copy()) is Kept
    assert lazyfuse.ndarray.sum.__get__(x)() == 3
    assert pickle.loads(pickle.dumps(lazyfuse.ndarray.sum)) is lazyfuse.ndarray.sum


def units(xp: Any) -> Any:
    class Units(xp.ndarray):  # type: ignore[misc]
        """As astropy's Quantity: it shifts by itself, and has a say in ufuncs."""

        def __rlshift__(self, other: Any) -> Any:
            return "shifted"

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            return ufunc.__name__, ufunc is xp.less, [type(x).__name__ for x in inputs]

    return Units


@pytest.mark.parametrize("size", [4, 40_000])
def test_operators_ask_a_subclass_on_the_right_first(size: int) -> None:
    def answers(xp: Any) -> Any:
        x = xp.arange(size)
        other = xp.arange(size).view(units(xp))
        named = x.__lshift__(other), x.__lt__(other)
        return x << other, x < other, x == other, x + other, other << x, named

    assert answers(lazyfuse) == answers(np)


def test_an_output_of_a_subclass_is_written_once() -> None:
    def written(xp: Any) -> Any:
        x = xp.arange(6.0)
        out = x.view(tagged(xp))
        return np.asarray(xp.cumsum(x, out=out)).tolist(), np.asarray(x).tolist()

    with mode(0):
        assert written(lazyfuse) == written(np)


@pytest.mark.parametrize("size", [6, 40_000])
@pytest.mark.parametrize("below", MODES)
def test_plain_views_of_subclasses_have_a_base(size: int, below: int | None) -> None:
    def bases(xp: Any) -> list[bool]:
        s = xp.arange(float(size)).view(tagged(xp))
        views = s.view(xp.ndarray), xp.asarray(s), xp.asarray(s)[1:], xp.array(s)
        return [isinstance(each.base, xp.ndarray) for each in views]

    with mode(below):
        assert bases(lazyfuse) == bases(np)


def test_overrides_are_told_of_classes_that_override_nothing() -> None:
    def told(xp: Any) -> list[list[str]]:
        found = []

        class Plain(xp.ndarray):  # type: ignore[misc]
            pass

        class Asked(Plain):
            def __array_function__(self, func: Any, kinds: Any, args: Any, kwargs: Any) -> str:
                found.append([each.__name__ for each in kinds])
                return "asked"

        p = xp.arange(3)
        plain, asked = p.view(Plain), p.view(Asked)
        for args in ((plain, asked, p), (p, plain, asked), (asked, plain), (p, asked)):
            assert xp.concatenate(args) == "asked"
        return found

    assert told(lazyfuse) == told(np)


@pytest.mark.parametrize("size", [6, 40_000])
def test_an_output_of_a_subclass_hears_of_nothing_else(size: int) -> None:
    def heard(xp: Any) -> list[str]:
        found = []

        class Asked(xp.ndarray):  # type: ignore[misc]
            def __array_function__(self, func: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
                found.append(func.__name__)
                return super().__array_function__(func, kinds, args, kwargs)

            def __array_wrap__(self, array: Any, *args: Any) -> Any:
                return xp.ndarray.__array_wrap__(self, array.copy())

        p = xp.array(np.arange(float(size)))
        out = xp.array(np.zeros(size)).view(Asked)
        clipped = xp.ndarray.clip(p, 0, 2, out=out)
        return [*found, type(clipped).__name__, str(np.asarray(out).sum()), str(clipped is out)]

    with mode(0):
        assert heard(lazyfuse) == heard(np)


def test_a_resize_by_the_class_counts_references_alike() -> None:
    def resized(xp: Any) -> list[Any]:
        p, q = xp.arange(6), xp.arange(6)
        held = q
        xp.ndarray.resize(p, 8)
        try:
            xp.ndarray.resize(q, 8)
        except ValueError as error:
            return [p.tolist(), str(error), held.tolist()]
        return [p.tolist(), held.tolist()]

    assert resized(lazyfuse) == resized(np)
