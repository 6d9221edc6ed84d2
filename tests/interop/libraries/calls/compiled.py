"""Calls of packages whose compiled code, or whose tests of types, want NumPy's own class."""

from __future__ import annotations

from tests.interop.libraries.calls.package import Package

PACKAGES = (
    Package(
        "cv2",
        "OpenCV",
        "5.0",
        """
import cv2
y, x = np.mgrid[0:24, 0:32]
grey = ((x * 7 + y * 5) % 256).astype(np.uint8)
image = np.stack([grey, grey[::-1], 255 - grey], axis=2)
field = (x * 0.5 + y).astype(np.float32)
points = np.array([[3, 4], [20, 5], [18, 19], [5, 20], [11, 11]], dtype=np.int32)
matrix = np.array([[0.9, -0.1, 2.0], [0.1, 0.9, 1.0]])
target = np.zeros((12, 16), dtype=np.uint8)
""",
        """
cv2.resize(image, (16, 12))
cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
cv2.GaussianBlur(field, (5, 5), 1.5)
cv2.filter2D(field, -1, np.ones((3, 3), dtype=np.float32) / 9)
cv2.threshold(grey, 100, 255, cv2.THRESH_BINARY)
cv2.Canny(grey, 50, 150)
cv2.warpAffine(image, matrix, (32, 24))
cv2.findContours(np.where(grey > 100, 255, 0).astype(np.uint8), 1, 2)
cv2.boundingRect(points)
cv2.convexHull(points)
cv2.calcHist([grey], [0], None, [16], [0, 256])
cv2.fillPoly(image.copy(), [points], (0, 0, 255))
cv2.merge([grey, grey, grey])
cv2.imdecode(cv2.imencode(".png", image)[1], 1)
cv2.resize(grey, (16, 12), dst=target), target.copy()
cv2.resize(grey, (16, 12), dst=target) is target
cv2.add(field, 1.0 + field)
cv2.matchTemplate(grey, grey[2:8, 3:9], cv2.TM_SQDIFF)
cv2.solve(np.eye(2) * 4, np.array([[2.0], [6.0]]))
cv2.BFMatcher().match(field[:5], field[2:9])[0].trainIdx
cv2.UMat(grey).get()
cv2.KalmanFilter(2, 1).correct(np.ones((1, 1), dtype=np.float32))
cv2.rectangle(image.copy(), points[0].tolist(), points[2].tolist(), 3)
cv2.mean(field, (grey > 9).astype(np.uint8))
cv2.resize(grey.astype(np.int64), (16, 12))
cv2.GaussianBlur(field, (4, 4), 1.5)
cv2.cvtColor(grey, cv2.COLOR_BGR2GRAY)
""",
    ),
    Package(
        "pyarrow",
        "pyarrow",
        "26.0",
        """
import pyarrow as pa
import pyarrow.compute as pc
x = np.arange(6.0) * 2
mask = x > 3
places = np.array([2, 0, 1])
values = pa.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
table = pa.table({"x": values})
""",
        """
pa.array(x)
pa.array(x, mask=mask)
pa.array(x, type=pa.float32())
pa.array([x, x])
pa.array([x.sum(), x.max()])
pa.array(places.astype(str))
pa.table({"x": x, "mask": mask})
pa.Table.from_arrays([x, mask], names=["x", "mask"])
pa.Table.from_pydict({"x": x})
pa.RecordBatch.from_arrays([x], ["x"])
pa.chunked_array([x, x])
values.take(places)
values.filter(mask)
table.filter(mask)
table.take(places)
table.append_column("y", x)
pc.add(values, x)
pc.multiply(values, x.sum())
pc.is_in(values, value_set=x)
pc.sum(x)
pa.scalar(x.sum())
pa.Tensor.from_numpy(x)
pa.py_buffer(x).to_pybytes()
pa.FixedSizeListArray.from_arrays(x, 2)
pa.DictionaryArray.from_arrays(places, ["a", "b", "c"])
pa.infer_type([x])
pa.array(x.reshape(2, 3))
pa.array(x + 1j)
table.filter(mask[:2])
""",
        {"pa.Tensor.from_numpy(x)": "pa.Tensor.from_numpy(x.to_numpy())"},
    ),
    Package(
        "numba",
        "numba",
        "0.68",
        """
import numba
x = np.arange(8.0) + 1
square = np.arange(9.0).reshape(3, 3)
@numba.njit
def total(values):
    out = 0.0
    for i in range(values.size):
        out += values[i]
    return out
@numba.njit
def doubled(values):
    return values * 2
@numba.njit
def filled(values, number):
    values[:] = number
    return values.size
@numba.njit("float64(float64[:])")
def declared(values):
    return values.sum()
@numba.njit(parallel=True)
def parallel(values):
    out = 0.0
    for i in numba.prange(values.size):
        out += values[i]
    return out
@numba.njit
def pair(both):
    return both[0].sum() + both[1].sum()
@numba.njit
def same(values):
    return values
@numba.njit
def wrong(values):
    return values.nothing
@numba.njit
def raises(values):
    raise ValueError("no")
@numba.jit(forceobj=True)
def objects(values):
    return values.sum()
@numba.vectorize
def dynamic(a, b):
    return a + 2 * b
@numba.vectorize(["float64(float64)"])
def static(a):
    return a * 3
@numba.vectorize(["float64(float64)"], target="parallel")
def threads(a):
    return a * 3
@numba.guvectorize(["(float64[:], float64[:])"], "(n)->()")
def lines(row, out):
    out[0] = row.sum()
@numba.guvectorize("(n)->()")
def dynamic_lines(row, out):
    out[0] = row.sum()
@numba.stencil
def neighbours(a):
    return a[-1] + a[1]
""",
        """
total(x)
total(x), total(x + 1), total(np.arange(3))
total(square[:, 1])
total(values=x)
doubled(x)
doubled(square.T)
doubled(square[0])
doubled(x.sum())
filled(x, 5.0), x.tolist()
filled(x[::2], x.max()), x.tolist()
declared(x)
declared(x[::2])
declared(x.astype(np.float32))
parallel(x)
pair((x, x + 1))
pair([x, x + 1])
same(x)
same(x.astype(np.float32))
wrong(x)
raises(x)
objects(x)
dynamic(x, 1.0)
dynamic(x, x.astype(np.float32))
static(x)
static(square)
threads(x)
lines(square)
dynamic_lines(square, np.zeros(3))
neighbours(x)
dynamic.reduce(x)
numba.typeof(x)
numba.typed.List([x, x])[1]
(total(x), total.signatures)
total(np.array(["a"]))
""",
    ),
    Package(
        "autograd",
        "autograd",
        "1.9",
        """
import autograd
import autograd.numpy as anp
x = np.arange(4.0) + 1
""",
        """
autograd.grad(lambda v: anp.sum(anp.sin(v)))(x)
autograd.grad(lambda v: anp.sum(v * x))(x)
autograd.grad(lambda v: anp.sum(x * v))(x)
autograd.grad(lambda v: anp.dot(v, x))(x)
autograd.grad(lambda v: anp.sum(v ** 2))(x.sum())
autograd.jacobian(lambda v: v * 2)(x)
autograd.hessian(lambda v: anp.sum(v ** 3))(x)
autograd.value_and_grad(lambda v: anp.sum(anp.exp(-v)))(x)
autograd.elementwise_grad(anp.tanh)(x)
autograd.grad(lambda v, w: anp.sum(v @ w), 1)(np.ones((2, 4)), np.ones((4, 3)))
autograd.grad(lambda d: anp.sum(d["a"] * d["b"]))({"a": x, "b": x})
autograd.grad(lambda p: anp.sum(p[0] * p[1]))([x, x])
anp.sum(x)
autograd.grad(lambda v: v * 2)(x)
""",
    ),
    Package(
        "sympy",
        "SymPy",
        "1.14",
        """
import sympy
s, t = sympy.symbols("s t")
x = np.arange(5.0)
square = np.arange(4.0).reshape(2, 2)
""",
        """
sympy.lambdify(s, sympy.sin(s) ** 2, np)(x)
sympy.lambdify(s, sympy.sin(s) ** 2, "numpy")(x)
sympy.lambdify(s, sympy.sin(s) ** 2)(x)
sympy.lambdify(s, sympy.exp(s) + 1, [np])(x)
sympy.lambdify((s, t), s * t + 1, np)(x, x + 1)
sympy.lambdify(s, sympy.Piecewise((s, s > 2), (0, True)), np)(x)
sympy.lambdify(s, sympy.Matrix([s, s ** 2]), np)(x[1])
sympy.lambdify(s, sympy.Max(s, 2), np)(x)
sympy.lambdify(s, sympy.sqrt(s), {"sqrt": np.sqrt})(x)
s * x
x * s
sympy.Matrix(square)
sympy.Matrix(square).det()
sympy.Array(square)
sympy.sympify(x)
sympy.sympify(x.sum())
sympy.Float(x.sum())
s + x.sum()
x.sum() * s
sympy.Matrix([x])
np.array(sympy.Matrix([[1, 2], [3, 4]])).astype(float)
sympy.Symbol("q").subs(sympy.Symbol("q"), x.max())
sympy.Matrix(square) * square
""",
    ),
)
