"""The array API standard, wholly: `import lazyfuse.array_api as xp`.

The public names are those of the standard, 2025.12, and no others; `linalg` and `fft` are there.
Arrays hold arrays of the main namespace and run by the same kernels. An older version's namespace
comes from `x.__array_namespace__(api_version="2023.12")`. Names are made when first used.
"""

from lazyfuse.array_api import build as _make

_make.install(globals())
