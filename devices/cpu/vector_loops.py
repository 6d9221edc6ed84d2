"""Loops over whole arrays that call the mathematical functions of compiled programs.

Blocked NumPy, and NumPy where a structure is fresh, use them instead of NumPy's own functions
while a kernel's program is being compiled, so an element's bits are the same before and after. The
native extension has a loop for the C library's SIMD versions (native/base/vectors.c); for what else
there is llvmlite alone makes one per function and precision in a few milliseconds, and the disk
keeps them. As everywhere (vector_math.py), full vectors go to a SIMD version, and the rest to the
same version on vectors of copies.
Text of language "numpy" calls them by the names that text of language "numba" uses: `vm_exp` (f8),
`vmf_exp` (f4), as `flags |= vm_exp(target, scratch, operand)`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import Array, Source
from ..caches import Group, cached
from ..pools import object_code, own_math, vector_math
from . import launch
from . import llvm_text as texts

if TYPE_CHECKING:
    from ..pools.object_code import Loaded

Loop = Callable[..., int]
native: Any = None
"""The native extension, whose loop calls SIMD functions; None: llvmlite makes all loops."""
_CALL = re.compile(r"\bvm(f?)_(\w+)\(")


_instances: Group[VectorLoops] = Group(
    "devices.cpu.vector_loops",
    lambda each: len(each._loops),
    None,
    lambda each: each._loops.clear(),
    "one for each function and precision",
)


class VectorLoops:
    """The loops, by name, made or loaded at first use."""

    def __init__(self, load: Callable[[Source, Callable[[str], bytes]], Loaded]) -> None:
        self._load = load
        self._loops: dict[str, Loop] = {}
        _instances.add(self)

    def names(self, text: str) -> dict[str, Loop]:
        """The loops that a text calls, as functions `(target, scratch, *operands) -> flags`."""
        found = {f"vm{single}_{name}" for single, name in _CALL.findall(text)}
        return {name: self.loop(name) for name in sorted(found)}

    def loop(self, name: str) -> Loop:
        """One loop; `DeviceError` if this machine does not support it."""
        loop = self._loops.get(name)
        if loop is None:
            loop = self._loops[name] = self._make(name)
        return loop

    def _make(self, name: str) -> Loop:
        if (found := ready(name)) is not None:
            return found
        function, size = _parts(name)
        cpu, features = object_code.target()
        text = llvm_text(function, size, features)
        source = Source("llvm", name, text, 0, (), ())
        return _loaded(self._load(source, lambda text: emit(text, cpu, features)), function, size)


def _parts(name: str) -> tuple[str, int]:
    """The function and the size of its numbers."""
    prefix, function = name.split("_")
    return function, 4 if prefix == "vmf" else 8


def use(extension: Any) -> None:
    """Run the C library's SIMD functions by the native extension from now on."""
    global native
    native = extension
    ready.cache_clear()


@cached(128, "addresses in a library")
def ready(name: str) -> Loop | None:
    """A loop that nothing has to be compiled for; None: there is none."""
    function, size = _parts(name)
    if native is None:
        return None
    features = native.vector_features()
    symbol, lanes = vector_math.vector_symbol(function, size, features)
    if not symbol or own_math.serves(function, size, features):
        return None
    address = vector_math.address(vector_math.libmvec(), symbol)
    run, arity = native.vector_run, vector_math.ARITY[function]

    def called(target: Array, *given: Array) -> int:
        flags: int = run(address, size, lanes, arity, target, given[0], given[-1])
        return flags

    return _wrapped(called, size)


def _loaded(loaded: Loaded, name: str, size: int) -> Loop:
    pointers = [ctypes.c_void_p] * (1 + vector_math.ARITY[name])
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *pointers, ctypes.c_int64)(loaded.address)

    def called(*arrays: Array, loaded: Loaded = loaded) -> int:
        flags: int = run(*map(launch.address_of, arrays), arrays[0].size)
        return flags

    return _wrapped(called, size)


def _wrapped(run: Callable[..., int], size: int) -> Loop:
    dtype = np.dtype(f"f{size}")

    def loop(target: Array, scratch: Any, *operands: Array) -> int:
        """Compute into `target`; the IEEE flags that were raised."""
        dense = target
        if target.dtype != dtype or not target.flags.c_contiguous:
            dense = scratch("vm", target.shape, dtype.str)
        held = [dense]  # what the machine code reads: `scratch` may release it at its next call
        for k, operand in enumerate(operands):
            if (
                operand.dtype != dtype
                or operand.shape != target.shape
                or not operand.flags.c_contiguous
            ):
                copy = scratch(("vm", k), target.shape, dtype.str)
                np.copyto(copy, operand, casting="unsafe")
                operand = copy
            held.append(operand)
        flags = run(*held)
        if dense is not target:
            np.copyto(target, dense, casting="unsafe")
        return flags

    return loop


def emit(text: str, cpu: str, features: str) -> bytes:
    """Object code of LLVM text for a CPU with these features."""
    # half the time, for which a first result waits; lazyfuse's functions then take a fifth longer
    return object_code.emit(text, cpu, features, optimise=0)


_TEXT = """
{declarations}

define i32 @{entry}({parameters}, i64 %count) {{
start:
  {clear}
  %full = and i64 %count, {mask}
  %some = icmp sgt i64 %full, 0
  br i1 %some, label %vectors, label %rest
vectors:
  %i = phi i64 [0, %start], [%i.next, %vectors]
{full}
  %i.next = add i64 %i, {lanes}
  %more = icmp slt i64 %i.next, %full
  br i1 %more, label %vectors, label %rest
rest:
  %left = icmp slt i64 %full, %count
  br i1 %left, label %singles, label %done
singles:
  %j = phi i64 [%full, %rest], [%j.next, %singles]
{single}
  %j.next = add i64 %j, 1
  %again = icmp slt i64 %j.next, %count
  br i1 %again, label %singles, label %done
done:
{flags}
}}
"""


def llvm_text(name: str, size: int, features: str) -> str:
    """The module of one loop: `int32 entry(target, operands..., count)` over dense arrays."""
    arity = vector_math.ARITY[name]
    kind = "double" if size == 8 else "float"
    symbol, lanes = vector_math.vector_symbol(name, size, features)
    callee, lanes = (symbol, lanes) if symbol else (vector_math.scalar_name(name, size), 1)
    vector = f"<{lanes} x {kind}>" if symbol else kind
    inputs = range(arity)
    clear, flags, fenv = texts.flag_text()
    declarations = f"declare {vector} @{callee}({', '.join([vector] * arity)})\n{fenv}"
    if own_math.serves(name, size, features) and symbol:
        declarations = f"{own_math.text(name)}\n{fenv}"
    call = f"call {vector} @{callee}(" + ", ".join(f"{vector} %V{k}" for k in inputs) + ")"

    full = [
        line
        for k in inputs
        for line in (
            f"  %p{k} = getelementptr {kind}, ptr %a{k}, i64 %i",
            f"  %v{k} = load {vector}, ptr %p{k}, align 1",
        )
    ]
    full += [
        f"  %r = {call.replace('%V', '%v')}",
        f"  %q = getelementptr {kind}, ptr %out, i64 %i",
        f"  store {vector} %r, ptr %q, align 1",
    ]
    single = []
    for k in inputs:
        single += [
            f"  %sp{k} = getelementptr {kind}, ptr %a{k}, i64 %j",
            f"  %x{k} = load {kind}, ptr %sp{k}, align 1",
        ]
        if symbol:
            single += [
                f"  %o{k} = insertelement {vector} undef, {kind} %x{k}, i32 0",
                f"  %s{k} = shufflevector {vector} %o{k}, {vector} undef, "
                f"<{lanes} x i32> zeroinitializer",
            ]
    single += [f"  %sr = {call.replace('%V', '%s' if symbol else '%x')}"]
    if symbol:
        single += [f"  %y = extractelement {vector} %sr, i32 0"]
    single += [
        f"  %sq = getelementptr {kind}, ptr %out, i64 %j",
        f"  store {kind} {'%y' if symbol else '%sr'}, ptr %sq, align 1",
    ]
    return _TEXT.format(
        declarations=declarations,
        entry=object_code.ENTRY,
        parameters=", ".join(["ptr %out", *(f"ptr %a{k}" for k in inputs)]),
        clear=clear,
        mask=-lanes,
        lanes=lanes,
        full="\n".join(full),
        single="\n".join(single),
        flags=flags,
    )
