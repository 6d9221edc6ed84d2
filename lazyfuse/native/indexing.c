/* Indexing of arrays: by NumPy at once where they are eager; record_views.c and record_writes.c
   index recorded ones, exported.c exported memory, and Python (indexing.py) does the rest. */

#include "record.h"

static int is_basic_part(PyObject *key)
{
    return PyLong_CheckExact(key) || PySlice_Check(key) || key == Py_Ellipsis || key == Py_None;
}

/* Whether a key gives a view or an element. */
static int is_basic(PyObject *key)
{
    if (!PyTuple_CheckExact(key)) {
        return is_basic_part(key);
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(key); at++) {
        if (!is_basic_part(PyTuple_GET_ITEM(key, at))) {
            return 0;
        }
    }
    return 1;
}

/* The view that a basic key names; NULL without an exception for other keys, and for elements. */
static PyObject *quick_view(PyArrayObject *a, PyObject *key)
{
    Geometry g;
    if (plain_type(a) < 0 ||
        !narrow(PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), key, &g)) {
        return NULL;
    }
    return make_view(a, g.nd, g.dims, g.strides, PyArray_BYTES(a) + g.offset);
}

static PyObject *array_get(PyObject *x, PyObject *key)
{
    Core *self = (Core *)x;
    if (IS_DIRECT(self)) {
        PyArrayObject *small = (PyArrayObject *)SMALL(self);
        int thin = IS_THIN(self);
        if (is_basic(key)) {
            if (!thin || plain_type(small) >= 0) {
                Py_INCREF(small);
                PyObject *value = quick_view(small, key);
                if (value == NULL) {
                    value = PyErr_Occurred() ? NULL : PyObject_GetItem((PyObject *)small, key);
                }
                Py_DECREF(small);
                if (value == NULL || !IS_REAL(value)) {
                    return value;
                }
                int nd = PyArray_NDIM((PyArrayObject *)value), slim = 0;
                for (int axis = 0; nd > 1 && !thin && axis < nd; axis++) {
                    slim |= PyArray_DIM((PyArrayObject *)value, axis) == 1;
                }
                            return direct_over(value, base_of(self),
                                   thin ? is_thin((PyArrayObject *)value) : slim);
            }
        }
        else if (IS_ARRAY(key) && IS_DIRECT(key) && plain_type(small) >= 0) {
            PyArrayObject *where = (PyArrayObject *)SMALL(key);
            if (PyArray_NDIM(where) != 0 && PyArray_SIZE(where) < eager_below()) {
                Py_INCREF(small);
                Py_INCREF(where);
                PyObject *value = PyObject_GetItem((PyObject *)small, (PyObject *)where);
                Py_DECREF(small);
                Py_DECREF(where);
                return wrapped(value);
            }
        }
    }
    else if (SMALL(self) == Py_None) {
        PyObject *part = recorded_view(self, key);
        if (part != NULL || PyErr_Occurred()) {
            return part;
        }
    }
    PyObject *args[] = {x, key};
    return PyObject_Vectorcall(SLOW.get_item, args, 2, NULL);
}

static int array_set(PyObject *x, PyObject *key, PyObject *value)
{
    PyObject *args[] = {x, key, value}, *done;
    if (value == NULL) {
        done = PyObject_Vectorcall(SLOW.del_item, args, 2, NULL);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    if (IS_DIRECT(x)) {
        PyObject *small = SMALL(x), *right = NULL, *where = key;
        int plain = plain_type((PyArrayObject *)small) >= 0;
        if (is_number(value)) {
            right = value;
        }
        else if (IS_ARRAY(value) && IS_DIRECT(value) && plain) {
            right = SMALL(value);
        }
        if (IS_ARRAY(key) && IS_DIRECT(key) && plain) {
            where = SMALL(key); /* indices, or a mask */
            if (plain_type((PyArrayObject *)where) < 0 ||
                PyArray_NDIM((PyArrayObject *)where) == 0) {
                where = NULL;
            }
        }
        else if (!is_basic(key)) {
            where = NULL;
        }
        if (right != NULL && where != NULL) {
            Py_INCREF(small);
            Py_INCREF(right);
            Py_INCREF(where);
            int result = PyObject_SetItem(small, where, right);
            Py_DECREF(small);
            Py_DECREF(right);
            Py_DECREF(where);
            return result;
        }
    }
    else if (SMALL(x) == Py_None) {
        int recorded = recorded_write((Core *)x, key, value);
        if (recorded == 0 && is_basic(key)) {
            recorded = exported_write((Core *)x, key, value);
        }
        if (recorded != 0) {
            return recorded < 0 ? -1 : 0;
        }
    }
    done = PyObject_Vectorcall(SLOW.set_item, args, 3, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static Py_ssize_t array_length(PyObject *x)
{
    if (IS_DIRECT(x)) {
        return PyObject_Size(SMALL(x));
    }
    PyObject *found = PyObject_CallOneArg(SLOW.length, x);
    if (found == NULL) {
        return -1;
    }
    Py_ssize_t length = PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return length;
}

static PyObject *array_item(PyObject *x, Py_ssize_t at)
{
    PyObject *key = PyLong_FromSsize_t(at);
    if (key == NULL) {
        return NULL;
    }
    PyObject *value = array_get(x, key);
    Py_DECREF(key);
    return value;
}

static int array_set_item(PyObject *x, Py_ssize_t at, PyObject *value)
{
    PyObject *key = PyLong_FromSsize_t(at);
    if (key == NULL) {
        return -1;
    }
    int done = array_set(x, key, value);
    Py_DECREF(key);
    return done;
}

PyMappingMethods array_mapping = {
    .mp_length = array_length, .mp_subscript = array_get, .mp_ass_subscript = array_set,
};

PySequenceMethods array_sequence = {
    .sq_length = array_length, .sq_item = array_item, .sq_ass_item = array_set_item,
};
