"""Selecting the elements that a mask keeps, as LLVM functions with the machine's vectors.

Owns `compact_1`, `_2`, `_4`, `_8` and `_16` of generated text (builtins.py lists them), named by
the bytes of an element. With AVX-512 a vector is compressed in its register and stored whole; the
next store overwrites the lanes behind the kept elements. Elsewhere, and at the end, each element is
written to the next output position, which only a kept element advances. Eight elements or a vector
of which none is kept are passed over: a mask that keeps few is read at memory's speed. Importing it
loads nothing heavy.
"""

from __future__ import annotations

from typing import Any

from ...late_imports import module as heavy
from .loops import loop

SIZES = (1, 2, 4, 8, 16)
_FEATURE = {1: "+avx512vbmi2", 2: "+avx512vbmi2", 4: "+avx512f", 8: "+avx512f"}


def emit(builder: Any, size: int, features: str, args: Any) -> Any:
    """Call `compact_<size>(out, data, mask, count, room)` with LLVM values.

    It writes the elements of `data` whose byte in `mask` is not 0 to `out`, and stops after reading
    `count` or writing `room` elements. It returns the number written. It touches no byte behind
    `room`.
    """
    wide = _FEATURE.get(size, "none") in features.split(",")
    function = _function(builder.module, size, wide)
    kinds = function.type.pointee.args[:3]
    given = [builder.bitcast(each, kind) for each, kind in zip(args[:3], kinds, strict=True)]
    return builder.call(function, [*given, *args[3:]])


def _function(module: Any, size: int, wide: bool) -> Any:
    name = f"lf_compact_{size}"
    return module.globals.get(name) or _Writer(module, name, size).write(wide)


class _Writer:
    """Writes one function."""

    def __init__(self, module: Any, name: str, size: int) -> None:
        ir = heavy("llvmlite.ir")
        self.ir = ir
        self.size = size
        self.byte, self.int64 = ir.IntType(8), ir.IntType(64)
        self.element = ir.IntType(8 * size)
        pointer = self.element.as_pointer()
        given = [pointer, pointer, self.byte.as_pointer(), self.int64, self.int64]
        self.function = ir.Function(module, ir.FunctionType(self.int64, given), name)
        self.function.linkage = "linkonce_odr"
        self.function.attributes.add("nounwind")
        for each in self.function.args[:3]:
            each.add_attribute("noalias")
        self.out, self.data, self.mask, self.count, self.room = self.function.args
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))

    def write(self, wide: bool) -> Any:
        zero = self.int64(0)
        at, kept = zero, zero
        if wide:
            at, kept = self.loop(at, kept, 64 // self.size, self.vector)
        at, kept = self.loop(at, kept, 8, self.several)
        _, kept = self.loop(at, kept, 1, self.several)
        self.builder.ret(kept)
        return self.function

    def vector(self, at: Any, kept: Any, lanes: int) -> Any:
        """Compress one vector; the number of elements kept so far."""
        build, ir = self.builder, self.ir
        vector, bytes_ = ir.VectorType(self.element, lanes), ir.VectorType(self.byte, lanes)
        flags, word = ir.VectorType(ir.IntType(1), lanes), ir.IntType(lanes)
        mask = build.load(build.bitcast(build.gep(self.mask, [at]), bytes_.as_pointer()), align=1)
        chosen = build.icmp_unsigned("!=", mask, ir.Constant(bytes_, None))
        place = build.bitcast(build.gep(self.data, [at]), vector.as_pointer())
        name = f"llvm.x86.avx512.mask.compress.v{lanes}i{8 * self.size}"
        kind = ir.FunctionType(vector, [vector, vector, flags])
        compress = build.module.globals.get(name) or ir.Function(build.module, kind, name)
        packed = build.call(
            compress, [build.load(place, align=1), ir.Constant(vector, None), chosen]
        )
        target = build.bitcast(build.gep(self.out, [kept]), vector.as_pointer())
        build.store(packed, target, align=1)
        bits = build.ctpop(build.bitcast(chosen, word))
        return build.add(kept, bits if lanes == 64 else build.zext(bits, self.int64))

    def several(self, at: Any, kept: Any, number: int) -> Any:
        """Write a few elements, one after the other; the number of elements kept so far."""
        build = self.builder
        for step in range(number):
            place = build.add(at, self.int64(step))
            value = build.load(build.gep(self.data, [place]), align=1)
            build.store(value, build.gep(self.out, [kept]), align=1)
            mask = build.load(build.gep(self.mask, [place]))
            chosen = build.icmp_unsigned("!=", mask, self.byte(0))
            kept = build.add(kept, build.zext(chosen, self.int64))
        return kept

    def loop(self, start: Any, before: Any, step: int, body: Any) -> tuple[Any, Any]:
        """Repeat while `step` elements and as much room remain; the final index and number."""
        build, width = self.builder, self.int64(step)
        stop = build.sub(self.count, self.int64(step - 1))

        def fits(values: list[Any]) -> Any:
            return build.icmp_signed("<=", build.add(values[0], width), self.room)

        def turn(at: Any, values: list[Any]) -> list[Any]:
            if step == 1:
                return [body(at, values[0], step)]
            word = self.ir.IntType(8 * step)
            bytes_ = build.bitcast(build.gep(self.mask, [at]), word.as_pointer())
            none = build.icmp_unsigned("==", build.load(bytes_, align=1), word(0))
            before = build.block
            some, after = build.append_basic_block(), build.append_basic_block()
            build.cbranch(none, after, some)
            build.position_at_end(some)
            found = body(at, values[0], step)
            build.branch(after)
            end = build.block
            build.position_at_end(after)
            kept = build.phi(self.int64)
            kept.add_incoming(values[0], before)
            kept.add_incoming(found, end)
            return [kept]

        at, (kept,) = loop(build, (start, stop, step), [before], turn, fits)
        return at, kept
