"""Whole numbers: primes, divisors, bits, random numbers."""

import math

import numpy as np

SIZES = {
    "sieve": 1_400_000,
    "sieve_by_slices": 3_000_000,
    "primes": 120_000,
    "primes_in_place": 87_000,
    "collatz": 28_000,
    "gcd_table": 1000,
    "math_gcd_table": 2600,
    "perfect_numbers": 3800,
    "powers_modulo": 72_000,
    "lcg": 500_000,
    "lcg_array": 500_000,
    "xorshift32": 550_000,
    "xorshift64": 550_000,
    "bits_counted": 140_000,
    "digits": 340_000,
    "digits_of_text": 150_000,
    "fibonacci": 2_500_000,
    "leibniz": 1_500_000,
    "pythagorean_triples": 1600,
    "josephus": 2_700_000,
}


def sieve(n):
    is_prime = np.ones(n + 1, dtype=bool)
    is_prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if is_prime[i]:
            for j in range(i * i, n + 1, i):
                is_prime[j] = False
    return np.nonzero(is_prime)[0]


def sieve_by_slices(n):
    is_prime = np.ones(n + 1, dtype=bool)
    is_prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if is_prime[i]:
            is_prime[i * i :: i] = False
    return is_prime.sum()


def _is_prime(n):
    if n < 2:
        return False
    i = 2
    while i * i <= n:
        if n % i == 0:
            return False
        i += 1
    return True


def primes(n):
    total = 0
    for i in range(n):
        if _is_prime(i):
            total += 1
    return total


def primes_in_place(n):
    found = np.zeros(n, dtype=np.int64)
    count = 0
    for i in range(2, n):
        for k in range(count):
            p = found[k]
            if p * p > i:
                found[count] = i
                count += 1
                break
            if i % p == 0:
                break
        else:
            found[count] = i
            count += 1
    return found[:count]


def collatz(n):
    longest, best = 0, 0
    for start in range(1, n):
        x, steps = start, 0
        while x != 1:
            if x % 2 == 0:
                x //= 2
            else:
                x = 3 * x + 1
            steps += 1
        if steps > longest:
            longest, best = steps, start
    return best, longest


def _gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def gcd_table(n):
    coprime = 0
    for i in range(1, n):
        for j in range(1, n):
            if _gcd(i, j) == 1:
                coprime += 1
    return coprime


def math_gcd_table(n):
    total = 0
    for i in range(1, n):
        for j in range(i, n):
            total += math.gcd(i, j)
    return total


def perfect_numbers(n):
    found = []
    for k in range(2, n):
        total = 1
        for d in range(2, k):
            if k % d == 0:
                total += d
        if total == k:
            found.append(k)
    return found


def _power(base, exponent, modulus):
    result = 1
    base %= modulus
    while exponent > 0:
        if exponent & 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result


def powers_modulo(n):
    total = 0
    for i in range(n):
        total ^= _power(i, 65537, 1_000_003)
    return total


def lcg(n):
    seed = 42
    inside = 0
    for _ in range(n):
        seed = (1103515245 * seed + 12345) & 0x7FFFFFFF
        x = seed / 0x7FFFFFFF
        seed = (1103515245 * seed + 12345) & 0x7FFFFFFF
        y = seed / 0x7FFFFFFF
        if x * x + y * y <= 1.0:
            inside += 1
    return 4 * inside / n


def lcg_array(n):
    out = np.empty(n)
    state = 12345
    for i in range(n):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        out[i] = (state >> 11) / 2**53
    return out


def xorshift32(n):
    x = 2463534242
    out = np.zeros(n, dtype=np.uint32)
    for i in range(n):
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        x ^= (x << 5) & 0xFFFFFFFF
        out[i] = x
    return out


def xorshift64(n):
    mask = (1 << 64) - 1
    x = 88172645463325252
    total = 0
    for _ in range(n):
        x ^= (x << 13) & mask
        x ^= x >> 7
        x ^= (x << 17) & mask
        total = (total + x) & mask
    return total


def bits_counted(n):
    values = np.random.default_rng(1).integers(0, 1 << 30, n)
    counts = np.zeros(n, dtype=np.int8)
    for i in range(n):
        v = int(values[i])
        c = 0
        while v:
            v &= v - 1
            c += 1
        counts[i] = c
    return counts


def digits(n):
    total = 0
    for i in range(n):
        number, reverse = i, 0
        while number > 0:
            number, digit = divmod(number, 10)
            reverse = reverse * 10 + digit
        if reverse == i:
            total += 1
    return total


def digits_of_text(n):
    total = 0
    for i in range(n):
        if sum(int(c) for c in str(i)) == 20:
            total += 1
    return total


def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, (a + b) % 1_000_000_007
    return a


def leibniz(n):
    total, sign = 0.0, 1
    for k in range(n):
        total += sign / (2 * k + 1)
        sign = -sign
    return 4 * total


def pythagorean_triples(n):
    count = 0
    for a in range(1, n):
        for b in range(a, n):
            c = math.isqrt(a * a + b * b)
            if c <= n and c * c == a * a + b * b:
                count += 1
    return count


def josephus(n):
    place = 0
    for i in range(2, n + 1):
        place = (place + 3) % i
    return place + 1
