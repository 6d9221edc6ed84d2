"""Fields of structured arrays: recorded, written in place, and seen by whatever else is asked."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays.storage import Records
from tests import reached
from tests.campaign import TIMEOUT, rounds
from tests.programs.compare import Program, Statement, complain, failure

pytestmark = TIMEOUT

KINDS = (
    "[('u', 'f8'), ('v', 'f8')]", "[('u', 'f4'), ('v', 'f4'), ('w', 'f4')]",
    "[('u', 'i8'), ('v', 'i8')]", "[('u', 'f8', (2,)), ('v', 'f8')]", "[('u', 'f8'), ('v', 'i4')]",
    "{'names': ['u', 'v'], 'formats': ['f8', 'f8'], 'offsets': [8, 24], 'itemsize': 40}",
)  # fmt: skip
MADE = ("np.zeros({n}, {k})", "np.ones({n}, {k})", "np.empty({n}, {k}); z.fill(3)")
TAKEN = ("{f}", "{f}[1:]", "{f}[::-1]", "{f}[..., :-1]", "{f}.T", "{f} * 2", "z['u']", "z['v'][2:]")
DONE = (
    "{f}[...] = {g} * 2 + 1", "{f} += {g}[...] * 0.5", "{f} *= 2", "{f}[1:] = {g}[:-1]",
    "x = {f} + {g}", "x = ({f} - {g}).sum()", "x = {f}[1:] - {f}[:-1]", "z['u'] = {g}",
    "z['v'] = 7", "z['u'][2] = 5", "{f}[::2] = 1", "np.add({f}, {g}, out={f})",
    "x = np.roll({f}, 1, 0) * {g}", "{f}.fill(2)",
)  # fmt: skip
LOOKS = (
    "x = z.copy()", "x = z[1]", "x = z[2:5]", "z[1:3] = z[3:5]",
    "x = z.shape, z.dtype, z.size, z.ndim", "x = z['u'].base is z", "x = numpy.asarray(z)",
    "x = z.tolist()", "x = z.view(z.dtype)[:4]", "w = z", "x = z == z", "x = z[['u', 'v']]",
    "z = z.copy()", "x = z.T", "x = repr(z)", "x = bool(z['u'].any())",
    "x = z.flags.writeable, z.nbytes, z.strides", "del z", "x = np.sort(z.ravel()['u'])",
    "z[0]['u'] = 9", "x = z.reshape(-1)['v']", "x = z.astype(z.dtype)",
    "q = numpy.asarray(z); q['u'] += 1", "x = len(z)", "x = np.concatenate([z, z])",
    "x = z.mean(axis=0)", "z['nothing']", "x = z[-1:]['u'] + 1",
)  # fmt: skip


def _program(seed: int) -> Program:
    draw = random.Random(seed)
    shape = draw.choice(("12", "(5, 6)", "(8, 3)"))
    made = Program(dict)
    text = draw.choice(MADE).format(n=shape, k=draw.choice(KINDS))
    made.statements += [Statement(f"z = {text}"), Statement("z['u'] = 2; z['v'] = 3")]
    made.statements += [Statement("u = z['u']", "u"), Statement("v = z['v']", "v")]
    for _ in range(draw.randint(3, 16)):
        names = {"f": draw.choice("uv"), "g": draw.choice("uv")}
        way = draw.random()
        if way < 0.2:
            name = draw.choice("uv")
            made.statements.append(Statement(f"{name} = {draw.choice(TAKEN).format(**names)}"))
        else:
            text = draw.choice(DONE if way < 0.8 else LOOKS).format(**names)
            made.statements.append(Statement(text, "x" if draw.random() < 0.3 else ""))
    return made


@rounds(300)
@pytest.mark.parametrize("plans", [0, 3])
def test_programs_of_fields_are_numpys(plans: int, seeds: range) -> None:
    with config.options(eager_below=0, plan_after=plans):
        for seed in seeds:
            drawn = _program(seed)
            with reached.program(seed):
                what = failure(drawn)
                if what:
                    complain(drawn, f"seed {seed}: {what}")


def _stepped(np: Any) -> Any:
    z = np.zeros((200, 300), [("u", "f8"), ("v", "f8")])
    u, v = z["u"], z["v"]
    u[50:90, 40:] = 0.5
    v[20:60] = 0.25
    for _ in range(12):
        spread = u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1]
        u[1:-1, 1:-1] += 0.1 * spread - v[1:-1, 1:-1]
        v[...] = v * 0.9 + u * 0.05
    return z


@pytest.mark.usefixtures("on_cpu")
def test_fields_of_large_arrays_are_recorded_without_a_copy() -> None:
    z = _stepped(lazyfuse)
    assert type(z._selection) is Records
    numpy.testing.assert_array_equal(numpy.asarray(z), _stepped(numpy))
    u = z["u"]  # the array is in NumPy's hands now, and so is its field
    u += 1.0
    assert numpy.asarray(z)["u"][3, 4] == numpy.asarray(u)[3, 4]


def test_threads_that_take_a_field_first_share_its_memory() -> None:
    for _ in range(30):
        z = lazyfuse.zeros((200, 300), [("u", "f8"), ("v", "f8")])
        meeting, found = threading.Barrier(4), list[Any]()

        def take(z: Any = z, meeting: Any = meeting, found: list[Any] = found) -> None:
            meeting.wait()
            found.append(z["u"])

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found[0][...] = 3.0
        assert [float(each[7, 9]) for each in found] == [3.0] * 4
        assert numpy.asarray(z)["u"].min() == 3.0
