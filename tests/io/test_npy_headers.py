"""Headers of `.npy` files that are damaged, or made to do harm: read, or refused, as by NumPy."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.errors import UnsupportedError
from lazyfuse.io import plain_files
from lazyfuse.io.resolve import resolve
from tests import campaign
from tests.campaign import rounds

pytestmark = campaign.TIMEOUT
DATA = np.arange(12.0)
ENTRIES = {
    "descr": [
        "'<f8'", "'>i4'", "'|u1'", "'<c16'", "'|b1'", "'<f2'", "'|O'", "None", "8", "'x'", "'<f80'",
        "[]", "[[]]", "('<f8', (2,))", "('<f8', (2**40,))", "[('a', '<f8')]",
        "[('a', '<f8'), ('a', '<f8')]", "{'a': 1}", "b'<f8'", "'<M8[s]'", "'|V3'",
        "'|S2'", "'<U3'", "('<f8',)", "True",
    ],
    "fortran_order": ["False", "True", "0", "1", "None", "'yes'", "[]"],
    "shape": [
        "(12,)", "(3, 4)", "()", "(2, 3, 2)", "(0,)", "(-1,)", "(-3, -4)", "(12.0,)", "12", "[12]",
        "(True,)", "('a',)", "(None,)", f"({2**70},)", f"(0, {2**70})", f"({2**32}, {2**32})",
        "(0, -1)", "(1j,)", f"({2**63},)", f"(0, {2**62}, {2**62})", "(" + "1, " * 70 + ")",
        "((12,),)", "{12}", "(12,) ",
    ],
}  # fmt: skip
WHOLE = [
    "", "5", "[1, 2]", "{1, 2}", "{}", "None", "-" * 9000 + "1", "[" * 9000, "(" * 150 + ")" * 150,
    "1" + "+1" * 4000, "-" * 40_000 + "1", "{" + "'a': 1, " * 5000 + "}", "9" * 9000, "'" * 3, "\0",
    "__import__('os').abort()", "{'descr': '<f8', 'fortran_order': False, 'shape': (12,), 'x': 1}",
    "{'descr': '<f8', 'shape': (12,)}", "{**{}}", "lambda: 0", "f'{1}'", "[x for x in ()]",
]  # fmt: skip
LETTERS = "'{}[](),:<>f8 \n\0-+*L#\\\xff"


def header(rng: random.Random) -> bytes:
    """The text of a header with some wrong entries, or letters, or something else."""
    if rng.random() < 0.1:
        return rng.choice(WHOLE).encode("latin1")
    wrong = rng.choice([*ENTRIES, ""])
    entries = {
        key: rng.choice(found) if key == wrong or rng.random() < 0.1 else found[0]
        for key, found in ENTRIES.items()
    }
    keys = list(entries)
    rng.shuffle(keys)
    if rng.random() < 0.05:
        keys = keys[:-1]
    text = "{" + ", ".join(f"{key!r}: {entries[key]}" for key in keys) + "}\n"
    letters = list(text)
    for _ in range(rng.choice([0, 0, 0, 1, 2, 5])):
        at = rng.randrange(len(letters))
        letters[at : at + rng.choice([0, 1, 3])] = rng.choice(LETTERS)
    return "".join(letters).encode("latin1")


def hostile(rng: random.Random) -> bytes:
    """A file that may be right."""
    version = rng.choice([(1, 0)] * 6 + [(2, 0), (2, 0), (3, 0), (0, 0), (9, 9)])
    text = header(rng)
    length = len(text)
    if rng.random() < 0.05:
        length = rng.choice([0, 1, length - 1, length + 1, 0xFFFF, 0xFFFFFFF0])
    width = "<H" if version == (1, 0) else "<I"
    length &= 0xFFFF if version == (1, 0) else 0xFFFFFFFF
    size = DATA.nbytes if rng.random() < 0.9 else rng.randrange(DATA.nbytes)
    whole = b"\x93NUMPY" + bytes(version) + struct.pack(width, length) + text
    whole += DATA.tobytes()[:size]
    return whole if rng.random() < 0.95 else whole[: rng.randrange(6, len(whole))]


def attempt(act: Callable[[], Any]) -> Any:
    """What is found, or the exception."""
    try:
        return act()
    except Exception as error:
        return error


@rounds(600)
@pytest.mark.filterwarnings("ignore")  # of texts that Python compiles, and of old headers
def test_as_numpy_reads_it_or_refused(seeds: range, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    read = 0
    for seed in seeds:
        path.write_bytes(hostile(random.Random(seed)))
        want = attempt(lambda: np.load(path))
        got = attempt(
            lambda: (source := resolve(path)).read(tuple(slice(0, n) for n in source.shape))
        )
        what = f"seed {seed}: {path.read_bytes()[:300]!r}: NumPy {want!r}, here {got!r}"
        if isinstance(want, Exception):
            assert isinstance(got, (ValueError, TypeError, UnsupportedError)), what
        elif isinstance(got, Exception):
            text = path.read_bytes()  # what Python 2 wrote, and elements that are arrays
            assert isinstance(got, UnsupportedError) or b"L" in text or b"('<f8', (2" in text, what
        else:
            read += 1
            assert (got.shape, got.dtype) == (want.shape, want.dtype), what
            assert got.tobytes() == want.tobytes(), what
    assert read > len(seeds) // 10


def test_long_headers_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for text in (b"-" * 4_000_000 + b"1", b"1" + b"+1" * 2_000_000, b"[" * 300_000):
        path.write_bytes(b"\x93NUMPY\2\0" + struct.pack("<I", len(text)) + text)
        with pytest.raises(ValueError, match="letters"):
            plain_files.npy(str(path))
    path.write_bytes(b"\x93NUMPY\2\0" + struct.pack("<I", 0xFFFFFFF0) + b"x" * 100)
    with pytest.raises(ValueError, match="letters"):
        plain_files.npy(str(path))
