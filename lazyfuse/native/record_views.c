/* Parts of blocks: views that a basic key names, copies that a list picks, real and imaginary
   parts. The same in Python: indexing.py and index_keys.py, step for step. */

#include "record.h"

enum { REALS = 256 }; /* storage.REALS_LIMIT */

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

/* An array on the block of `self`, over a part of its memory (a meta array). Steals all but `self`;
   `view` and `ticket` may be NULL after an error, `reals` where there are no concrete values. */
static PyObject *make_part(Core *self, PyObject *view, PyObject *reals, PyObject *ticket)
{
    Core *x = view == NULL ? NULL : (Core *)array_new(NULL, (PyObject *)array_type);
    if (x == NULL) {
        Py_XDECREF(view);
        Py_XDECREF(reals);
        Py_XDECREF(ticket);
        return NULL;
    }
    x->eager = Py_NewRef(Py_None);
    x->node = Py_NewRef(Py_None);
    x->storage = Py_NewRef(self->storage);
    x->view = view;
    x->layout = Py_NewRef(Py_None);
    x->base = Py_NewRef(base_of(self));
    x->reals = reals == NULL ? Py_NewRef(Py_None) : reals;
    x->ticket = ticket;
    return (PyObject *)x;
}

PyObject *recorded_view(Core *self, PyObject *key)
{
    PyObject *node = self->node == Py_None ? any_node(self) : NULL, *view, *real = NULL;
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
    PyObject *storage = self->storage, *reals = NULL, *ticket = NULL;
    int there = NODE(node, value) != Py_None;
    if (there && size_of(&g) >= eager_below() && is_fresh(storage, node)) {
        there = 0; /* just computed, and recorded work will read this part */
    }
    if (there) {
        reals = STORAGE(storage, reals);
        if (NODE(node, value) != STORAGE(storage, value) || !PyDict_CheckExact(reals) ||
            PyDict_GET_SIZE(reals) >= REALS || self->reals != reals || self->ticket == NULL) {
            return NULL;
        }
        real = PyDict_GetItemWithError(reals, self->ticket);
        if (real == NULL || !IS_REAL(real)) {
            return NULL;
        }
        char *origin = PyArray_BYTES((PyArrayObject *)real) - whole.offset;
        real = make_view((PyArrayObject *)real, g.nd, g.dims, g.strides, origin + g.offset);
        ticket = real == NULL ? NULL : PyIter_Next(hooks.tickets);
        if (ticket == NULL || PyDict_SetItem(reals, ticket, real) < 0) {
            Py_XDECREF(real);
            Py_XDECREF(ticket);
            return NULL;
        }
        Py_DECREF(real);
        Py_INCREF(reals);
    }
    view = make_view((PyArrayObject *)self->view, g.nd, g.dims, g.strides,
                     (char *)hooks.origin + g.offset);
    PyObject *x = make_part(self, view, reals, ticket);
    PyObject *part = there && x != NULL ? PyTuple_Pack(3, key, self->view, view) : NULL;
    if (part != NULL) {
        Py_XSETREF(STORAGE(storage, part), part);
    }
    else if (x != NULL) {
        PyErr_Clear();
    }
    return x;
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
    return make_part(self, PyObject_GetAttrString(self->view, name), NULL, NULL);
}
