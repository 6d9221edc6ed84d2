"""Random programs over arrays in chunks, in NumPy and in lazyfuse, on each kind of scheduler.

`LAZYFUSE_CAMPAIGN` draws more of them, as everywhere (tests/campaign.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lazyfuse import config
from tests import campaign, reached
from tests.campaign import rounds
from tests.chunked import programs
from tests.chunked.phrases import ALL, PRODUCTS, Phrase
from tests.programs.compare import complain, failure
from tests.programs.deep import Kind
from tests.programs.test_deep import explore

pytestmark = campaign.TIMEOUT
SIZES = (1 << 27, 64, 200)


def check(seeds: range, below: int, said: Sequence[Phrase] = ALL, device: str = "") -> None:
    """Run programs; fail with the first difference, as a script that is as short as possible."""
    for seed in seeds:
        # large or small beside a chunk: what is made on the way is cut, too
        size = SIZES[seed % len(SIZES)]
        with config.options(eager_below=below, chunk_bytes=size, device=device):
            program = programs.Grammar(seed, said=said).program()
            with reached.program(seed):
                what = failure(program, programs.run)
                if what:
                    complain(program, what, programs.run)


@rounds(240)
@pytest.mark.parametrize("below", [0, 16384])
@pytest.mark.usefixtures("on_threads")
def test_on_threads(below: int, seeds: range) -> None:
    check(seeds, below)


@rounds(120, 10**5)
@pytest.mark.usefixtures("synchronous")
def test_in_this_thread(seeds: range) -> None:
    check(seeds, 0)


@rounds(240, 3 * 10**5)
@pytest.mark.parametrize("device", ["", "dask"])
@pytest.mark.usefixtures("synchronous")
def test_products(device: str, seeds: range) -> None:
    """Products of arrays over sources of all kinds, and what is done with them."""
    check(seeds, 0, PRODUCTS, device)


@rounds(9, 2 * 10**5)
def test_on_a_cluster(seeds: range, cluster: Any) -> None:
    check(seeds, 0)


@rounds(40)
@pytest.mark.usefixtures("synchronous")
def test_all_that_programs_say_where_new_arrays_are_in_chunks(seeds: range) -> None:
    """The programs of tests/programs: whatever is above 64 bytes is computed in chunks."""
    explore(Kind(), seeds, eager_below=0, device="dask", chunk_bytes=64)
