"""As `numpy.fft`: NumPy's transforms, run at once, on and into arrays of ours."""

from __future__ import annotations

from lazyfuse.namespace import numpy_modules

__getattr__, __dir__ = numpy_modules.filler(__name__, "numpy.fft")
