"""Series of numbers, from their first to their last."""

import math
from collections import deque

import numpy as np

SIZES = {
    "iir_filter": 330_000,
    "biquad": 150_000,
    "exponential_smoothing": 400_000,
    "smoothing_by_append": 500_000,
    "running_maximum": 150_000,
    "running_maximum_deque": 220_000,
    "moving_average": 200_000,
    "moving_average_slices": 30_000,
    "moving_median": 93_000,
    "histogram": 490_000,
    "histogram_of_floats": 290_000,
    "convolution": 3000,
    "convolution_by_slices": 50_000,
    "cumulative_product": 500_000,
    "drawdown": 400_000,
    "zip_of_arrays": 720_000,
    "zip_of_three": 300_000,
    "enumerated": 560_000,
    "rows_of_a_matrix": 75_000,
    "envelope": 300_000,
    "compressor": 150_000,
    "goertzel": 500_000,
    "fourier": 400,
    "autocorrelation": 2000,
    "peaks": 400_000,
    "crossings": 300_000,
    "mean_and_variance": 510_000,
    "gaps_filled": 400_000,
    "quantised": 200_000,
    "integral_math": 1_500_000,
    "integral_numpy": 340_000,
    "simpson": 520_000,
    "float32_filter": 300_000,
}


def _noise(n, seed=1):
    return np.random.default_rng(seed).standard_normal(n)


def iir_filter(n):
    x = _noise(n)
    y = np.zeros(n)
    y[0] = x[0]
    for i in range(1, n):
        y[i] = 0.1 * x[i] + 0.9 * y[i - 1]
    return y


def biquad(n):
    x = _noise(n)
    b, a = np.array([0.2, 0.4, 0.2]), np.array([1.0, -0.5, 0.3])
    y = np.zeros_like(x)
    for i in range(len(x)):
        y[i] = b[0] * x[i]
        if i >= 1:
            y[i] += b[1] * x[i - 1] - a[1] * y[i - 1]
        if i >= 2:
            y[i] += b[2] * x[i - 2] - a[2] * y[i - 2]
    return y


def exponential_smoothing(n, alpha=0.2):
    x = _noise(n)
    level = x[0]
    out = np.empty(n)
    for i, value in enumerate(x):
        level = alpha * value + (1 - alpha) * level
        out[i] = level
    return out


def smoothing_by_append(n, alpha=0.2):
    x = _noise(n)
    out = [x[0]]
    for i in range(1, len(x)):
        out.append(alpha * x[i] + (1 - alpha) * out[-1])
    return np.array(out)


def running_maximum(n, width=50):
    x = _noise(n)
    queue = np.zeros(n, dtype=int)
    head = tail = 0
    out = np.zeros(n - width + 1)
    for i in range(n):
        while tail > head and x[queue[tail - 1]] <= x[i]:
            tail -= 1
        queue[tail] = i
        tail += 1
        if queue[head] <= i - width:
            head += 1
        if i >= width - 1:
            out[i - width + 1] = x[queue[head]]
    return out


def running_maximum_deque(n, width=50):
    x = _noise(n)
    queue = deque()
    out = []
    for i in range(n):
        while queue and x[queue[-1]] <= x[i]:
            queue.pop()
        queue.append(i)
        if queue[0] <= i - width:
            queue.popleft()
        if i >= width - 1:
            out.append(x[queue[0]])
    return np.array(out)


def moving_average(n, width=20):
    x = _noise(n)
    out = np.zeros(n)
    total = 0.0
    for i, value in enumerate(x):
        total += value
        if i >= width:
            total -= x[i - width]
        out[i] = total / min(i + 1, width)
    return out


def moving_average_slices(n, width=20):
    x = _noise(n)
    out = np.zeros(n - width + 1)
    for i in range(len(out)):
        out[i] = np.mean(x[i : i + width])
    return out


def moving_median(n, width=9):
    x = _noise(n)
    out = np.zeros(n - width + 1)
    for i in range(len(out)):
        window = np.sort(x[i : i + width])
        out[i] = window[width // 2]
    return out


def histogram(n):
    values = np.random.default_rng(2).integers(0, 256, n)
    counts = np.zeros(256, dtype=int)
    for v in values:
        counts[v] += 1
    return counts


def histogram_of_floats(n, bins=50):
    x = _noise(n)
    low, high = x.min(), x.max()
    width = (high - low) / bins
    counts = np.zeros(bins, dtype=np.int64)
    for v in x:
        k = int((v - low) / width)
        if k == bins:
            k -= 1
        counts[k] += 1
    return counts


def convolution(n):
    x, h = _noise(n), _noise(101, 2)
    y = np.zeros(n)
    for i in range(n):
        for j in range(len(h)):
            if i - j >= 0:
                y[i] += h[j] * x[i - j]
    return y


def convolution_by_slices(n):
    x, h = _noise(n), _noise(31, 2)
    y = np.zeros(n - len(h) + 1)
    for i in range(len(y)):
        y[i] = np.sum(x[i : i + len(h)] * h[::-1])
    return y


def cumulative_product(n):
    returns = _noise(n) * 0.001
    value = 1.0
    out = np.empty(n)
    for i in range(n):
        value *= 1 + returns[i]
        out[i] = value
    return out


def drawdown(n):
    prices = 100 + np.cumsum(_noise(n) * 0.1)
    peak = -np.inf
    worst = 0.0
    for p in prices:
        if p > peak:
            peak = p
        worst = max(worst, (peak - p) / peak)
    return worst


def zip_of_arrays(n):
    x, y = _noise(n), _noise(n, 2)
    total = 0.0
    for a, b in zip(x, y):
        total += a * b
    return total


def zip_of_three(n):
    x, y, w = _noise(n), _noise(n, 2), np.abs(_noise(n, 3))
    sxy = sx = sy = sw = 0.0
    for a, b, c in zip(x, y, w):
        sw += c
        sx += c * a
        sy += c * b
        sxy += c * a * b
    return sxy / sw - sx / sw * sy / sw


def enumerated(n):
    x = _noise(n)
    best, where = -1e300, -1
    for i, v in enumerate(x):
        if v > best:
            best, where = v, i
    weighted = 0.0
    for i, v in enumerate(x, start=1):
        weighted += i * v
    return best, where, weighted


def rows_of_a_matrix(n):
    points = _noise(3 * n).reshape(n, 3)
    total = 0.0
    count = 0
    for row in points:
        r = math.sqrt(row[0] ** 2 + row[1] ** 2 + row[2] ** 2)
        if r < 1:
            count += 1
            total += r
    for x, y, z in points:
        total += x * y - z
    return count, total


def envelope(n, attack=0.9, release=0.999):
    x = _noise(n)
    out = np.zeros(n)
    level = 0.0
    for i in range(n):
        value = abs(x[i])
        if value > level:
            level = attack * level + (1 - attack) * value
        else:
            level = release * level + (1 - release) * value
        out[i] = level
    return out


class Compressor:
    def __init__(self, threshold=0.5, ratio=4.0):
        self.threshold, self.ratio = threshold, ratio
        self.gain = 1.0
        self.count = 0

    def process(self, x):
        out = np.zeros_like(x)
        for i in range(len(x)):
            level = abs(x[i])
            wanted = 1.0
            if level > self.threshold:
                wanted = (self.threshold + (level - self.threshold) / self.ratio) / level
                self.count += 1
            self.gain += 0.01 * (wanted - self.gain)
            out[i] = x[i] * self.gain
        return out


def compressor(n):
    machine = Compressor()
    return machine.process(_noise(n)), machine.count


def goertzel(n):
    x = _noise(n)
    coefficient = 2 * math.cos(2 * math.pi * 0.1)
    s1 = s2 = 0.0
    for sample in x:
        s = sample + coefficient * s1 - s2
        s2 = s1
        s1 = s
    return s1**2 + s2**2 - coefficient * s1 * s2


def fourier(n):
    x = _noise(n)
    re, im = np.zeros(n), np.zeros(n)
    for k in range(n):
        for t in range(n):
            angle = 2 * math.pi * k * t / n
            re[k] += x[t] * math.cos(angle)
            im[k] -= x[t] * math.sin(angle)
    return re, im


def autocorrelation(n):
    x = _noise(n)
    mean = x.mean()
    out = np.zeros(200)
    for lag in range(200):
        total = 0.0
        for i in range(n - lag):
            total += (x[i] - mean) * (x[i + lag] - mean)
        out[lag] = total / n
    return out


def peaks(n):
    x = _noise(n)
    found = []
    for i in range(1, n - 1):
        if x[i] > x[i - 1] and x[i] > x[i + 1] and x[i] > 2.5:
            found.append(i)
    return found


def crossings(n):
    x = _noise(n)
    count = 0
    last = -1
    gaps = np.zeros(n, dtype=int)
    for i in range(1, n):
        if (x[i - 1] < 0) != (x[i] < 0):
            gaps[count] = i - last if last >= 0 else 0
            last = i
            count += 1
    return count, gaps[:count]


def mean_and_variance(n):
    mean = m2 = 0.0
    k = 0
    for x in _noise(n):
        k += 1
        delta = x - mean
        mean += delta / k
        m2 += delta * (x - mean)
    return mean, m2 / (k - 1)


def gaps_filled(n):
    x = _noise(n)
    x[x > 1] = np.nan
    last = 0.0
    for i in range(n):
        if np.isnan(x[i]):
            x[i] = last
        else:
            last = x[i]
    return x


def quantised(n):
    x = _noise(n)
    out = np.zeros(n, dtype=np.int16)
    error = 0.0
    for i in range(n):
        value = x[i] * 1000 + error
        out[i] = np.int16(round(value))
        error = value - out[i]
    return out


def integral_math(n):
    a, b = 0.0, 2.0
    h = (b - a) / n
    total = 0.5 * (math.exp(-a * a) + math.exp(-b * b))
    for i in range(1, n):
        x = a + i * h
        total += math.exp(-x * x)
    return total * h


def integral_numpy(n):
    h = 2.0 / n
    total = 0.0
    for i in range(n):
        x = (i + 0.5) * h
        total += np.exp(-(x**2)) * np.sin(x) * h
    return total


def _curve(x):
    return x**3 - 2 * x + math.sin(x)


def simpson(n):
    h = 3.0 / n
    total = _curve(0.0) + _curve(3.0)
    for i in range(1, n):
        if i % 2 == 0:
            total += 2 * _curve(i * h)
        else:
            total += 4 * _curve(i * h)
    return total * h / 3


def float32_filter(n):
    x = _noise(n).astype(np.float32)
    y = np.zeros(n, dtype=np.float32)
    a = np.float32(0.9)
    for i in range(1, n):
        y[i] = a * y[i - 1] + (1 - a) * x[i]
    return y
