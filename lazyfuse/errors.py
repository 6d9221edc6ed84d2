"""The exceptions of lazyfuse that are not NumPy's own.

Mistakes that NumPy knows raise NumPy's exceptions with NumPy's text. All others raise these::

    Exception
     +-- LazyfuseError              everything here
     |    +-- ConfigurationError    (also ValueError) an option with an invalid value
     |    +-- EvaluationError       (also RuntimeError) recorded work that could not run
     |    +-- UnsupportedError      (also NotImplementedError) refused on purpose, with a reason
     +-- DeviceError (RuntimeError) devices/base.py: a tier failed; callers take the next one

Texts read `[where] what: expected, got; do this instead`; `message` builds them.
Imports nothing of the frontend, so that every module may import it.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.devices.base import DeviceError

__all__ = [
    "ConfigurationError",
    "DeviceError",
    "EvaluationError",
    "LazyfuseError",
    "UnsupportedError",
    "message",
    "refuses_ours",
]


def message(
    where: str, what: str, expected: str = "", got: object = None, instead: str = ""
) -> str:
    """Build a text in the format of all our errors."""
    text = f"[{where}] {what}"
    if expected:
        text += f": expected {expected}"
        if got is not None:
            text += f", got {got!r}"
    return f"{text}; {instead}" if instead else text


class LazyfuseError(Exception):
    """The base of lazyfuse's own exceptions, for reasons that NumPy does not have."""


class ConfigurationError(LazyfuseError, ValueError):
    """An option, environment variable or argument with an invalid value."""


class UnsupportedError(LazyfuseError, NotImplementedError):
    """Something that lazyfuse refuses on purpose; the text says why and what to do instead."""


class EvaluationError(LazyfuseError, RuntimeError):
    """Recorded work that could not run, with its source location in the user's code.

    `op` is the operation's name; `file`, `line` and `function` are where it was recorded; `stage`
    is its fused stage ("" if it ran alone). The original exception is `__cause__`.
    """

    def __init__(
        self,
        what: str,
        *,
        op: str = "",
        file: str = "",
        line: int = 0,
        function: str = "",
        stage: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.op = op
        self.file = file
        self.line = line
        self.function = function
        self.stage = stage

    @property
    def details(self) -> dict[str, Any]:
        """All arguments except the text, by name."""
        names = ("op", "file", "line", "function", "stage")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        text = f"[{self.op or 'evaluate'}] {self.what}"
        if self.file:
            text += f'\n  recorded in File "{self.file}", line {self.line}, in {self.function}'
        if self.stage:
            text += f"\n  while running {self.stage}"
        return text


def refuses_ours(error: ValueError) -> bool:
    """Whether NumPy refused an object only because its `__array__` gives an array of ours."""
    return str(error).startswith("object __array__ method not producing an array")
