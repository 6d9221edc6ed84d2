"""Two estimates by random numbers: pi from a square, and an Asian option from random walks.

    python examples/monte_carlo.py [samples]

NumPy's generators (the streams are NumPy's own), masks that are only summed, cumulative sums.
"""

import sys

import numpy as np


def estimate_pi(samples, generator):
    """Four times the share of points of the unit square that lie in the unit circle."""
    x = generator.random(samples)
    y = generator.random(samples)
    inside = x * x + y * y <= 1.0
    return 4.0 * inside.mean(), 4.0 * inside.std() / np.sqrt(samples)


def asian_call(walks, steps, generator, spot=100.0, strike=100.0, rate=0.05, volatility=0.2):
    """The price of a call on the mean of a random walk, and its standard error."""
    dt = 1.0 / steps
    noise = generator.standard_normal((walks, steps))
    moves = (rate - 0.5 * volatility**2) * dt + volatility * np.sqrt(dt) * noise
    paths = spot * np.exp(np.cumsum(moves, axis=1))
    payoff = np.exp(-rate) * np.maximum(paths.mean(axis=1) - strike, 0.0)
    return payoff.mean(), payoff.std(ddof=1) / np.sqrt(walks), paths


def main(samples):
    generator = np.random.default_rng(31415)
    value, error = estimate_pi(samples, generator)
    print(f"pi           {value:.6f} +- {error:.6f}")
    print(f"within three standard errors: {bool(abs(value - np.pi) < 3 * error)}")

    walks = max(samples // 100, 10)
    price, error, paths = asian_call(walks, 50, generator)
    print(f"asian call   {price:.6f} +- {error:.6f} from {walks} walks")

    drawdown = 1.0 - paths / np.maximum.accumulate(paths, axis=1)
    worst = drawdown.max(axis=1)
    low, middle, high = np.percentile(worst, [5, 50, 95])
    print(f"drawdown     {low:.6f} {middle:.6f} {high:.6f} (5, 50, 95 %)")
    print(f"ended higher {(paths[:, -1] > 100.0).mean():.6f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
