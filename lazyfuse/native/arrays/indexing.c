/* Indexing of arrays: by NumPy at once where they are eager; exported.c writes to exported memory,
   and Python (indexing.py) does the rest, which is followed when it comes round (tape/). */

#include "arrays.h"

/* ------------------------------------------------------------------------------------------ keys */

static int is_basic_part(PyObject *key)
{
    return is_index(key) || PySlice_Check(key) || key == Py_Ellipsis || key == Py_None;
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

/* The view or element that a basic key names of an array of a plain dtype; NULL without an
   exception for other keys. */
static PyObject *quick_view(PyArrayObject *a, PyObject *key)
{
    Geometry g;
    int kind = select_part(PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), key, &g);
    if (kind == ELEMENT) {
        return PyArray_Scalar(PyArray_BYTES(a) + g.offset, PyArray_DESCR(a), (PyObject *)a);
    }
    if (kind == NO_PART) {
        return NULL;
    }
    return make_view(a, g.nd, g.dims, g.strides, PyArray_BYTES(a) + g.offset);
}

/* What a basic key gave of an eager array: a view wrapped, an element as it is. Steals `value`. */
static PyObject *wrap_part(Core *self, PyObject *value)
{
    if (value == NULL || !IS_REAL(value)) {
        return value;
    }
    PyArrayObject *a = (PyArrayObject *)value;
    int nd = PyArray_NDIM(a), thin = MAY_GROW(self) && may_grow(a);
    for (int axis = 0; nd > 1 && !thin && axis < nd; axis++) {
        thin = PyArray_DIM(a, axis) == 1 && !MAY_GROW(self);
    }
    return direct_over(value, base_of(self), thin);
}

/* Whether a key names a field of a small structured array; those of large ones may be recorded. */
static int is_field(Core *self, PyObject *key)
{
    return PyUnicode_CheckExact(key) && !MAY_GROW(self);
}

static PyObject *get_item(PyObject *x, PyObject *key)
{
    Core *self = (Core *)x;
    if (IS_DIRECT(self)) {
        PyObject *small = Py_NewRef(EAGER(self)), *value = NULL;
        int plain = plain_type((PyArrayObject *)small) >= 0, done = 1;
        if (plain) {
            value = quick_view((PyArrayObject *)small, key);
        }
        if (value != NULL || PyErr_Occurred()) {
            value = wrap_part(self, value);
        }
        else if (is_basic(key) || is_field(self, key)) {
            done = plain || !MAY_GROW(self);
            value = done ? wrap_part(self, PyObject_GetItem(small, key)) : NULL;
        }
        else {
            PyArrayObject *where = !plain ? NULL
                : (PyArrayObject *)(IS_ARRAY(key) ? values_of(key) : IS_REAL(key) ? key : NULL);
            done = where != NULL && PyArray_SIZE(where) < eager_below() && is_plain_index(where);
            if (!done) {
                value = part_pick(self, key);
                done = value != NULL || PyErr_Occurred();
            }
            else {
                Py_INCREF(where);
                value = wrapped(read_items((PyArrayObject *)small, (PyObject *)where));
                Py_DECREF(where);
            }
        }
        Py_DECREF(small);
        if (done) {
            return value;
        }
    }
    else if (EAGER(self) == Py_None) {
        PyObject *part = part_get(self, key);
        if (part == NULL && !PyErr_Occurred()) {
            part = block_part(self, key);
        }
        if (part == NULL && !PyErr_Occurred()) {
            part = part_pick(self, key);
        }
        if (part != NULL || PyErr_Occurred()) {
            return part;
        }
    }
    PyObject *args[] = {x, key};
    return step_function(hooks.get_item, hooks.numpys_item, args, 2, NULL, 0);
}

/* A number becomes an element, or few elements what they can become without NumPy: 1, 0 where
   NumPy does it, -1 with an exception. */
static int set_plainly(PyArrayObject *a, PyObject *key, PyObject *value)
{
    Geometry g;
    PyObject *right = IS_ARRAY(value) ? values_of(value) : value;
    if (!is_writeable(a) || right == NULL || !(IS_REAL(right) || is_number(right))) {
        return 0;
    }
    int kind = select_part(PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), key, &g);
    if (kind == ELEMENT && right == value && !IS_REAL(right)) {
        Py_INCREF(a); /* NumPy may warn */
        int failed = PyArray_Pack(PyArray_DESCR(a), PyArray_BYTES(a) + g.offset, value) < 0;
        Py_DECREF(a);
        return failed ? -1 : 1;
    }
    return kind == SOME && write_plainly(a, &g, right);
}

static int set_item(PyObject *x, PyObject *key, PyObject *value)
{
    PyObject *args[] = {x, key, value}, *done;
    if (value == NULL) {
        done = PyObject_Vectorcall(hooks.del_item, args, 2, NULL);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    if (IS_DIRECT(x)) {
        PyObject *small = EAGER(x), *right = NULL, *where = key;
        int plain = plain_type((PyArrayObject *)small) >= 0;
        int set = plain ? set_plainly((PyArrayObject *)small, key, value) : 0;
        if (set != 0) {
            return set < 0 ? -1 : 0;
        }
        if (is_number(value)) {
            right = value;
        }
        else if (IS_ARRAY(value) && (plain || is_field((Core *)x, key))) {
            right = values_of(value);
        }
        else if (IS_REAL(value) && plain && plain_type((PyArrayObject *)value) >= 0) {
            right = value;
        }
        if (IS_ARRAY(key) || IS_REAL(key)) { /* indices, or a mask */
            where = !plain ? NULL : IS_ARRAY(key) ? values_of(key) : key;
            if (where != NULL && !is_plain_index((PyArrayObject *)where)) {
                where = NULL;
            }
        }
        else if (!is_basic(key) && !is_field((Core *)x, key)) {
            where = NULL;
        }
        PyObject *listed = right != NULL && plain ? index_array(key) : NULL;
        where = listed != NULL ? listed : where;
        if (right != NULL && where != NULL) {
            Py_INCREF(small);
            Py_INCREF(right);
            if (listed == NULL) {
                Py_INCREF(where);
            }
            int result = write_items((PyArrayObject *)small, where, right);
            Py_DECREF(small);
            Py_DECREF(right);
            Py_DECREF(where);
            return result;
        }
    }
    else if (EAGER(x) == Py_None) {
        int written = part_set((Core *)x, key, value);
        if (written == 0 && is_basic(key)) {
            written = exported_write((Core *)x, key, value);
        }
        if (written != 0) {
            return written < 0 ? -1 : 0;
        }
    }
    done = step_call(hooks.set_item, args, 3, NULL, 0);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static Py_ssize_t array_length(PyObject *x)
{
    if (IS_DIRECT(x)) {
        return PyObject_Size(EAGER(x));
    }
    PyArrayObject *real = present_values((Core *)x);
    if (real != NULL && PyArray_NDIM(real) > 0) {
        return PyArray_DIM(real, 0);
    }
    PyObject *found = PyObject_CallOneArg(hooks.length, x);
    if (found == NULL) {
        return -1;
    }
    Py_ssize_t length = PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return length;
}

PyObject *array_iterator(PyObject *x)
{
    if (IS_DIRECT(x) && PyArray_NDIM((PyArrayObject *)EAGER(x)) == 1) {
        PyObject *small = Py_NewRef(EAGER(x)), *items = PyObject_GetIter(small); /* NumPy's numbers */
        Py_DECREF(small);
        return items;
    }
    return PyObject_CallOneArg(hooks.iterate, x);
}

static PyObject *array_item(PyObject *x, Py_ssize_t at)
{
    PyArrayObject *real = IS_DIRECT(x) ? (PyArrayObject *)EAGER(x) : present_values((Core *)x);
    int nd = real == NULL ? 0 : PyArray_NDIM(real);
    if (nd > 0 && at >= PyArray_DIM(real, 0)) { /* the end of an iteration */
        PyErr_Format(PyExc_IndexError, "index %zd is out of bounds for axis 0 with size %zd", at,
                     (Py_ssize_t)PyArray_DIM(real, 0));
        return NULL;
    }
    if (nd == 1 && at >= 0 && plain_type(real) >= 0) {
        return PyArray_Scalar(PyArray_BYTES(real) + at * PyArray_STRIDE(real, 0),
                              PyArray_DESCR(real), (PyObject *)real);
    }
    PyObject *key = PyLong_FromSsize_t(at);
    if (key == NULL) {
        return NULL;
    }
    PyObject *value = get_item(x, key);
    Py_DECREF(key);
    return value;
}

static int array_set_item(PyObject *x, Py_ssize_t at, PyObject *value)
{
    PyObject *key = PyLong_FromSsize_t(at);
    if (key == NULL) {
        return -1;
    }
    int done = set_item(x, key, value);
    Py_DECREF(key);
    return done;
}

/* Whether an index names one element: a number, or several. */
static int is_element(PyObject *key)
{
    int one = is_index(key);
    if (PyTuple_CheckExact(key)) {
        one = PyTuple_GET_SIZE(key) > 0;
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(key); at++) {
            one &= is_index(PyTuple_GET_ITEM(key, at));
        }
    }
    return one;
}

static PyObject *array_get(PyObject *x, PyObject *key)
{
    if (!spans_on) {
        return get_item(x, key);
    }
    Span span = span_opened();
    PyObject *result = get_item(x, key);
    span_closed(span, result != NULL && !IS_ARRAY(result) ? SPAN_READS : SPAN_PARTS);
    return result;
}

static int array_set(PyObject *x, PyObject *key, PyObject *value)
{
    if (!spans_on) {
        return set_item(x, key, value);
    }
    Span span = span_opened();
    int result = set_item(x, key, value);
    int one = value != NULL && !IS_ARRAY(value) && is_element(key);
    span_closed(span, one ? SPAN_WRITES : SPAN_PARTS);
    return result;
}

PyMappingMethods array_mapping = {
    .mp_length = array_length, .mp_subscript = array_get, .mp_ass_subscript = array_set,
};

PySequenceMethods array_sequence = {
    .sq_length = array_length, .sq_item = array_item, .sq_ass_item = array_set_item,
};
