"""SciPy's sparse matrices and arrays beside dense arrays of ours, as beside NumPy's."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy
import pytest

import lazyfuse as np

sparse = pytest.importorskip("scipy.sparse")
spatial = pytest.importorskip("scipy.spatial")

FORMATS = "bsr coo csc csr dia dok lil".split()
OPERATORS = (
    "eq ne lt le gt ge add sub mul truediv floordiv mod pow matmul and_ or_ xor iadd isub imul"
    " itruediv imatmul"
).split()
METHODS = "multiply maximum minimum dot".split()
DENSE: dict[str, Any] = {
    "square": [[0.0, 1.0], [2.0, 3.0]],
    "row": [[1.0, 2.0]],
    "column": [[1.0], [0.0]],
    "vector": [3.0, 0.0],
    "number": 2.0,
}


def outcome(function: Any, *operands: Any) -> Any:
    """The type and values of a result, or the type of the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = function(*operands)
        except Exception as error:
            return type(error).__name__
    values = found.toarray() if sparse.issparse(found) else numpy.asarray(found)
    kind = type(found).__name__ if sparse.issparse(found) else type(values).__name__
    return kind, values.dtype.str, values.shape, values.tobytes()


@pytest.mark.parametrize("dense", DENSE)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_operators_take_dense_arrays_on_either_side(kind: str, form: str, dense: str) -> None:
    real = numpy.array(DENSE[dense])
    with np.options(eager_below=0):
        for name in (*OPERATORS, *METHODS):
            for swapped in (False, True) if name in OPERATORS else (False,):
                results = []
                for x in (real.copy(), np.array(DENSE[dense]).copy()):
                    s = getattr(sparse, f"{form}_{kind}")(numpy.array([[0.0, 1.0], [2.0, 5.0]]))
                    if name in METHODS:
                        results.append(outcome(getattr(s, name), x))
                    else:
                        pair = (x, s) if swapped else (s, x)
                        results.append(outcome(getattr(operator, name), *pair))
                assert results[0] == results[1], (name, swapped)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_sparse_objects_are_made_of_our_arrays(kind: str, form: str) -> None:
    x = np.array(DENSE["square"])
    made = getattr(sparse, f"{form}_{kind}")(x)
    assert numpy.array_equal(made.toarray(), DENSE["square"])
    if form in ("csr", "csc", "dok", "lil"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made[0] = x[1]
        assert made.toarray()[0].tolist() == [2.0, 3.0]
    dense = numpy.kron(made.toarray(), numpy.asarray(x))
    assert numpy.array_equal(sparse.kron(made, x).toarray(), dense)


@pytest.mark.parametrize("name", ["ConvexHull", "Delaunay", "Voronoi"])
@pytest.mark.parametrize("restart", [False, True])
def test_hulls_take_further_points_of_ours(name: str, restart: bool) -> None:
    points = numpy.random.default_rng(3).random((20, 2))
    found = []
    for given in (points, np.array(points)):
        hulls = [getattr(spatial, name)(given[:count], incremental=True) for count in (5, 6)]
        for at in range(6, 20):  # by turns: each makes the other keep its points
            for hull in hulls:
                hull.add_points(given[at : at + 1], restart=restart)
        found.append([numpy.asarray(hull.points).tolist() for hull in hulls])
        for hull in hulls:
            hull.close()
    assert found[0] == found[1]


def test_halfspaces_of_ours_are_added() -> None:
    spaces = numpy.array([[-1.0, 0, 0], [0, -1, 0], [2, 1, -4], [-0.5, 1, -2]])
    found = []
    for given in (spaces, np.array(spaces)):
        made = spatial.HalfspaceIntersection(given[:3], given[0, :2] + 1.5, incremental=True)
        made.add_halfspaces(given[3:], restart=True)
        found.append(numpy.asarray(made.intersections).tolist())
    assert found[0] == found[1]
