"""Arithmetic of language "opencl" against NumPy: values and IEEE conditions, singly and in vectors.

The cases of equal input dtypes are computed by one kernel of OpenCL, and those of a test are one
program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.graph.interpret import run_node
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Store
from lazyfuse.codegen.opencl.expressions import (
    WIDEST_VECTOR,
    OpenCLValues,
    c_type,
    has_vector_form,
    itemsize,
    load,
    preamble,
    stored,
)
from lazyfuse.codegen.opencl.raised_words import declared
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.promotion import Loop, intern_loop, spell
from lazyfuse.devices.opencl import device as opencl
from tests.codegen.kernel_tools import some_rounds
from tests.codegen.opencl_tools import alone, batches, strict_compiler
from tests.codegen.test_ops import (
    COMPARE_ONLY_VALUES,
    GROUPS,
    Array,
    Case,
    Op,
    arguments,
    assert_close,
    assert_same_bits,
    edges,
    expected,
    left_out,
)

cl = pytest.importorskip("pyopencl", reason="needs pyopencl")

WIDEST = 16  # bytes of an element
# warnings of the compiler are wanted here
OPTIONS = [each for each in opencl.BUILD_OPTIONS if each != "-w"]
OPTIONS.append("-cl-fp32-correctly-rounded-divide-sqrt")
VECTOR = ["-DLF_BYTES=32"]


@pytest.fixture(scope="module")
def queue() -> Any:
    try:
        device = cl.get_platforms()[0].get_devices()[0]
    except (cl.Error, IndexError):
        pytest.skip("needs an OpenCL device")
    if not device.double_fp_config:
        pytest.skip("needs a device with fp64")
    return cl.CommandQueue(cl.Context([device]))


def kernel_of(cases: list[Case]) -> Kernel:
    """All cases on the same inputs, each stored."""
    ins = tuple(spell(dtype) for dtype in cases[0][1].ins)
    numbers = tuple(range(len(ins)))
    outs = [spell(loop.out) for _, loop in cases]
    body = tuple(
        Instruction(row.name, numbers, ins, out) for (row, _), out in zip(cases, outs, strict=True)
    )
    stores = tuple(Store(len(ins) + k, out) for k, out in enumerate(outs))
    return Kernel(1, ins, (), body, stores)


def one_each(cases: list[Case]) -> list[Kernel]:
    """The conditions of each case can be told from those of the others."""
    return [kernel_of([case]) for case in cases]


def loaded(pointer: str, dtype: str, vector: bool) -> str:
    """The element, or vector, of a work-item."""
    if not vector:
        return load(pointer, "i", dtype)
    text = f"VLOAD({pointer} + i)"
    return f"TO_VI1({text} != (VU1)(0))" if dtype == "b1" else text


def assigned(pointer: str, value: str, dtype: str, vector: bool) -> str:
    """The statement that writes it."""
    value = stored(value, dtype, vector)
    return f"VSTORE({value}, {pointer} + i);" if vector else f"{pointer}[i] = {value};"


def program_text(kernels: list[Kernel], vector: bool) -> str:
    """Kernels of the same inputs: a work-item computes one element, or one vector, of each."""
    inputs = kernels[0].inputs
    lines = [f"long i = get_global_id(0){' * W' if vector else ''};"]
    for k, dtype in enumerate(inputs):
        lines.append(f"{c_type(dtype, vector)} h{k} = {loaded(f'p{k}', dtype, vector)};")
    row = 0
    for number, kernel in enumerate(kernels):
        values = OpenCLValues(kernel, vector)
        lines += ["{", *declared(kernel, ()), *values.statements(), *values.flag_statements()]
        for each in kernel.stores:
            pointer = f"((__global {c_type(each.dtype)} *)(out + {row * WIDEST} * n))"
            value = values.cast(each.value, each.dtype)
            lines.append(assigned(pointer, value, each.dtype, vector))
            row += 1
        lines += [
            f"raised[{number} * get_global_size(0) + get_global_id(0)] = raised_here[0] & 15;",
            "}",
        ]
    arguments = [f"__global const {c_type(dtype)} *p{k}" for k, dtype in enumerate(inputs)]
    arguments += ["__global uchar *out", "__global int *raised", "long n"]
    body = "\n    ".join(lines)
    head = f"__kernel void run({', '.join(arguments)})"
    size = max(itemsize(kernel) for kernel in kernels)
    return f"{preamble(body, size)}\n{head} {{\n    {body}\n}}\n"


def lanes(kernels: list[Kernel], options: list[str]) -> int:
    """The length of the vectors that `options` ask for."""
    width = min(int(options[0].split("=")[1]), WIDEST_VECTOR) if options else 0
    return min(max(width // max(itemsize(kernel) for kernel in kernels), 1), 16)


_built: dict[tuple[Any, str, tuple[str, ...]], Any] = {}


def build(queue: Any, several: Iterable[list[Kernel]], options: list[str]) -> None:
    """What `compute` will run, as one program."""
    texts = dict.fromkeys(program_text(kernels, bool(options)) for kernels in several)
    asked = tuple(options)
    missing = [text for text in texts if (queue.context, text, asked) not in _built]
    if not missing:
        return
    with strict_compiler(queue.device):
        whole = "\n".join(alone(text, number) for number, text in enumerate(missing))
        program = cl.Program(queue.context, whole).build([*OPTIONS, *options])
    for number, text in enumerate(missing):
        _built[queue.context, text, asked] = cl.Kernel(program, f"run_{number}")


def compute(
    queue: Any, kernels: list[Kernel], inputs: list[Array], options: list[str]
) -> tuple[list[Array], Array]:
    """The stores of all kernels, and for each kernel what each work-item raised.

    The work is done in vectors if `options` say how long they are.
    """
    size = len(inputs[0])
    whole = -(-size // 64) * 64
    build(queue, [kernels], options)
    run = _built[queue.context, program_text(kernels, bool(options)), tuple(options)]
    buffers = [
        cl.Buffer(queue.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.resize(each, whole))
        for each in inputs
    ]
    items = whole // lanes(kernels, options)
    stores = [each for kernel in kernels for each in kernel.stores]
    results = np.zeros((len(stores), whole * WIDEST), np.uint8)
    raised = np.zeros((len(kernels), items), np.int32)
    out = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, results.nbytes)
    flags = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, raised.nbytes)
    run(queue, (items,), (1,), *buffers, out, flags, np.int64(whole))
    cl.enqueue_copy(queue, results, out)
    cl.enqueue_copy(queue, raised, flags)
    rows = zip(results, stores, strict=True)
    values = [row[: size * int(x.dtype[1:])].view(x.dtype) for row, x in rows]
    return values, raised


def check(
    queue: Any,
    cases: list[Case],
    options: list[str],
    kernels_of: Callable[[list[Case]], list[Kernel]],
) -> None:
    """Each case on its own arguments, all in one program."""
    values = [arguments(row, loop) for row, loop in cases]
    ends = np.cumsum([len(each[0]) for each in values])
    inputs = [np.concatenate([each[k] for each in values]) for k in range(len(values[0]))]
    results, _ = compute(queue, kernels_of(cases), inputs, options)
    for (row, loop), mine, end, result in zip(cases, values, ends, results, strict=True):
        got = result[end - len(mine[0]) : end]
        note = f"{row.name} {loop}"
        want = expected(row, loop, mine)
        if want.dtype.kind == "f":
            assert (np.isinf(want) == np.isinf(got)).all(), note
        if row.is_exact(loop.ins[0]):
            assert_same_bits(got, want, note, zeros=row.name not in COMPARE_ONLY_VALUES)
        elif row.name.startswith("logaddexp"):
            assert_close_for_operands(row, mine, got, want, note)
        else:
            assert_close(row, mine, got, want, note)


def assert_close_for_operands(
    row: Op, values: list[Array], got: Array, want: Array, note: str
) -> None:
    """The result is a sum that may cancel: its error is relative to the larger operand."""
    with np.errstate(all="ignore"):
        shift = np.maximum(np.abs(values[0]), np.abs(values[1]))
        shift = np.where(np.isfinite(shift) & np.isfinite(want), shift, want.dtype.type(0))
        assert_close(row, values, got + shift, want + shift, note)


def spelled(case: Case) -> tuple[str, tuple[str, ...], str]:
    row, loop = case
    return row.name, tuple(spell(dtype) for dtype in loop.ins), spell(loop.out)


def test_every_operation_of_compiled_kernels_has_an_opencl_expression() -> None:
    missing = [
        spelled(case)
        for cases in GROUPS.values()
        for case in cases
        if not ops.supports(*case, "opencl").ok
    ]
    assert missing == []


REST = pytest.param("rest", marks=pytest.mark.long)
KINDS = pytest.mark.parametrize("kind", [*"biufc", REST])


def of_kind(kind: str, groups: dict[tuple[str, ...], list[Case]]) -> list[list[Case]]:
    """Those cases whose first input is of a kind; the rest are those that others stand for."""
    rest = [cases for ins, cases in groups.items() if cases and left_out(ins)]
    usual = {ins: cases for ins, cases in groups.items() if cases and not left_out(ins)}
    return rest if kind == "rest" else [usual[ins] for ins in usual if ins[0][0] == kind]


def check_groups(
    queue: Any,
    groups: list[list[Case]],
    options: list[str],
    kernels_of: Callable[[list[Case]], list[Kernel]] = one_each,
) -> None:
    build(queue, [kernels_of(cases) for cases in groups], options)
    for cases in groups:
        check(queue, cases, options, kernels_of)


@KINDS
def test_one_element_equals_numpy(kind: str, queue: Any) -> None:
    check_groups(queue, of_kind(kind, GROUPS), [])


def with_vectors(groups: dict[tuple[str, ...], list[Case]]) -> dict[tuple[str, ...], list[Case]]:
    return {
        ins: [case for case in cases if has_vector_form(*spelled(case))]
        for ins, cases in groups.items()
    }


VECTORS = with_vectors(GROUPS)


@KINDS
def test_one_vector_equals_numpy(kind: str, queue: Any) -> None:
    check_groups(queue, of_kind(kind, VECTORS), VECTOR)


SEVERAL = (("f8",), ("f4", "f4"), ("i2",), ("b1", "f8", "f8"))


# The text counts the lanes, whatever is computed in them: fewer than elsewhere, and as many as
# there can be where more are asked for.
@pytest.mark.parametrize(
    ("width", "several"),
    [
        pytest.param(8, SEVERAL[1:3], id="8"),
        pytest.param(64, SEVERAL[::3], id="64"),
        pytest.param(8, SEVERAL[::3], id="8-others", marks=pytest.mark.long),
        pytest.param(16, SEVERAL, id="16", marks=pytest.mark.long),
        pytest.param(64, SEVERAL[1:3], id="64-others", marks=pytest.mark.long),
    ],
)
def test_vectors_of_any_width_equal_numpy(
    width: int, several: Sequence[tuple[str, ...]], queue: Any
) -> None:
    check_groups(queue, [VECTORS[ins] for ins in several], [f"-DLF_BYTES={width}"])


def test_subnormal_angles_beside_large_ones(queue: Any) -> None:
    angles = np.array([1e-40, 1e30, 1e-310, 1e5, 0.0, -1e-45, 1.0, 3e38], "f8")
    names = ("sin", "cos", "tan")
    kernels = {}
    for dtype in ("f4", "f8"):
        body = tuple(Instruction(name, (0,), (dtype,), dtype) for name in names)
        kernels[dtype] = Kernel(1, (dtype,), (), body, tuple(Store(k, dtype) for k in (1, 2, 3)))
    for width in ([], VECTOR):
        build(queue, [[each] for each in kernels.values()], width)
        for dtype, kernel in kernels.items():
            values = angles.astype(dtype)
            results, _ = compute(queue, [kernel], [values], width)
            for name, got in zip(names, results, strict=True):
                np.testing.assert_allclose(got, getattr(np, name)(values), 4 * np.finfo(dtype).eps)


# ---- conditions


def may_raise(case: Case) -> bool:
    """Whether an operation can raise a condition other than "under"."""
    row, loop = case
    if row.name == "cast" and (loop.ins[0].kind not in "fc" or loop.out.kind == "b"):
        return False
    return bool(set(row.raises(loop.ins[0])) - {"under"})


def raised_by_numpy(row: Op, loop: Loop, values: list[Array]) -> Array:
    """The conditions of each element by itself, "under" apart."""
    seen: list[int] = []
    result = np.zeros(len(values[0]), np.int32)
    with np.errstate(all="call", call=lambda _, bits: seen.append(bits)), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        for k in range(len(result)):
            run_node(row, loop, (1,), loop.out, None, [each[k : k + 1] for each in values])
            result[k] = sum(set(seen)) & 11
            seen.clear()
    return result


@KINDS
def test_conditions_are_numpys(kind: str, queue: Any) -> None:
    for groups, options in ((GROUPS, []), (VECTORS, VECTOR)):
        raising = [cases for cases in of_kind(kind, groups) if any(map(may_raise, cases))]
        build(queue, [one_each(cases) for cases in raising], options)
        for cases in raising:
            check_conditions(queue, cases, options)


@cache
def grid(ins: tuple[np.dtype[Any], ...]) -> list[Array]:
    """Every combination of values at which conditions are raised."""
    values = [edges(dtype)[::3] if dtype.kind == "c" else edges(dtype) for dtype in ins]
    values = [each.ravel() for each in np.meshgrid(*values, indexing="ij")]
    return [np.resize(each, -(-len(each) // 64) * 64) for each in values]


@cache
def wanted(row: Op, loop: Loop) -> Array:
    """What NumPy tells of each element of `grid`; not of some that we see otherwise."""
    values = grid(loop.ins)
    want = raised_by_numpy(row, loop, values)
    if row.name == "power":  # IEEE 754 raises nothing for infinite exponents; NumPy's vectors do
        want[np.isinf(values[1])] = 0
    return want


def check_conditions(queue: Any, cases: list[Case], options: list[str]) -> None:
    _, raised = compute(queue, one_each(cases), grid(cases[0][1].ins), options)
    for (row, loop), got in zip(cases, raised, strict=True):
        if not may_raise((row, loop)):
            assert not got.any(), f"{row.name} {loop}"
            continue
        want = wanted(row, loop)
        want = np.bitwise_or.reduce(want.reshape(len(got), -1), axis=1)
        if loop.ins[0].kind == "c":  # NumPy contracts products here and there, and misses some
            got = got & want
        np.testing.assert_array_equal(got, want, f"{row.name} {loop}")


CHAIN = "add subtract multiply divide sqrt exp log maximum negative square where greater".split()


def random_kernel(random: np.random.Generator, dtype: str) -> Kernel:
    """A few operations on two inputs and on each other; every value is stored."""
    dtypes, body = [dtype, dtype], []
    for name in random.choice(CHAIN, 5):
        row = ops.TABLE[name]
        ins = ("b1", dtype, dtype) if name == "where" else (dtype,) * row.nin
        args = tuple(int(random.integers(len(dtypes))) for _ in ins)
        args = tuple(0 if dtypes[each] == "b1" else each for each in args)
        out = "b1" if name == "greater" else dtype
        body.append(Instruction(name, args, ins, out))
        dtypes.append(out)
    stores = tuple(Store(k, dtypes[k]) for k in range(2, len(dtypes)))
    return Kernel(1, (dtype, dtype), (), tuple(body), stores)


def run_with_numpy(kernel: Kernel, inputs: list[Array]) -> int:
    """The conditions that NumPy tells of the kernel's operations, "under" apart."""
    values, seen = list(inputs), {0}
    with np.errstate(all="call", call=lambda _, bits: seen.add(bits)):
        for each in kernel.body:
            loop = intern_loop(tuple(np.dtype(x) for x in each.ins), np.dtype(each.out))
            operands = [values[k] for k in each.args]
            row = ops.TABLE[each.op]
            values.append(run_node(row, loop, (len(inputs[0]),), loop.out, None, operands))
    return int(np.bitwise_or.reduce(list(seen))) & 11


@some_rounds(6, 12, 11)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_conditions_of_chains_are_numpys(dtype: str, seeds: Sequence[int], queue: Any) -> None:
    for few in batches(seeds):
        check_chains(queue, dtype, [random_kernel(np.random.default_rng(x), dtype) for x in few])


def check_chains(queue: Any, dtype: str, kernels: list[Kernel]) -> None:
    pairs = [each.ravel() for each in np.meshgrid(edges(np.dtype(dtype)), edges(np.dtype(dtype)))]
    for place in range(0, 640, 128):
        inputs = [np.ascontiguousarray(each[place : place + 64]) for each in pairs]
        want = [run_with_numpy(kernel, inputs) for kernel in kernels]
        for options in ([], VECTOR):
            _, raised = compute(queue, kernels, inputs, options)
            np.testing.assert_array_equal(np.bitwise_or.reduce(raised, axis=1), want)


def test_exp_up_to_the_largest_number_with_a_finite_result(queue: Any) -> None:
    for dtype, last in (("f4", "0x1.62e42ep+6"), ("f8", "0x1.62e42fefa39efp+9")):
        values = np.array([float.fromhex(last)] * 2 + [np.inf, -np.inf, 1.0, 709.8], dtype)
        values[1] = np.nextafter(values[0], np.inf, dtype=dtype)
        body = (Instruction("exp", (0,), (dtype,), dtype),)
        kernel = Kernel(1, (dtype,), (), body, (Store(1, dtype),))
        with np.errstate(over="ignore"):
            expected = np.exp(values)
        assert np.isfinite(expected[0])
        for width in ([], VECTOR):
            results, _ = compute(queue, [kernel], [values], width)
            np.testing.assert_allclose(results[0], expected, 4 * np.finfo(dtype).eps)


def test_the_tangent_of_doubles_is_within_a_unit(queue: Any) -> None:
    random = np.random.default_rng(5)
    poles = np.arange(-2000, 2000) * (np.pi / 2)
    spread = [random.uniform(-size, size, 3000) for size in (1.0, 2.0, 100.0, 3e7)]
    odd = [0.0, -0.0, 1.0, -1.0, 5e-324, 1e-31, np.nan, np.inf, -np.inf]
    values = np.concatenate([*spread, poles, np.nextafter(poles, 0), odd])
    kernel = Kernel(1, ("f8",), (), (Instruction("tan", (0,), ("f8",), "f8"),), (Store(1, "f8"),))
    with np.errstate(invalid="ignore"):
        expected = np.tan(values)
    for width in ([], VECTOR):
        got = compute(queue, [kernel], [values], width)[0][0]
        np.testing.assert_array_max_ulp(got[:-3], expected[:-3], 1)
        np.testing.assert_array_equal(np.signbit(got[:-3]), np.signbit(expected[:-3]))
        assert np.isnan(got[-3:]).all()
