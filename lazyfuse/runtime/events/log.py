"""What lazyfuse tells of its work, in words: to the logger `lazyfuse`, and where `debug` prints.

The logger has no handler but one that drops everything, so nothing is printed unless the program
asks: evaluations, kernels and their source text come as DEBUG, what falls back as INFO. `logging`
is not imported for this: a program that wants to listen has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

from lazyfuse import config

NAME = "lazyfuse"
DEBUG, INFO = 10, 20  # logging's

_logger: Any = None


def _listening(severity: int) -> Any:
    """The logger, if it passes messages of this severity on."""
    global _logger
    if _logger is None:
        logging = sys.modules.get("logging")
        if logging is None or not hasattr(logging, "NullHandler"):  # it is being imported
            return None
        _logger = logging.getLogger(NAME)
        _logger.addHandler(logging.NullHandler())
    return _logger if _logger.isEnabledFor(severity) else None


def is_heard(level: int) -> bool:
    """Whether the program gets messages of this level of the option `debug`."""
    return config.options.debug >= level or _listening(DEBUG) is not None


def tell(level: int, text: str, severity: int = DEBUG) -> None:
    """Print a message if the option `debug` is at least `level`, and pass it to the logger."""
    if config.options.debug >= level:
        print(f"lazyfuse: {text}", file=sys.stderr)
    logger = _listening(severity)
    if logger is not None:
        logger.log(severity, "%s", text)
