"""As `numpy.random`: NumPy's streams, byte for byte, in our arrays.

Owns `Generator`, `RandomState`, the bit generators and `SeedSequence` (subclasses of NumPy's) and
`default_rng`; every other name is looked up in NumPy's module.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import from_numpy, to_numpy
from lazyfuse.arrays.ndarray import changing, ndarray, options, wrap, writable
from lazyfuse.interop import chunked_api, device_api, fallback
from lazyfuse.kernels import pcg64
from lazyfuse.namespace import numpy_modules
from lazyfuse.registry import THEIRS, implements, pair
from lazyfuse.runtime.events import spans

_PASS_ON = ("bit_generator", "spawn", "get_state", "set_state", "seed", "bytes")
_LOOPS = {"random": pcg64.random, "uniform": pcg64.uniform}
"""Methods of `Generator` that draw many numbers by a loop of ours, if it knows the generator."""


def _method(cls: type, name: str) -> Callable[..., Any]:
    theirs = getattr(cls, name)
    label = f"random.{name}"
    of_generator = cls is np.random.Generator
    loop = _LOOPS.get(name) if of_generator else None

    @functools.wraps(theirs, assigned=("__name__", "__doc__"), updated=())
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = None
        if of_generator and device_api.selects_chunks():
            found = chunked_api.drawn(self, name, args, kwargs)
            if found is not None:
                return found
        if loop is not None and (args or kwargs):
            given = args[0] if len(args) == 1 and not kwargs and name == "random" else None
            if type(given) is int and given < options.eager_below:
                return wrap(theirs(self, given))
            with suppress(TypeError), spans.calling(""):  # NumPy raises its own error
                found = loop(self.bit_generator, *args, **kwargs)
            if found is not None:
                return wrap(found)
        bound = functools.partial(theirs, self)
        if name == "shuffle":  # in place
            if "x" in kwargs:
                args = (kwargs.pop("x"), *args)
            return fallback.run_writing(bound, label, args, kwargs)
        return fallback.run(bound, label, args, kwargs)

    return call


def _methods(cls: type) -> dict[str, Callable[..., Any]]:
    """Every drawing method of NumPy's class, for our arrays."""
    return {
        name: _method(cls, name)
        for name in vars(cls)
        if not name.startswith("_") and name not in _PASS_ON and callable(getattr(cls, name))
    }


class _Kind(type):
    """Makes objects of NumPy's class, unpickled or from other libraries, instances of ours too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        theirs = THEIRS.get(cls)
        return (
            type.__instancecheck__(cls, instance)
            if theirs is None
            else isinstance(instance, theirs)
        )


class Generator(np.random.Generator, metaclass=_Kind):
    """As `numpy.random.Generator`."""

    def permuted(self, x: Any, *, axis: Any = None, out: Any = None) -> Any:
        """As `numpy.random.Generator.permuted`; shuffles in place if `out` is `x`."""
        with changing(out):
            real = writable(out) if type(out) is ndarray else out
            source = real if x is out else to_numpy(x)
            result = super().permuted(source, axis=axis, out=real)
        return out if out is not None else wrap(result)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the bit generator, as NumPy does."""
        return _generator, (self.bit_generator,), None


def _unpickled(name: str, bit_generator: Any) -> Any:
    return getattr(importlib.import_module("numpy.random._pickle"), name)(bit_generator)


def _generator(bit_generator: Any = "MT19937") -> Generator:
    """Unpickle; old pickles hold only the name of the bit generator."""
    made = _unpickled("__generator_ctor", bit_generator)
    return Generator(made.bit_generator)


def _random_state(bit_generator: Any = "MT19937") -> RandomState:
    made = _unpickled("__randomstate_ctor", bit_generator)
    return RandomState(made._bit_generator)


class RandomState(np.random.RandomState, metaclass=_Kind):
    """As `numpy.random.RandomState`."""

    def get_state(self, legacy: Any = True) -> Any:
        """As `numpy.random.RandomState.get_state`."""
        return from_numpy(super().get_state(legacy))

    def set_state(self, state: Any) -> None:
        """As `numpy.random.RandomState.set_state`."""
        super().set_state(to_numpy(state))

    def seed(self, seed: Any = None) -> None:
        """As `numpy.random.RandomState.seed`."""
        super().seed(to_numpy(seed))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the bit generator and its state, as NumPy does."""
        _maker, args, state = super().__reduce__()
        return _random_state, args, state


def _seeded(theirs: type) -> type:
    """A subclass of NumPy's seeds or bit generators that takes our arrays as seeds."""

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        made: Any = vars(theirs)["__init__"]
        made(self, *to_numpy(args), **to_numpy(kwargs))

    scope = {"__init__": start, "__doc__": theirs.__doc__, "__module__": __name__}
    return _Kind(theirs.__name__, (theirs,), scope)


for _name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", "SeedSequence"):
    globals()[_name] = _seeded(getattr(np.random, _name))
    pair(getattr(np.random, _name), globals()[_name])
pcg64.register(globals()["PCG64"])

for _theirs, _ours in ((np.random.Generator, Generator), (np.random.RandomState, RandomState)):
    for _name, _function in _methods(_theirs).items():
        if _name not in vars(_ours):
            setattr(_ours, _name, _function)
    pair(_theirs, _ours)


@implements(np.random.default_rng)
def default_rng(seed: Any = None) -> Any:
    """As `numpy.random.default_rng`."""
    if isinstance(seed, np.random.Generator):
        return seed if type(seed) is Generator else Generator(seed.bit_generator)
    made = np.random.default_rng(to_numpy(seed))
    return made if made is seed else Generator(made.bit_generator)


def shuffle(x: Any) -> None:
    """As `numpy.random.shuffle`."""
    fallback.run_writing(np.random.shuffle, "random.shuffle", (x,), {})


__getattr__, __dir__ = numpy_modules.filler(__name__, "numpy.random")
