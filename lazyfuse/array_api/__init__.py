"""The complete array API standard: `import lazyfuse.array_api as xp`.

The public names are those of the standard, 2025.12, and no others, with `linalg` and `fft`. Arrays
hold arrays of the main namespace and run the same kernels. `x.__array_namespace__(api_version=
"2023.12")` gives the namespace of an older version. Names are made on first use.
"""

from lazyfuse.array_api import build as _make

_make.install(globals())
