"""Pickles that name modules where they were before the packages were made."""

from __future__ import annotations

import pickle
from typing import Any

import numpy

import lazyfuse
import lazyfuse.array_api as xp


def former(module: str, name: str, *arguments: Any) -> Any:
    """What a pickle gives that says `module.name(*arguments)`, or `module.name` without any."""
    text = f"c{module}\n{name}\n".encode()
    if arguments:
        given = b"".join(pickle.dumps(each, 0)[:-1] for each in arguments)
        text += b"(" + given + b"tR"
    return pickle.loads(text + b".")


def test_older_pickles_are_read() -> None:
    real = numpy.arange(5.0)
    found = former("lazyfuse.protocols", "rebuild", real)
    assert type(found) is lazyfuse.ndarray
    assert found.tolist() == real.tolist()
    assert former("lazyfuse.array", "ndarray") is lazyfuse.ndarray
    assert former("lazyfuse.errstate", "errstate") is lazyfuse.errstate
    assert former("lazyfuse.ufunc", "ufunc_of", numpy.add) is lazyfuse.add
    standard = former("lazyfuse.array_api_array", "given", found)
    assert type(standard) is type(xp.asarray([1.0]))
    assert former("lazyfuse.config", "options") is lazyfuse.options


def test_classes_are_named_as_users_know_them() -> None:
    assert repr(lazyfuse.ndarray) == "<class 'lazyfuse.ndarray'>"
    assert pickle.loads(pickle.dumps(lazyfuse.ndarray)) is lazyfuse.ndarray
