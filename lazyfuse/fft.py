"""As `numpy.fft`: NumPy's transforms, run at once, on and into arrays of ours."""

from __future__ import annotations

from lazyfuse import namespaces

__getattr__, __dir__ = namespaces.filler(__name__, "numpy.fft")
