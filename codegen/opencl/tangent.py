"""The tangent of doubles in OpenCL C, within one unit in the last place.

Libraries of OpenCL devices are allowed five units, and NumPy's own function has one half. Owns the
text of one helper for helpers.py.
"""

from __future__ import annotations

# Multiples of pi/2, in three parts of 53 bits, are taken off in arithmetic of twice the precision;
# the rest is r + rr. The polynomial is that of least error for (tan(r)/r - 1)/r^2 in z = r^2 on
# [0, (pi/4)^2] (Remez; 2^-61 of r^3, so 2^-62 of the result). The result is hi + lo until the last
# rounding, and the cotangent's division is corrected by its own remainder. Where the multiple has
# more than 25 bits, the library's function is used, which has enough bits of pi.
TANGENT = """
T tangent_T(T x) {
    I is_small = fabs(x) < (T)(1e-30);
    I is_far = !(fabs(x) < (T)(3e7));
    T near = is_far ? (T)(0.0) : x;
    T n = rint(near * (T)(0x1.45f306dc9c883p-1));
    T a = fma(-n, (T)(0x1.921fb54442d18p+0), near);
    T b = n * (T)(0x1.1a62633145c07p-54);
    T r = a - b;
    T part = a - r;
    T rr = (a - (r + part)) + (part - b);
    rr = rr - fma(n, (T)(0x1.1a62633145c07p-54), -b) - n * (T)(-0x1.f1976b7ed8fbcp-110);
    T z = r * r;
    T p = (T)(0x1.09b5ad2bbca91p-18);
    p = fma(p, z, (T)(-0x1.48763766fbecep-17));
    p = fma(p, z, (T)(0x1.493eac050755ap-16));
    p = fma(p, z, (T)(-0x1.59aa3391a644ap-17));
    p = fma(p, z, (T)(0x1.c82ed70de5195p-16));
    p = fma(p, z, (T)(0x1.1c3d7e876c267p-15));
    p = fma(p, z, (T)(0x1.9e56e1d3ee558p-14));
    p = fma(p, z, (T)(0x1.f47fd894359d2p-13));
    p = fma(p, z, (T)(0x1.3563b8bf82b36p-11));
    p = fma(p, z, (T)(0x1.7da2a40eb045ep-10));
    p = fma(p, z, (T)(0x1.d6d3d976b5543p-9));
    p = fma(p, z, (T)(0x1.226e353e53e6fp-7));
    p = fma(p, z, (T)(0x1.664f488351cecp-6));
    p = fma(p, z, (T)(0x1.ba1ba1ba1a4bbp-5));
    p = fma(p, z, (T)(0x1.111111111111bp-3));
    p = fma(p, z, (T)(0x1.5555555555555p-2));
    T t = r + r * (z * p);
    T tail = fma(r, z * p, rr * fma(t, t, (T)(1.0)));
    T hi = r + tail;
    T lo = (r - hi) + tail;
    T inverse = (T)(-1.0) / hi;
    inverse = fma(inverse, fma(inverse, hi, (T)(1.0)) + inverse * lo, inverse);
    T half_n = n * (T)(0.5);
    T result = floor(half_n) == half_n ? hi + lo : inverse;
    result = is_far ? tan_T(is_far ? x : (T)(0.0)) : result;
    return is_small ? x : result;
}
"""
