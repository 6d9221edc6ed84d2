/* `where` of plain arrays and numbers, which copies bits. */

#include "base.h"

#define SELECT(kind)                                                         \
    do {                                                                     \
        const kind *first = left, *second = right;                           \
        kind *out = to;                                                      \
        if (left_step && right_step) {                                       \
            for (npy_intp at = 0; at < count; at++) {                        \
                out[at] = chosen[at] ? first[at] : second[at];               \
            }                                                                \
        }                                                                    \
        else if (left_step) {                                                \
            const kind number = *second;                                     \
            for (npy_intp at = 0; at < count; at++) {                        \
                out[at] = chosen[at] ? first[at] : number;                   \
            }                                                                \
        }                                                                    \
        else {                                                               \
            const kind number = *first;                                      \
            for (npy_intp at = 0; at < count; at++) {                        \
                out[at] = chosen[at] ? number : second[at];                  \
            }                                                                \
        }                                                                    \
    } while (0)

typedef struct {
    npy_uint64 parts[2];
} Pair;

PyObject *loops_where(PyObject *condition, PyObject *left_given, PyObject *right_given)
{
    if (!IS_REAL(condition) || !(IS_REAL(left_given) || IS_REAL(right_given))) {
        return NULL;
    }
    PyArrayObject *mask = (PyArrayObject *)condition;
    if (plain_type(mask) != NPY_BOOL || PyArray_NDIM(mask) == 0 || !PyArray_IS_C_CONTIGUOUS(mask)) {
        return NULL;
    }
    PyObject *given[2] = {left_given, right_given};
    int type = plain_type((PyArrayObject *)given[IS_REAL(left_given) ? 0 : 1]);
    if (type < 0) {
        return NULL;
    }
    npy_clongdouble numbers[2];
    const void *data[2];
    int steps[2];
    for (int k = 0; k < 2; k++) {
        steps[k] = IS_REAL(given[k]);
        data[k] = &numbers[k];
        if (steps[k]) {
            PyArrayObject *a = (PyArrayObject *)given[k];
            if (plain_type(a) != type || !same_shape(a, mask) || !PyArray_IS_C_CONTIGUOUS(a)) {
                return NULL;
            }
            data[k] = PyArray_DATA(a);
        }
        else if (!put_number(&numbers[k], given[k], type)) {
            return NULL;
        }
    }
    PyArrayObject *made = new_array(type, PyArray_NDIM(mask), PyArray_DIMS(mask), 0);
    if (made == NULL) {
        return NULL;
    }
    const npy_bool *chosen = PyArray_DATA(mask);
    const void *left = data[0], *right = data[1];
    void *to = PyArray_DATA(made);
    int left_step = steps[0], right_step = steps[1];
    npy_intp count = PyArray_SIZE(mask);
    switch (PyArray_ITEMSIZE(made)) { /* copies bits: a signalling NaN stays one */
    case 1:
        SELECT(npy_uint8);
        break;
    case 2:
        SELECT(npy_uint16);
        break;
    case 4:
        SELECT(npy_uint32);
        break;
    case 8:
        SELECT(npy_uint64);
        break;
    case 16:
        SELECT(Pair);
        break;
    default:
        Py_CLEAR(made);
    }
    return (PyObject *)made;
}
