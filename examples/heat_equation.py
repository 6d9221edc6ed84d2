"""Heat spreading through a plate: explicit time steps written into slices of one array.

    python examples/heat_equation.py [cells per side]

Shifted views of one array on the right-hand side, an in-place write into its interior on the
left: the idiom that needs NumPy's aliasing rules to be right.
"""

import sys

import numpy as np


def step(plate, conductivity):
    """Advance the interior of `plate` by one time step, in place."""
    centre = plate[1:-1, 1:-1]
    neighbours = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
    centre += conductivity * (neighbours - 4.0 * centre)


def heat_source(size):
    """A cold plate with a warm disc off its centre."""
    y, x = np.mgrid[0:size, 0:size] / (size - 1.0)
    disc = (x - 0.35) ** 2 + (y - 0.6) ** 2 < 0.02
    return np.where(disc, 100.0, 0.0)


def main(size, steps=150):
    plate = heat_source(size)
    plate[0, :] = 20.0  # one side is held at a fixed temperature, the others at zero
    before = plate.sum()

    for number in range(1, steps + 1):
        step(plate, 0.2)
        if number % 50 == 0:
            print(f"step {number:4d}: hottest {plate.max():9.4f}, mean {plate.mean():.6f}")

    row, column = np.unravel_index(np.argmax(plate), plate.shape)
    print(f"warmth kept    {plate.sum() / before:.6f}")
    print(f"hottest cell   row {row}, column {column}")
    print(f"steepest slope {np.abs(np.diff(plate, axis=0)).max():.6f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
