"""Complex values where real ones are kept: NumPy warns, and an error leaves the target alone.

Each way in which a program may cast, with random dtypes and sizes, warnings shown and as errors.
"""

from __future__ import annotations

import random
import warnings
from types import ModuleType
from typing import Any

import numpy
import pytest

import lazyfuse
from tests import campaign
from tests.campaign import rounds

pytestmark = campaign.TIMEOUT

WAYS = """
c.astype(K) | c.astype(K, casting="unsafe") | c.astype(K, copy=False) | c.sum().astype(K)
c.astype(bool) | z.fill(c[2]) | z.fill(c.sum()) | z.fill(np.array(1j)) | z.fill(2j)
z.fill(c[2:3]) | np.copyto(z, c, casting="unsafe") | np.copyto(z, c, where=z > 3, casting="unsafe")
np.copyto(z, c) | np.copyto(z, c[3], casting="unsafe") | np.copyto(z, c * 2, casting="unsafe")
np.copyto(z, 2j, casting="unsafe") | np.copyto(z[::2], c[::2], casting="unsafe")
np.copyto(c, z, casting="unsafe") | np.copyto(z > 3, c, casting="unsafe")
np.put(z, [1, 2], c[1:3]) | z.put(np.arange(4), c[:4]) | np.place(z, z > 3, c)
np.putmask(z, z > 3, c) | np.add(c, c, out=z, casting="unsafe")
np.multiply(c, 2, out=z, casting="unsafe") | np.add(c, c, out=z)
np.sqrt(c, out=z, casting="unsafe") | np.add(c, c, out=z, where=z > 3, casting="unsafe")
np.add(c, c, dtype=K, casting="unsafe") | np.negative(c, dtype=K, casting="unsafe")
np.add(c, 1, dtype=K) | np.add(z, 2j, dtype=K, casting="unsafe")
np.add(z, c[1], dtype=K, casting="unsafe") | c.sum(dtype=K) | c.mean(dtype=K) | c.cumsum(dtype=K)
c.prod(dtype=K) | np.add.reduce(c, dtype=K) | np.add.accumulate(c, dtype=K)
np.sum(c.reshape(2, -1), axis=0, out=z[: c.size // 2]) | np.array(c, dtype=K)
np.asarray(c, dtype=K) | np.ascontiguousarray(c, dtype=K) | np.array(c[1], dtype=K)
np.full(8, c[2], dtype=K) | np.full(8, 2j, dtype=K) | np.full_like(z, c[2])
np.array([c[0], c[1]], dtype=K) | np.concatenate([c, c], dtype=K, casting="unsafe")
np.stack([c, c], dtype=K, casting="unsafe") | np.hstack([c, z], dtype=K, casting="unsafe")
np.where(z > 3, c, z).astype(K) | np.insert(z, 3, c[5])
np.take(c, np.arange(c.size), out=z, mode="clip") | np.clip(c, 0, 1, out=z, casting="unsafe")
np.einsum("i,i->i", c, c, out=z, casting="unsafe") | np.compress(z >= 0, c, out=z)
np.pad(z, 3, constant_values=c[5]) | np.choose((z > 3).astype(int), [c, c], out=z, mode="clip")
np.fill_diagonal(z.reshape(2, -1), c[3]) | np.put_along_axis(z, np.arange(c.size), c, 0)
np.add.at(z, [1, 2], c[1:3]) | z.__iadd__(c) | z.__imul__(2j) | z[:] = c | z[1:-1] = c[1:-1]
z[z > 3] = c[z > 3] | z[z > 3] = c[5] | z[[1, 2]] = c[1:3] | z[...] = c * 2 + 1
z[np.arange(6)] = c[:6] | z[5] = c[5] | z[:] = c[5] | z[:] = c.sum() | z[:] = 2j | z[2] = 2j
z[::2] = c[::2] | z.reshape(2, -1)[1] = c[: c.size // 2] | z.real = c | c.real = c | c.imag = c * 2
z.flat = c | z.flat[0:5] = c[:5] | float(c.sum()) | int(c[3]) | np.linspace(c[0], c[5], 5, dtype=K)
np.nan_to_num(c).astype(K)
"""
PIECES = [each.strip() for line in WAYS.strip().split("\n") for each in line.split(" | ")]
KINDS = ("f8", "f8", "f4", "f2", "i8", "i4", "u1", "bool")


def run(np: ModuleType, text: str, kind: str, size: int, action: Any) -> tuple[Any, ...]:
    """How a statement ends: its warnings, its exception, and what all arrays have then."""
    z, c = np.arange(size) * np.ones(1, kind), np.arange(size) * np.array(2 + 1j)
    z = (z % 7).astype(kind)
    names: dict[str, Any] = {"np": np, "z": z, "c": c, "K": kind, "found": None}
    ended = ""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        try:
            exec(text if " = " in text else f"found = {text}", names)
            found = numpy.asarray(names["found"])
        except Exception as error:
            ended, found = type(error).__name__, numpy.array(None)
        values = [found, numpy.asarray(z), numpy.asarray(c)]
    told = [each.category.__name__ for each in shown]
    return ended, told, [(each.dtype.str, each.shape, each.tolist()) for each in values]


@rounds(300)
@pytest.mark.parametrize("action", ["always", "error"])
def test_casts_that_drop_imaginary_parts_warn(seeds: range, action: Any) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        text, kind = draw.choice(PIECES), draw.choice(KINDS)
        size = draw.choice([8, 8, 40, 5000])
        with lazyfuse.options(
            eager_below=draw.choice([0, 0, 30, 4096]), plan_after=draw.choice([0, 3])
        ):
            ours = run(lazyfuse, text, kind, size, action)
        assert ours == run(numpy, text, kind, size, action), (seed, text, kind, size)
