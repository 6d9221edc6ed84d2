"""A program: evaluates calls that it reads, and writes what they give, one line of JSON each.

`python evaluate.py numpy`; `python evaluate.py lazyfuse PACKAGE` asks for PACKAGE's adapter first;
`python -m lazyfuse evaluate.py numpy` is an unedited program under the launcher.
"""

import hashlib
import json
import re
import sys
import warnings

import numpy as np

if sys.argv[1] == "lazyfuse":
    import lazyfuse as np

    for name in sys.argv[2:]:
        np.adapt(name)


def shown(value):
    """A text for a value: what it is, and every element to 12 digits."""
    if isinstance(value, np.ndarray) and type(value).__name__ == "ndarray":
        return f"array {value.dtype.str} {value.shape} {shown(value.tolist())}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} [{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"dict {shown(list(value.items()))}"
    if isinstance(value, (float, complex)):
        return f"{type(value).__name__} {value:.12g}"
    if isinstance(value, bytes):
        return f"bytes {hashlib.sha256(value).hexdigest()}"
    return f"{type(value).__name__} {re.sub(' at (0x)?[0-9A-Fa-f]+', '', repr(value))}"


def answer(call, names):
    try:
        return shown(eval(call, names))
    except Exception as error:
        return f"raises {type(error).__name__} {str(error).partition(chr(10))[0]}"


warnings.simplefilter("ignore")
asked = json.load(sys.stdin)
names = {"np": np}
exec(asked["setup"], names)
for call in asked["calls"]:
    print(json.dumps(answer(call, names)))
