"""Grids of two axes: fractals, filters, automata, fields."""

import numpy as np

SIZES = {
    "mandelbrot_complex": 320,
    "mandelbrot_floats": 340,
    "julia": 120,
    "dithering": 200,
    "dithering_bytes": 350,
    "flood_fill": 250,
    "components": 460,
    "life_elements": 100,
    "life_windows": 120,
    "life_rows": 880,
    "rule_30": 400,
    "heat": 80,
    "gauss_seidel": 80,
    "jacobi_until_still": 40,
    "ising": 62_000,
    "bresenham": 1500,
    "blur": 250,
    "convolve2d": 250,
    "sobel": 150,
    "median_filter": 100,
    "bilinear": 300,
    "sandpile": 40,
    "grey_levels": 170,
    "integral_image": 640,
    "ray_spheres": 120,
    "distance_to_set": 300,
}


def mandelbrot_complex(n):
    counts = np.zeros((n, n), dtype=int)
    for i in range(n):
        for j in range(n):
            c = complex(-2 + 3 * j / n, -1.5 + 3 * i / n)
            z = 0j
            k = 0
            while abs(z) <= 2 and k < 50:
                z = z * z + c
                k += 1
            counts[i, j] = k
    return counts


def mandelbrot_floats(n):
    counts = np.zeros((n, n), dtype=np.int32)
    for i in range(n):
        y0 = -1.5 + 3.0 * i / n
        for j in range(n):
            x0 = -2.0 + 3.0 * j / n
            x = y = 0.0
            k = 0
            while x * x + y * y <= 4.0 and k < 50:
                x, y = x * x - y * y + x0, 2 * x * y + y0
                k += 1
            counts[i, j] = k
    return counts


def julia(n):
    xs = np.linspace(-1.5, 1.5, n)
    ys = np.linspace(-1.5, 1.5, n)
    picture = np.zeros((n, n))
    for i, y in enumerate(ys):
        for j, x in enumerate(xs):
            zx, zy = x, y
            for k in range(60):
                if zx * zx + zy * zy > 4:
                    break
                zx, zy = zx * zx - zy * zy - 0.7, 2 * zx * zy + 0.27015
            picture[i, j] = k / 60
    return picture


def dithering(n):
    image = np.random.default_rng(1).random((n, n))
    for y in range(n - 1):
        for x in range(1, n - 1):
            old = image[y, x]
            new = np.round(old)
            image[y, x] = new
            error = old - new
            image[y, x + 1] += error * 7 / 16
            image[y + 1, x - 1] += error * 3 / 16
            image[y + 1, x] += error * 5 / 16
            image[y + 1, x + 1] += error * 1 / 16
    return image


def dithering_bytes(n):
    image = np.random.default_rng(2).integers(0, 256, (n, n)).astype(np.int16)
    height, width = image.shape
    for y in range(height):
        for x in range(width):
            old = image[y, x]
            new = 255 if old > 127 else 0
            image[y, x] = new
            error = old - new
            if x + 1 < width:
                image[y, x + 1] += error * 7 // 16
            if y + 1 < height:
                if x > 0:
                    image[y + 1, x - 1] += error * 3 // 16
                image[y + 1, x] += error * 5 // 16
                if x + 1 < width:
                    image[y + 1, x + 1] += error // 16
    return image


def flood_fill(n):
    grid = (np.random.default_rng(3).random((n, n)) < 0.3).astype(int)
    stack = np.zeros((4 * n * n, 2), dtype=int)
    stack[0] = n // 2, n // 2
    top = 1
    filled = 0
    while top > 0:
        top -= 1
        i, j = stack[top]
        if i < 0 or j < 0 or i >= n or j >= n or grid[i, j] != 0:
            continue
        grid[i, j] = 2
        filled += 1
        stack[top] = i + 1, j
        stack[top + 1] = i - 1, j
        stack[top + 2] = i, j + 1
        stack[top + 3] = i, j - 1
        top += 4
    return filled, grid


def components(n):
    grid = np.random.default_rng(4).random((n, n)) < 0.55
    labels = np.zeros((n, n), dtype=int)
    label = 0
    for i in range(n):
        for j in range(n):
            if grid[i, j] and not labels[i, j]:
                label += 1
                todo = [(i, j)]
                labels[i, j] = label
                while todo:
                    a, b = todo.pop()
                    for c, d in ((a + 1, b), (a - 1, b), (a, b + 1), (a, b - 1)):
                        if 0 <= c < n and 0 <= d < n and grid[c, d] and not labels[c, d]:
                            labels[c, d] = label
                            todo.append((c, d))
    return label, labels


def life_elements(n):
    grid = np.random.default_rng(5).integers(0, 2, (n, n))
    for _ in range(10):
        new = np.zeros_like(grid)
        for i in range(n):
            for j in range(n):
                total = 0
                for di in (-1, 0, 1):
                    for dj in (-1, 0, 1):
                        if di or dj:
                            total += grid[(i + di) % n, (j + dj) % n]
                if total == 3 or (total == 2 and grid[i, j]):
                    new[i, j] = 1
        grid = new
    return grid


def life_windows(n):
    grid = np.random.default_rng(6).integers(0, 2, (n, n))
    for _ in range(3):
        new = grid.copy()
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                around = np.sum(grid[i - 1 : i + 2, j - 1 : j + 2]) - grid[i, j]
                if grid[i, j] == 1 and (around < 2 or around > 3):
                    new[i, j] = 0
                elif grid[i, j] == 0 and around == 3:
                    new[i, j] = 1
        grid = new
    return grid


def life_rows(n):
    grid = np.random.default_rng(7).integers(0, 2, (n, n))
    for _ in range(10):
        new = np.zeros((n, n), dtype=int)
        for i in range(1, n - 1):
            up, here, down = grid[i - 1], grid[i], grid[i + 1]
            total = up[:-2] + up[1:-1] + up[2:] + here[:-2] + here[2:]
            total = total + down[:-2] + down[1:-1] + down[2:]
            new[i, 1:-1] = (total == 3) | ((total == 2) & (here[1:-1] == 1))
        grid = new
    return grid


def rule_30(n):
    rule = np.array([30 >> k & 1 for k in range(8)], dtype=np.uint8)
    cells = np.zeros((n, 2 * n + 1), dtype=np.uint8)
    cells[0, n] = 1
    for t in range(n - 1):
        for i in range(1, 2 * n):
            cells[t + 1, i] = rule[4 * cells[t, i - 1] + 2 * cells[t, i] + cells[t, i + 1]]
    return cells


def heat(n):
    u = np.zeros((n, n))
    u[0, :] = 100.0
    for _ in range(20):
        new = u.copy()
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                new[i, j] = u[i, j] + 0.1 * (
                    u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4 * u[i, j]
                )
        u = new
    return u


def gauss_seidel(n):
    u, f = np.zeros((n, n)), np.ones((n, n))
    h = 1.0 / (n - 1)
    for _ in range(20):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                u[i][j] = 0.25 * (
                    u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1] + h * h * f[i][j]
                )
    return u


def jacobi_until_still(n, tolerance=1e-3):
    phi = np.zeros((n, n))
    phi[0, :] = 1.0
    delta, turns = 1.0, 0
    while delta > tolerance:
        old = np.copy(phi)
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                phi[i, j] = (old[i + 1, j] + old[i - 1, j] + old[i, j + 1] + old[i, j - 1]) / 4
        delta = np.max(np.abs(phi - old))
        turns += 1
    return turns, phi


def ising(n):
    random = np.random.default_rng(8)
    size = 64
    spins = random.choice([-1, 1], (size, size))
    places, chances = random.integers(0, size, (n, 2)), random.random(n)
    energy = 0
    for k in range(n):
        i, j = places[k]
        around = (
            spins[(i + 1) % size, j] + spins[i - 1, j] + spins[i, (j + 1) % size] + spins[i, j - 1]
        )
        change = 2 * spins[i, j] * around
        if change <= 0 or chances[k] < np.exp(-change / 2.3):
            spins[i, j] *= -1
            energy += change
    return energy, spins


def _line(image, x0, y0, x1, y1):
    dx, dy = abs(x1 - x0), -abs(y1 - y0)
    sx = 1 if x0 < x1 else -1
    sy = 1 if y0 < y1 else -1
    error = dx + dy
    while True:
        image[y0, x0] += 1
        if x0 == x1 and y0 == y1:
            break
        twice = 2 * error
        if twice >= dy:
            error += dy
            x0 += sx
        if twice <= dx:
            error += dx
            y0 += sy


def bresenham(n):
    ends = np.random.default_rng(9).integers(0, 512, (n, 4))
    image = np.zeros((512, 512), dtype=int)
    for x0, y0, x1, y1 in ends:
        _line(image, x0, y0, x1, y1)
    return image


def blur(n):
    image = np.random.default_rng(10).random((n, n))
    out = np.zeros_like(image)
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            total = 0.0
            for a in range(-1, 2):
                for b in range(-1, 2):
                    total += image[i + a, j + b]
            out[i, j] = total / 9
    return out


def convolve2d(n):
    random = np.random.default_rng(11)
    image, kernel = random.random((n, n)), random.random((5, 5))
    rows, columns = kernel.shape
    out = np.zeros((n - rows + 1, n - columns + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.sum(image[i : i + rows, j : j + columns] * kernel)
    return out


def sobel(n):
    image = np.random.default_rng(12).integers(0, 256, (n, n)).astype(np.uint8)
    out = np.zeros((n, n), dtype=np.float32)
    for y in range(1, n - 1):
        for x in range(1, n - 1):
            gx = (
                -1.0 * image[y - 1, x - 1] + image[y - 1, x + 1]
                - 2.0 * image[y, x - 1] + 2.0 * image[y, x + 1]
                - 1.0 * image[y + 1, x - 1] + image[y + 1, x + 1]
            )  # fmt: skip
            gy = (
                -1.0 * image[y - 1, x - 1] - 2.0 * image[y - 1, x] - 1.0 * image[y - 1, x + 1]
                + image[y + 1, x - 1] + 2.0 * image[y + 1, x] + image[y + 1, x + 1]
            )  # fmt: skip
            out[y, x] = (gx**2 + gy**2) ** 0.5
    return out


def median_filter(n):
    image = np.random.default_rng(13).random((n, n))
    out = image.copy()
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            out[i, j] = np.median(image[i - 1 : i + 2, j - 1 : j + 2])
    return out


def bilinear(n):
    image = np.random.default_rng(14).random((64, 64))
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            y = i * 63 / (n - 1)
            x = j * 63 / (n - 1)
            y0, x0 = int(np.floor(y)), int(np.floor(x))
            y1, x1 = min(y0 + 1, 63), min(x0 + 1, 63)
            a, b = y - y0, x - x0
            out[i, j] = (
                image[y0, x0] * (1 - a) * (1 - b) + image[y1, x0] * a * (1 - b)
                + image[y0, x1] * (1 - a) * b + image[y1, x1] * a * b
            )  # fmt: skip
    return out


def sandpile(n):
    grid = np.zeros((n, n), dtype=int)
    grid[n // 2, n // 2] = 1500
    toppled = True
    while toppled:
        toppled = False
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                if grid[i, j] >= 4:
                    grid[i, j] -= 4
                    grid[i + 1, j] += 1
                    grid[i - 1, j] += 1
                    grid[i, j + 1] += 1
                    grid[i, j - 1] += 1
                    toppled = True
    return grid


def grey_levels(n):
    image = np.random.default_rng(15).integers(0, 256, (n, n, 3)).astype(np.uint8)
    grey = np.zeros((n, n), dtype=np.uint8)
    for i in range(n):
        for j in range(n):
            r, g, b = image[i, j]
            grey[i, j] = int(0.299 * r + 0.587 * g + 0.114 * b)
    return grey


def integral_image(n):
    image = np.random.default_rng(16).integers(0, 256, (n, n)).astype(np.uint8)
    total = np.zeros((n + 1, n + 1), dtype=np.int64)
    for i in range(n):
        row = 0
        for j in range(n):
            row += int(image[i, j])
            total[i + 1, j + 1] = total[i, j + 1] + row
    return total


def ray_spheres(n):
    random = np.random.default_rng(17)
    centres, radii = random.random((4, 3)) * 2 - 1, random.random(4) * 0.4
    centres[:, 2] += 3
    image = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            direction = np.array([2 * j / n - 1, 2 * i / n - 1, 1.0])
            direction /= np.linalg.norm(direction)
            nearest = np.inf
            for k in range(len(radii)):
                b = np.dot(direction, centres[k])
                c = np.dot(centres[k], centres[k]) - radii[k] ** 2
                inside = b * b - c
                if inside > 0:
                    distance = b - np.sqrt(inside)
                    if 0 < distance < nearest:
                        nearest = distance
            image[i, j] = 0.0 if nearest == np.inf else 1 / nearest
    return image


def distance_to_set(n):
    far = np.where(np.random.default_rng(18).random((n, n)) < 0.01, 0.0, np.inf)
    for i in range(n):
        for j in range(n):
            if i > 0:
                far[i, j] = min(far[i, j], far[i - 1, j] + 1)
            if j > 0:
                far[i, j] = min(far[i, j], far[i, j - 1] + 1)
    for i in range(n - 1, -1, -1):
        for j in range(n - 1, -1, -1):
            if i < n - 1:
                far[i, j] = min(far[i, j], far[i + 1, j] + 1)
            if j < n - 1:
                far[i, j] = min(far[i, j], far[i, j + 1] + 1)
    return far
