"""Packing a block of the second operand of a matrix product, as LLVM text.

The block holds one row of a few vectors per step along the inner axis. Missing columns repeat an
existing one: zeros instead would raise "invalid" when multiplied by infinities. Owns the types
of the text (`Names`) and the packing; matmul_loops.py has the product.
"""

from __future__ import annotations

from .llvm_text import flag_text

KINDS = {"f8": "double", "f4": "float", "i8": "i64", "i4": "i32"}
"""Element types, by code."""


class Names:
    """Types and functions of one element type."""

    def __init__(self, code: str, lanes: int) -> None:
        self.kind = KINDS[code]
        self.size = int(code[1])
        self.lanes = lanes
        self.floats = code[0] == "f"
        self.vector = f"<{lanes} x {self.kind}>"
        self.mask = f"<{lanes} x i1>"
        self.suffix = f"v{lanes}{code[0]}{8 * self.size}"
        self.sum = "fadd" if self.floats else "add"

    def declarations(self) -> str:
        vector, mask = self.vector, self.mask
        lines = [
            f"declare {vector} @llvm.masked.load.{self.suffix}.p0(ptr, i32, {mask}, {vector})",
            f"declare void @llvm.masked.store.{self.suffix}.p0({vector}, ptr, i32, {mask})",
        ]
        if self.floats:
            lines.append(f"declare {vector} @llvm.fma.{self.suffix}({vector}, {vector}, {vector})")
            lines.append(flag_text()[2])
        return "\n".join(lines)

    def multiplied(self, result: str, first: str, second: str, total: str) -> list[str]:
        """`result = first * second + total`."""
        vector = self.vector
        if self.floats:
            operands = f"{vector} {first}, {vector} {second}, {vector} {total}"
            return [f"  {result} = call {vector} @llvm.fma.{self.suffix}({operands})"]
        product = f"{result}.product"
        return [
            f"  {product} = mul {vector} {first}, {second}",
            f"  {result} = add {vector} {product}, {total}",
        ]

    def repeated(self, result: str, kind: str, value: str) -> list[str]:
        """A vector of one value."""
        vector = f"<{self.lanes} x {kind}>"
        return [
            f"  {result}.one = insertelement {vector} poison, {kind} {value}, i32 0",
            f"  {result} = shufflevector {vector} {result}.one, {vector} poison, "
            f"<{self.lanes} x i32> zeroinitializer",
        ]


_PACK = """
define internal void @pack(ptr %block, ptr %B.s, i64 %b.row, i64 %b.column, i64 %j, i64 %n.last,
    i64 %count, i64 %packed.row, i64 %vectors, i1 %whole, {mask} %lanes) noinline {{
start:
  %vectors.less = sub i64 %vectors, 1
  %b.at = mul i64 %j, %b.column
  %B.j = getelementptr {kind}, ptr %B.s, i64 %b.at
{body}
packed:
  ret void
}}
"""

_DENSE = """  br i1 %whole, label %copy, label %part
copy:
  %copy.k = phi i64 [0, %start], [%copy.next, %copy]
  %copy.from = phi ptr [%B.j, %start], [%copy.from.next, %copy]
  %copy.to = phi ptr [%block, %start], [%copy.to.next, %copy]
{copies}
  %copy.next = add i64 %copy.k, 1
  %copy.from.next = getelementptr {kind}, ptr %copy.from, i64 %b.row
  %copy.to.next = getelementptr {vector}, ptr %copy.to, i64 {most}
  %copy.more = icmp slt i64 %copy.next, %count
  br i1 %copy.more, label %copy, label %packed
part:
  %part.k = phi i64 [0, %start], [%part.next, %part.end]
  %part.from = phi ptr [%B.j, %start], [%part.from.next, %part.end]
  %part.to = phi ptr [%block, %start], [%part.to.next, %part.end]
  %part.first = load {kind}, ptr %part.from, align {size}
{part_spread}
  br label %vector
vector:
  %v = phi i64 [0, %part], [%v.next, %vector]
  %v.last = icmp eq i64 %v, %vectors.less
  %v.there = select i1 %v.last, {mask} %lanes, {mask} splat (i1 true)
  %v.from = getelementptr {vector}, ptr %part.from, i64 %v
  %v.to = getelementptr {vector}, ptr %part.to, i64 %v
  %v.value = call {vector} @llvm.masked.load.{suffix}.p0({part_load})
  store {vector} %v.value, ptr %v.to, align {size}
  %v.next = add i64 %v, 1
  %v.more = icmp slt i64 %v.next, %vectors
  br i1 %v.more, label %vector, label %part.end
part.end:
  %part.next = add i64 %part.k, 1
  %part.from.next = getelementptr {kind}, ptr %part.from, i64 %b.row
  %part.to.next = getelementptr {kind}, ptr %part.to, i64 %packed.row
  %part.more = icmp slt i64 %part.next, %count
  br i1 %part.more, label %part, label %packed"""

_TURNED = """  %turns = icmp eq i64 %b.row, 1
  %squares = and i64 %count, {square_mask}
  %any.square = icmp sgt i64 %squares, 0
  %turn = and i1 %turns, %any.square
  br i1 %turn, label %columns, label %gather.all
columns:
  %u = phi i64 [0, %start], [%u.next, %columns.end]
  %u.to = getelementptr {kind}, ptr %block, i64 %u
{columns}
  br label %square
square:
  %q = phi i64 [0, %columns], [%q.next, %square]
{turn}
  %q.next = add i64 %q, {lanes}
  %q.more = icmp slt i64 %q.next, %squares
  br i1 %q.more, label %square, label %columns.end
columns.end:
  %u.next = add i64 %u, {lanes}
  %u.more = icmp slt i64 %u.next, %packed.row
  br i1 %u.more, label %columns, label %columns.done
columns.done:
  %done.already = icmp eq i64 %squares, %count
  br i1 %done.already, label %packed, label %gather.all
gather.all:
  %g.first = phi i64 [0, %start], [%squares, %columns.done]
  %g.left = sub i64 %count, %g.first
  %g.source = mul i64 %g.first, %b.row
  %g.target = mul i64 %g.first, %packed.row
  %B.g = getelementptr {kind}, ptr %B.s, i64 %g.source
  %block.g = getelementptr {kind}, ptr %block, i64 %g.target
  br label %gather
gather:
  %g = phi i64 [0, %gather.all], [%g.next, %gathered]
  %g.wanted = add i64 %j, %g
  %g.there = icmp slt i64 %g.wanted, %n.last
  %g.column = select i1 %g.there, i64 %g.wanted, i64 %n.last
  %g.at = mul i64 %g.column, %b.column
  %g.from = getelementptr {kind}, ptr %B.g, i64 %g.at
  %g.to = getelementptr {kind}, ptr %block.g, i64 %g
  br label %element
element:
  %e = phi i64 [0, %gather], [%e.next, %element]
  %e.from = phi ptr [%g.from, %gather], [%e.from.next, %element]
  %e.to = phi ptr [%g.to, %gather], [%e.to.next, %element]
  %e.value = load {kind}, ptr %e.from, align {size}
  store {kind} %e.value, ptr %e.to, align {size}
  %e.next = add i64 %e, 1
  %e.from.next = getelementptr {kind}, ptr %e.from, i64 %b.row
  %e.to.next = getelementptr {kind}, ptr %e.to, i64 %packed.row
  %e.more = icmp slt i64 %e.next, %g.left
  br i1 %e.more, label %element, label %gathered
gathered:
  %g.next = add i64 %g, 1
  %g.more = icmp slt i64 %g.next, %packed.row
  br i1 %g.more, label %gather, label %packed"""


def text(names: Names, vectors: int, turned: bool) -> str:
    """The function that packs a block of columns, at most `vectors` vectors wide.

    `turned`: for any strides, and fast where columns are dense; else rows must be dense.
    """
    body = _turned(names) if turned else _dense(names, vectors)
    return _PACK.format(kind=names.kind, mask=names.mask, body=body)


def _dense(names: Names, vectors: int) -> str:
    kind, vector, size = names.kind, names.vector, names.size
    copies = []
    for j in range(vectors):
        copies += [
            f"  %copy.from{j} = getelementptr {vector}, ptr %copy.from, i64 {j}",
            f"  %copy{j} = load {vector}, ptr %copy.from{j}, align {size}",
            f"  %copy.to{j} = getelementptr {vector}, ptr %copy.to, i64 {j}",
            f"  store {vector} %copy{j}, ptr %copy.to{j}, align {size}",
        ]
    return _DENSE.format(
        kind=kind,
        vector=vector,
        size=size,
        mask=names.mask,
        most=vectors,
        suffix=names.suffix,
        part_load=f"ptr %v.from, i32 {size}, {names.mask} %v.there, {vector} %part.first.all",
        part_spread="\n".join(names.repeated("%part.first.all", kind, "%part.first")),
        copies="\n".join(copies),
    )


def _turned(names: Names) -> str:
    return _TURNED.format(
        kind=names.kind,
        size=names.size,
        lanes=names.lanes,
        square_mask=-names.lanes,
        columns="\n".join(_columns(names)),
        turn="\n".join(_turn(names)),
    )


def _columns(names: Names) -> list[str]:
    """Pointers to the columns that one vector of a packed row comes from; the last one repeats."""
    lines = []
    for lane in range(names.lanes):
        lines += [
            f"  %u.a{lane} = add i64 %u, {lane}",
            f"  %u.w{lane} = add i64 %j, %u.a{lane}",
            f"  %u.in{lane} = icmp slt i64 %u.w{lane}, %n.last",
            f"  %u.c{lane} = select i1 %u.in{lane}, i64 %u.w{lane}, i64 %n.last",
            f"  %u.at{lane} = mul i64 %u.c{lane}, %b.column",
            f"  %u.from{lane} = getelementptr {names.kind}, ptr %B.s, i64 %u.at{lane}",
        ]
    return lines


def _turn(names: Names) -> list[str]:
    """Pack a square of vectors along the columns as vectors along the rows: halves interleaved."""
    lanes, vector, size = names.lanes, names.vector, names.size
    lines = []
    for lane in range(lanes):
        lines += [
            f"  %q.from{lane} = getelementptr {names.kind}, ptr %u.from{lane}, i64 %q",
            f"  %q0.{lane} = load {vector}, ptr %q.from{lane}, align {size}",
        ]
    half, rounds = lanes // 2, lanes.bit_length() - 1
    for turn in range(rounds):
        for i in range(half):
            pair = f"{vector} %q{turn}.{i}, {vector} %q{turn}.{i + half}"
            for side in (0, 1):
                picks = [
                    f"i32 {side * half + lane // 2 + lane % 2 * lanes}" for lane in range(lanes)
                ]
                mask = f"<{lanes} x i32> <{', '.join(picks)}>"
                lines.append(f"  %q{turn + 1}.{2 * i + side} = shufflevector {pair}, {mask}")
    for row in range(lanes):
        lines += [
            f"  %q.k{row} = add i64 %q, {row}",
            f"  %q.at{row} = mul i64 %q.k{row}, %packed.row",
            f"  %q.to{row} = getelementptr {names.kind}, ptr %u.to, i64 %q.at{row}",
            f"  store {vector} %q{rounds}.{row}, ptr %q.to{row}, align {size}",
        ]
    return lines
