/* Loops over dense arrays that call SIMD versions of the C library's functions, as compiled programs
   do: full vectors, and the rest on vectors of copies. */

#include "base.h"

#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)

/* What this processor has, as LLVM spells it, of what decides which version is called. */
static const char *features(void)
{
    return !__builtin_cpu_supports("avx512f")
        ? __builtin_cpu_supports("avx2") ? "+avx2,+sse4.1"
        : __builtin_cpu_supports("sse4.1") ? "+sse4.1" : ""
        : __builtin_cpu_supports("avx512dq") ? "+avx512f,+avx512dq,+avx2,+sse4.1"
                                             : "+avx512f,+avx2,+sse4.1";
}

#define LOOP(name, isa, real, bytes)                                                               \
    typedef real name##_lanes __attribute__((vector_size(bytes)));                                 \
    __attribute__((target(isa))) static void name(void *function, int arity, real *out,            \
                                                  const real *a, const real *b, npy_intp count)    \
    {                                                                                              \
        enum { LANES = bytes / sizeof(real) };                                                     \
        name##_lanes (*one)(name##_lanes) = (name##_lanes (*)(name##_lanes))function;              \
        name##_lanes (*two)(name##_lanes, name##_lanes) =                                          \
            (name##_lanes (*)(name##_lanes, name##_lanes))function;                                \
        for (npy_intp at = 0; at < count; at += at + LANES <= count ? LANES : 1) {                 \
            int is_full = at + LANES <= count;                                                     \
            name##_lanes x, y, found;                                                              \
            real first[LANES], second[LANES];                                                      \
            for (int lane = 0; lane < LANES && !is_full; lane++) {                                 \
                first[lane] = a[at];                                                               \
                second[lane] = b[at];                                                              \
            }                                                                                      \
            memcpy(&x, is_full ? a + at : first, bytes);                                           \
            memcpy(&y, is_full ? b + at : second, bytes);                                          \
            found = arity == 1 ? one(x) : two(x, y);                                               \
            memcpy(out + at, &found, is_full ? bytes : sizeof(real));                              \
        }                                                                                          \
    }
LOOP(doubles_64, "avx512f", double, 64)
LOOP(doubles_32, "avx2", double, 32)
LOOP(doubles_16, "sse4.1", double, 16)
LOOP(floats_64, "avx512f", float, 64)
LOOP(floats_32, "avx2", float, 32)
LOOP(floats_16, "sse4.1", float, 16)

#define CALL(name, real)                                                                           \
    name((void *)(uintptr_t)function, arity, PyArray_DATA(out), PyArray_DATA(a), PyArray_DATA(b),  \
         PyArray_SIZE(out))

static void run(uint64_t function, int size, int lanes, int arity, PyArrayObject *out,
                PyArrayObject *a, PyArrayObject *b)
{
    switch (size * lanes + size) {
    case 64 + 8: CALL(doubles_64, double); break;
    case 32 + 8: CALL(doubles_32, double); break;
    case 16 + 8: CALL(doubles_16, double); break;
    case 64 + 4: CALL(floats_64, float); break;
    case 32 + 4: CALL(floats_32, float); break;
    case 16 + 4: CALL(floats_16, float); break;
    }
}

#else

static const char *features(void)
{
    return "";
}

static void run(uint64_t Py_UNUSED(function), int Py_UNUSED(size), int Py_UNUSED(lanes),
                int Py_UNUSED(arity), PyArrayObject *Py_UNUSED(out), PyArrayObject *Py_UNUSED(a),
                PyArrayObject *Py_UNUSED(b))
{
}

#endif

PyObject *vector_features(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyUnicode_FromString(features());
}

/* vector_run(function, size, lanes, arity, out, a, b): the IEEE flags that were raised, as NumPy
   numbers them; `a` again where there is no second operand. Releases Python's lock. */
PyObject *vector_run(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long function;
    int size, lanes, arity, flags;
    PyArrayObject *out, *a, *b;
    if (!PyArg_ParseTuple(args, "KiiiO!O!O!", &function, &size, &lanes, &arity, &PyArray_Type, &out,
                          &PyArray_Type, &a, &PyArray_Type, &b)) {
        return NULL;
    }
    if (PyArray_SIZE(a) != PyArray_SIZE(out) || PyArray_SIZE(b) != PyArray_SIZE(out)) {
        PyErr_SetString(PyExc_ValueError, "vector_run: arrays of several sizes");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    loops_begin();
    run(function, size, lanes, arity, out, a, b);
    flags = loops_raised();
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(as_numpys(flags));
}
