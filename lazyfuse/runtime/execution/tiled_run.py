"""Running chains of kernels tile by tile, or saying why not.

Owns the decision, the programs of tiles and the launch; decisions for sizes and strides are kept.
In all other cases `run` declines, and the executor runs the steps of the chain one after the other:
exceptions that the reference interpreter has to confirm, programs that are not compiled yet, orders
of summation that a tile would change (see tiles.py). Results have the same bits either way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.plan.chains import Chain, is_product
from lazyfuse.codegen.plan.plan import Plan
from lazyfuse.devices.base import Source
from lazyfuse.devices.cpu.launch import NumbaProgram
from lazyfuse.devices.cpu.tile_loop import Address, Batch, Call
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.events import counters, log, tracing
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.execution.tiles import (
    MAKERS,
    Declined,
    SizedChain,
    Task,
    TileCall,
    TileOperand,
    prepare,
)
from lazyfuse.runtime.numerics import fp_flags

if TYPE_CHECKING:
    from lazyfuse.runtime.execution.executor import Run

__all__ = [
    "MAKERS",
    "BoundChain",
    "TileCall",
    "TileOperand",
    "bind",
    "described",
    "run",
    "sources",
]

Array = np.ndarray[Any, np.dtype[Any]]
Ints = tuple[int, ...]

# Most runs that skip tiled execution after runs that raised floating-point exceptions.
LONGEST_BACKOFF = 64
# Sizes for which a chain remembers whether they are large, at most.
DOMAINS = 64


def run(values: Run, chain: Chain) -> bool:
    """Run all steps of a chain by tiles; False if the executor has to run them one by one."""
    sizes = values.sizes
    whole = chain.domain_elements.get(sizes)
    if whole is None or whole != chain.kernels[0].domain_elements:
        whole = _mark(values, chain)
    options = config.options
    if values.off_cpu or not options.pipelining or not whole or options.validate or tracing.stages:
        return False
    if chain.backoff:
        chain.backoff -= 1
        return False
    loads = [values.array(index) for index in chain.loads]
    key = (values.device, options.matrix_products, sizes, *[array.strides for array in loads])
    prepared: SizedChain | None = chain.bound.get(key)
    if prepared is None:
        prepared = prepare(values, chain, loads)
        if len(chain.bound) >= program_tiers.MOST_SIZES:
            chain.bound.clear()
        if not prepared.why.endswith(" yet"):
            chain.bound[key] = prepared
    try:
        if prepared.why:
            raise Declined(prepared.why)
        if prepared.batch is None:
            prepared.batch = _batch(values, chain, prepared)
        return _launch(values, chain, prepared, loads)
    except Declined as declined:
        chain.why = str(declined)
        return False


def _mark(values: Run, chain: Chain) -> int:
    """Elements of the largest domain, which decides the tier of all kernels; 0: too few."""
    largest = most = 0.0
    kernels = (chain.parent or chain).kernels  # a chain and its parts have the same tier
    for step in kernels:
        elements = size_of(values.shape(step.domain_of))
        largest = max(largest, elements)
        most = max(most, elements * max(step.cost, 1.0))
    whole = int(largest) if most >= program_tiers.COMPILE_ELEMENTS else 0
    for step in kernels:
        step.domain_elements = whole
    if len(chain.domain_elements) >= DOMAINS:
        chain.domain_elements.clear()
    chain.domain_elements[values.sizes] = whole
    return whole


# Programs


def _batch(values: Run, chain: Chain, prepared: SizedChain) -> Batch:
    """The calls of all tiles, once every program is compiled."""
    tasks = [task for each in prepared.variants for task in each if task.lowered is not None]
    chain.uses += 1
    made = {id(task): _program(values, chain, task) for task in tasks}
    if None in made.values():
        raise Declined("its programs are not compiled yet")
    variants: list[list[Call]] = []
    groups = len(prepared.kernels)
    prepared.programs = [None] * groups
    work = 0.0
    for task in tasks:
        program = made[id(task)]
        assert program is not None
        assert task.step is not None
        if prepared.programs[task.group] is None:
            prepared.programs[task.group] = program
            work += program.weight * size_of(values.shape(task.step.domain_of))
        prepared.keep.append(program)
    for variant in prepared.variants:
        calls: list[Call] = []
        for task in variant:
            if task.part is not None:
                calls.append(_call(task, task.part, groups, prepared.rows))
                prepared.keep.append(task.part.keep)
                work += task.part.work if variant is prepared.variants[0] else 0.0
            else:
                entry = made[id(task)].entry  # type: ignore[union-attr]
                calls += _calls(task, entry, prepared.rows)
        variants.append(calls)
    sizes = [16 * len(step.scalars) for step in prepared.kernels] + [0]
    batch = Batch(variants, prepared.tiles, prepared.full_tiles, sizes, prepared.scratch, work)
    parts = [task.part for task in prepared.variants[0] if task.part is not None]
    batch.within = next((part.within for part in parts if part.within), batch.within)
    return batch


def _program(values: Run, chain: Chain, task: Task) -> NumbaProgram | None:
    """The program of a kernel on a tile; None if it is not compiled yet."""
    source, device, step = task.source, values.device, task.step
    assert step is not None
    program: Any = step.programs.get((device, source))
    if program is None:
        wanted = not source.exact or chain.uses > config.options.compile_after
        if not (wanted or device.cached(source)):
            return None
        if device.soon(source) is None:
            if device.why_never(source):
                raise Declined("a program was refused")
            return None
        program = program_tiers.compiled(step, source, device)
    if not isinstance(program, NumbaProgram):
        raise Declined("a program was refused")
    return program


def _calls(task: Task, entry: int, rows: int) -> list[Call]:
    """The calls of one kernel on one tile: one per chunk of the tile."""
    assert task.lowered is not None
    table = task.lowered.table("numba")
    rank = table.sizes.shape[1]
    calls = []
    for sizes, offsets in zip(table.sizes.tolist(), table.offsets.tolist(), strict=True):
        row, addresses = list(sizes), []
        for operand, offset, strides in zip(task.operands, offsets, table.strides, strict=True):
            first = operand.offset + offset * operand.dtype.itemsize
            addresses.append((len(row), Address(operand.number, first, operand.step * rows)))
            row += [0, *strides]
        assert len(row) == rank + len(task.operands) * (rank + 1)
        calls.append(Call(entry, task.group, row, addresses))
    return calls


def _call(task: Task, part: TileCall, group: int, rows: int) -> Call:
    """The call of a host call's part on one tile. All such calls share one group of flags."""
    first = len(part.meta)
    addresses = [
        (first + at, Address(operand.number, operand.offset, operand.step * rows))
        for at, operand in enumerate(task.operands)
    ]
    return Call(part.entry, group, [*part.meta, *[0] * len(task.operands)], addresses)


# Running


def _launch(values: Run, chain: Chain, prepared: SizedChain, loads: list[Array]) -> bool:
    graph = values.plan.graph.values
    kept = [values.fresh(graph[index], values.shape(index)) for index in chain.kept]
    start = time.perf_counter()
    flags = _flags(values.device, prepared, loads + kept, values.number)
    if min(flags) < 0:
        prepared.why = "a program raised an exception"
        raise Declined(prepared.why)
    told = any(flags)
    if told and not _flags_suffice(values, prepared, flags):
        _back_off(chain)
        raise Declined("conditions arose that the oracle has to confirm")
    chain.failures = 0
    chain.why = ""
    for index, array in zip(chain.kept, kept, strict=True):
        values.env[index] = array
    for index in chain.views:
        values.env[index] = values.view(index)
    _report(values, prepared, start)
    if told:
        for step, bits in zip(prepared.kernels, flags, strict=False):
            if bits:
                values.note_exceptions(step, bits, None)
    return True


def _back_off(chain: Chain) -> None:
    """Skip some runs: exceptions arose that the reference interpreter has to confirm."""
    chain.failures += 1
    chain.backoff = min(2**chain.failures - 1, LONGEST_BACKOFF)


def _flags(
    device: Any, prepared: SizedChain, arrays: list[Array], number: Callable[[int], Any]
) -> list[int]:
    """Run all tiles; the flags of each group, below 0 where a program raised an exception."""

    def scratch(size: int) -> Array:
        found: Array = device.empty((size,), np.dtype(np.uint8))
        return found

    scalars = [
        program.pack(tuple([number(index) for index in step.scalars])) if step.scalars else b""
        for step, program in zip(prepared.kernels, prepared.programs, strict=True)
    ]
    flags: list[int] = prepared.batch.run(
        device.work, arrays, [*scalars, b""], scratch, prepared.keep
    )
    return flags


def _flags_suffice(values: Run, prepared: SizedChain, flags: Sequence[int]) -> bool:
    """Whether the flags alone say which exceptions the user has to be warned of."""
    if flags[-1] and fp_flags.is_wanted(flags[-1]):
        return False  # of host calls, whose flags belong to no kernel
    for step, bits in zip(prepared.kernels, flags, strict=False):
        if bits and fp_flags.is_wanted(bits):
            operations = values.operations(step)
            due = fp_flags.minded(bits, operations)
            if due and not fp_flags.is_clear(due, operations):
                return False
    return True


def _report(values: Run, prepared: SizedChain, start: float) -> None:
    """Report the kernels. Only values that exist as a whole were read from memory or written."""
    listening = bool(tracing.listeners)
    if not (listening or config.options.report or log.is_heard(2)):
        for step in prepared.kernels:
            counters.ran_again(values.device, "numba", len(step.members) + len(step.reductions))
        return
    work = [step.cost * size_of(values.shape(step.domain_of)) for step in prepared.kernels]
    elapsed = time.perf_counter() - start
    for step, program, each in zip(prepared.kernels, prepared.programs, work, strict=True):
        assert program is not None
        if listening:
            counters.kernel_begins(step, values, program.source)
        inputs = [a for a in (values.env[i] for i in step.inputs) if a is not None]
        outputs = [a for a in (values.env[i] for i in step.writes) if a is not None]
        taken = elapsed * each / (sum(work) or 1.0)
        counters.ran_kernel(step, values, program.source, inputs, outputs, taken)


# Bound chains


@dataclass(frozen=True)
class BoundChain:
    """A chain at one geometry: its launch, with nothing left to decide."""

    device: Any
    chain: Chain
    sized_chain: SizedChain
    products: str  # what `matrix_products` was
    made: tuple[tuple[int, Ints, np.dtype[Any], Ints | None], ...]
    """For each kept value: its number, shape in memory, dtype, and the transposition back."""

    def start(self, env: list[Any]) -> list[int] | None:
        """Run all tiles; the flags of each group. None if the chain has to be decided anew."""
        options = config.options
        if self.chain.backoff or not options.pipelining or options.matrix_products != self.products:
            return None
        arrays = [env[index] for index in self.chain.loads]
        for index, shape, dtype, back in self.made:
            array = self.device.empty(shape, dtype)
            env[index] = array if back is None else array.transpose(back)
            arrays.append(env[index])
        flags = _flags(self.device, self.sized_chain, arrays, lambda index: env[index][()])
        if min(flags) < 0:
            return None
        for step in self.sized_chain.kernels:
            counters.ran_again(self.device, "numba", len(step.members) + len(step.reductions))
        return flags

    def report_exceptions(self, values: Run, flags: list[int]) -> bool:
        """Report the exceptions that arose; False if the chain has to be decided anew."""
        if not _flags_suffice(values, self.sized_chain, flags):
            _back_off(self.chain)
            return False
        self.chain.failures = 0
        for step, bits in zip(self.sized_chain.kernels, flags, strict=False):
            if bits:
                values.note_exceptions(step, bits, None)
        return True


def bind(values: Run, chain: Chain, loads: Sequence[Array]) -> BoundChain | None:
    """The launch to keep of a chain that has just run tile by tile on these operands."""
    products = config.options.matrix_products
    strides = [array.strides for array in loads]
    prepared = chain.bound.get((values.device, products, values.sizes, *strides))
    if prepared is None or prepared.batch is None or prepared.why or chain.why or chain.backoff:
        return None
    made: list[tuple[int, Ints, np.dtype[Any], Ints | None]] = []
    for index in chain.kept:
        value, shape = values.plan.graph.values[index], values.shape(index)
        if value.perm is None:
            made.append((index, shape, value.dtype, None))
        else:
            back = tuple(np.argsort(value.perm).tolist())
            dense = tuple([shape[axis] for axis in value.perm])
            made.append((index, dense, value.dtype, back))
    return BoundChain(values.device, chain, prepared, products, tuple(made))


def sources(values: Run, chain: Chain) -> list[Source]:
    """The programs that a chain needs to run by tiles; empty if it would not run so."""
    if values.off_cpu or not config.options.pipelining or not _mark(values, chain):
        return []
    graph = values.plan.graph.values
    loads = []
    for index in chain.loads:  # computed ones are taken to be dense
        array = values.env[index]
        loads.append(values.fresh(graph[index], values.shape(index)) if array is None else array)
    prepared = prepare(values, chain, loads)
    tasks = [task for each in prepared.variants for task in each if task.lowered is not None]
    return list(dict.fromkeys(task.source for task in tasks))


def described(plan: Plan) -> list[str]:
    """For each chain of a plan: its kernels, or why it did not run by tiles the last time."""
    kernels = plan.kernels
    lines = []
    for chain in plan.chains:
        numbers = [at for at, step in enumerate(kernels) if any(step is x for x in chain.steps)]
        products = sum(is_product(step, plan.graph) for step in chain.steps)
        more = f" and {products} matrix product{'s' * (products > 1)}" if products else ""
        line = f"kernels {numbers[0]} to {numbers[-1]}{more} run tile by tile"
        if chain.inner:
            line += f"; {len(chain.inner)} values are never stored as a whole"
        why = chain.why
        if not config.options.pipelining:
            why = "pipelining is switched off"
        lines.append(f"{line} (not yet: {why})" if why else line)
    return lines
