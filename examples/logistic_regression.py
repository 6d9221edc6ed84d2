"""Logistic regression by gradient descent on made-up measurements.

    python examples/logistic_regression.py [samples]

Matrix products with elementwise work around them, in a loop that runs the same steps each time.
"""

import sys

import numpy as np


def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow on either side."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0.0, 1.0, small) / (1.0 + small)


def loss(margin, target):
    """The mean of log(1 + exp(-margin)) with the sign of the target, written stably."""
    return np.mean(np.logaddexp(0.0, margin) - target * margin)


def make_data(samples, features, generator):
    """Standardised measurements and labels drawn from a known rule."""
    data = generator.normal(size=(samples, features)) * generator.uniform(0.5, 3.0, features)
    truth = generator.normal(size=features)
    data = (data - data.mean(axis=0)) / data.std(axis=0)
    target = (generator.random(samples) < sigmoid(data @ truth)).astype(float)
    return data, target, truth


def fit(data, target, rounds=60, rate=1.0, penalty=1e-3):
    """Weights that make the loss small."""
    weights = np.zeros(data.shape[1])
    for number in range(rounds):
        margin = data @ weights
        gradient = data.T @ (sigmoid(margin) - target) / len(target) + penalty * weights
        weights -= rate * gradient
        if number % 20 == 0:
            print(f"round {number:3d}: loss {loss(margin, target):.6f}")
    return weights


def main(samples, features=16):
    generator = np.random.default_rng(99)
    data, target, truth = make_data(samples, features, generator)
    weights = fit(data, target)

    probability = sigmoid(data @ weights)
    correct = (probability > 0.5) == (target == 1.0)
    cosine = weights @ truth / (np.linalg.norm(weights) * np.linalg.norm(truth))
    print(f"loss           {loss(data @ weights, target):.6f}")
    print(f"accuracy       {correct.mean():.4f}")
    print(f"like the truth {cosine:.6f}")
    print("first weights  " + " ".join(f"{w:.4f}" for w in weights[:4]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
