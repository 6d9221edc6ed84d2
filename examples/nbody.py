"""A cluster of stars under its own gravity: all pairs at once, leapfrog steps.

    python examples/nbody.py [stars]

Outer differences of shape (n, n), a power, reductions over rows, and in-place updates.
"""

import sys

import numpy as np

SOFTENING = 0.05


def accelerations(position, mass):
    """The pull of every star on every other; `position` has shape (3, n)."""
    difference = position[:, np.newaxis, :] - position[:, :, np.newaxis]
    squared = (difference**2).sum(axis=0) + SOFTENING**2
    pull = mass * squared**-1.5
    return (difference * pull).sum(axis=2)


def energy(position, velocity, mass):
    """Kinetic and potential energy; together they should stay what they were."""
    kinetic = 0.5 * (mass * (velocity**2).sum(axis=0)).sum()
    difference = position[:, np.newaxis, :] - position[:, :, np.newaxis]
    distance = np.sqrt((difference**2).sum(axis=0) + SOFTENING**2)
    pairs = np.triu(mass * mass[:, np.newaxis] / distance, k=1)
    return kinetic, -pairs.sum()


def main(stars, steps=10, dt=0.002):
    generator = np.random.default_rng(42)
    position = generator.normal(0.0, 1.0, (3, stars))
    velocity = generator.normal(0.0, 0.3, (3, stars))
    mass = generator.uniform(0.5, 1.5, stars) / stars
    velocity -= (velocity * mass).sum(axis=1, keepdims=True) / mass.sum()

    before = sum(energy(position, velocity, mass))
    pull = accelerations(position, mass)
    for _ in range(steps):
        velocity += 0.5 * dt * pull
        position += dt * velocity
        pull = accelerations(position, mass)
        velocity += 0.5 * dt * pull
    kinetic, potential = energy(position, velocity, mass)

    print(f"{stars} stars, {steps} steps")
    print(f"kinetic energy   {kinetic:.6f}")
    print(f"potential energy {potential:.6f}")
    print(f"energy drift     {abs((kinetic + potential - before) / before) < 1e-3}")
    print(f"momentum is zero {bool(np.allclose((velocity * mass).sum(axis=1), 0.0, atol=1e-12))}")
    print(f"half-mass radius {np.median(np.linalg.norm(position, axis=0)):.6f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
