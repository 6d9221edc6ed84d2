/* Elements by their bytes: copied, and along one axis selected. */

#include "base.h"

#include <string.h>

typedef struct {
    npy_uint64 parts[2];
} Pair;

/* Of a constant size a copy is one move, and of one element compilers make vectors. */
#define COPY(bytes)                                                                      \
    if (from_step == 0 && to_step == (npy_intp)(bytes)) {                                \
        for (npy_intp at = 0; at < count; at++) {                                        \
            memcpy(to + at * (npy_intp)(bytes), from, bytes);                            \
        }                                                                                \
        return;                                                                          \
    }                                                                                    \
    for (npy_intp at = 0; at < count; at++) {                                            \
        memcpy(to + at * to_step, from + at * from_step, bytes);                         \
    }                                                                                    \
    return

void copy_row(npy_intp item, const char *from, npy_intp from_step, char *to, npy_intp to_step,
              npy_intp count)
{
    static const char zeros[sizeof(Pair)];
    if (from_step == item && to_step == item) {
        memcpy(to, from, (size_t)(count * item));
        return;
    }
    if (from_step == 0 && to_step == item && item <= (npy_intp)sizeof(zeros) &&
        memcmp(from, zeros, (size_t)item) == 0) {
        memset(to, 0, (size_t)(count * item));
        return;
    }
    switch (item) {
    case 1:
        COPY(1);
    case 2:
        COPY(2);
    case 4:
        COPY(4);
    case 8:
        COPY(8);
    case 16:
        COPY(16);
    default:
        COPY((size_t)item);
    }
}

void copy_along(char *to, const npy_intp *to_strides, const char *from,
                const npy_intp *from_strides, const npy_intp *dims, int nd, npy_intp size)
{
    if (nd < 2) {
        copy_row(size, from, nd > 0 ? from_strides[0] : size, to, nd > 0 ? to_strides[0] : size,
                 nd > 0 ? dims[0] : 1);
        return;
    }
    for (npy_intp at = 0; at < dims[0]; at++, to += to_strides[0], from += from_strides[0]) {
        copy_along(to, to_strides + 1, from, from_strides + 1, dims + 1, nd - 1, size);
    }
}

PyObject *copy_of(PyArrayObject *a)
{
    int type = plain_type(a), nd = PyArray_NDIM(a);
    if (type < 0 || nd == 0) {
        return PyArray_NewCopy(a, NPY_CORDER);
    }
    PyArrayObject *made = new_array(type, nd, PyArray_DIMS(a), 0);
    if (made != NULL && PyArray_IS_C_CONTIGUOUS(a)) {
        memcpy(PyArray_DATA(made), PyArray_DATA(a), (size_t)PyArray_NBYTES(a));
    }
    else if (made != NULL) {
        copy_along(PyArray_BYTES(made), PyArray_STRIDES(made), PyArray_BYTES(a), PyArray_STRIDES(a),
                   PyArray_DIMS(a), nd, PyArray_ITEMSIZE(a));
    }
    return (PyObject *)made;
}

/* By bits: a processor mispredicts a branch wherever a mask changes. Once more for rows without
   gaps, of which compilers make vectors. */
#define CHOSEN_BY(kind, one_step, other_step, to_step, first_step)                       \
    for (npy_intp at = 0; at < count; at++) {                                            \
        const kind one = *(const kind *)(left + at * (one_step));                        \
        const kind other = *(const kind *)(right + at * (other_step));                   \
        const kind all = (kind)-(kind)(condition[at * (first_step)] != 0);               \
        *(kind *)(to + at * (to_step)) = (kind)((one & all) | (other & ~all));           \
    }
#define CHOSEN(kind)                                                                     \
    if (is_dense && second == item && third == item) {                                   \
        CHOSEN_BY(kind, sizeof(kind), sizeof(kind), sizeof(kind), 1)                     \
    }                                                                                    \
    else if (is_dense && second == item && third == 0) {                                 \
        CHOSEN_BY(kind, sizeof(kind), 0, sizeof(kind), 1)                                \
    }                                                                                    \
    else if (is_dense && second == 0 && third == item) {                                 \
        CHOSEN_BY(kind, 0, sizeof(kind), sizeof(kind), 1)                                \
    }                                                                                    \
    else {                                                                               \
        CHOSEN_BY(kind, second, third, last, first)                                      \
    }

void select_row(npy_intp item, char **data, const npy_intp *steps, npy_intp count)
{
    const char *condition = data[0], *left = data[1], *right = data[2];
    char *to = data[3];
    npy_intp first = steps[0], second = steps[1], third = steps[2], last = steps[3];
    int is_dense = first == 1 && last == item;
    switch (item) {
    case 1:
        CHOSEN(npy_uint8)
        break;
    case 2:
        CHOSEN(npy_uint16)
        break;
    case 4:
        CHOSEN(npy_uint32)
        break;
    case 8:
        CHOSEN(npy_uint64)
        break;
    default:
        for (npy_intp at = 0; at < count; at++) {
            *(Pair *)to = *(const Pair *)(*condition ? left : right);
            condition += first, left += second, right += third, to += last;
        }
    }
}
