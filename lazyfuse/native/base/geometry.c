/* Where the elements of parts of a block lie, as numbers: what a key selects of them, and their
   order. The same in Python: meta_arrays.py and index_keys.py. */

#include "base.h"

#include <string.h>

/* Axes `from` to `to` as they are; 0: they are too many. */
static int keep_axes(Geometry *g, const npy_intp *dims, const npy_intp *strides, int from, int to)
{
    if (g->nd + to - from > RANK) {
        return 0;
    }
    for (; from < to; from++) {
        g->dims[g->nd] = dims[from];
        g->strides[g->nd++] = strides[from];
    }
    return 1;
}

int select_part(int nd, const npy_intp *dims, const npy_intp *strides, PyObject *key, Geometry *g)
{
    PyObject **parts = PyTuple_CheckExact(key) ? &PyTuple_GET_ITEM(key, 0) : &key;
    Py_ssize_t count = parts == &key ? 1 : PyTuple_GET_SIZE(key);
    int axis = 0, open = 0;
    g->nd = 0;
    g->offset = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *part = parts[at];
        if (is_index(part)) {
            Py_ssize_t index = PyLong_CheckExact(part) ? PyLong_AsSsize_t(part)
                                                       : PyNumber_AsSsize_t(part, PyExc_IndexError);
            if (index == -1 && PyErr_Occurred()) {
                PyErr_Clear();
                return NO_PART;
            }
            if (axis == nd) {
                return NO_PART;
            }
            index += index < 0 ? dims[axis] : 0;
            if (index < 0 || index >= dims[axis]) {
                return NO_PART; /* an IndexError in NumPy's words */
            }
            g->offset += index * strides[axis++];
        }
        else if (is_plain_slice(part)) {
            Py_ssize_t start, stop, step;
            if (axis == nd || g->nd == RANK) {
                return NO_PART;
            }
            if (PySlice_Unpack(part, &start, &stop, &step) < 0) {
                PyErr_Clear();
                return NO_PART;
            }
            Py_ssize_t length = PySlice_AdjustIndices(dims[axis], &start, &stop, step);
            if (length == 0) {
                return NO_PART; /* where NumPy lets it point */
            }
            g->dims[g->nd] = length;
            g->offset += start * strides[axis];
            g->strides[g->nd++] = step * strides[axis++];
        }
        else if (part == Py_None) {
            if (g->nd == RANK) {
                return NO_PART;
            }
            g->dims[g->nd] = 1;
            g->strides[g->nd++] = 0;
        }
        else if (part == Py_Ellipsis && !open) {
            int to = nd;
            for (Py_ssize_t after = at + 1; after < count; after++) {
                to -= parts[after] != Py_None;
            }
            if (to < axis || !keep_axes(g, dims, strides, axis, to)) {
                return NO_PART;
            }
            open = 1;
            axis = to;
        }
        else {
            return NO_PART;
        }
    }
    if (!keep_axes(g, dims, strides, axis, nd)) {
        return NO_PART;
    }
    return g->nd > 0 ? SOME : open ? NO_PART : ELEMENT;
}

int narrow(int nd, const npy_intp *dims, const npy_intp *strides, PyObject *key, Geometry *g)
{
    return select_part(nd, dims, strides, key, g) == SOME;
}

int falls(int nd, const npy_intp *dims, const npy_intp *strides, int long_ones)
{
    npy_intp last = NPY_MAX_INTP;
    for (int axis = 0; axis < nd; axis++) {
        if (long_ones && (dims[axis] == 1 || strides[axis] == 0)) {
            continue;
        }
        if (strides[axis] > last || strides[axis] < 0) {
            return 0;
        }
        last = strides[axis];
    }
    return 1;
}

int broadcast(int *nd, npy_intp *dims, int most, int other_nd, const npy_intp *other)
{
    int extra = other_nd - *nd;
    if (other_nd > most) {
        return 0;
    }
    if (extra > 0) {
        memmove(dims + extra, dims, *nd * sizeof(npy_intp));
        memcpy(dims, other, extra * sizeof(npy_intp));
        *nd = other_nd;
    }
    for (int axis = extra > 0 ? extra : 0; axis < *nd; axis++) {
        int own = axis - *nd + other_nd;
        npy_intp length = own < 0 ? 1 : other[own];
        if (length != dims[axis] && length != 1 && dims[axis] != 1) {
            return 0; /* a ValueError in NumPy's words */
        }
        dims[axis] = dims[axis] == 1 ? length : dims[axis];
    }
    return 1;
}

PyObject *shape_tuple(int nd, const npy_intp *dims)
{
    npy_intp lengths[NPY_MAXDIMS]; /* their array may go while the tuple is made */
    for (int at = 0; at < nd; at++) {
        lengths[at] = dims[at];
    }
    PyObject *tuple = PyTuple_New(nd);
    for (int at = 0; tuple != NULL && at < nd; at++) {
        PyObject *each = PyLong_FromSsize_t(lengths[at]);
        if (each == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, at, each);
    }
    return tuple;
}

void reach(const char *first, int nd, const npy_intp *dims, const npy_intp *strides, npy_intp size,
           const char **low, const char **high)
{
    *low = *high = first;
    for (int axis = 0; axis < nd; axis++) {
        npy_intp far = (dims[axis] - 1) * strides[axis];
        *(far < 0 ? low : high) += far;
    }
    *high += size;
}

int are_apart(const char *first, int nd, const npy_intp *dims, const npy_intp *strides,
              PyArrayObject *other)
{
    const char *low, *high, *from, *to;
    npy_intp size = PyArray_ITEMSIZE(other);
    reach(first, nd, dims, strides, size, &low, &high);
    reach(PyArray_BYTES(other), PyArray_NDIM(other), PyArray_DIMS(other), PyArray_STRIDES(other),
          size, &from, &to);
    return high <= from || to <= low;
}

int walk_falls(PyArrayObject *a, int nd, const npy_intp *dims)
{
    int lead = nd - PyArray_NDIM(a), full = 1;
    npy_intp last = 0;
    for (int axis = 0; axis < nd; axis++) {
        if (dims[axis] == 1) {
            continue;
        }
        npy_intp step = 0;
        if (axis >= lead && PyArray_DIM(a, axis - lead) != 1) {
            step = PyArray_STRIDE(a, axis - lead);
        }
        if (step == 0) {
            full = 0;
            continue;
        }
        if (step < 0 || (last != 0 && step > last)) {
            return -1;
        }
        last = step;
    }
    return full;
}

/* The last axis stays innermost even where it is short: some of NumPy's loops (negative of float32)
   are wrong with gaps in the result. */
void walk_simplify(Walk *walk, int operands)
{
    int nd = 0;
    for (int axis = 0; axis < walk->nd; axis++) {
        npy_intp length = walk->dims[axis];
        if (length == 1) {
            continue;
        }
        int joins = nd > 0;
        for (int k = 0; joins && k < operands; k++) {
            joins = walk->steps[k][nd - 1] == length * walk->steps[k][axis];
        }
        int to = joins ? nd - 1 : nd++;
        walk->dims[to] = joins ? walk->dims[to] * length : length;
        for (int k = 0; k < operands; k++) {
            walk->steps[k][to] = walk->steps[k][axis];
        }
    }
    if (nd == 0) { /* one element; a result with steps of zero would be a reduction */
        nd = walk->dims[0] = 1;
        for (int k = 0; k < operands; k++) {
            walk->steps[k][0] = k == operands - 1 ? 16 : 0;
        }
    }
    walk->nd = nd;
}
