"""Warnings that NumPy raises inside lazyfuse: shown at the user's lines, once per line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging
import warnings

import numpy as np
assert warnings.showwarning is warnings._showwarning_orig
a = np.array([1.0, 0.0])
b = np.zeros(2)
a / b
np.log(b)
a / b
np.log(b)
warnings.warn("the program's own")
for _ in range(3):
    -a / b
b /= 0
np.power(b, -1)
np.nanmean(np.array([np.nan]))
np.array([1.5, np.nan]).astype(int)
np.array([1, 2]) // 0
def user():
    return np.sqrt(np.array([-1.0]))
np.frompyfunc(lambda x: user()[0], 1, 1)([1, 2])
b = np.zeros(2)
with warnings.catch_warnings():
    warnings.simplefilter("always")
    for _ in range(3):
        np.log(b)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    np.log(b)
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", module="__main__")
    np.log(b)
    warnings.filterwarnings("error", message="invalid", module="__main__")
    try:
        a / b
    except RuntimeWarning as error:
        print("caught", error)
a / b
with warnings.catch_warnings():
    warnings.simplefilter("once")
    for _ in range(3):
        np.log(b - 1)
    np.log(b - 1)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    np.log(b)
    np.nanmean(np.array([np.nan]))
print([(x.filename == __file__, x.lineno) for x in told])
warnings.simplefilter("always")
logging.captureWarnings(True)
np.log(b)
logging.captureWarnings(False)
warnings.showwarning = lambda *told: print(told[1:4])
np.log(b)
"""


def test_programs_show_what_they_show_with_numpy(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    usual = {name: x for name, x in os.environ.items() if name != "LAZYFUSE_EAGER_BELOW"}
    theirs, ours = [
        subprocess.run([*command, str(program)], capture_output=True, text=True, env=usual)
        for command in ([sys.executable], [sys.executable, "-m", "lazyfuse"])
    ]
    assert theirs.stderr.count("RuntimeWarning") > 15
    assert ours.stderr == theirs.stderr
    assert ours.stdout == theirs.stdout
    assert "caught invalid value encountered in divide\n" in ours.stdout
