/* What a mask keeps: `values[mask]` and `values[mask] = value`, of arrays that lie as C orders them.

   NumPy goes through a mask element by element, and the processor mispredicts wherever it changes.
   Here eight truth values are looked at at once, and those of a mixed eight without a branch. */

#include "arrays.h"

#include <string.h>

enum { AT_ONCE = 8 };
#define ALL UINT64_C(0x0101010101010101) /* eight that are true; each is 0 or 1, as a rule */

typedef struct {
    uint64_t low, high;
} Sixteen;

static inline uint64_t eight(const npy_bool *mask)
{
    uint64_t found;
    memcpy(&found, mask, AT_ONCE);
    if (found & ~ALL) { /* of a view of other bytes */
        for (int at = 0; at < AT_ONCE; at++) {
            ((npy_bool *)&found)[at] = mask[at] != 0;
        }
    }
    return found;
}

/* Where the next true value may be: past eights of none. */
static inline npy_intp skip(const npy_bool *mask, npy_intp at, npy_intp size)
{
    for (; at + 4 * AT_ONCE <= size; at += 4 * AT_ONCE) {
        uint64_t found[4];
        memcpy(found, mask + at, sizeof(found));
        if (found[0] | found[1] | found[2] | found[3]) {
            break;
        }
    }
    return at;
}

/* Elements of one size. `take`: `count` of `size` are kept. `put`: from one value after the other,
   or from one for all. */
#define OF_SIZE(name, type)                                                                        \
    static void take_##name(const type *from, const npy_bool *mask, npy_intp size,                 \
                            npy_intp count, type *to)                                              \
    {                                                                                              \
        npy_intp done = 0, at = 0;                                                                 \
        while (done + AT_ONCE <= count && at + AT_ONCE <= size) {                                  \
            uint64_t kept = eight(mask + at);                                                      \
            if (kept == ALL) {                                                                     \
                memcpy(to + done, from + at, AT_ONCE * sizeof(type));                              \
                done += AT_ONCE;                                                                   \
            }                                                                                      \
            else if (kept) {                                                                       \
                for (int each = 0; each < AT_ONCE; each++) {                                       \
                    to[done] = from[at + each];                                                    \
                    done += mask[at + each] != 0;                                                  \
                }                                                                                  \
            }                                                                                      \
            at += AT_ONCE;                                                                         \
            if (!kept) {                                                                           \
                at = skip(mask, at, size);                                                         \
            }                                                                                      \
        }                                                                                          \
        for (at = done < count ? skip(mask, at, size) : size; done < count && at < size; at++) {   \
            if (mask[at]) {                                                                        \
                to[done++] = from[at];                                                             \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void put_##name(type *to, const npy_bool *mask, npy_intp size, const type *from,        \
                           int step)                                                               \
    {                                                                                              \
        npy_intp at = 0;                                                                           \
        for (; at + AT_ONCE <= size; at += AT_ONCE) {                                              \
            uint64_t kept = eight(mask + at);                                                      \
            if (kept == ALL) {                                                                     \
                for (int each = 0; each < AT_ONCE; each++, from += step) {                         \
                    to[at + each] = *from;                                                         \
                }                                                                                  \
                continue;                                                                          \
            }                                                                                      \
            unsigned char places[AT_ONCE];                                                         \
            int count = 0;                                                                         \
            for (int each = 0; kept && each < AT_ONCE; each++) {                                   \
                places[count] = (unsigned char)each;                                               \
                count += mask[at + each] != 0;                                                     \
            }                                                                                      \
            for (int each = 0; each < count; each++, from += step) {                               \
                to[at + places[each]] = *from;                                                     \
            }                                                                                      \
        }                                                                                          \
        for (; at < size; at++) {                                                                  \
            if (mask[at]) {                                                                        \
                to[at] = *from;                                                                    \
                from += step;                                                                      \
            }                                                                                      \
        }                                                                                          \
    }

OF_SIZE(1, uint8_t)
OF_SIZE(2, uint16_t)
OF_SIZE(4, uint32_t)
OF_SIZE(8, uint64_t)
OF_SIZE(16, Sixteen)

static void take_rows(const char *from, const npy_bool *mask, npy_intp size, npy_intp count,
                      char *to, npy_intp bytes)
{
    for (npy_intp done = 0, at = 0; done < count && at < size; at++) {
        if (mask[at]) {
            memcpy(to + done++ * bytes, from + at * bytes, (size_t)bytes);
        }
    }
}

/* Whether two arrays that C orders have memory in common. */
static int meet(PyArrayObject *a, PyArrayObject *b)
{
    const char *first = PyArray_BYTES(a), *second = PyArray_BYTES(b);
    return first < second + PyArray_NBYTES(b) && second < first + PyArray_NBYTES(a);
}

/* Whether the mask is one that this file knows, of the first axes of an array. */
static int is_known(PyArrayObject *a, PyArrayObject *mask)
{
    int nd = PyArray_NDIM(mask);
    if (plain_type(mask) != NPY_BOOL || plain_type(a) < 0 || nd == 0 || nd > PyArray_NDIM(a) ||
        !PyArray_IS_C_CONTIGUOUS(a) || !PyArray_IS_C_CONTIGUOUS(mask)) {
        return 0;
    }
    return PyArray_CompareLists(PyArray_DIMS(a), PyArray_DIMS(mask), nd);
}

/* The elements that a mask keeps go to `to`, which has room for `count`. */
static void take(PyArrayObject *a, PyArrayObject *mask, npy_intp count, void *to)
{
    const npy_bool *kept = PyArray_DATA(mask);
    npy_intp bytes = PyArray_ITEMSIZE(a), size = PyArray_SIZE(mask);
    for (int axis = PyArray_NDIM(mask); axis < PyArray_NDIM(a); axis++) {
        bytes *= PyArray_DIM(a, axis);
    }
    void *from = PyArray_DATA(a);
    switch (bytes) {
#define CASE(name, type)                                                                           \
    case sizeof(type): take_##name(from, kept, size, count, to); break;
        CASE(1, uint8_t) CASE(2, uint16_t) CASE(4, uint32_t) CASE(8, uint64_t) CASE(16, Sixteen)
#undef CASE
    default: take_rows(from, kept, size, count, to, bytes);
    }
}

/* ---------------------------------------------------------------------------------------- places */
/* `a[where]` and `a[where] = value` for whole numbers, of arrays that lie as C orders them. NumPy
   takes a microsecond to begin. Where a number is out of bounds, NumPy says so. */

enum { MANY = 1 << 20 }; /* places that other ways pick with all cores */

/* Whether the file knows such places: of rows of `a`, and how many bytes one has. */
static int is_placed(PyArrayObject *a, PyArrayObject *where, npy_intp *bytes)
{
    int type = plain_type(where);
    if ((type != NPY_LONG && type != NPY_LONGLONG && type != NPY_INT && type != NPY_UINT) ||
        plain_type(a) < 0 || PyArray_NDIM(a) == 0 || PyArray_NDIM(where) == 0 ||
        PyArray_NDIM(a) + PyArray_NDIM(where) > NPY_MAXDIMS || !PyArray_IS_C_CONTIGUOUS(a) ||
        !PyArray_IS_C_CONTIGUOUS(where) || PyArray_SIZE(where) > MANY) {
        return 0;
    }
    *bytes = PyArray_ITEMSIZE(a);
    for (int axis = 1; axis < PyArray_NDIM(a); axis++) {
        *bytes *= PyArray_DIM(a, axis);
    }
    return PyArray_SIZE(a) > 0 && PyArray_SIZE(where) > 0;
}

static inline npy_intp place_at(const void *where, int type, npy_intp at, npy_intp size)
{
    npy_intp found = type == NPY_INT ? ((const npy_int *)where)[at]
        : type == NPY_UINT           ? (npy_intp)((const npy_uint *)where)[at]
                                     : (npy_intp)((const npy_int64 *)where)[at];
    return found < 0 ? found + size : found;
}

/* Rows from `from[places]` to `to` one after the other, or (`back`) the other way, by steps of
   `step` rows, 0: the same one. Whether all places were in bounds. */
static int move_rows(char *to, const char *from, PyArrayObject *where, npy_intp size,
                     npy_intp bytes, int back, int step)
{
    const void *places = PyArray_DATA(where);
    npy_intp count = PyArray_SIZE(where);
    int type = plain_type(where);
#define MOVE(copy)                                                                                 \
    for (npy_intp at = 0; at < count; at++) {                                                      \
        npy_intp place = place_at(places, type, at, size);                                         \
        if ((size_t)place >= (size_t)size) {                                                       \
            return 0;                                                                              \
        }                                                                                          \
        npy_intp target = back ? place : at, source = back ? at * step : place;                    \
        copy;                                                                                      \
    }
    switch (bytes) {
    case 4:
        MOVE(((npy_uint32 *)to)[target] = ((const npy_uint32 *)from)[source])
        break;
    case 8:
        MOVE(((npy_uint64 *)to)[target] = ((const npy_uint64 *)from)[source])
        break;
    default:
        MOVE(memcpy(to + target * bytes, from + source * bytes, (size_t)bytes))
    }
#undef MOVE
    return 1;
}

/* What places pick (new); NULL without an exception: NumPy does it. */
static PyObject *placed_read(PyArrayObject *a, PyArrayObject *where)
{
    npy_intp dims[NPY_MAXDIMS], bytes;
    if (!is_placed(a, where, &bytes)) {
        return NULL;
    }
    int nd = PyArray_NDIM(where), rest = PyArray_NDIM(a) - 1;
    memcpy(dims, PyArray_DIMS(where), (size_t)nd * sizeof *dims);
    memcpy(dims + nd, PyArray_DIMS(a) + 1, (size_t)rest * sizeof *dims);
    PyArrayObject *made = new_array(plain_type(a), nd + rest, dims, 0);
    if (made != NULL && !move_rows(PyArray_BYTES(made), PyArray_BYTES(a), where,
                                   PyArray_DIM(a, 0), bytes, 0, 1)) {
        Py_CLEAR(made);
    }
    return (PyObject *)made;
}

enum { FEW_PLACES = 32 }; /* NumPy writes more elements quicker, but not more rows */

/* `a[where] = value`: 1, or 0 where NumPy does it. */
static int placed_write(PyArrayObject *a, PyArrayObject *where, PyObject *value)
{
    npy_clongdouble number;
    npy_intp bytes, size = PyArray_NDIM(a) > 0 ? PyArray_DIM(a, 0) : 0;
    if ((PyArray_NDIM(a) == 1 && PyArray_SIZE(where) > FEW_PLACES) ||
        !is_placed(a, where, &bytes) || !is_writeable(a) || meet(a, where)) {
        return 0;
    }
    const void *from = &number;
    int step = 0, nd = PyArray_NDIM(where);
    if (IS_REAL(value)) {
        PyArrayObject *values = (PyArrayObject *)value;
        if (plain_type(values) != plain_type(a) || !PyArray_IS_C_CONTIGUOUS(values) ||
            meet(a, values) || PyArray_NDIM(values) != nd + PyArray_NDIM(a) - 1 ||
            !PyArray_CompareLists(PyArray_DIMS(values), PyArray_DIMS(where), nd) ||
            !PyArray_CompareLists(PyArray_DIMS(values) + nd, PyArray_DIMS(a) + 1,
                                  PyArray_NDIM(a) - 1)) {
            return 0;
        }
        from = PyArray_DATA(values);
        step = 1;
    }
    else if (PyArray_NDIM(a) > 1 || !put_number(&number, value, plain_type(a))) {
        return 0;
    }
    for (npy_intp at = 0; at < PyArray_SIZE(where); at++) { /* before anything is written */
        npy_intp place = place_at(PyArray_DATA(where), plain_type(where), at, size);
        if ((size_t)place >= (size_t)size) {
            return 0;
        }
    }
    return move_rows(PyArray_BYTES(a), from, where, size, bytes, 1, step);
}

PyObject *read_items(PyArrayObject *a, PyObject *key)
{
    PyArrayObject *mask = (PyArrayObject *)key;
    PyObject *picked = IS_REAL(key) ? placed_read(a, mask) : NULL;
    if (picked != NULL || PyErr_Occurred()) {
        return picked;
    }
    if (!IS_REAL(key) || !is_known(a, mask)) {
        return PyObject_GetItem((PyObject *)a, key);
    }
    npy_intp dims[NPY_MAXDIMS];
    int nd = PyArray_NDIM(mask), rest = PyArray_NDIM(a) - nd;
    dims[0] = PyArray_CountNonzero(mask);
    memcpy(dims + 1, PyArray_DIMS(a) + nd, (size_t)rest * sizeof(npy_intp));
    PyArray_Descr *descr = PyArray_DESCR(a);
    Py_INCREF(descr);
    PyObject *made = PyArray_NewFromDescr(&PyArray_Type, descr, 1 + rest, dims, NULL, NULL, 0,
                                          NULL);
    if (made != NULL) {
        take(a, mask, dims[0], PyArray_DATA((PyArrayObject *)made));
    }
    return made;
}

/* Where the values lie that a mask is to give to elements of `a`, and the step from one to the
   next; NULL: NumPy converts or repeats them, or refuses them. */
static const void *values_for(PyArrayObject *a, PyArrayObject *mask, PyObject *value, void *number,
                              int *step)
{
    int type = plain_type(a);
    *step = 0;
    if (!IS_REAL(value)) {
        return put_number(number, value, type) ? number : NULL;
    }
    PyArrayObject *values = (PyArrayObject *)value;
    if (plain_type(values) != type || !PyArray_IS_C_CONTIGUOUS(values) ||
        meet(a, values)) {
        return NULL;
    }
    if (PyArray_NDIM(values) == 0) {
        return PyArray_DATA(values);
    }
    *step = 1;
    int fits = PyArray_NDIM(values) == 1 && PyArray_DIM(values, 0) == PyArray_CountNonzero(mask);
    return fits ? PyArray_DATA(values) : NULL;
}

/* `a[mask] = value`: 1, or 0 where NumPy does it. */
static int masked_write(PyArrayObject *a, PyArrayObject *mask, PyObject *value)
{
    npy_clongdouble number;
    int step;
    if (!is_known(a, mask) || PyArray_NDIM(a) != PyArray_NDIM(mask) || !is_writeable(a) ||
        meet(a, mask)) {
        return 0;
    }
    const void *from = values_for(a, mask, value, &number, &step);
    if (from == NULL) {
        return 0;
    }
    void *to = PyArray_DATA(a);
    const npy_bool *kept = PyArray_DATA(mask);
    npy_intp size = PyArray_SIZE(mask);
    switch (PyArray_ITEMSIZE(a)) {
#define CASE(bytes, type)                                                                          \
    case sizeof(type): put_##bytes(to, kept, size, from, step); return 1;
        CASE(1, uint8_t) CASE(2, uint16_t) CASE(4, uint32_t) CASE(8, uint64_t) CASE(16, Sixteen)
#undef CASE
    default: return 0;
    }
}

int write_items(PyArrayObject *a, PyObject *key, PyObject *value)
{
    PyArrayObject *where = (PyArrayObject *)key;
    if (IS_REAL(key) && (masked_write(a, where, value) || placed_write(a, where, value))) {
        return 0;
    }
    return PyObject_SetItem((PyObject *)a, key, value);
}

PyObject *masks_take(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !IS_REAL(args[0]) || !IS_REAL(args[1]) || !IS_REAL(args[2])) {
        Py_RETURN_FALSE;
    }
    PyArrayObject *a = (PyArrayObject *)args[0], *mask = (PyArrayObject *)args[1];
    PyArrayObject *out = (PyArrayObject *)args[2];
    int fits = is_known(a, mask) && PyArray_NDIM(mask) == PyArray_NDIM(a) &&
               plain_type(out) == plain_type(a) && PyArray_NDIM(out) == 1 &&
               PyArray_IS_C_CONTIGUOUS(out) && is_writeable(out);
    if (fits) {
        take(a, mask, PyArray_DIM(out, 0), PyArray_DATA(out));
    }
    return PyBool_FromLong(fits);
}

PyObject *masks_put(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    int done = count == 3 && IS_REAL(args[0]) && IS_REAL(args[1]) &&
               masked_write((PyArrayObject *)args[0], (PyArrayObject *)args[1], args[2]);
    return PyBool_FromLong(done);
}
