"""The printer of language "numpy": a kernel variant as NumPy calls on one cache-sized chunk.

`def NAME(arrays, scalars, scratch)`: `arrays` are views of the chunk alone, of one shape (a loop
per axis; broadcast by strides of 0); `scratch(slot, shape, dtype)` gives working memory. Every
operation is NumPy's own loop, so the bits are NumPy's. Identifiers: a array, x scalar, v value,
r reduced value.
"""

from __future__ import annotations

import numpy as np

from lazyfuse.codegen.lowering.kernel import (
    Instruction,
    Kernel,
    Reduce,
    is_argument,
    is_ordered,
)
from lazyfuse.codegen.lowering.printing import KernelText, named_source
from lazyfuse.codegen.lowering.variant import KernelVariant, value_target
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Source

_HEADER = """import numpy as np
from lazyfuse.codegen.blocked import functions, reductions
from lazyfuse.codegen.table import ops


"""


def print_source(
    kernel: Kernel, form: KernelVariant, printing: type[Printer] | None = None
) -> Source:
    """The program text of a kernel variant."""
    printer = (printing or Printer)(kernel, form)
    printer.entry()
    body = "\n".join(printer.lines)
    rank = form.loops + form.ragged
    arrays = printer.arrays + printer.extra
    # the text is the program's identity, so programs for other dtypes need another text
    about = f"# {rank} loops over {' '.join(arrays)}; scalars {' '.join(kernel.scalars)}"
    text = f"{_HEADER}def NAME(arrays, scalars, scratch):\n    {about}\n{body}\n"
    return named_source("numpy", text, rank, arrays, kernel, exact=True)


class Printer(KernelText):
    """The statements of one text."""

    def __init__(self, kernel: Kernel, form: KernelVariant) -> None:
        super().__init__(kernel, form)
        self.first_value = self.first_store + len(kernel.scalars)
        positions = form.loops if self.has_index else 0
        self.extra = ("i8",) * (positions + form.ragged)
        self.last_use = self.uses()
        self.slots: dict[str, list[int]] = {}  # dtype -> free slots
        self.slot_of: dict[int, int] = {}
        self.next_slot = 0

    def uses(self) -> dict[int, int]:
        """The last instruction that reads each value; outputs are read at the very end."""
        last = {}
        for at, each in enumerate(self.kernel.body, self.first_value):
            last[at] = at
            for value in each.args:
                last[value] = at
        for value in self.output_values():
            last[value] = len(self.dtypes)
        return last

    def output_values(self) -> list[int]:
        values = [each.value for each in self.kernel.stores]
        return values + [each.value for each in self.kernel.reductions]

    def entry(self) -> None:
        self.arguments()
        direct = self.direct_stores()
        for at, each in enumerate(self.kernel.body, self.first_value):
            self.line(f"v{at} = {direct.get(at) or self.allocate(at)}")
            self.instruction(at, each)
            self.release(at)
        self.stores(set(direct))
        for r, reduction in enumerate(self.kernel.reductions):
            self.reduction(r, reduction)

    def arguments(self) -> None:
        count = len(self.arrays)
        for k in range(count):
            # a loop over the segments encloses a ragged run's loops
            first = "[0]" if self.variant.ragged and k < self.first_target else ""
            self.line(f"a{k} = arrays[{k}]{first}")
        self.line("shape = a0.shape" if self.first_target else f"shape = {self.any_shape()}")
        for k, dtype in enumerate(self.kernel.scalars):
            self.line(f"x{k} = np.asarray(scalars[{k}], {dtype!r})")
        if self.has_index:
            terms = " + ".join(
                f"arrays[{count + at}]{'[0]' if self.variant.ragged else ''}"
                for at in range(self.variant.loops)
            )
            self.line(f"positions = {terms}")
        bounds = f"arrays[{count + len(self.extra) - 1}]" if self.variant.ragged else ""
        if bounds:
            place = "[:, " + ", ".join(["0"] * self.variant.loops) + "]"
            self.line(f"lows = {bounds}{place}")

    def any_shape(self) -> str:
        return "a0.shape[1:]" if self.variant.ragged else "a0.shape"

    # Values

    def name(self, value: int) -> str:
        if value < self.first_store:
            return f"a{value}"
        if value < self.first_value:
            return f"x{value - self.first_store}"
        return f"v{value}"

    def allocate(self, value: int) -> str:
        dtype = self.dtypes[value]
        free = self.slots.setdefault(dtype, [])
        if not free:
            free.append(self.next_slot)
            self.next_slot += 1
        self.slot_of[value] = free.pop()
        return f"scratch({self.slot_of[value]}, shape, {dtype!r})"

    def release(self, at: int) -> None:
        for value, last in self.last_use.items():
            if last == at and value in self.slot_of:
                self.slots[self.dtypes[value]].append(self.slot_of.pop(value))

    def argument(self, value: int, dtype: str) -> str:
        """A value as the argument of a ufunc that casts it unsafely."""
        source = self.dtypes[value]
        drops = source[0] == "c" and dtype[0] in "iuf"
        return self.name(value) + (".real" if drops else "")  # NumPy would warn

    def instruction(self, at: int, each: Instruction) -> None:
        row = ops.TABLE[each.op]
        args = [self.argument(v, d) for v, d in zip(each.args, each.ins, strict=True)]
        if row.ufunc is not None:
            chars = "".join(np.dtype(dtype).char for dtype in each.ins)
            signature = f"{chars}->{np.dtype(each.out).char}"
            if signature not in row.ufunc.types:
                # loops of mixed signedness are registered for long long, which is long here
                signature = signature.replace("l", "q").replace("L", "Q")
            listed = ", ".join(args)
            name = row.ufunc.__name__
            of_numpy = getattr(np, name, None) is row.ufunc
            ufunc = f"np.{name}" if of_numpy else f"ops.TABLE[{row.name!r}].ufunc"
            self.line(f"{ufunc}({listed}, out=v{at}, signature={signature!r}, casting='unsafe')")
        elif each.op in ("cast", "copy"):
            value = self.argument(each.args[0], each.out)
            self.line(f"np.copyto(v{at}, {value}, casting='unsafe')")
        elif each.op == "where":
            where = args[0] if self.dtypes[each.args[0]] == "b1" else f"{args[0]}.astype('b1')"
            self.line(f"np.copyto(v{at}, {args[2]}, casting='unsafe')")
            self.line(f"np.copyto(v{at}, {args[1]}, where={where}, casting='unsafe')")
        else:
            pairs = zip(args, each.ins, strict=True)
            cast = ", ".join(f"{arg}.astype({dtype!r}, copy=False)" for arg, dtype in pairs)
            result = f"ops.TABLE[{each.op!r}].reference({cast})"
            self.line(f"np.copyto(v{at}, {result}, casting='unsafe')")

    # Outputs

    def direct_stores(self) -> dict[int, str]:
        """Instructions that may write an output at once: no later instruction reads an input.

        An output may share its memory with an input.
        """
        if any(value < self.first_store for value in self.output_values()):
            return {}
        last_read = max(
            (self.last_use[k] for k in range(self.first_store) if k in self.last_use), default=-1
        )
        found: dict[int, str] = {}
        for k, store in enumerate(self.kernel.stores, self.first_store):
            value = store.value
            late = value >= max(self.first_value, last_read)
            if not late or value in found or store.dtype != self.dtypes[value]:
                continue
            if self.kernel.body[value - self.first_value].op != "where":  # it writes twice
                found[value] = f"a{k}"
        return found

    def stores(self, direct: set[int]) -> None:
        pending = []
        for k, store in enumerate(self.kernel.stores, self.first_store):
            if store.value in direct:
                direct.discard(store.value)
                continue
            value = self.argument(store.value, store.dtype)
            pending.append((k, store, value))
        alone = len(pending) == 1 and not self.kernel.reductions
        saved = []
        for k, store, value in pending:
            if store.value < self.first_store and not alone:  # an earlier store might overwrite it
                self.line(f"s{k} = scratch('s{k}', shape, {store.dtype!r})")
                self.line(f"np.copyto(s{k}, {value}, casting='unsafe')")
                value = f"s{k}"
            saved.append((k, value))
        for r, each in enumerate(self.kernel.reductions):
            self.reduced_value(r, each)
        for k, value in saved:
            self.line(f"np.copyto(a{k}, {value}, casting='unsafe')")

    def reduced_value(self, r: int, each: Reduce) -> None:
        """The reduced value, packed in the order of the loops, as its accumulator's dtype."""
        value = self.argument(each.value, each.accumulator)
        if each.value in self.slot_of and self.dtypes[each.value] == each.accumulator:
            self.line(f"r{r} = {value}")
            return
        self.line(f"r{r} = scratch('r{r}', shape, {each.accumulator!r})")
        self.line(f"np.copyto(r{r}, {value}, casting='unsafe')")

    def reduction(self, r: int, each: Reduce) -> None:
        target = f"a{self.first_target + r}"
        flags = self.variant.outer + (self.variant.core == "row",) * self.variant.run
        bounds = ", lows" if self.variant.ragged else ""
        if is_argument(each):
            values = f"a{value_target(self.kernel, r)}"
            self.line(
                f"reductions.find(np.{each.op}, r{r}, positions, {target}, {values}, "
                f"{flags}{bounds})"
            )
            return
        ufunc = ops.TABLE[f"reduce:{each.op}"].ufunc.__name__
        in_order = is_ordered(each) and "tree" not in self.variant.methods
        how = "reduce_in_order" if in_order else "reduce_runs"
        self.line(f"reductions.{how}(np.{ufunc}, r{r}, {target}, {flags}{bounds})")
