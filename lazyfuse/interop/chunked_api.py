"""Arrays in chunks, as users make, keep and leave them.

Owns `lazyfuse.from_chunks`, `save_chunks`, `persist` and the meaning of `x.to_dask()`.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import EXPORT, from_numpy, to_numpy
from lazyfuse.arrays.ndarray import alone, ndarray, node_of, wrap
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import Node
from lazyfuse.devices.base import DeviceError
from lazyfuse.errors import UnsupportedError, message
from lazyfuse.io import generators, resolve
from lazyfuse.io.chunks import normalise
from lazyfuse.runtime.chunked import dask_arrays, graph, run, write
from lazyfuse.runtime.chunked.geometry import Grid
from lazyfuse.runtime.chunked.values import Chunked
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.placement import devices, residency
from lazyfuse.runtime.scheduling import evaluate


def from_chunks(data: Any, chunks: Any = None) -> Any:
    """An array over data in chunks, which is read when the program looks at a result.

    Parameters
    ----------
    data : path, zarr.Array, h5py.Dataset, numpy.memmap, dask array, xarray variable, array
        A folder of zarr, an `.npy` file, `"file.h5::/dataset"`, or an object that holds the data.
    chunks : int, tuple, dict or text, optional
        The chunks, as Dask takes them: `1000`, `(1000, -1)`, `"128MB"`, `"auto"`. Without it they
        suit the storage, `chunk_bytes` each.

    Raises
    ------
    UnsupportedError
        Objects that cannot be read in chunks, and dtypes that are no numbers.
    """
    _need_dask("from_chunks")
    if type(data) is ndarray:
        data = np.asarray(data)
    source = resolve.resolve(data, chunks, devices.chunk_bytes())
    if source is NotImplemented:
        data = getattr(data, "data", data) if not is_dask(data) else data
        if not is_dask(data):
            return from_chunks(data, chunks)  # what the xarray variable holds
        return from_dask(data if chunks is None else data.rechunk(chunks))
    dtype = source.dtype
    if dtype not in CANONICAL and dtype.newbyteorder("=") not in CANONICAL:
        cure = "cast it to numbers, or read it by NumPy"
        raise UnsupportedError(
            message("from_chunks", f"{source.description}: {dtype}", instead=cure)
        )
    native = CANONICAL[dtype if dtype.isnative else dtype.newbyteorder("=")]
    if source.literal:
        value = Chunked(Grid(source.chunks), native, graph.new_name("array"))
        # a copy: what the program writes to its array later must not show
        return wrap_chunked(graph.in_memory(value, source.array.copy()))
    return _of_source(source, native)


_DASKS = {
    id(function): name
    for function, name in (
        (np.einsum, "einsum"), (np.tensordot, "tensordot"), (np.dot, "dot"), (np.vdot, "vdot"),
        (np.histogram, "histogram"), (np.bincount, "bincount"), (np.unique, "unique"),
        (np.isin, "isin"), (np.digitize, "digitize"), (np.median, "median"),
        (np.nanmedian, "nanmedian"), (np.tril, "tril"), (np.triu, "triu"),
        (np.searchsorted, "searchsorted"), (np.fft.rfft, "fft.rfft"), (np.fft.irfft, "fft.irfft"),
        (np.fft.fftn, "fft.fftn"), (np.fft.ifftn, "fft.ifftn"), (np.fft.fft2, "fft.fft2"),
    )
}  # fmt: skip
"""NumPy's functions that run in NumPy, and the name of dask.array's with the same values.

By identity, since some functions cannot be hashed. Not here: `svd` and `qr`, whose shapes and signs
are Dask's own, and `take`, whose axis is another one.
"""


def by_dask(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A call of NumPy's by dask.array, for arrays in chunks of which one is large; else None.

    What dask refuses, NumPy does, or refuses, on arrays that are fetched.
    """
    name = _DASKS.get(id(function))
    if not _NUMPYS.isdisjoint(named) or (name == "einsum" and not _is_plain(*args[:1])):
        return None
    if name == "unique" and len(args) + len(named) > 1:  # it counts no NaN
        return None
    values = [*args, *named.values()]
    parts = [each for value in values for each in (value if type(value) is list else [value])]
    if name is None or not any(run.is_large(each) for each in map(_node, parts) if each):
        return None
    if name in ("dot", "vdot", "tensordot") and not _is_aligned(function, args, named):
        return None
    import dask.array

    call: Any = dask.array
    for part in name.split("."):
        call = getattr(call, part)
    try:
        found = call(*for_dask(args), **for_dask(named))
    except Exception:
        return None
    if isinstance(found, (tuple, list)):
        return tuple([_ours(each) for each in found])
    if name in _PRODUCTS and "dtype" not in named:  # dask adds parts in the dtype of sums
        found = found.astype(np.result_type(*[x.dtype for x in parts if hasattr(x, "dtype")]))
    return _ours(found)


_PRODUCTS = {"einsum", "tensordot", "dot", "vdot"}
_NUMPYS = {"out", "order", "casting", "where", "overwrite_input"}
"""Arguments that dask.array drops or has another meaning for."""


def _is_aligned(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether NumPy multiplies arrays of these shapes: dask pairs a length of 1 with any other.

    NumPy multiplies small arrays, in which each size has one of its own.
    """
    small = {0: 0, 1: 1}

    def sample(x: Any) -> Any:
        shape = getattr(x, "shape", None)
        if type(shape) is not tuple:
            return x
        return np.zeros([small.setdefault(size, len(small)) for size in shape])

    try:
        function(*map(sample, args), **{key: sample(value) for key, value in named.items()})
    except (ValueError, TypeError, IndexError):
        return False
    return True


def _is_plain(subscripts: Any = None) -> bool:
    """Whether each operand of `einsum` has its labels once: dask pairs chunks by label."""
    if type(subscripts) is not str or "." in subscripts:
        return False
    operands = subscripts.replace(" ", "").partition("->")[0].split(",")
    return all(len(set(each)) == len(each) for each in operands)


def _node(x: Any) -> Node | None:
    if type(x) is not ndarray or x._eager is not None:
        return None
    return x._storage.node if x._storage is not None else x._node


def for_dask(x: Any) -> Any:
    """Arguments of a function of Dask's: our arrays in chunks as dask arrays, others as NumPy's."""
    if type(x) in (list, tuple):
        return type(x)(map(for_dask, x))
    if type(x) is dict:
        return {key: for_dask(value) for key, value in x.items()}
    node = _node(x)
    if node is not None and run.is_ours(node_of(x)):
        return to_dask(x)
    return to_numpy(x, EXPORT)


def _ours(found: Any) -> Any:
    return from_dask(found) if is_dask(found) else from_numpy(found, [], [])


def save_chunks(place: Any, x: Any, chunks: Any = None) -> None:
    """Compute an array chunk by chunk and write each chunk when it is there.

    Parameters
    ----------
    place : path, zarr.Array, h5py.Dataset, numpy.memmap
        A name that ends in `.zarr`, `.npy` or `.h5::/dataset`, or an object to write to. A file
        gets its name when it is complete: a run that fails leaves what was there before.
    x : array
        In chunks or not.
    chunks : optional
        The chunks of a new file, in the forms that `from_chunks` takes.

    Raises
    ------
    UnsupportedError
        Objects that cannot be written in chunks.
    ValueError
        The place has another shape.
    TypeError
        The place has a dtype that the values cannot be cast to.
    """
    _need_dask("save_chunks")
    if not isinstance(x, ndarray):
        x = from_dask(x) if is_dask(x) else wrap(np.array(x))
    node = node_of(x)
    if chunks is None:
        sizes = run.grid_for(node).chunks
    else:
        sizes = normalise(chunks, node.shape, node.dtype, devices.chunk_bytes())
    write.save(node, resolve.target(place, node.shape, node.dtype, sizes))


def is_dask(value: Any) -> bool:
    """Whether a value is a dask array."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(value, module.Array)


def _need_dask(name: str) -> None:
    """Raise, with the cure, where Dask is not installed."""
    try:
        run.device()
    except DeviceError as error:
        raise UnsupportedError(f"[{name}] arrays in chunks need Dask: {error}") from error


def from_dask(array: Any) -> Any:
    """The array of a dask array: the same tasks, nothing is computed."""
    return wrap_chunked(dask_arrays.chunked(array))


def created(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """`arange` or `linspace` in chunks, if it takes more than one; else None."""
    limit: dict[str, Any] = {"limit": devices.chunk_bytes()}
    try:
        if name == "arange" and args and not named.keys() - {"dtype", "step"}:
            start, stop = (0, args[0]) if len(args) == 1 else args[:2]
            step = args[2] if len(args) > 2 else named.get("step", 1)
            source: Any = generators.arange(start, stop, step, named.get("dtype"), **limit)
        elif (
            name == "linspace"
            and len(args) > 1
            and not named.keys() - {"num", "dtype", "endpoint"}
            and not any(isinstance(each, ndarray) for each in args)
        ):
            source = generators.linspace(*args[:2], *(args[2:4] or (50,)), **(named | limit))
        else:
            return None
    except (TypeError, ValueError, UnsupportedError):  # NumPy's own, or its error
        return None
    if source.literal or source.nbytes <= devices.chunk_bytes() or source.dtype not in CANONICAL:
        return None
    return _of_source(source, CANONICAL[source.dtype])


def drawn(generator: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Random numbers in chunks, with a stream for each, if they take more than one; else None."""
    named = dict(named)
    names = list(inspect.signature(getattr(np.random.Generator, name)).parameters)[1:]
    place = names.index("size") if "size" in names else len(args)
    if "size" in named:
        size = named.pop("size")
    elif place < len(args):
        size, args = args[place], args[:place] + args[place + 1 :]
    else:
        return None
    try:
        shape = tuple(map(operator.index, size)) if np.iterable(size) else (operator.index(size),)
        if math.prod(shape) * 4 <= devices.chunk_bytes():
            return None
        source = generators.random(
            generator, name, shape, *args, limit=devices.chunk_bytes(), **named
        )
    except (TypeError, ValueError, UnsupportedError):  # NumPy's own stream, or its error
        return None
    return _of_source(source, CANONICAL[source.dtype])


def _of_source(source: Any, dtype: np.dtype[Any]) -> Any:
    value = Chunked(Grid(source.chunks), dtype, graph.new_name("source"))
    value.source = source
    return wrap_chunked(value)


def wrap_chunked(value: Chunked) -> Any:
    """An array whose value is in chunks."""
    with evaluate.quiet:
        return alone(run.leaf_of(value))


def to_dask(x: ndarray) -> Any:
    """The dask array of an array: its tasks, with nothing computed; host values in one chunk."""
    _need_dask("to_dask")
    return dask_arrays.of_node(node_of(x))


def persist(x: Any) -> Any:
    """Compute an array in chunks now, and keep its chunks where they are; returns the array.

    On this machine they stay in its memory, on a cluster on the workers, which go on computing
    after the call has returned. Arrays on the host are computed as `evaluate` does.
    """
    node = node_of(x)
    evaluate.compute([node], decisions.EXPORT)
    if node.value is None:
        run.store(node)
    return x


def move_to_chunks(source: Node) -> Node:
    """A node with the values of another, in chunks."""
    evaluate.compute([source], decisions.TO_DEVICE)
    if source.value is None:
        residency.gather(source, "to_device")
    assert source.value is not None
    grid = run.default_grid(source.shape, source.dtype)
    value = Chunked(grid, source.dtype, graph.new_name("array"))
    return run.leaf_of(graph.in_memory(value, source.value.copy(order="C")))
