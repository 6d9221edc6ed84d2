"""European option prices by the formula of Black and Scholes, and a check of put-call parity.

    python examples/black_scholes.py [options]

Long chains of elementwise work on large arrays: the formula as one would write it down, with a
temporary array for every operation.
"""

import sys

import numpy as np


def normal_cdf(x):
    """The cumulative normal distribution, by Abramowitz and Stegun 26.2.17 (error below 7.5e-8)."""
    k = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    series = 1.330274429
    for coefficient in (-1.821255978, 1.781477937, -0.356563782, 0.319381530):
        series = series * k + coefficient
    tail = series * k * np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    return np.where(x > 0.0, 1.0 - tail, tail)


def black_scholes(spot, strike, years, rate, volatility):
    """Prices of a call and a put, and the call's delta."""
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    delta = normal_cdf(d1)
    call = spot * delta - discounted * normal_cdf(d2)
    put = discounted * normal_cdf(-d2) - spot * normal_cdf(-d1)
    return call, put, delta


def main(options):
    generator = np.random.default_rng(2024)
    spot = generator.uniform(10.0, 50.0, options)
    strike = generator.uniform(10.0, 50.0, options)
    years = generator.uniform(0.1, 2.0, options)
    rate, volatility = 0.03, 0.25

    call, put, delta = black_scholes(spot, strike, years, rate, volatility)
    parity = call - put - (spot - strike * np.exp(-rate * years))

    print(f"{options} options")
    print(f"mean call      {call.mean():.6f}")
    print(f"mean put       {put.mean():.6f}")
    print(f"mean delta     {delta.mean():.6f}")
    print(f"dearest call   {call.max():.6f}")
    print(f"in the money   {np.count_nonzero(spot > strike)}")
    print(f"parity holds   {bool(np.all(np.abs(parity) < 1e-9))}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
