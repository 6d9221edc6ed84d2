"""matplotlib in ordinary use: figures of arrays, drawn without a screen; prints their pixels."""

import hashlib
import io
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

SIZES = (100, 20_000)


def pixels(figure):
    """A digest of what was drawn, and of the file."""
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    plt.close(figure)
    digest = hashlib.sha256(drawn.tobytes()).hexdigest()[:16]
    return drawn.shape, digest, plt.imread(io.BytesIO(stream.getvalue())).shape


def curves(n):
    figure, (first, second) = plt.subplots(2, 1, figsize=(4, 3), dpi=60)
    x = np.linspace(0, 6, n)
    y = x * (6 - x)
    first.plot(x, y, "r-", x, -y, "b--", label="curve")
    first.fill_between(x, y, 0.5 * y, where=y > 4, color=np.array([0.2, 0.5, 0.2]))
    first.errorbar(x[:: n // 6], y[:: n // 6], yerr=y[:: n // 6] * 0.1)
    first.axhline(y.mean())
    first.set_xlim(x.min(), x.max())
    first.set_xticks(np.arange(0, 7, 2), labels=np.arange(0, 7, 2).astype(str))
    second.step(x[:50], y[:50])
    second.vlines(x[:5], 0, y[:5])
    second.annotate("top", (x[y.argmax()], y.max()))
    second.set_title(f"{y.max():.2f} at {x[y.argmax()]:.2f}")
    return pixels(figure)


def counts(n):
    figure, (first, second) = plt.subplots(1, 2, figsize=(4, 2), dpi=60)
    x = np.random.default_rng(1).normal(size=n)
    heights, edges, _ = first.hist(x, bins=np.linspace(-3, 3, 13), weights=np.ones(n))
    print(np.asarray(heights).sum(), np.asarray(edges)[:2])
    first.hist([x, x + 1], bins=5, histtype="step")
    second.bar(np.arange(4), np.bincount(np.arange(n) % 4), width=0.5, color=["r", "g", "b", "k"])
    second.boxplot([x, x * 2])
    return pixels(figure)


def clouds(n):
    figure, (first, second) = plt.subplots(1, 2, figsize=(4, 2), dpi=60)
    x, y = np.random.default_rng(2).random((2, n))
    drawn = first.scatter(x, y, c=x + y, s=5 + 10 * y, alpha=0.5, cmap="viridis")
    figure.colorbar(drawn)
    colours = np.stack([x, y, 0 * x, 0.5 + 0 * x], axis=1)
    second.scatter(x, y, c=colours, marker="s")
    second.hexbin(x, y, gridsize=10)
    second.quiver(x[:9], y[:9], -y[:9], x[:9])
    return pixels(figure)


def fields(n):
    figure, axes = plt.subplots(2, 2, figsize=(4, 4), dpi=60)
    side = int(n**0.5)
    x, y = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side))
    z = x * x - y * y
    axes[0, 0].imshow(z, extent=(-1, 1, -1, 1), vmin=z.min(), vmax=z.max())
    axes[0, 1].imshow(np.dstack([abs(x), abs(y), z * z]))
    axes[1, 0].contourf(x, y, z, levels=np.linspace(-1, 1, 7))
    axes[1, 0].contour(x, y, z, [0.0], colors="k")
    axes[1, 1].pcolormesh(x, y, np.ma.masked_where(z < 0, z))
    axes.flat[3].streamplot(x[0], y[:, 0], y, -x, density=0.2)
    return pixels(figure)


def surface(n):
    axes = plt.figure(figsize=(2, 2), dpi=50).add_subplot(projection="3d")
    x, y = np.mgrid[-1:1:12j, -1:1:12j]
    axes.plot_surface(x, y, x * y / n)
    axes.scatter(x[0], y[:, 0], x[0] ** 2)
    return pixels(axes.figure)


def main():
    for n in map(int, sys.argv[1:] or SIZES):
        for draw in (curves, counts, clouds, fields, surface):
            print(n, draw.__name__, *draw(n))


if __name__ == "__main__":
    main()
