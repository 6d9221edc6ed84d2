"""Random loops over numbers, elements, rows and slices, run by Python and compiled in place.

A program is the text of a function. What it leaves is compared: the values and types of all its
names, the memory of its arrays, the exception that ended it, and its warnings.
`python -m tests.helpers.loop_programs FIRST LAST [lazyfuse]` compares those seeds in this process.
"""

from __future__ import annotations

import ast
import json
import random
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

INTS = ["i", "j", "k", "s", "c", "n", "m"]
FLOATS = ["x", "y", "z"]
ATOMS = {
    "I": [
        *INTS,
        *INTS,
        "0",
        "1",
        "2",
        "3",
        "-1",
        "7",
        "big",
        "p[<X>]",
        "len(v)",
        "A.shape[0]",
        "o.n",
        "M[<X>]",
        "T[<X>][<Y>]",
        "raw[<X>]",
        "row[<X>]",
    ],
    "F": [
        "b",
        *FLOATS,
        *FLOATS,
        "0.0",
        "0.5",
        "-1.5",
        "1e300",
        "v[<X>]",
        "w[<X>]",
        "A[<X>, <Y>]",
        "f[<X>]",
        "B[<X>, <Y>]",
        "o.x",
        "o.a[<X>]",
        "L[<X>]",
        "P[<X>]",
    ],
    "Q": ["r", "v", "w", "A[<X>]", "o.a"],
    "C": ["z1", "z2", "g[<X>]", "1j", "(2.5-1j)", "z1"],
    "N": ["p[<X>]", "q[<X>]", "u[<X>]", "q[<X>]", "i", "3", "h[<X>]"],
    "X": ["i", "j", "k", "i - 1", "j + 1", "0", "-1", "c % n", "-i", "i + j", "s % 5"],
    "Y": ["i", "j", "k", "j - 1", "-1", "0", "2", "k % m"],
    "B": [
        "flag",
        "mask[<X>]",
        "True",
        "text[<X>] == letter",
        "letter in 'abc'",
        "'b' <= letter < 'd'",
    ],
}
EXPRESSIONS = {
    "I": ["(<I> + <I>)", "(<I> - <I>)", "(<I> * <I>)", "(<I> // <I>)", "(<I> % <I>)", "(<I> & <I>)",
          "(<I> | <I>)", "(<I> ^ <I>)", "(<I> << 2)", "(<I> >> 1)", "(<I> << (<I> & 63))", "(~<I>)",
          "(-<I>)",
          "abs(<I>)", "max(<I>, <I>)", "min(<I>, <I>, 3)", "int(<F>)", "(<I> if <B> else <I>)",
          "helper(<I>, <I>)", "<I> ** 2", "bool(<I>)", "divmod(<I>, 3)[0]", "round(<F>)",
          "math.isnan(<F>)", "gcd(<I>, <I>)", "grown(<I>, <I>)",
          "len(L)", "ord(text[<X>])", "len(T[<X>])", "falls(<I> % 9, <I>)", "sunk(p, <X>, 4)",
          "sunk(M, <X>, 3)",
          "int('3')", "len(out)", "np.sum(<R> > <F>)"],
    "F": ["(<F> + <F>)", "(<F> - <F>)", "(<F> * <F>)", "(<F> / <F>)", "(<F> // <F>)", "(<F> % <F>)",
          "(-<F>)", "abs(<F>)", "max(<F>, <F>)", "min(<F>, <F>)", "(<F> * <I>)", "(<I> / <I>)",
          "(<F> if <B> else <F>)", "math.sqrt(<F>)", "math.exp(<F>)", "np.sqrt(<F>)", "float(<I>)",
          "(<F> ** 2)", "(<F> ** 0.5)", "weigh(<F>)", "(v[:<I>] @ w[:<I>])",
          "np.dot(A[i, :j], B[j, :j])",
          "(A[<X>, :k] @ B[:k, <Y>])", "math.sin(<F>)", "math.log(<F>)", "float(<F>)",
          "np.exp(<F>)", "np.maximum(<F>, <F>)", "np.floor(<F>)", "np.arctan2(<F>, 2)",
          "np.abs(<F>)",
          "np.hypot(<F>, <F>)", "np.log1p(<F>)", "np.sign(<F>)", "<C>.real", "<C>.imag", "abs(<C>)",
          "norm(A[<X>])", "norm(<Q>, 3)", "falls(<I> % 30, <F>)", "total(w, k)", "np.tanh(<N>)"],
    "C": ["(<C> + <C>)", "(<C> - <C>)", "(<C> * <C>)", "(<C> / <C>)", "(<C> * <F>)", "(<I> - <C>)",
          "<C>.conjugate()", "complex(<F>, <F>)", "(<C> ** 2)", "np.exp(<C>)", "(-<C>)",
          "(<C> if <B> else <C>)"],
    "N": ["(<N> + <N>)", "(<N> - <N>)", "(<N> * <N>)", "(<N> & <N>)", "(<N> ^ <N>)", "(<N> >> 1)",
          "(<N> // <N>)", "(<N> % <N>)", "(<N> << 1)", "max(<N>, <N>)", "(<N> / <N>)",
          "np.minimum(<N>, <N>)",
          "np.add(<N>, <N>)", "np.negative(<N>)"],
    "B": ["(<I> < <I>)", "(<F> > <F>)", "(<I> == <I>)", "(<I> < <I> <= <I>)", "(not <B>)",
          "(<B> and <B>)", "(<B> or <B>)", "(<F> != <F>)", "(<I> < <F>)", "(<N> > <N>)",
          "(<C> == <C>)",
          "np.isnan(<F>)", "(<R> > <F>).any()", "np.all(<R> < <R>)"],
    "R": ["A[<X>, :k]", "v[:k]", "w[1:k + 1]", "np.flip(v[:k])", "(<R> + <R>)", "(<R> * <F>)",
          "(<F> - <R>)", "(<R> / <F>)", "(<R> * <R>)", "B[:k, <Y>]", "(-<R>)", "v[::-1]", "r",
          "r[1:]",
          "w[e]", "v[e2]", "np.exp(<R>)", "np.maximum(<R>, <F>)", "np.where(<R> > <F>, <R>, <F>)",
          "np.abs(<R>)", "(<R> ** 2)", "(<R> % 2.0)", "v[mask]", "w[w > <F>]",
          "np.sqrt(np.abs(<R>))"],
    "G": ["A[1:4, 1:4]", "A[:3, :3]", "B[<X>:, :3][:3]", "B[2:5, 3:6]", "t2", "v[:3, None]",
          "w[None, :3]",
          "A[:3, ::3]", "B[:k, :3][:3]", "A[6:, -3:]", "A.T[:3, :3]", "B[:3, <Y>:<Y> + 3]",
          "(<G> + <G>)", "(<G> * <F>)", "(<F> - <G>)", "(<G> * <G>)", "(<G> / <F>)", "(-<G>)",
          "np.minimum(<G>, <G>)", "np.maximum(<G>, <F>)", "np.where(<G> > <F>, <G>, <F>)",
          "np.abs(<G>)", "np.sqrt(np.abs(<G>))", "np.exp(<G> * 0.1)", "(<G> ** 2)", "(<G> + v[:3])",
          "np.add.outer(v[:3], w[1:4])", "np.multiply.outer(<R>, w)[:3, :3]"],
    "W": ["D[1:4, 1:4]", "D[:3, ::3]", "D[:3, <X>:][:, :3]", "K[:3, 1, :3]", "K[<X>][:3, 1:]", "t3",
          "q[:3, None]", "p[None, :3]",
          "(<W> + <W>)", "(<W> * 3)", "(<W> // <N>)", "(<W> % 7)",
          "(<W> & <W>)", "(<W> >> 1)", "np.minimum(<W>, <W>)", "np.maximum(<W>, <I>)", "(-<W>)",
          "np.where(<W> > <W>, <W>, <W>)", "np.abs(<W>)", "np.add.outer(q[:3], q[1:4])", "(~<W>)"],
    "V": ["S[1:4, 1:4]", "S[:3, ::3]", "f[:3, None]", "(<V> + <V>)", "(<V> * 0.5)", "(<V> / <V>)",
          "np.minimum(<V>, <V>)", "np.sqrt(np.abs(<V>))", "(<V> ** 2)", "np.maximum(<V>, <V> * 2)"],
    "Z": ["U[1:4, 1:4]", "U[:3, ::3]", "u[None, :3]", "(<Z> + <Z>)", "(<Z> // 3)", "(<Z> ^ <Z>)",
          "np.minimum(<Z>, <Z>)", "(<Z> << 1)", "np.where(<G> > 0, <Z>, <Z>)"],
}  # fmt: skip
STATEMENTS = [
    "s = <I>", "c = <I>", "s += <I>", "c -= <I>", "s = s * <I> % 1000003",
    "x = float(<F>)", "y = float(<F>)", "s = int(<I>)",
    "z += <F>", "x *= <F>", "y /= <F>", "v[<X>] = <F>", "A[<X>, <Y>] = <F>", "A[<X>, <Y>] += <F>",
    "w[<X>] -= <F>", "p[<X>] = <I>", "q[<X>] = <N>", "u[<X>] = <I>", "p[<X>] += <I>",
    "f[<X>] = <F>",
    "mask[<X>] = <B>", "q[<X>] += 1", "v[<X>], v[<Y>] = v[<Y>], v[<X>]", "s, c = c, s",
    "A[<X>, :k] = <R>", "v[:k] = <R>", "w[:k] += <R>", "A[:k, <Y>] *= <F>", "v[1:k] = w[:k - 1]",
    "flag = <B>", "t = <F>", "d = <N>", "v[:k] = <F>", "p[<X>] -= q[<Y>]", "h[<X>] = <N>",
    "s = s * 3 + <I>", "x = x * 2.0 + <F>", "raise ValueError(s)",
    "assert <I> < 99999", "print_('seen', s)",
    "del_me = s",
    "r = A[<X>, :k]", "r = v[1:k]", "r = B[<X>]", "r[<X>] = <F>", "r[:k] = <R>", "x3 = r[<X>]",
    "x3 = r @ w[:k]", "x3 = v[:4] @ w[e]", "e2 = e[:k]", "r = r[1:]", "x3 = r @ r",
    "x3 = w[e2] @ v[e2]",
    "v[::2] = <F>", "mask[<X>::2] = <B>", "p[:k] = e[:k]", "p[:4] += e", "q[:k] = q[1:k + 1]",
    "f[:k] *= f[0]", "f[:k] = v[:k]", "x3 = v[:k].sum()", "x3 = np.max(w[:k])", "o = p[:k].sum()",
    "o = v[:k].argmax()", "x3 = A[<X>].mean()", "o = np.argmin(p)", "q[:k] = q[:k] * q[<X>] + 3",
    "h[::3] -= 1", "u[:k] ^= 5", "x3 = v[::3] @ w[::3]", "p[1::<I>] = 0", "o = p.max()",
    "x = v[<X>]", "y = A[<X>, <Y>]", "s = p[<X>]", "c = e[0]", "x = 0.0", "s = 0", "y = 1.5",
    "y = min(y, v[<X>])", "x = y if <B> else v[<X>]", "s = max(s, p[<X>])", "s = abs(s) % 7",
    "x = weigh(x)", "y = -y", "s += p[<X>]", "x += A[<X>, <Y>]", "c = -c", "x, y = y, x",
    "x = y * v[<X>]", "s = s // 2", "y = y / 3", "x = abs(x - y)", "s = helper(s, c)",
    "x = <I>", "s = <F>", "u[<X>] += 1", "f[<X>] *= <F>",
    "z1 = <C>", "z2 = <C>", "z1 *= <C>", "g[<X>] = <C>", "g[:k] = g[:k] * <C>", "z1, z2 = z2, z1",
    "z1 = z1 / (abs(z1) + 1.0)", "out.append(<F>)", "out.append(x)", "whole.append(<I>)",
    "o.x += <F>", "o.n = <I>", "o.a[<X>] = <F>", "x, o.x = o.x, x", "o.n += 1", "x, y = turn(x, y)",
    "x, y = turn(<F>, <F>)", "r = <R>", "r = <R>", "r2 = np.zeros(4)", "r2 = np.array([x, y, 1.0])",
    "r *= <F>", "r += v[:len(r)]", "r2 = r", "r, r2 = r2, r", "r = r.copy()", "r2[<X>] = <F>",
    "r = np.ones(3)", "r2 -= r2", "o.a = o.a + <F>", "r = np.zeros(k, dtype=int)", "x3 = r2.sum()",
    "r3 = np.exp(r)", "q[:k] = q[:k] // 3", "p[<X>] = np.maximum(<I>, 0)", "mask = v > <F>",
    "e2 = np.array([0, 1])", "swap(v, <X>, <Y>)", "swap(p, <X>, <X>)",
    "s = root(p, <X>) + root(p, <X>)", "spread(v, <X>, <F>, 0)", "x, y = pair(4, <F>)",
    "s, x = pair(<I> % 5, x)", "spread(o.a, i, <F>, 1)", "s = deep(<I> % 3)[0]",
    "q[<X>] = sunk(p, i, 5)",
    "ib = grown(<I>, <I>)", "s = ib + ib", "s = ib << 2",
    "A[:3, :3] = <G>", "A[1:4, :3] += <G>", "B[1:4, 1:4] = <G>", "A *= 0.5", "t2 = <G>", "t2 = <G>",
    "t2 = A[:3, :3].copy()", "t2 = np.zeros((3, 3))", "t2[1:, 0] = <F>", "t2 += <G>",
    "x3 = (<G>).sum()",
    "x3 = (<G>).max()", "x3 = t2[1].sum()", "A[:3] = <F>", "B[::4, 1:4] = <G>", "A[:3, :3] = v[:3]",
    "o = np.any(<G> > <F>)", "A, B = B, A", "t2[<X>, 0] = <F>", "x3 = t2[0, <X>]", "A[:] = A - w",
    "B[:3, 2:5] *= t2", "x3 = np.sum(<G> * <G>)", "o = (<G> < 0.0).sum()", "x3 = (<G>).mean()",
    "t2 = np.full((3, 3), <F>)", "A[:, 1:4][:3] = t2", "x3 = (<G>).argmax()", "t2 = t2 * 0.5 + t2",
    "A[2:, 2:] = A[:-2, :-2]", "A[:] = np.minimum(A[:], np.add.outer(A[:, k], A[k, :]))",
    "D[:3, :3] = <W>", "D[1:4, ::4] += <W>", "t3 = <W>", "t3 = D[:3, 1:4].copy()", "D[:] = 3",
    "s = (<W>).sum()", "o = (<W>).max()", "o = np.argmin(<W>)", "K[1:4, 0, 1:] = <W>", "K[0] = 7",
    "D[:] = np.minimum(D[:], np.add.outer(D[:, k], D[k, :]))", "A[:3, :3] = <W>",
    "t3[0, <X>] = <I>",
    "U[:3, :3] = <Z>", "U[1:, :] //= 2", "U[2:5, 1:4] += <Z>", "o = (<Z>).max()", "o = <Z>.min()",
    "S[:3, :3] = <V>", "S *= 0.5", "x3 = (<V>).max()", "A[:3, 1:4] = <V>", "S[:3, :3] = <G>",
    "t4 = <V>", "S[1:4, 1:4] -= t4", "t5 = <Z>", "D[:3, :3] = t5", "K[:3, :3, :3] = D[:3, :3]",
    "D[:3, :3] = <Z>", "A[:3, :3] *= <W>", "o = (<W> == <W>).sum()", "q[:3] = t3[1]",
    "raised(v, <X>, <F>)", "x = root(p, i) * v[<X>]", "raised(o.a, <I>, 0.5)",
    "L[<X>] = <F>", "L[<X>] *= <F>", "M[<X>] += <I>", "M[<X>] = <I>", "T[<X>][<Y>] = <I>",
    "T[<X>][<Y>] -= T[<X>][<Y>]", "row = T[<X>]", "row[<X>] = <I>", "s += odd[<X>]",
    "odd[<X>] = <I>", "letter = text[<X>]", "if len(L) < 14: L.append(<F>)", "out.append(v[<X>])",
    "if len(M) < 14: M.append(<I>)", "x = L[-1] + P[1]", "s = raw[<X>] ^ M[<X>]", "x = odd[<X>]",
    "whole.append(q[<X>])", "out.append(<C>)", "whole.append(<B>)", "row[<X>] += M[<X>]",
    "if len(row) < 14: row.append(s)", "s += int(text[<X>])", "s += mask[<X>]",
    "x = mask[<X>] * <F>", "d = <N> - mask[<X>]", "L[<X>], L[<X>] = L[<X>], L[<X>]",
    "x = whole[<X>]", "x = out[-1]",
    "p[e2] = <I>", "v[e] += <F>", "w[mask] = <F>", "w[w > <F>] = <F>", "v[e] = w[e2]",
    "v[mask] = w[mask]", "A[[<X>, 0]] = A[[0, <X>]]", "q[e] = <I>", "x3 = v[p[e]][0]",
    "r2 = (<G>).sum(axis=1)", "r2 = (<G>).sum(axis=0)", "r2 = (<G>).mean(axis=-1)",
    "r2 = A.max(axis=0)", "r2 = np.sum(<G>, axis=0)", "r2 = np.linalg.norm(<G>, axis=1)",
    "r2 = np.min(<G>, axis=1)", "e2 = (<W>).sum(axis=1)", "e2 = (<G> > <F>).sum(axis=0)",
    "x3 = np.count_nonzero(<R>)",
    "s = np.count_nonzero(<R> > <F>)", "y = y + np.count_nonzero(p[:k])",
    "q[:3] = v[:3] > <F>", "A[:3, :3] = <G> > <F>", "v[e[:k]] = <F>", "t2 = A[e]", "u[mask] += 1",
    "A[e] *= <F>", "x = v[e + 1][0]", "e2 = K[<X>].max(axis=1)", "r2 = B[:, :3].sum(axis=1)",
    "w[np.abs(w) > <F>] *= <F>", "r2 = A[:, 1:].sum(0)", "r2 = v[[<X>, <Y>, -1]]", "f[e] = v[e]",
    "r = o.a", "o.a = r", "r, o.a = o.a, r", "o.a = np.zeros(3)",
    "t6 = A[1:4, 2:5]", "t6 = B[<X>:, :4]", "t6 = t6[:2, 1:]", "t6[:] = <F>", "t6 += <F>",
    "x3 = t6[1, 0]",
    "r = t6[-1]", "x3 = (t6 * t6).sum()", "A[:2, :2] = t6[:2, :2]", "t6[0] *= w[0]",
    "t7 = K[<X>]", "t7 = K[:, 1]", "t7[1] = <I>", "q[:3] = t7[0, :3]", "t7[<X>, :2] += q[:2]",
    "t6, A = A, t6", "t6 = A", "t2 = tabled(np, <F>, 3)", "t2 = tabled(np, x, k)", "s = t7[1, <X>]",
    "swap(mask, <X>, <X>)", "v[:k] = np.where(w[:k] > <F>, v[:k], <F>)",
]  # fmt: skip
RARE = ("raise ", "assert ", "print_", "x = <I>", "s = <F>")
HEADS = [
    "for V in range(<E>):", "for V in range(<E>):", "for V in range(i, n):",
    "for V in range(n - 1, -1, -1):", "for V in range(<I> % 5, <I> % 7):",
    "for V in range(1, m, 2):",
    "for ib in p:", "for b in v:", "for V, ib in enumerate(p):", "for b, y in zip(v, w):",
    "for V in reversed(range(<E>)):", "for r in A:", "for V, r in enumerate(B):",
    "for V, (ib, y) in enumerate(zip(p, w), 2):", "for x in reversed(v):",
    "for ib, V in zip(u, range(n)):",
    "for b in v[1:k]:", "for V, b in enumerate(r):", "for b in A[<X>]:", "for V in range(n):",
    "for x in L:", "for ib in M:", "for V, ib in enumerate(M):", "for b, ib in zip(L, raw):",
    "for letter in text:", "for V, letter in enumerate(text):", "for ib in raw:", "for ib in row:",
    "for row in T:", "for ib in T[<X>]:", "for b in P:", "for x in odd:",
    "for ib in (s, big, <I>):", "for t7 in K:", "for r in t6:", "for V, t7 in enumerate(K):",
    "for V in range(m):", "for V in range(<E>):",
    "while s < <I> and GUARD < 40:", "while GUARD < 30:", "for V in range(0, <I> % 6, 1):",
]  # fmt: skip
PLAIN = {
    "heads": [
        "for V in range(<E>):", "for V in range(1, n):", "for V in range(n - 1, -1, -1):",
        "for V in range(0, 9, 2):", "for V in range(k, m + 1):", "for V in range(<I> % 9):",
        "for V in range(n + 3):", "for d in v:", "for x3 in w[:k]:",
    ],
    "statements": [
        "v[<X>] = <F>", "w[<X>] -= <F>", "v[<X>] *= <F>", "A[<X>, <Y>] = <F>",
        "B[<X>, <Y>] += <F>", "A[<X>][<Y>] = <F>", "p[<X>] = <I>", "p[<X>] += <I>",
        "q[<X>] = <N>", "q[<X>] += <I>", "u[<X>] = <I>", "f[<X>] = <F>", "f[<X>] += f[<X>]",
        "D[<X>, <Y>] = <I>", "mask[<X>] = <B>", "x += <F>", "x *= <F>", "y -= <F>",
        "y += <F> * <F>", "s += <I>", "c -= <I>", "s += 1", "s -= 3 * i", "c *= 2", "z = <F>",
        "d = <I>", "x3 = v[<X>]", "o = <N>", "m = m - 1 if m > 4 else 8", "y /= <F>", "z = x",
        "k = <X>", "u[<X>] += 1", "S[<X>, <Y>] = <F>", "x = x if x < <F> else <F>",
    ],
    "X": [
        "i", "j", "k", "i - 1", "j + 1", "n - 1 - i", "2 * j", "i + j", "i + k - 1", "m - j",
        "-1", "2", "k * 2 - i", "-i", "-j", "i + 0", "j % 3",
    ],
    "Y": [
        "i", "j", "k", "j - 1", "1 + i", "0", "m - 1", "8 - j",
    ],
    "I": [
        "(<I> + <I>)", "(<I> - <I>)", "(<I> * 3)", "p[<X>]", "p[<X>]", "(<I> % 7)",
        "(<I> // <I>)", "(<I> & 3)", "(<I> >> 1)", "(<I> if <B> else <I>)", "max(<I>, <I>)",
        "abs(<I>)", "D[<X>, <Y>]",
    ],
    "F": [
        "(<F> + <F>)", "(<F> - <F>)", "(<F> * <F>)", "(<F> / <F>)", "(<F> * 0.5)", "v[<X>]",
        "w[<X>]", "A[<X>, <Y>]", "B[<X>, <Y>]", "(-<F>)", "abs(<F>)", "(<F> if <B> else <F>)",
        "(<F> * <I>)", "math.sqrt(abs(<F>))", "f[<X>]", "min(<F>, <F>)",
    ],
    "B": [
        "(<F> > <F>)", "(<I> < <I>)", "(<N> == <I>)", "mask[<X>]", "(<B> and <B>)",
    ],
}  # fmt: skip
"""What loops over elements alone consist of: there are texts without questions (quick.py)."""
TEXT = """
def helper(a, b):
    if a > b:
        return a - b
    return b + 1
def weigh(x):
    scale = 0.25
    y = x * scale
    if y > 1.0:
        y = 1.0
    return y
def grown(a, b):
    c = a * a
    d = c + c if b > 2 else c - a
    for i in (d, a, 4 * d):
        d = d ^ (i + i)
    return d - b
def falls(n, x):
    return x if n < 1 else falls(n - 1, x * 0.5) + n
def sunk(p, i, d):
    if d < 1:
        return i
    p[i] -= d
    return sunk(p, i + 1, d - 1) * 3 if p[i] % 2 else p[i + 1] - sunk(p, -i, d - 2)
def spread(v, i, x, n):
    if n > 4 or x != x:
        return
    v[i] += x
    spread(v, i - 1, x * v[i], n + 1)
    if n % 2:
        spread(v, i + 2, -x, n + 2)
def deep(n):
    return (0, 1) if n == 0 else deep(n - 1)[::-1]
def pair(n, x):
    if n == 0:
        return 0, x
    a, b = pair(n - 1, x)
    return a + n, b * a
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a
def norm(row, p=2):
    s = 0.0
    for x in row:
        if x != x:
            return s
        s += abs(x) * p
    else:
        s = s * 0.5
    return s
def total(row, k):
    s = 0.0
    for i in range(k):
        s += row[i] * i
    return s
def swap(a, i, j):
    a[i], a[j] = a[j], a[i]
def root(p, i):
    while p[i] > i and i < 8:
        p[i] -= 1
        i += 1
    return i
def raised(v, i, by):
    if by > 2:
        return
    v[i] += by
    v[-i] = v[i + 1] * by
def turn(x, y):
    return x * 0.5 - y, x + y * 0.25
def tabled(np, x, n):
    made = np.zeros((n, 3))
    made[1:] += x
    made[0, 1] = n
    return made
class Box:
    n = 3
    def __init__(self, a):
        self.x, self.a = 0.5, a
def program(np, math, data, lists, seen, print_, big):
    A, B, v, w, p, q, u, f, mask, h, e, g, o, D, U, S, K, n, m, s, c, k, x, y, z, flag = data
    o = Box(o)
    z1, z2, out, whole = 0j, 1 + 0.5j, [], []
    r, e2, r2, t2 = v, e, w, A[2:5, 1:4] * 2.0
    t6, t7 = A[1:4, 1:4], K[1]
    t3, t4, t5 = D[2:5, 1:4] + 1, S[:3, :3] * 2, U[:3, :3] + U[3:6, 3:6]
    L, M, T, P, odd, raw, text = lists
    row, letter = T[1], "b"
    i = j = b = ib = 1
    try:
{body}
    finally:
        for name in ():
            pass
{names}
"""
NAMES = [
    "i",
    "j",
    "k",
    "s",
    "c",
    "x",
    "y",
    "z",
    "flag",
    "t",
    "d",
    "n",
    "m",
    "del_me",
    "r",
    "e2",
    "b",
    "ib",
    "z1",
    "z2",
    "out",
    "whole",
    "o.x",
    "o.n",
    "o.a",
    "r2",
    "t2",
    "t3",
    "t4",
    "t5",
    "t6",
    "t7",
    "r3",
    "mask",
    "L",
    "M",
    "T",
    "row",
    "odd",
    "letter",
]


class Program:
    """A random program: its text, and the seed of its data."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.is_plain = seed % 4 == 3
        self.lines: list[str] = []
        self.budget = self.rng.randint(2, 9)
        while self.budget > 0:
            self._loop(0, 2)
        names = "\n".join(
            f"        try:\n            seen['{name}'] = {name}\n        except NameError:\n"
            "            pass"
            for name in NAMES
        )
        self.text = TEXT.format(body="\n".join(self.lines), names=names)

    def _fill(self, text: str, depth: int) -> str:
        rng = self.rng
        while "<" in text:
            at = next(
                (k for k in range(len(text) - 2) if text[k] == "<" and text[k + 2] == ">"), None
            )
            if at is None:
                break
            kind = text[at + 1]
            plain = PLAIN.get(kind) if self.is_plain else None
            if plain is not None and (kind in "XY" or (depth > 0 and rng.random() < 0.7)):
                made, depth = rng.choice(plain), depth - (kind not in "XY")
            elif kind == "E":
                made = rng.choice(["n", "m", "n - 1", "i + 1", "4", "0", "j"])
            elif kind in "RGWVZ":
                few = {"R": 4, "G": 12, "W": 8, "V": 3, "Z": 3}[kind]
                made = rng.choice(EXPRESSIONS[kind][:few] if depth <= 0 else EXPRESSIONS[kind])
                depth -= 1
            elif kind in EXPRESSIONS and depth > 0 and rng.random() < 0.6:
                made, depth = rng.choice(EXPRESSIONS[kind]), depth - 1
            else:
                made = rng.choice(ATOMS[kind])
            text = text[:at] + made + text[at + 3 :]
        return text

    def _loop(self, depth: int, indent: int) -> None:
        rng = self.rng
        pad = "    " * indent
        head = self._fill(
            rng.choice(PLAIN["heads"] if self.is_plain else HEADS).replace("V", "ijk"[depth]), 1
        )
        guard = f"g{len(self.lines)}" if head.startswith("while") else ""
        if guard:
            self.lines.append(f"{pad}{guard} = 0")
        self.lines.append(pad + head.replace("GUARD", guard))
        self._body(depth + 1, indent + 1, guard)
        if rng.random() < 0.1:
            self.lines += [f"{pad}else:", f"{pad}    s += 1"]

    def _body(self, depth: int, indent: int, guard: str = "") -> None:
        rng = self.rng
        pad = "    " * indent
        if guard:
            self.lines.append(f"{pad}{guard} += 1")
        if indent == 3:  # no number has a million digits
            self.lines += [
                f"{pad}if not -4e18 < {name} < 4e18:\n{pad}    {name} = 5" for name in "sc"
            ]
        for _ in range(rng.randint(1, 4)):
            self.budget -= 1
            roll = rng.random()
            if roll < 0.18 and depth < 3:
                self._loop(depth, indent)
            elif roll < 0.32 and indent < 6:
                self.lines.append(f"{pad}if {self._fill('<B>', 2)}:")
                if rng.random() < (0.05 if self.is_plain else 0.2):
                    self.lines.append(f"{pad}    {rng.choice(['break', 'continue'])}")
                else:
                    self._body(depth, indent + 1)
                    if rng.random() < 0.4:
                        self.lines.append(f"{pad}else:")
                        self._body(depth, indent + 1)
            else:
                text = rng.choice(PLAIN["statements"] if self.is_plain else STATEMENTS)
                if text.startswith(RARE) and rng.random() < 0.8:
                    text = "pass"
                self.lines.append(pad + self._fill(text, rng.choice([0, 1, 1, 2, 3])))

    def data(self, wrap: Any) -> list[Any]:
        """Fresh arguments; equal for equal seeds."""
        rng = numpy.random.default_rng(self.seed)
        n, m = int(rng.integers(3, 9)), int(rng.integers(3, 9))
        big, other = rng.normal(size=(9, 9)), rng.normal(size=(9, 9))
        v, w = rng.normal(size=9), rng.normal(size=9)
        if self.seed % 7 == 0:
            v[2], w[3], big[1, 1] = numpy.nan, numpy.inf, -numpy.inf
        if self.seed % 5 == 0:
            big = numpy.asfortranarray(big)
        if self.seed % 6 == 0:
            v = big[2]
        if self.seed % 11 == 0:
            w = rng.normal(size=18)[::2]
        p = rng.integers(-5, 20, 9)
        q = rng.integers(-100, 100, 9).astype("i4")
        u = rng.integers(0, 255, 9).astype("u1")
        f = rng.normal(size=9).astype("f4")
        h = rng.integers(-20, 100, 9).astype("i2")
        mask = rng.random(9) > 0.5
        if self.seed % 13 == 0:
            p[4] = 2**62
        e = rng.integers(-3, 9, 4) + (9 if self.seed % 17 == 0 else 0)
        g = rng.normal(size=9) + 1j * rng.normal(size=9)
        arrays = [big, other, v, w, p, q, u, f, mask, h, e, g, rng.normal(size=9)]
        arrays += [
            (rng.random((9, 9)) * 40 - 9).astype("i4"),
            (rng.random((9, 9)) * 255).astype("u1"),
            rng.normal(size=(9, 9)).astype("f4"),
            rng.integers(-9, 30, (6, 5, 4)),
        ]
        if wrap is not None:
            made = [wrap(each) for each in arrays]
            if self.seed % 6 == 0:
                made[2] = made[0][2]
            arrays = made
        return [*arrays, n, m, 1, 0, 2, 0.5, 1.5, -2.0, True]

    def lists(self) -> list[Any]:
        """Fresh lists and the like; equal for equal seeds."""
        rng = random.Random(self.seed)
        whole = [rng.randint(-4, 9) for _ in range(9)]
        if self.seed % 13 == 0:
            whole[4] = 2**63
        table = [[rng.randint(0, 9) for _ in range(rng.choice([9, 9, 3]))] for _ in range(6)]
        if self.seed % 7 == 0:
            table[3] = table[2]
        text = "".join(
            rng.choice("abcde12" if self.seed % 5 else "ab\u00e9\u4e00") for _ in range(12)
        )
        odd = [1, 2, rng.choice([2.5, True, 3]), 4, rng.choice([5, None, 6.5]), 6]
        floats = [rng.gauss(0, 2) for _ in range(9)]
        return [
            floats,
            whole,
            table,
            (1.5, -0.5, 2.0),
            odd,
            bytes(whole_ % 256 for whole_ in range(250, 262)),
            text,
        ]

    def told(self, np: Any, compiled: bool, wrap: Any = None) -> tuple[Any, ...]:
        """What is left after a run."""
        import math

        code = code_of(self.text, f"<loops {self.seed}>", compiled)
        scope: dict[str, Any] = {}
        exec(code, scope)
        data = self.data(wrap)
        seen: dict[str, Any] = {}
        printed: list[Any] = []
        error = ""
        trace: list[int] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                big = 2**62 + 5
                scope["program"](
                    np, math, data, self.lists(), seen, lambda *x: printed.append(x), big
                )
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"
                step = problem.__traceback__
                while step is not None:
                    if step.tb_frame.f_code.co_filename.startswith("<loops"):
                        trace.append(step.tb_lineno)
                    step = step.tb_next
        memory = [_bytes(numpy.asarray(each)) for each in data[:17]]
        names = {name: _told(value) for name, value in seen.items()}
        # a line of another file is NumPy's, or lazyfuse's in its place
        lines = [each.lineno if each.filename.startswith("<loops") else 0 for each in caught]
        told = [(str(each.message), line) for each, line in zip(caught, lines, strict=True)]
        return names, error, trace, memory, told, printed


def _bytes(real: Any) -> bytes:
    """An array's memory; NaN has a sign that processors and compilers choose."""
    if real.dtype.kind in "fc":
        real = real.copy()
        real[real != real] = numpy.nan
    return bytes(real.tobytes())


layouts = False
"""Whether arrays are also to lie as Python's: ours may not, where they copy what they are given."""


def _told(value: Any) -> tuple[str, str]:
    kind = type(value)
    if kind is list:
        return "list", repr([_told(each) for each in value])
    if kind.__name__ == "scalar":
        value = numpy.asarray(value)[()]
        kind = type(value)
    if isinstance(value, (float, numpy.floating)):
        return kind.__name__, numpy.float64(value).tobytes().hex() if value == value else "nan"
    if hasattr(value, "shape") and value.shape:
        real = numpy.asarray(value)
        where = f"{real.shape} {real.strides if layouts and real.size > 1 else ()}"
        return "array", f"{real.dtype} {[_told(each) for each in real.ravel()]} {where}"
    if isinstance(value, (complex, numpy.complexfloating)):
        return kind.__name__, f"{_told(value.real)} {_told(value.imag)}"
    return kind.__name__, repr(value)


def code_of(text: str, name: str, compiled: bool) -> Any:
    """The code of a program, with its loops prepared or not."""
    if not compiled:
        return compile(text, name, "exec")
    from lazyfuse.loops import find

    tree = ast.parse(text)
    find.rewrite(tree, name)
    return find.insert(compile(tree, name, "exec"))


@contextmanager
def compiled_at_once() -> Iterator[None]:
    """In a test, every loop is compiled before its second turn."""
    from lazyfuse import config
    from lazyfuse.loops import prepared, quick, take_over

    prepared._of_text.cache_clear()  # its loops were taken from the list
    before = len(take_over.loops)
    with pytest.MonkeyPatch.context() as patch, config.options(compile_ahead=False):
        patch.setattr(take_over, "HOT", -1.0)
        patch.setattr(take_over, "_SHORT", -1.0)
        patch.setattr(take_over, "_PART", 0.0)
        patch.setattr(quick, "LEAST", 1)
        patch.setattr(quick, "MOST", 3)
        yield
    del take_over.loops[before:]


def at_once() -> Any:
    """Let every loop be compiled before its second turn."""
    from lazyfuse.loops import quick, take_over

    quick.LEAST, quick.MOST = 1, 3  # more text is reached
    take_over.HOT = take_over._SHORT = -1.0
    take_over._PART = 0.0
    take_over._LEAVES = 1 << 40
    return take_over


class _Endless(BaseException):
    """Python itself does not end: a program squares an integer turn by turn."""


_MOST_SECONDS = 20


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def end(*_: Any) -> None:
        raise _Endless

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def compare(seeds: range, lazily: bool = False) -> dict[str, Any]:
    """Run programs both ways; what differs, and how much ran compiled."""
    import lazyfuse

    global layouts
    layouts = not lazily
    sys.set_int_max_str_digits(0)
    take_over = at_once()
    found: list[Any] = []
    endless: list[int] = []
    reached = left = turns = 0
    refused: dict[str, int] = {}
    for seed in seeds:
        program = Program(seed)
        try:
            with _limited(_MOST_SECONDS):
                expected = program.told(numpy, False)
        except _Endless:
            endless.append(seed)
            continue
        before = len(take_over.loops)
        if lazily:
            got = program.told(lazyfuse, True, lazyfuse.array)
        else:
            got = program.told(numpy, True)
        mine = take_over.loops[before:]
        reached += any(each.entered for each in mine)
        left += sum(each.left for each in mine)
        turns += sum(each.compiled_turns for each in mine)
        for each in mine:
            if each.refused.startswith(take_over.INTERNAL):
                found.append((seed, each.refused))
            if each.refused:
                words = each.refused.partition(": ")[2]
                refused[words] = refused.get(words, 0) + 1
        if got != expected:
            which = [k for k, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b]
            found.append((seed, which))
    return {
        "found": found, "programs": len(seeds), "endless": endless, "reached": reached,
        "left": left, "turns": turns,
        "refused": dict(sorted(refused.items(), key=lambda each: -each[1])[:12]),
    }  # fmt: skip


if __name__ == "__main__":
    first, last, arrays = (*sys.argv[1:], "numpy")[:3]
    print(json.dumps(compare(range(int(first), int(last)), arrays == "lazyfuse")))
