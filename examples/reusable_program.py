"""A ring of masses and springs, its time step frozen into a program and called many times.

    python examples/reusable_program.py [number of masses]

`lazyfuse.freeze` traces `advance` once; each call binds positions, velocities and a time step by
name and runs the same kernels, without recording or planning anything again.
"""

import sys

import numpy as np

import lazyfuse


def advance(position, velocity, dt):
    """One leapfrog step: what it returns is what the next call is given."""
    velocity = velocity + dt * force(position)
    position = position + dt * velocity
    energy = (velocity * velocity).sum() + ((np.roll(position, 1) - position) ** 2).sum()
    return {"position": position, "velocity": velocity, "energy": 0.5 * energy}


def force(position):
    """Springs to both neighbours that stiffen as they are stretched."""
    left, right = np.roll(position, 1) - position, np.roll(position, -1) - position
    return left + right + 0.05 * (left * left * left + right * right * right)


def main(size, steps=60):
    angle = np.linspace(0.0, 2.0 * np.pi, size, endpoint=False)
    position, velocity = np.sin(size // 40 * angle), np.zeros(size)
    program = lazyfuse.freeze(advance, position=position, velocity=velocity, dt=0.1)
    print(f"parameters {', '.join(program.parameters)}")

    for number in range(1, steps + 1):
        dt = 0.1 if number <= 40 else 0.05  # a number: nothing is planned again for it
        state = program(position=position, velocity=velocity, dt=dt)
        position, velocity = state["position"], state["velocity"]
        if number % 20 == 0:
            print(f"step {number:3d}: energy {float(state['energy']):.8f}")

    print(f"furthest   {float(abs(position).max()):.6f}")
    try:
        program(position=position, velocity=velocity)
    except TypeError as error:
        print(error)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
