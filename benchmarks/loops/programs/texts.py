"""Texts, as strings, bytes and arrays of letters."""

import numpy as np

SIZES = {
    "levenshtein": 600,
    "levenshtein_of_strings": 640,
    "levenshtein_two_rows": 690,
    "lcs": 680,
    "smith_waterman": 530,
    "crc32_by_bits": 210_000,
    "crc32_by_table": 1_600_000,
    "adler": 2_000_000,
    "fnv_hash": 840_000,
    "run_lengths": 600_000,
    "letters_counted": 880_000,
    "knuth_morris_pratt": 360_000,
}


def levenshtein(n):
    random = np.random.default_rng(1)
    a = random.integers(0, 4, n)
    b = random.integers(0, 4, n)
    d = np.zeros((n + 1, n + 1), dtype=int)
    for i in range(n + 1):
        d[i, 0] = i
    for j in range(n + 1):
        d[0, j] = j
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            if a[i - 1] == b[j - 1]:
                cost = 0
            else:
                cost = 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[n, n]


def levenshtein_of_strings(n):
    s = "kitten sitting on a mat " * (n // 24)
    t = "sitting kitten at a math " * (n // 25)
    d = np.zeros((len(s) + 1, len(t) + 1), dtype=np.int32)
    d[:, 0] = np.arange(len(s) + 1)
    d[0, :] = np.arange(len(t) + 1)
    for i, c in enumerate(s):
        for j, k in enumerate(t):
            d[i + 1, j + 1] = min(d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + (c != k))
    return d[-1, -1]


def levenshtein_two_rows(n):
    random = np.random.default_rng(2)
    a = random.integers(0, 26, n)
    b = random.integers(0, 26, n)
    prev = np.arange(n + 1)
    cur = np.zeros(n + 1, dtype=int)
    for i in range(n):
        cur[0] = i + 1
        for j in range(n):
            cost = 0 if a[i] == b[j] else 1
            cur[j + 1] = min(prev[j + 1] + 1, cur[j] + 1, prev[j] + cost)
        prev, cur = cur, prev
    return prev[n]


def lcs(n):
    random = np.random.default_rng(3)
    x = random.integers(0, 4, n)
    y = random.integers(0, 4, n)
    c = np.zeros((n + 1, n + 1), dtype=int)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            if x[i - 1] == y[j - 1]:
                c[i][j] = c[i - 1][j - 1] + 1
            else:
                c[i][j] = max(c[i][j - 1], c[i - 1][j])
    return c[n][n]


def smith_waterman(n, match=3, mismatch=-3, gap=2):
    random = np.random.default_rng(4)
    a = random.integers(0, 4, n)
    b = random.integers(0, 4, n)
    h = np.zeros((n + 1, n + 1), int)
    best = 0
    where = (0, 0)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            score = match if a[i - 1] == b[j - 1] else mismatch
            diagonal = h[i - 1, j - 1] + score
            delete = h[i - 1, j] - gap
            insert = h[i, j - 1] - gap
            h[i, j] = max(diagonal, delete, insert, 0)
            if h[i, j] > best:
                best = h[i, j]
                where = (i, j)
    return best, where


def crc32_by_bits(n):
    data = np.random.default_rng(5).integers(0, 256, n).astype(np.uint8)
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= int(byte)
        for _ in range(8):
            if crc & 1:
                crc = (crc >> 1) ^ 0xEDB88320
            else:
                crc >>= 1
    return crc ^ 0xFFFFFFFF


def crc32_by_table(n):
    table = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = (c >> 1) ^ 0xEDB88320 if c & 1 else c >> 1
        table.append(c)
    data = np.random.default_rng(6).integers(0, 256, n).astype(np.uint8).tobytes()
    crc = 0xFFFFFFFF
    for b in data:
        crc = table[(crc ^ b) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def adler(n):
    data = np.random.default_rng(7).integers(0, 256, n).astype(np.uint8).tobytes()
    a, b = 1, 0
    for byte in data:
        a = (a + byte) % 65521
        b = (b + a) % 65521
    return (b << 16) | a


def fnv_hash(n):
    data = np.random.default_rng(8).integers(0, 256, n)
    h = 0x811C9DC5
    for i in range(len(data)):
        h = ((h ^ int(data[i])) * 0x01000193) & 0xFFFFFFFF
    return h


def run_lengths(n):
    x = np.random.default_rng(9).integers(0, 2, n)
    values, lengths = [], []
    count = 1
    for i in range(1, len(x)):
        if x[i] == x[i - 1]:
            count += 1
        else:
            values.append(x[i - 1])
            lengths.append(count)
            count = 1
    values.append(x[-1])
    lengths.append(count)
    return np.array(values), np.array(lengths)


def letters_counted(n):
    text = "the quick brown fox jumps over the lazy dog " * (n // 44)
    counts = np.zeros(26, dtype=int)
    for letter in text:
        if "a" <= letter <= "z":
            counts[ord(letter) - ord("a")] += 1
    return counts


def knuth_morris_pratt(n):
    text = np.random.default_rng(10).integers(0, 2, n)
    pattern = np.array([0, 1, 0, 0, 1, 0, 1, 0])
    m = len(pattern)
    fail = np.zeros(m, dtype=int)
    k = 0
    for i in range(1, m):
        while k > 0 and pattern[k] != pattern[i]:
            k = fail[k - 1]
        if pattern[k] == pattern[i]:
            k += 1
        fail[i] = k
    found = 0
    k = 0
    for i in range(n):
        while k > 0 and pattern[k] != text[i]:
            k = fail[k - 1]
        if pattern[k] == text[i]:
            k += 1
        if k == m:
            found += 1
            k = fail[k - 1]
    return found
