"""k-means clustering by Lloyd's algorithm, with all distances from one broadcast expression.

    python examples/kmeans.py [points]

Broadcasting to (points, clusters, 2), a reduction over the last axis, argmin, and fancy indexing.
"""

import sys

import numpy as np


def make_blobs(points, centres, generator):
    """Points scattered around `centres`."""
    labels = generator.integers(0, len(centres), points)
    return centres[labels] + generator.normal(0.0, 0.6, (points, 2))


def assign(data, centres):
    """The nearest centre of each point, and the squared distance to it."""
    difference = data[:, np.newaxis, :] - centres[np.newaxis, :, :]
    distance = (difference**2).sum(axis=2)
    return distance.argmin(axis=1), distance.min(axis=1)


def spread_out(data, clusters):
    """Points to start from: each as far as possible from those before it."""
    centres = data[:1]
    while len(centres) < clusters:
        _, distance = assign(data, centres)
        centres = np.vstack([centres, data[distance.argmax()]])
    return centres


def kmeans(data, clusters, rounds=20):
    """Move centres to the mean of their points until nothing changes."""
    centres = spread_out(data, clusters)
    for number in range(1, rounds + 1):
        labels, _ = assign(data, centres)
        moved = np.stack([data[labels == k].mean(axis=0) for k in range(clusters)])
        if np.allclose(moved, centres, atol=1e-6):
            return moved, number
        centres = moved
    return centres, rounds


def main(points):
    generator = np.random.default_rng(7)
    truth = np.array([[0.0, 0.0], [5.0, 1.0], [1.0, 6.0], [-4.0, 3.0], [-2.0, -5.0]])
    data = make_blobs(points, truth, generator)

    centres, rounds = kmeans(data, len(truth))
    labels, distance = assign(data, centres)
    order = np.lexsort((centres[:, 1], centres[:, 0]))
    sizes = np.bincount(labels, minlength=len(truth))

    print(f"{points} points, settled after {rounds} rounds")
    for k in order:
        print(f"centre ({centres[k, 0]:8.4f}, {centres[k, 1]:8.4f}) with {sizes[k]} points")
    print(f"mean squared distance {distance.mean():.6f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60_000)
