"""Large matrix products in tiles of rows, alone or inside chains of kernels: of stacks, of
integers, and where NumPy's BLAS does not know the processor.

A chain (see tiles.py) multiplies a few rows, runs the kernels that follow while the rows are in the
cache, and takes the next rows. NumPy's own BLAS multiplies tiles (devices/cpu/matmul_blas.py).
Where it does not know this processor's vectors, and for integers, loops of ours multiply
(devices/cpu/matmul_loops.py). Either way an element's bits follow from the operands' sizes and
values alone, not from tiles or threads. Owns which products are done so, by sizes and dtypes. All
others are NumPy's; so are products that raise exceptions which the user wants to be warned of.
Floats are within n * eps * (|a| @ |b|) of the true value, as NumPy's; integers have NumPy's bits.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph import interpret
from lazyfuse.codegen.graph.linearize import Value, memory_strides
from lazyfuse.codegen.graph.node import Layout, Node
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.plan import chains
from lazyfuse.codegen.table.op import Op, Verdict
from lazyfuse.codegen.table.ops import TABLE, VIEW
from lazyfuse.devices import fork_safety, interpreter
from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.caches import cached, memo
from lazyfuse.devices.cpu import matmul_blas, matmul_loops, matmul_packing, tile_loop
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.late_modules import when_run
from lazyfuse.registry import serves
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution import routine, tiles
from lazyfuse.runtime.layout.meta_arrays import address
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices

if TYPE_CHECKING:
    from lazyfuse.devices.cpu.device import CPU
    from lazyfuse.devices.cpu.tile_loop import Batch
    from lazyfuse.runtime.execution.tiles import TileCall, TileOperand

Array = np.ndarray[Any, np.dtype[Any]]
Ints = tuple[int, ...]

# Fewest multiplications of a product that is ours. At least one operand must have LARGE elements:
# NumPy multiplies smaller ones where they are. Narrower matrices are limited by memory: fewest
# rows, length of the sums, and columns.
WORTH = 1 << 23
LARGE = 1 << 15
NARROWEST = (32, 32, 8)
# Rows, and columns, of a tile where a product is divided on its own.
ROWS, MOST_ROWS, COLUMNS = 64, 256, 96
# A multiplication of a matrix product, in additions of a kernel: the measure of work.
COST = 0.1

# Elements of a matrix from which OpenBLAS uses several threads, even to multiply it by a vector.
SHARED_BY_BLAS = 9216

_MATMUL = TABLE["matmul"]


def is_ours(first: Ints, second: Ints, dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Whether our tiles compute the product of two matrices, or of stacks of them."""
    if len(first) < 2 or len(second) < 2 or not _are_known(dtypes):
        return False
    if first[:-2] != second[:-2] and len(first) > 2 and len(second) > 2:
        return False  # stacks that are repeated
    (rows, depth), columns = first[-2:], second[-1]
    if size_of(first[:-2] or second[:-2]) * rows * depth * columns < WORTH:
        return False
    if any(size < least for size, least in zip((rows, depth, columns), NARROWEST, strict=True)):
        return False
    if max(size_of(first), size_of(second)) < LARGE or config.options.matrix_products == "off":
        return False
    stacked = len(first) > 2 or len(second) > 2
    return stacked or not _is_best_shared(dtypes[0])


def _is_best_shared(dtype: np.dtype[Any]) -> bool:
    """Whether BLAS's own threads multiply two matrices best.

    They spin after each call, longer than many products take, on the cores that tiles would need.
    """
    if dtype.kind != "f" or config.options.matrix_products != "auto":
        return False
    try:
        return not matmul_blas.is_narrow()
    except DeviceError:  # another library: NumPy knows how to use it
        return True


def _are_known(dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Whether all elements have one dtype that our loops multiply."""
    found = dtypes[0]
    return found.isnative and found.str[1:] in matmul_packing.KINDS and dtypes[-1] == found


@dataclass(frozen=True, eq=False)
class Product:
    """Machine code that multiplies tiles: matmul_loops.ROW describes its arguments."""

    code: Any  # Loaded
    library: bool  # whether it is NumPy's BLAS: tiles begin at its blocks

    @property
    def within(self) -> Any:
        """The context in which it may run."""
        return matmul_blas.alone if self.library else None


class _Products:
    """The code for each dtype, made when first asked for; None: it cannot be made here."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Product | None] = memo(
            "runtime.execution.matmul.products", 64
        )
        self.after_fork()
        fork_safety.register(self)

    def after_fork(self) -> None:
        """Make a new lock."""
        self._lock = threading.Lock()

    def get(self, code: str, turned: bool = False) -> Product | None:
        """The code for one dtype, and, if `turned`, for a second matrix whose rows are not dense.

        Waits until it is made.
        """
        device = devices.cpu()
        key = device, code, turned, config.options.matrix_products
        with suppress(KeyError):
            return self._made[key]
        with self._lock:
            with suppress(KeyError):  # another thread may have been quicker
                return self._made[key]
            found = self._made[key] = self._make(device, code, turned)
            return found

    def foresee(self, code: str, turned: bool) -> None:
        """Make the code in another thread while Python goes on."""
        key = devices.cpu(), code, turned, config.options.matrix_products
        if key in self._made or not config.options.compile_ahead:
            return
        # no daemon: the interpreter waits for it, since LLVM must not end while it works
        interpreter.start(threading.Thread(target=self.get, args=(code, turned), daemon=False))

    def _make(self, device: CPU, code: str, turned: bool) -> Product | None:
        if "numba" not in device.traits.languages:
            return None
        choice = config.options.matrix_products
        try:
            library = code[0] == "f" and choice != "loops"
            library = library and (choice == "blas" or not matmul_blas.is_narrow())
            return Product(device.product(code, library, turned and not library), library)
        except DeviceError as error:
            counters.fell_back([], f"matrix products: {error}", "tiles", "numpy")
            return None


_products = _Products()


def foresee(first: Node, second: Node, dtypes: Sequence[np.dtype[Any]]) -> None:
    """Start to make the code for a recorded product, if it is one of ours."""
    if is_ours(first.shape, second.shape, dtypes):
        layout = second.arg
        known = second.op is VIEW and type(layout) is Layout
        strides = layout.strides if known else memory_strides(second.shape, second.perm)
        _products.foresee(dtypes[0].str[1:], strides[-1] != 1)


def product(first: Array, second: Array) -> Array | None:
    """`first @ second`; None where NumPy has to compute it."""
    if not is_ours(first.shape, second.shape, (first.dtype, second.dtype)):
        return None
    if _is_transposed(first, second):
        return None  # the result is symmetric: BLAS computes half of it
    size = first.itemsize
    arrays = [
        x if x.flags.aligned and _is_regular(x.shape, [s / size for s in x.strides]) else x.copy()
        for x in (first, second)
    ]
    found = _products.get(first.dtype.str[1:], arrays[1].strides[-1] != size)
    if found is None:
        return None
    stack = first.shape[:-2] or second.shape[:-2]
    shape = (*stack, first.shape[-2], second.shape[-1])
    result: Array = devices.empty(shape, first.dtype)
    if stack:
        count = size_of(stack)
        items = [x.reshape(-1, *x.shape[-2:]) for x in (*arrays, result)]
        flags = _run_items(found, [np.broadcast_to(x, (count, *x.shape[1:])) for x in items])
    else:
        flags = _run(found, [*arrays, result])
    return None if flags and fp_flags.is_wanted(flags) else result


def _is_transposed(first: Array, second: Array) -> bool:
    """Whether a matrix is multiplied by its own transpose."""
    same = first.ndim == 2 and address(first) == address(second)
    return same and first.shape == second.shape[::-1] and first.strides == second.strides[::-1]


def _is_regular(shape: Ints, strides: Sequence[float]) -> bool:
    """Whether one axis of a matrix is dense, and the stride of the other covers it."""
    (rows, columns), (down, along) = shape[-2:], strides[-2:]
    return (along == 1 and down >= columns) or (down == 1 and along >= rows)


def _run(found: Product, arrays: Sequence[Array]) -> int:
    """Compute one product; `arrays`: its operands and its result. Returns the IEEE flags."""
    (rows, depth), columns = arrays[0].shape, arrays[1].shape[1]
    return _launched(found, arrays, _batch, (rows, depth, columns))


def _run_items(found: Product, arrays: Sequence[Array]) -> int:
    """Compute a stack of products, as `_run`; a tile is some of them, or a part of a product."""
    if len(arrays[0]) < 2 * routine.threads():
        flags = [_run(found, each) for each in zip(*arrays, strict=True)]
        return functools.reduce(operator.or_, flags)
    return _launched(found, arrays, _batch_of_items, (*arrays[0].shape, arrays[1].shape[2]))


def _launched(found: Product, arrays: Sequence[Array], cut: Any, shape: Ints) -> int:
    device = devices.cpu()
    size = arrays[0].itemsize
    strides = tuple([s // size for x in arrays for s in x.strides])
    batch: Batch = cut(found, shape, strides, size, device.traits.threads)
    counters.totals().languages["product"] += 1
    (flags,) = batch.run(device.work, arrays, (b"",), None, found)
    return flags


@cached(128)
def _batch(found: Product, shape: Ints, strides: Ints, size: int, threads: int) -> Batch:
    """The calls of a whole product: tiles of rows, or of columns where there are more columns."""
    rows, depth, columns = shape
    by_rows = found.library or rows >= threads * ROWS or rows >= columns
    length, least, most = (rows, ROWS, MOST_ROWS) if by_rows else (columns, COLUMNS, columns)
    tile = min(most, max(least, -(-length // (4 * threads))))
    step = (matmul_blas.BLOCK if found.library else 8) if by_rows else least
    tile = min(tile + -tile % step, length)
    steps = (strides[0], 0, strides[4]) if by_rows else (0, strides[3], 1)
    per_item = (0, *strides[:2], 0, *strides[2:4], 0, strides[4])
    rows_of = [
        [1, *((count, columns) if by_rows else (rows, count)), depth, *per_item]
        for count in (tile, length % tile)
    ]
    work = COST * rows * depth * columns
    return _tiles(found, rows_of, steps, length, tile, size, work)


@cached(128)
def _batch_of_items(found: Product, shape: Ints, strides: Ints, size: int, threads: int) -> Batch:
    """The calls of a stack of products: a tile is several of them."""
    length, rows, depth, columns = shape
    tile = -(-length // (4 * threads))
    rows_of = [[count, rows, columns, depth, *strides[:-1]] for count in (tile, length % tile)]
    work = COST * length * rows * depth * columns
    return _tiles(found, rows_of, strides[::3], length, tile, size, work)


def _tiles(
    found: Product,
    rows_of: list[list[int]],
    steps: Ints,
    length: int,
    tile: int,
    size: int,
    work: float,
) -> Batch:
    """Tiles of `tile` along an axis of `length`; one step along it moves the arrays by `steps`."""
    whole, rest = divmod(length, tile)
    places = enumerate(steps, len(matmul_loops.ROW) - 3)
    addresses = [
        (at, tile_loop.Address(number, 0, tile * step * size))
        for number, (at, step) in enumerate(places)
    ]
    calls = [[tile_loop.Call(found.code.address, 0, [*row, 0, 0, 0], addresses)] for row in rows_of]
    batch = tile_loop.Batch(calls if rest else calls[:1], whole + bool(rest), whole, [0], 0, work)
    batch.within = found.within or batch.within
    return batch


@serves(np.dot)
def _dot(a: Array, b: Array) -> Array | None:
    return product(a, b) if a.ndim == b.ndim == 2 else None


def _in_pool(call: Any, first: Array, second: Array) -> Array:
    """NumPy's product. A matrix gets memory of the pool: new pages would cost a tenth of it."""
    is_matrix = first.ndim == second.ndim == 2 and first.shape[1] == second.shape[0]
    if not is_matrix or first.dtype != second.dtype or first.dtype.kind not in "fc":
        return call(first, second)  # type: ignore[no-any-return]
    out = devices.empty((first.shape[0], second.shape[1]), first.dtype)
    return call(first, second, out=out)  # type: ignore[no-any-return]


matmul = functools.partial(routine.either, product, functools.partial(_in_pool, np.matmul))
dot = functools.partial(routine.either, _dot, functools.partial(_in_pool, np.dot))


def run_node(op: Op, arg: Any, *rest: Any) -> Array:
    """Run a node as `interpret.run_node`, with our loops for `@`.

    `rest` ends in the values and their orders. The reference interpreter itself calls NumPy.
    """
    if op is _MATMUL and (found := routine.attempt(product, *rest[-2])) is not None:
        return found
    if op is _MATMUL and max([value.size for value in rest[-2]]) >= SHARED_BY_BLAS:
        # worker threads that spin would hold the cores of BLAS's threads
        devices.cpu().work.native.sleep_early()
    shape, dtype, perm, values, _ = rest
    if op is _MATMUL and all(value.dtype == dtype and value.ndim == 2 for value in values):
        return interpret.packed_copy(_in_pool(np.matmul, *values), shape, dtype, perm, values)
    return interpret.run_node(op, arg, *rest)


def verdict(values: Sequence[Value], shapes: Sequence[Ints]) -> Verdict:
    """Whether a recorded product is computed by tiles, and why or why not."""
    dtypes = [value.dtype for value in values]
    if not is_ours(shapes[0], shapes[1], dtypes):
        return Verdict(False, "two matrices of floats, or it is small, or of another dtype")
    found = _products.get(dtypes[0].str[1:])
    if found is None:
        return Verdict(False, "there is no code for it here")
    how = f"NumPy's BLAS, {matmul_blas.BLOCK} rows at a time" if found.library else "loops of ours"
    count = routine.threads()
    return Verdict(True, f"{how} on {count} thread{'s' * (count != 1)}")


# -------------------------------------------------------------------------------- in chains


def _is_chainable(sources: Sequence[Value]) -> bool:
    """Whether a tile can be rows of a product, or products of a stack: by structure alone."""
    first, second = [source.shape for source in sources]
    matrices = len(first) == len(second) == 2
    stacks = len(first) == 3 and (len(second) == 2 or second[:1] == first[:1])
    return (matrices or stacks) and _are_known([source.dtype for source in sources])


def _tile(_: Any, sources: Sequence[TileOperand], result: TileOperand) -> TileCall | None:
    """The call that multiplies the rows of one tile; None where NumPy multiplies."""
    first, second = sources
    if not is_ours(first.full_shape, second.full_shape, (first.dtype, second.dtype)):
        return None
    if result.strides[-1] != 1:
        return None
    if not all(_is_regular(each.full_shape, each.strides) for each in sources):
        return None
    found = _products.get(first.dtype.str[1:], second.strides[-1] != 1)
    if found is None:
        return None
    rows, columns = result.shape[-2:]
    depth = first.shape[-1]
    stacked = len(result.shape) > 2
    items = first.shape[0] if stacked else 1
    taken = [each.strides if len(each.strides) > 2 else (0, *each.strides) for each in sources]
    written = result.strides if stacked else (0, *result.strides)
    meta = (items, rows, columns, depth, *taken[0], *taken[1], *written[:2])
    work = COST * size_of(first.full_shape) * columns
    return tiles.TileCall(found.code.address, meta, found, work, found.within)


def _is_chainable_dot(sources: Any) -> bool:
    return all(len(source.shape) == 2 for source in sources) and _is_chainable(sources)


when_run(chains, lambda: chains.PRODUCTS.update(matmul=_is_chainable, dot=_is_chainable_dot))
when_run(tiles, lambda: tiles.MAKERS.update(matmul=_tile, dot=_tile))
