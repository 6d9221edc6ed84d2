"""NumPy's pairwise sum of contiguous floats, as LLVM functions that every CPU runs in vectors.

Owns `pairwise_f8(pointer, count)`, `_f4`, `_c16` and `_c8` of generated text (builtins.py lists
them). The order of additions is NumPy's, and so are the bits; eight accumulators are one vector.
Importing it loads nothing heavy.
"""

from __future__ import annotations

from typing import Any

from ...late_imports import module as heavy
from .loops import loop

CODES = ("f4", "f8", "c8", "c16")
LANES = 8  # accumulators: for complex numbers, four for the real and four for the imaginary parts
BLOCK = 128  # floats that the accumulators sum; NumPy halves what is longer


def emit(builder: Any, code: str, pointer: Any, count: Any) -> tuple[Any, ...]:
    """Call `pairwise_<code>` with LLVM values; the sum, or its real and imaginary part."""
    function = _function(builder.module, code)
    memory = builder.bitcast(pointer, function.type.pointee.args[0])
    total = builder.call(function, [memory, count])
    if code[0] == "f":
        return (total,)
    return builder.extract_value(total, 0), builder.extract_value(total, 1)


def _function(module: Any, code: str) -> Any:
    """`lf_pairwise_<code>(pointer to floats, number of elements)` of a module."""
    name = f"lf_pairwise_{code}"
    return module.globals.get(name) or _Writer(module, name, code).write()


class _Writer:
    """Writes one function. A sum is a list of floats: one, or a real and an imaginary part."""

    def __init__(self, module: Any, name: str, code: str) -> None:
        ir = heavy("llvmlite.ir")
        self.ir = ir
        self.parts = 2 if code[0] == "c" else 1
        self.element = ir.FloatType() if code in ("f4", "c8") else ir.DoubleType()
        self.int64 = ir.IntType(64)
        self.vector = ir.VectorType(self.element, LANES)
        result = self.element
        if self.parts == 2:
            result = ir.LiteralStructType([self.element, self.element])
        kind = ir.FunctionType(result, [self.element.as_pointer(), self.int64])
        self.function = ir.Function(module, kind, name)
        self.function.linkage = "linkonce_odr"
        self.function.attributes.add("nounwind")
        self.memory, self.count = self.function.args
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))

    def write(self) -> Any:
        build = self.builder
        build.function.attributes.add("noinline")
        is_long = build.icmp_signed(">", self.count, self.int64(BLOCK // self.parts))
        with build.if_then(is_long):
            if self.parts == 1:
                self.give_side_by_side()
            self.give(self.halves())
        is_short = build.icmp_signed("<", self.count, self.int64(LANES // self.parts))
        with build.if_then(is_short):
            zero = self.ir.Constant(self.element, -0.0)
            self.give(self.one_by_one([zero] * self.parts, self.int64(0)))
        whole = build.and_(self.count, self.int64(-LANES // self.parts))
        self.give(self.one_by_one(self.block(whole), whole))
        return self.function

    def give(self, total: list[Any]) -> None:
        if self.parts == 1:
            self.builder.ret(total[0])
            return
        made = self.ir.Constant(self.function.type.pointee.return_type, self.ir.Undefined)
        for at, part in enumerate(total):
            made = self.builder.insert_value(made, part, at)
        self.builder.ret(made)

    def place(self, index: Any) -> Any:
        """The address of an element."""
        scaled = index if self.parts == 1 else self.builder.shl(index, self.int64(1))
        return self.builder.gep(self.memory, [scaled])

    def halves(self) -> list[Any]:
        build, int64 = self.builder, self.int64
        if self.parts == 1:
            left = self.left_half(self.count)
        else:
            left = build.lshr(build.sub(self.count, build.and_(self.count, int64(7))), int64(1))
        first = build.call(self.function, [self.memory, left])
        right = build.sub(self.count, left)
        second = build.call(self.function, [self.place(left), right])
        if self.parts == 1:
            return [build.fadd(first, second)]
        return [
            build.fadd(build.extract_value(first, at), build.extract_value(second, at))
            for at in range(2)
        ]

    def give_side_by_side(self) -> None:
        """Sums of a few blocks, interleaved because each addition waits for the previous one."""
        build, int64 = self.builder, self.int64
        left = self.left_half(self.count)
        right = build.sub(self.count, left)
        # both halves are blocks, or both consist of two
        are_blocks = build.icmp_signed("<=", right, int64(BLOCK))
        with build.if_then(are_blocks):
            self.give([self.together([left], right)])
        are_more = build.icmp_signed(">", left, int64(BLOCK))
        with build.if_then(build.and_(are_more, build.icmp_signed("<=", right, int64(2 * BLOCK)))):
            first, third = self.left_half(left), self.left_half(right)
            last = build.sub(right, third)
            with build.if_then(build.icmp_signed("<=", last, int64(BLOCK))):
                self.give([self.together([first, build.sub(left, first), third], last)])

    def left_half(self, count: Any) -> Any:
        """How many elements NumPy's left branch takes."""
        half = self.builder.lshr(count, self.int64(1))
        return self.builder.and_(half, self.int64(-LANES))

    def together(self, whole: list[Any], last: Any) -> Any:
        """The sum of two or four blocks, shortest first; all except the last are whole vectors."""
        build, int64 = self.builder, self.int64
        starts = [int64(0)]
        for size in whole:
            starts.append(build.add(starts[-1], size))

        def load(number: int, index: Any) -> Any:
            place = self.place(build.add(starts[number], index))
            return build.load(build.bitcast(place, self.vector.as_pointer()), align=1)

        def step(index: Any, sums: list[Any]) -> list[Any]:
            return [build.fadd(each, load(at, index)) for at, each in enumerate(sums)]

        firsts = [load(number, int64(0)) for number in range(len(starts))]
        _, sums = loop(build, (int64(LANES), whole[0], LANES), firsts, step)
        ends = [*whole, build.and_(last, int64(-LANES))]
        found = []
        for number, end in enumerate(ends):

            def further(index: Any, sums: list[Any], number: int = number) -> list[Any]:
                return [build.fadd(sums[0], load(number, index))]

            if number:
                over = whole[0], end, LANES
                (sums[number],) = loop(build, over, [sums[number]], further)[1]
            found.append(self.joined(sums[number], 0))
        begin = build.add(starts[-1], ends[-1])
        found[-1] = self.one_by_one([found[-1]], begin)[0]
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [build.fadd(first, second) for first, second in pairs]
        return found[0]

    def one_by_one(self, total: list[Any], start: Any) -> list[Any]:
        """Add the elements from `start` on, in order."""

        def step(index: Any, sums: list[Any]) -> list[Any]:
            place = self.place(index)
            added = []
            for at, each in enumerate(sums):
                part = self.builder.gep(place, [self.int64(at)])
                added.append(self.builder.fadd(each, self.builder.load(part, align=1)))
            return added

        return loop(self.builder, (start, self.count, 1), total, step)[1]

    def block(self, whole: Any) -> list[Any]:
        """Eight accumulators over the first `whole` elements, joined in NumPy's order."""

        def load(index: Any) -> Any:
            place = self.builder.bitcast(self.place(index), self.vector.as_pointer())
            return self.builder.load(place, align=1)

        def step(index: Any, sums: list[Any]) -> list[Any]:
            return [self.builder.fadd(sums[0], load(index))]

        stride = LANES // self.parts
        over = self.int64(stride), whole, stride
        (sums,) = loop(self.builder, over, [load(self.int64(0))], step)[1]
        return [self.joined(sums, at) for at in range(self.parts)]

    def joined(self, sums: Any, part: int) -> Any:
        index = self.ir.IntType(32)
        lanes = [
            self.builder.extract_element(sums, index(at)) for at in range(part, LANES, self.parts)
        ]
        while len(lanes) > 1:
            pairs = zip(lanes[::2], lanes[1::2], strict=True)
            lanes = [self.builder.fadd(first, second) for first, second in pairs]
        return lanes[0]
