"""A drop falls into a square basin: the shallow water equations by Lax and Friedrichs.

    python examples/shallow_water.py [cells per side]

Three coupled fields, fluxes from shifted slices, reflecting walls by negative-stride slices.
"""

import sys

import numpy as np

GRAVITY = 9.81


def fluxes(height, east, south):
    """What flows through the faces of the cells: for mass and for both momenta."""
    u, v = east / height, south / height
    pressure = 0.5 * GRAVITY * height**2
    along_x = np.stack([east, east * u + pressure, east * v])
    along_y = np.stack([south, south * u, south * v + pressure])
    return along_x, along_y


def reflect(state):
    """Walls: the outermost cells mirror the next ones, with the momentum across turned round."""
    state[:, 0, :], state[:, -1, :] = state[:, 1, :], state[:, -2, :]
    state[:, :, 0], state[:, :, -1] = state[:, :, 1], state[:, :, -2]
    state[1, :, [0, -1]] *= -1.0
    state[2, [0, -1], :] *= -1.0


def step(state, ratio):
    """Advance by one time step; `ratio` is the time step over the cell's width."""
    along_x, along_y = fluxes(*state)
    mean = 0.25 * (
        state[:, 1:-1, :-2] + state[:, 1:-1, 2:] + state[:, :-2, 1:-1] + state[:, 2:, 1:-1]
    )
    change_x = along_x[:, 1:-1, 2:] - along_x[:, 1:-1, :-2]
    change_y = along_y[:, 2:, 1:-1] - along_y[:, :-2, 1:-1]
    state[:, 1:-1, 1:-1] = mean - 0.5 * ratio * (change_x + change_y)


def main(cells, steps=60):
    y, x = np.meshgrid(np.linspace(0, 1, cells), np.linspace(0, 1, cells), indexing="ij")
    state = np.zeros((3, cells, cells))
    state[0] = 1.0 + 0.4 * np.exp(-80.0 * ((x - 0.3) ** 2 + (y - 0.4) ** 2))

    for number in range(1, steps + 1):
        reflect(state)
        speed = np.abs(state[1:] / state[0]).max() + np.sqrt(GRAVITY * state[0].max())
        step(state, 0.5 / float(speed))
        if number % 20 == 0:
            print(f"step {number:3d}: water from {state[0].min():.6f} to {state[0].max():.6f}")

    inner = state[:, 1:-1, 1:-1]
    energy = 0.5 * (inner[1] ** 2 + inner[2] ** 2) / inner[0] + 0.5 * GRAVITY * inner[0] ** 2
    print(f"mean height  {inner[0].mean():.6f}")
    print(f"mean energy  {energy.mean():.6f}")
    print(f"momentum     {np.abs(inner[1]).mean():.6f} {np.abs(inner[2]).mean():.6f}")
    print(f"mirror image {np.abs(state[0] - state[0][::-1, ::-1]).max():.6f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
