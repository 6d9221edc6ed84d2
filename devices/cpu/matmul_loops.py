"""The loop nest of a matrix product, as LLVM text: `C = A @ B` for one tile of rows.

A block of B's rows is packed a few vectors wide, and stays in the first cache while all rows of
the tile pass by: a few rows at a time keep their results in registers. Every element of C is the
same chain of operations, at any position and for any tiles: fused multiplications and additions
along the inner axis from 0 on, in segments (see DEPTH) that are then added. Vectors only hold
neighbours. So bits depend on the operands alone: not on tiles, threads or the width of this
machine's vectors. Integers wrap around.
Owns the text, its registers and its row of arguments; lazyfuse/runtime/execution/matmul.py chooses
the operands.
"""

from __future__ import annotations

from ..base import DeviceError
from ..pools.object_code import ENTRY
from . import matmul_packing
from .llvm_text import flag_text, words
from .matmul_packing import Names

# Elements of one chain. The last two segments have equal sizes, so none is short, as in OpenBLAS.
DEPTH = 256
# The row of a call: the number of products, the sizes of each, strides in elements (the results'
# columns are dense), then the addresses of A, B and the result.
ROW = (
    "items", "m", "n", "depth", "a.item", "a.row", "a.column", "b.item", "b.row", "b.column",
    "c.item", "c.row", "A.0", "B.0", "C.0",
)  # fmt: skip


def shape_of(code: str, features: str) -> tuple[int, int, int]:
    """Elements per vector; rows and vectors whose results stay in registers."""
    known = set(features.split(","))
    size = int(code[1])
    if "+avx512f" in known and "+avx512vl" in known and "+avx512dq" in known:
        return 64 // size, 8, 3  # of 32 registers
    if "+avx2" in known and "+fma" in known:
        return 32 // size, 4, 3  # of 16
    if "+neon" in known or "+fp-armv8" in known:
        return 16 // size, 8, 3
    raise DeviceError("[matmul] registers: this processor has no fused multiplication of vectors")


def text(code: str, features: str, turned: bool) -> str:
    """The module: `int32 entry(row, scalars)`, which returns IEEE flags.

    `turned`: B's rows need not be dense. That takes LLVM a third of the time of all other code,
    for which the program's first result waits.
    """
    lanes, rows, vectors = shape_of(code, features)
    names = Names(code, lanes)
    parts = [names.declarations()]
    parts += [_strip(names, rows, count) for count in (1, vectors)]
    parts += [matmul_packing.text(names, vectors, turned), _entry(names, rows, vectors)]
    return "\n".join(parts)


def arguments() -> str:
    """The lines that read a row of arguments."""
    return words("row", {name: "ptr" if name[0] in "ABC" else "i64" for name in ROW})


def _strip(names: Names, rows: int, vectors: int) -> str:
    """The function that takes a few rows through one packed block.

    `lanes`: which of the last vector's columns exist; `kept`: those of them where the result
    already has earlier segments; `earlier`: the same for the other vectors.
    """
    kind, size, vector, mask = names.kind, names.size, names.vector, names.mask
    lines = [
        f"define internal void @strip{vectors}(ptr %a, i64 %a.row, i64 %a.column, ptr %block, "
        f"i64 %depth, ptr %c, i64 %c.row, i64 %rows, {mask} %lanes, {mask} %kept, "
        f"{mask} %earlier) noinline {{",
        "start:",
        "  %top = sub i64 %rows, 1",
    ]
    for i in range(rows):  # missing rows repeat the last row, and are not stored
        lines += [
            f"  %in{i} = icmp slt i64 {i}, %top",
            f"  %i{i} = select i1 %in{i}, i64 {i}, i64 %top",
            f"  %ai{i} = mul i64 %i{i}, %a.row",
            f"  %a{i} = getelementptr {kind}, ptr %a, i64 %ai{i}",
        ]
    lines += [
        "  br label %loop",
        "loop:",
        "  %k = phi i64 [0, %start], [%k.next, %loop]",
        "  %at = phi i64 [0, %start], [%at.next, %loop]",
        "  %b = phi ptr [%block, %start], [%b.next, %loop]",
    ]
    cells = [(i, j) for i in range(rows) for j in range(vectors)]
    for i, j in cells:
        before = f"[zeroinitializer, %start], [%t{i}.{j}, %loop]"
        lines.append(f"  %s{i}.{j} = phi {vector} {before}")
    for j in range(vectors):
        lines += [
            f"  %bp{j} = getelementptr {vector}, ptr %b, i64 {j}",
            f"  %b{j} = load {vector}, ptr %bp{j}, align {size}",
        ]
    for i in range(rows):
        lines += [
            f"  %p{i} = getelementptr {kind}, ptr %a{i}, i64 %at",
            f"  %x{i} = load {kind}, ptr %p{i}, align {size}",
            *names.repeated(f"%y{i}", kind, f"%x{i}"),
        ]
        for j in range(vectors):
            lines += names.multiplied(f"%t{i}.{j}", f"%y{i}", f"%b{j}", f"%s{i}.{j}")
    lines += [
        "  %k.next = add i64 %k, 1",
        "  %at.next = add i64 %at, %a.column",
        f"  %b.next = getelementptr {vector}, ptr %b, i64 {vectors}",
        "  %more = icmp slt i64 %k.next, %depth",
        "  br i1 %more, label %loop, label %out0",
    ]
    for i in range(rows):
        lines += [
            f"out{i}:",
            f"  %ci{i} = mul i64 {i}, %c.row",
            f"  %c{i} = getelementptr {kind}, ptr %c, i64 %ci{i}",
        ]
        for j in range(vectors):
            last = j == vectors - 1
            here, old = f"ptr %q{i}.{j}, i32 {size}", "%kept" if last else "%earlier"
            store = f"call void @llvm.masked.store.{names.suffix}.p0({vector} %n{i}.{j}, {here}, "
            lines += [
                f"  %q{i}.{j} = getelementptr {vector}, ptr %c{i}, i64 {j}",
                f"  %o{i}.{j} = call {vector} @llvm.masked.load.{names.suffix}.p0({here}, "
                f"{mask} {old}, {vector} zeroinitializer)",
                f"  %n{i}.{j} = {names.sum} {vector} %o{i}.{j}, %t{i}.{j}",
                f"  {store}{mask} %lanes)"
                if last
                else f"  store {vector} %n{i}.{j}, ptr %q{i}.{j}, align {size}",
            ]
        if i < rows - 1:
            lines += [
                f"  %go{i} = icmp sgt i64 %rows, {i + 1}",
                f"  br i1 %go{i}, label %out{i + 1}, label %end",
            ]
    return "\n".join([*lines, "  br label %end", "end:", "  ret void", "}"])


EACH = """\
each:
  %item = phi i64 [0, %start], [%item.next, %item.end]
  %a.first = mul i64 %item, %a.item
  %A = getelementptr {kind}, ptr %A.0, i64 %a.first
  %b.first = mul i64 %item, %b.item
  %B = getelementptr {kind}, ptr %B.0, i64 %b.first
  %c.first = mul i64 %item, %c.item
  %C = getelementptr {kind}, ptr %C.0, i64 %c.first"""
"""The products of a stack: from `%start` to what follows; `%item.end` closes the loop."""

_ENTRY = """
define i32 @{entry}(ptr %row, ptr %scalars) {{
start:
  %block = alloca [{room} x {kind}], align 64
{arguments}
  {clear}
  %n.last = sub i64 %n, 1
  br label %each
{each}
  br label %stretches
stretches:
  %s = phi i64 [0, %each], [%s.next, %stretch.end]
  %left = sub i64 %depth, %s
  %many = icmp sge i64 %left, {twice}
  %few = icmp sle i64 %left, {depth}
  %left.up = add i64 %left, 1
  %half = lshr i64 %left.up, 1
  %some = select i1 %few, i64 %left, i64 %half
  %count = select i1 %many, i64 {depth}, i64 %some
  %s.next = add i64 %s, %count
  %later = icmp ne i64 %s, 0
{later}
  %a.from = mul i64 %s, %a.column
  %A.s = getelementptr {kind}, ptr %A, i64 %a.from
  %b.from = mul i64 %s, %b.row
  %B.s = getelementptr {kind}, ptr %B, i64 %b.from
  br label %blocks
blocks:
  %j = phi i64 [0, %stretches], [%j.next, %block.end]
  %rest = sub i64 %n, %j
  %broad = icmp sgt i64 %rest, {narrow}
  %vectors = select i1 %broad, i64 {vectors}, i64 1
  %packed.row = mul i64 %vectors, {lanes}
  %whole = icmp sge i64 %rest, %packed.row
  %full = and i1 %whole, %broad
  %wide = select i1 %whole, i64 %packed.row, i64 %rest
  %vectors.less = sub i64 %vectors, 1
  %before = mul i64 %vectors.less, {lanes}
  %in.last = sub i64 %wide, %before
{spread}
  %lanes = icmp slt <{lanes} x i64> <{iota}>, %in.last.all
  %kept = and {mask} %lanes, %later.all
  call void @pack(ptr %block, ptr %B.s, i64 %b.row, i64 %b.column, i64 %j, i64 %n.last,
    i64 %count, i64 %packed.row, i64 %vectors, i1 %full, {mask} %lanes)
  br label %strips
strips:
  %i = phi i64 [0, %blocks], [%i.next, %strip.end]
  %a.at = mul i64 %i, %a.row
  %A.i = getelementptr {kind}, ptr %A.s, i64 %a.at
  %c.at = mul i64 %i, %c.row
  %C.i = getelementptr {kind}, ptr %C, i64 %c.at
  %C.j = getelementptr {kind}, ptr %C.i, i64 %j
  %i.left = sub i64 %m, %i
  br i1 %broad, label %call{vectors}, label %call1
{calls}
strip.end:
  %i.next = add i64 %i, {rows}
  %i.more = icmp slt i64 %i.next, %m
  br i1 %i.more, label %strips, label %block.end
block.end:
  %j.next = add i64 %j, %packed.row
  %j.more = icmp slt i64 %j.next, %n
  br i1 %j.more, label %blocks, label %stretch.end
stretch.end:
  %s.more = icmp slt i64 %s.next, %depth
  br i1 %s.more, label %stretches, label %item.end
item.end:
  %item.next = add i64 %item, 1
  %item.more = icmp slt i64 %item.next, %items
  br i1 %item.more, label %each, label %done
done:
{flags}
}}
"""


def _entry(names: Names, rows: int, vectors: int) -> str:
    """The entry function: loops over segments, blocks of columns, rows."""
    kind, vector, lanes, size = names.kind, names.vector, names.lanes, names.size
    passed = (
        "ptr %A.i, i64 %a.row, i64 %a.column, ptr %block, i64 %count, ptr %C.j, i64 %c.row, "
        f"i64 %i.left, {names.mask} %lanes, {names.mask} %kept, {names.mask} %later.all"
    )
    calls = [
        f"call{count}:\n  call void @strip{count}({passed})\n  br label %strip.end"
        for count in (1, vectors)
    ]
    clear, flags, _ = flag_text() if names.floats else ("", "  ret i32 0", "")
    return _ENTRY.format(
        entry=ENTRY,
        room=DEPTH * lanes * vectors,
        kind=kind,
        vector=vector,
        size=size,
        mask=names.mask,
        arguments=arguments(),
        clear=clear,
        twice=2 * DEPTH,
        depth=DEPTH,
        later="\n".join(names.repeated("%later.all", "i1", "%later")),
        each=EACH.format(kind=kind),
        vectors=vectors,
        narrow=lanes * (vectors - 1),
        lanes=lanes,
        spread="\n".join(names.repeated("%in.last.all", "i64", "%in.last")),
        iota=", ".join(f"i64 {lane}" for lane in range(lanes)),
        rows=rows,
        calls="\n".join(calls),
        flags=flags,
    )
