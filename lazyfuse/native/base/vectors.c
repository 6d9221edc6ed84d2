/* Loops that call SIMD versions of the C library's functions, as compiled programs do: full vectors,
   and the rest on vectors of copies. So an element's bits depend on its operands alone. */

#include "base.h"

#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)

#include <dlfcn.h>

static int vector_bytes(void)
{
    return __builtin_cpu_supports("avx512f") ? 64 : __builtin_cpu_supports("avx2") ? 32
        : __builtin_cpu_supports("sse4.1") ? 16 : 0;
}

/* What this processor has, as LLVM spells it, of what decides which version is called. */
static const char *features(void)
{
    switch (vector_bytes()) {
    case 64:
        return __builtin_cpu_supports("avx512dq") ? "+avx512f,+avx512dq,+avx2,+sse4.1"
                                                  : "+avx512f,+avx2,+sse4.1";
    case 32:
        return "+avx2,+sse4.1";
    default:
        return vector_bytes() ? "+sse4.1" : "";
    }
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

static void run(void *function, int size, int bytes, int arity, void *out, const void *a,
                const void *b, npy_intp count)
{
    switch (bytes + size) {
    case 64 + 8: doubles_64(function, arity, out, a, b, count); break;
    case 32 + 8: doubles_32(function, arity, out, a, b, count); break;
    case 16 + 8: doubles_16(function, arity, out, a, b, count); break;
    case 64 + 4: floats_64(function, arity, out, a, b, count); break;
    case 32 + 4: floats_32(function, arity, out, a, b, count); break;
    case 16 + 4: floats_16(function, arity, out, a, b, count); break;
    }
}

void *simd_function(const char *name, int arity, int size)
{
    static void *library;
    static int is_open;
    char symbol[48];
    int bytes = vector_bytes();
    if (!is_open) {
        is_open = 1;
        library = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL || bytes == 0) {
        return NULL;
    }
    /* by the vector ABI of x86-64: the instruction set, no mask, lanes, a v for each operand */
    PyOS_snprintf(symbol, sizeof(symbol), "_ZGV%cN%d%s_%s%s",
                  bytes == 64 ? 'e' : bytes == 32 ? 'd' : 'b', bytes / size,
                  arity == 1 ? "v" : "vv", name, size == 4 ? "f" : "");
    return dlsym(library, symbol);
}

#else

static const char *features(void)
{
    return "";
}

static void run(void *Py_UNUSED(function), int Py_UNUSED(size), int Py_UNUSED(bytes),
                int Py_UNUSED(arity), void *Py_UNUSED(out), const void *Py_UNUSED(a),
                const void *Py_UNUSED(b), npy_intp Py_UNUSED(count))
{
}

static int vector_bytes(void)
{
    return 0;
}

void *simd_function(const char *Py_UNUSED(name), int Py_UNUSED(arity), int Py_UNUSED(size))
{
    return NULL;
}

#endif

enum { CHUNK = 512 }; /* elements at once, after the first ones */

void simd_run(void *function, int arity, int size, char **args, npy_intp count,
              const npy_intp *steps, int flags)
{
    int bytes = vector_bytes(), dense = 1;
    double room[3][CHUNK];
    for (int k = 0; k <= arity; k++) {
        dense &= steps[k] == size;
    }
    for (npy_intp at = 0, length; at < count && !flags_of(flags); at += length) {
        length = Py_MIN(at == 0 ? FLAGS_FIRST : CHUNK, count - at);
        char *own[3];
        for (int k = 0; k <= arity; k++) {
            own[k] = dense ? args[k] + at * size : (char *)room[k];
            if (!dense && k < arity) {
                copy_row(size, args[k] + at * steps[k], steps[k], own[k], size, length);
            }
        }
        run(function, size, bytes, arity, own[arity], own[0], own[arity - 1], length);
        if (!dense) {
            copy_row(size, own[arity], size, args[arity] + at * steps[arity], steps[arity],
                     length);
        }
    }
}

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
    run((void *)(uintptr_t)function, size, size * lanes, arity, PyArray_DATA(out), PyArray_DATA(a),
        PyArray_DATA(b), PyArray_SIZE(out));
    flags = loops_raised();
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(as_numpys(flags));
}
