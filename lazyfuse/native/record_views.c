/* Parts of blocks: views that a basic key names, copies that a list picks, real and imaginary
   parts. The same in Python: indexing.py and index_keys.py, step for step. */

#include "record.h"

enum { VISITS = 16 }; /* eager_policy.VISIT_LIMIT */

/* As eager_policy.is_often_visited: counts one more small part of a pending block. */
static int is_often_visited(PyObject *storage)
{
    Py_ssize_t visits = PyLong_AsSsize_t(STORAGE(storage, visits)) + 1;
    PyObject *now = visits > VISITS ? NULL : PyLong_FromSsize_t(visits);
    if (now != NULL) {
        Py_SETREF(STORAGE(storage, visits), now);
    }
    PyErr_Clear();
    return visits > VISITS;
}

/* As index_keys.read: a copy of what a key with a list picks of a pending block; NULL as above. */
static PyObject *copy_listed(Core *self, PyObject *key, const Geometry *whole)
{
    PyObject *node = storage_node(self), *view = NULL, *perm = NULL, *made = NULL, *layout, *loop;
    Geometry g;
    int first;
    if (node == NULL || hooks.copy_op == NULL || hooks.loops == NULL || !is_pending(node) ||
        !falls(whole->nd, whole->dims, whole->strides, 0) ||
        !narrow_by_list(whole, key, &g, &first)) {
        return NULL;
    }
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)NODE(node, dtype));
    for (int axis = 0; axis < g.nd; axis++) {
        if (g.strides[axis] == 0) {
            return NULL;
        }
    }
    loop = loop_of(hooks.copy_op, PyTuple_Pack(1, NODE(node, dtype)));
    if (loop == NULL || is_whole(&g, NODE(node, shape), itemsize) != 0) {
        return NULL;
    }
    Py_INCREF(loop);
    layout = make_layout(&g, itemsize);
    perm = layout == NULL ? NULL : keep_order(&g, itemsize);
    if (perm != NULL) {
        view = make_node(hooks.view_op, PyTuple_Pack(1, node), layout,
                         PyTuple_GET_ITEM(layout, LAYOUT_SHAPE), NODE(node, dtype), perm, Py_None);
    }
    Py_XDECREF(perm);
    perm = first == 0 ? Py_NewRef(Py_None) : PyTuple_New(g.nd);
    for (int axis = 0; perm != NULL && first > 0 && axis < g.nd; axis++) {
        int to = axis == first ? 0 : axis < first ? axis + 1 : axis;
        PyTuple_SET_ITEM(perm, to, PyLong_FromLong(axis));
    }
    if (view != NULL && perm != NULL) {
        made = record_node(hooks.copy_op, PyTuple_Pack(1, view), loop, NODE(view, shape), perm);
    }
    Py_DECREF(loop);
    Py_XDECREF(layout);
    Py_XDECREF(view);
    Py_XDECREF(perm);
    return from_node(made);
}

/* An array on the block of `self`, over a part of its memory (a meta array). Steals `view`, which
   may be NULL after an error. */
static PyObject *make_part(Core *self, PyObject *view)
{
    Core *x = view == NULL ? NULL : new_part(self, Py_None);
    if (x == NULL) {
        Py_XDECREF(view);
        return NULL;
    }
    x->view = view;
    return (PyObject *)x;
}

PyObject *recorded_view(Core *self, PyObject *key)
{
    PyObject *node = self->node == Py_None ? any_node(self) : NULL;
    Geometry whole, g;
    if (node != NULL && STORAGE(self->storage, exports) != Py_None
            ? NODE(node, value) == Py_None || NODE(node, value) != STORAGE(self->storage, value)
            : storage_node(self) == NULL) {
        return NULL; /* exported memory has its values */
    }
    if (node == NULL || !view_geometry((PyArrayObject *)self->view, &whole)) {
        return NULL;
    }
    if (!narrow_part(&whole, key, &g)) {
        return copy_listed(self, key, &whole);
    }
    PyObject *storage = self->storage;
    int there = NODE(node, value) != Py_None;
    if (there && size_of(&g) >= eager_below() && is_fresh(storage, node)) {
        there = 0; /* just computed, and recorded work will read this part */
    }
    if (there) {
        PyArrayObject *real = (PyArrayObject *)real_of(self);
        if (real == NULL) {
            return NULL;
        }
        char *first = PyArray_BYTES(real) - whole.offset + g.offset;
        return part_over(self, make_view(real, g.nd, g.dims, g.strides, first));
    }
    if (NODE(node, value) == Py_None && size_of(&g) < eager_below() && is_often_visited(storage)) {
        return NULL; /* Python evaluates it */
    }
    return make_part(self, make_view((PyArrayObject *)self->view, g.nd, g.dims, g.strides,
                                     (char *)hooks.origin + g.offset));
}

PyObject *recorded_piece(Core *self, const char *name)
{
    PyObject *node = EAGER(self) == Py_None && self->node == Py_None ? storage_node(self) : NULL;
    if (node == NULL || !PyArray_ISCOMPLEX((PyArrayObject *)self->view)) {
        return NULL;
    }
    PyArrayObject *whole = (PyArrayObject *)self->view;
    for (int axis = 0; axis < PyArray_NDIM(whole); axis++) {
        if (PyArray_DIM(whole, axis) > 1 && PyArray_STRIDE(whole, axis) % PyArray_ITEMSIZE(whole)) {
            return NULL;
        }
    }
    return make_part(self, PyObject_GetAttrString(self->view, name));
}
