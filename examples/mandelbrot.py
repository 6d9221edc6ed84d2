"""The Mandelbrot set: escape times with boolean masks, drawn as text.

    python examples/mandelbrot.py [columns]

Complex arithmetic and masked updates; points that have escaped are frozen by `np.where`.
"""

import sys

import numpy as np

SHADES = " .:-=+*#%@"


def escape_times(c, limit):
    """For every point, the step at which |z| first exceeded 2 (`limit` where it never did)."""
    z = np.zeros_like(c)
    times = np.full(c.shape, limit)
    for step in range(limit):
        z = np.where(times == limit, z * z + c, z)
        escaped = (z.real * z.real + z.imag * z.imag > 4.0) & (times == limit)
        times[escaped] = step
    return times


def draw(times, limit, width=64, height=24):
    """The picture as lines of text, one character for a block of points."""
    rows = np.linspace(0, times.shape[0] - 1, height).astype(int)
    columns = np.linspace(0, times.shape[1] - 1, width).astype(int)
    level = times[np.ix_(rows, columns)] * (len(SHADES) - 1) // limit
    return ["".join(SHADES[int(k)] for k in row) for row in level]


def main(columns, limit=50):
    real = np.linspace(-2.1, 0.7, columns)
    imaginary = np.linspace(-1.2, 1.2, columns * 3 // 4)
    times = escape_times(real + 1j * imaginary[:, np.newaxis], limit)

    print("\n".join(draw(times, limit)))
    inside = np.count_nonzero(times == limit)
    print(f"points          {times.size}")
    print(f"never escaped   {inside}")
    print(f"area            {inside / times.size * 2.8 * 2.4:.4f}")
    print(f"mean escape     {times[times < limit].mean():.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
