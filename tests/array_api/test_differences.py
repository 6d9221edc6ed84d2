"""What the two namespaces have beyond NumPy, and where they differ from each other."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse
import lazyfuse.array_api as xp
from lazyfuse.interop import device_api

INF, NAN = math.inf, math.nan
BOTH = pytest.mark.parametrize("namespace", [xp, lazyfuse], ids=["array_api", "main"])
RECORDED = pytest.mark.parametrize("below", [0, 16384], ids=["recorded", "at once"])


def bits(value: Any) -> list[str]:
    return [repr(complex(each)) for each in numpy.asarray(value).ravel()]


# ---------------------------------------------------------------------------- in both namespaces


@BOTH
@RECORDED
def test_complex_expm1_has_the_values_of_the_standard(namespace: Any, below: int) -> None:
    cases = (
        (complex(-0.0, 0.0), complex(0.0, 0.0)),
        (complex(-0.0, -0.0), complex(0.0, -0.0)),
        (complex(INF, 0.0), complex(INF, 0.0)),
        (complex(INF, -0.0), complex(INF, -0.0)),
        (complex(-INF, 2.0), complex(-1.0, 0.0)),
        (complex(INF, 2.0), complex(-INF, INF)),
        (complex(-INF, INF), complex(-1.0, 0.0)),
        (complex(NAN, 0.0), complex(NAN, 0.0)),
        (complex(1.0, INF), complex(NAN, NAN)),
        (complex(1.0, 0.0), complex(numpy.expm1(complex(1.0, 0.0)))),
    )
    with lazyfuse.options(eager_below=below):
        points = [z for z, _ in cases]
        found = namespace.expm1(namespace.asarray(points, dtype=namespace.complex128))
        assert bits(found) == bits([value for _, value in cases])
        odd = namespace.expm1(namespace.asarray([complex(INF, INF), complex(INF, NAN)]))
        assert bits(odd) == [repr(complex(INF, NAN))] * 2


@BOTH
@RECORDED
def test_complex_tanh_keeps_its_side_of_zero(namespace: Any, below: int) -> None:
    points = [
        complex(sign * INF, y) for sign, y in itertools.product((1, -1), (1, 2, -2, 0.0, -0.0))
    ]
    want = [complex(math.copysign(1, z.real), math.copysign(0, z.imag)) for z in points]
    with lazyfuse.options(eager_below=below):
        found = namespace.tanh(namespace.asarray(points, dtype=namespace.complex64))
        assert bits(found) == bits(want)


@pytest.mark.parametrize("name", ["expm1", "tanh"])
def test_completed_functions_write_where_they_are_told(name: str) -> None:
    function = getattr(lazyfuse, name)
    z = lazyfuse.asarray([complex(INF, 2), 1j, complex(-0.0, 0.0), complex(NAN, 0)])
    want = bits(function(z))
    out = lazyfuse.zeros(4, dtype=complex)
    assert function(z, out=out) is out
    assert bits(out) == want
    kept = lazyfuse.full(4, 7.0 + 0j)
    function(z, out=kept, where=lazyfuse.asarray([True, True, False, False]))
    assert bits(kept) == [*want[:2], "(7+0j)", "(7+0j)"]
    assert bits(function(z, out=z)) == want
    assert type(function(numpy.complex64(complex(INF, 2)))) is numpy.complex64
    table = lazyfuse.asarray(numpy.full((200, 100), complex(INF, 2))).T
    assert function(table).flags.f_contiguous
    real = lazyfuse.asarray([0.5, INF])
    assert bits(function(real)) == bits(getattr(numpy, name)(numpy.array([0.5, INF])))


@BOTH
@pytest.mark.parametrize("size", [7, 20_000])
@pytest.mark.parametrize("axis", [0, -1])
def test_sorting_down_is_stable(namespace: Any, size: int, axis: int) -> None:
    values = numpy.random.default_rng(0).integers(0, 9, (size, 3))
    x = namespace.asarray(values)
    order = namespace.argsort(x, axis=axis, descending=True, stable=True)
    assert numpy.array_equal(order, numpy.argsort(-values, axis=axis, stable=True))
    down = namespace.sort(x, axis=axis, descending=True)
    assert numpy.array_equal(down, -numpy.sort(-values, axis=axis))
    assert numpy.array_equal(x, values)


def test_sorting_down_takes_what_numpy_takes() -> None:
    assert lazyfuse.sort([1, 3, 2], descending=True).tolist() == [3, 2, 1]
    assert lazyfuse.sort([[1, 3], [2, 4]], axis=None, descending=True).tolist() == [4, 3, 2, 1]
    assert lazyfuse.argsort([1, 3, 2], descending=True).tolist() == [1, 2, 0]
    assert lazyfuse.argsort(
        lazyfuse.ones((2, 2)), axis=None, descending=True, stable=True
    ).shape == (4,)
    with pytest.raises(numpy.exceptions.AxisError):
        lazyfuse.sort(lazyfuse.ones(3), axis=2, descending=True)


@BOTH
def test_frequencies_have_the_dtype_that_is_asked_for(namespace: Any) -> None:
    for name in ("fftfreq", "rfftfreq"):
        function = getattr(namespace.fft, name)
        found = function(5, d=0.5, dtype=namespace.float32)
        assert found.dtype == namespace.float32
        want = getattr(numpy.fft, name)(5, d=0.5)
        assert numpy.array_equal(found, want.astype("f4"))
        assert numpy.array_equal(function(5, d=0.5), want)
        with pytest.raises(ValueError, match="expected a real floating-point dtype"):
            function(5, dtype=namespace.int64)


@BOTH
def test_clip_takes_its_bounds_by_name(namespace: Any) -> None:
    x = namespace.asarray([-2, 0, 3])
    assert numpy.asarray(namespace.clip(x, min=-1, max=1)).tolist() == [-1, 0, 1]
    assert numpy.asarray(namespace.clip(x, min=1)).tolist() == [1, 1, 3]
    assert numpy.asarray(namespace.clip(x, max=1)).tolist() == [-2, 0, 1]


@BOTH
def test_information_tells_the_truth(namespace: Any) -> None:
    told = namespace.__array_namespace_info__()
    assert told.default_device() == "cpu" == namespace.ones(2).device
    assert list(told.devices()) == device_api.names()
    assert told.default_dtypes()["real floating"] == namespace.ones(2).dtype
    assert told.default_dtypes()["indexing"] == namespace.argmax(namespace.ones(2)).dtype
    assert told.dtypes(kind="real floating") == {"float32": "f4", "float64": "f8"}
    assert told.dtypes(device="cpu") == told.dtypes()
    capabilities = told.capabilities()
    assert capabilities["boolean indexing"] is capabilities["data-dependent shapes"] is True
    with pytest.raises(ValueError, match="Device not understood"):
        told.dtypes(device="quantum")


@BOTH
def test_devices_that_nobody_has_are_refused(namespace: Any) -> None:
    functions = (
        lambda: namespace.zeros(2, device="quantum"),
        lambda: namespace.arange(2, device="quantum"),
        lambda: namespace.fft.fftfreq(2, device="quantum"),
        lambda: namespace.from_dlpack(namespace.ones(2), device="quantum"),
        lambda: namespace.ones(2).to_device("quantum"),
    )
    for function in functions:
        with pytest.raises(ValueError, match=r"[Dd]evice"):
            function()


MOVING = """
import lazyfuse, lazyfuse.array_api
for xp in (lazyfuse, lazyfuse.array_api):
    places = xp.__array_namespace_info__().devices()
    print(*places)
    if len(places) < 2:
        break
    name = places[1]
    made = [xp.zeros(3, device=name), xp.full((2, 2), 1.5, device=name),
            xp.ones_like(xp.ones(3), device=name), xp.arange(4, device=name),
            xp.linspace(0, 1, 3, device=name), xp.eye(2, device=name),
            xp.fft.rfftfreq(4, device=name), xp.asarray([1, 2], device=name),
            xp.from_dlpack(xp.ones(2), device=name), xp.astype(xp.ones(2), xp.int64, device=name)]
    assert [x.device for x in made] == [name] * len(made), [x.device for x in made]
    assert xp.from_dlpack(made[0]).device == name
    assert made[0].to_device("cpu").device == "cpu"
    assert float(xp.sum(made[1])) == 6
"""


def test_arrays_are_made_on_a_device_with_memory_of_its_own() -> None:
    """PoCL stands for such a device where it is installed."""
    pytest.importorskip("pyopencl", reason="no OpenCL device without it")
    code = "import os; os.environ['LAZYFUSE_OPENCL_SHARE'] = '0'\n"
    code += f"import tests.opencl_builds\n{MOVING}"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    assert all(line.startswith("cpu") for line in done.stdout.splitlines())


def test_nothing_but_the_list_of_devices_asks_the_drivers() -> None:
    code = (
        "import os, sys; os.environ.pop('LAZYFUSE_DEVICE', None); import lazyfuse.array_api as xp\n"
    )
    code += (
        "told = xp.__array_namespace_info__(); told.default_dtypes(); told.dtypes(device='cpu')\n"
    )
    code += "xp.zeros(3, device='cpu').to_device('cpu').device\n"
    code += "assert 'pyopencl' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------- in `lazyfuse.array_api` alone


@RECORDED
def test_floor_division_divides_infinities(below: int) -> None:
    numbers = [INF, -INF, 3.0, -3.0, 0.5, 0.0, -0.0, NAN]
    pairs = numpy.array(list(itertools.product(numbers, numbers)))
    with numpy.errstate(all="ignore"), lazyfuse.options(eager_below=below):
        first, second = pairs.T.copy()
        far = numpy.isinf(first) | numpy.isinf(second)
        want = numpy.where(far, first / second, first // second)
        x, y = xp.asarray(first), xp.asarray(second)
        assert bits(xp.floor_divide(x, y)) == bits(x // y) == bits(want)
        x //= y
        assert bits(x) == bits(want)


def test_floor_division_with_numbers() -> None:
    x = xp.asarray([INF, 5.0, -5.0], dtype=xp.float32)
    assert bits(x // 2) == bits([INF, 2, -3])
    assert bits(1 // x) == bits([0, 0, -1])
    assert bits(-1.0 // x) == bits([-0.0, -1, 0])
    assert (x // 2).dtype == (x // True).dtype == xp.float32
    assert (xp.asarray([7]) // 2).dtype == xp.int64
    n = xp.asarray([7, 8])
    with pytest.raises(TypeError, match="same_kind"):
        n //= 2.5
    assert lazyfuse.asarray([7.0]) // xp.asarray([INF]) == 0, "in mixed company, too"


def test_no_warning_of_what_is_not_odd() -> None:
    assert float(xp.asarray(INF) // 2.0) == INF
    assert bits(xp.expm1(xp.asarray(complex(INF, 0)))) == [repr(complex(INF, 0))]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_eigenvalues_are_complex(dtype: str) -> None:
    x = xp.asarray([[2.0, 0.0], [0.0, 3.0]], dtype=getattr(xp, dtype))
    wanted = xp.result_type(x, xp.complex64)
    found = xp.linalg.eig(x)
    assert found._fields == ("eigenvalues", "eigenvectors")
    assert found.eigenvalues.dtype == found.eigenvectors.dtype == wanted
    assert xp.linalg.eigvals(x).dtype == wanted
    usual = numpy.linalg.eigvals(numpy.eye(2)).dtype  # complex from NumPy 2.5 on
    assert lazyfuse.linalg.eigvals(lazyfuse.eye(2)).dtype == usual


def test_limits_are_pythons_numbers() -> None:
    for argument in (
        xp.float32,
        xp.ones(1, dtype=xp.float32),
        xp.ones(1, dtype=xp.complex64).dtype,
    ):
        limits = xp.finfo(argument)
        assert type(limits.eps) is type(limits.max) is float
        assert limits.dtype == xp.float32
        assert (limits.bits, limits.eps) == (32, 2.0**-23)
    assert xp.iinfo(xp.ones(1, dtype=xp.int8)).max == 127 == lazyfuse.iinfo(lazyfuse.int8).max
    assert type(lazyfuse.finfo("f4").eps) is numpy.float32


def test_what_numpy_wants_told_is_left_out() -> None:
    x = xp.asarray([3, 1, 2])
    assert xp.clip(x, 2)._array.tolist() == [3, 2, 2]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a_max'"):
        lazyfuse.clip(lazyfuse.asarray([3, 1, 2]), 2)
    assert xp.diff(x, prepend=None).shape == (2,)
    z = xp.ones((3, 4), dtype=xp.complex64)
    assert xp.fft.fftn(z, s=(2,)).shape == (3, 2)


def test_linear_algebra_is_of_stacks_of_matrices() -> None:
    x = xp.reshape(xp.arange(24), (2, 3, 4))
    assert xp.linalg.diagonal(x).shape == (2, 3)
    assert xp.linalg.diagonal(x, offset=9).shape == (2, 0)
    assert xp.linalg.trace(x)._array.tolist() == [15, 51]
    assert xp.linalg.cross(x[..., :3], x[..., 1:]).shape == (2, 3, 3)


def test_results_are_arrays() -> None:
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    kind = type(x)
    for found in (
        xp.sum(x),
        x[0, 0],
        xp.linalg.det(x),
        xp.all(x),
        xp.linalg.slogdet(x).sign,
        +x[0, 0],
    ):
        assert type(found) is kind
        assert found.shape == ()
    assert [type(each) for each in xp.unstack(x)] == [kind, kind]
    big = xp.sum(xp.ones((300, 300)))
    big += 1
    assert type(big) is kind
    assert int(big) == 90001
    assert [float(row[0]) for row in x] == [1.0, 3.0]


def test_arrays_mix_with_those_of_the_main_namespace_and_numpys() -> None:
    x = xp.asarray([1.0, 2.0])
    kind = type(x)
    for other in (lazyfuse.asarray([3.0, 4.0]), numpy.array([3.0, 4.0]), numpy.float64(3), 3.0):
        assert type(x + other) is type(other + x) is type(xp.add(x, other)) is kind
    for module in (lazyfuse, numpy):
        assert type(module.sin(x)) is type(module.concatenate([x, x])) is kind
        assert type(module.asarray(x)) is module.ndarray
        assert type(module.add.reduce(x)) is kind
    target = lazyfuse.zeros(2)
    target += x
    assert type(target) is lazyfuse.ndarray
    assert numpy.add(x, x, out=x) is x
    assert x._array.tolist() == [2.0, 4.0]
    with pytest.raises(TypeError):
        x + "text"
    with pytest.raises(TypeError):
        x + [1.0, 2.0]  # noqa: RUF005  # no list


@pytest.mark.parametrize("size", [4, 50_000])
def test_namespaces_share_memory(size: int) -> None:
    x = lazyfuse.zeros(size)
    y = xp.asarray(x)
    x[0] = 1
    y[1] = 2
    assert lazyfuse.asarray(y)[:2].tolist() == x[:2].tolist() == [1, 2]
    y += 1
    assert x[:3].tolist() == [2, 3, 1]
    assert xp.asarray(y, copy=True)._array is not x


def test_recorded_work_is_explained_and_evaluated() -> None:
    x = xp.exp(xp.ones(50_000)) + 1
    assert "exp" in str(lazyfuse.explain(x))
    lazyfuse.evaluate(x)
    assert x._array._node.value is not None


def test_transposes_are_of_matrices() -> None:
    assert xp.ones((2, 3)).T.shape == xp.ones((2, 3)).mT.shape == (3, 2)
    with pytest.raises(ValueError, match=r"\[T\] rank: expected 2, got 1"):
        xp.ones(3).T  # noqa: B018
    with pytest.raises(TypeError, match="use asarray"):
        type(xp.ones(3))([1])
