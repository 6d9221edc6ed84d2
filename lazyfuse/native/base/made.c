/* How arrays are made: of NumPy's results, over values, as parts. The same in Python: base.py. */

#include "base.h"

#include <string.h>

PyTypeObject *array_type = NULL;

#define KEPT 256
static Core *kept[KEPT];
static int kept_count = 0;

int array_kept(Core *x)
{
    if (kept_count == KEPT) {
        return 0;
    }
    kept[kept_count++] = x;
    return 1;
}

Core *array_made(void)
{
    if (kept_count > 0) {
        Core *x = kept[--kept_count];
        (void)PyObject_Init((PyObject *)x, array_type);
        return x;
    }
    Core *x = PyObject_GC_New(Core, array_type);
    if (x != NULL) {
        memset((char *)x + sizeof(PyObject), 0, sizeof(Core) - sizeof(PyObject));
    }
    return x;
}

PyObject *make_view_on(PyObject *base, PyArrayObject *a, int nd, const npy_intp *dims,
                       const npy_intp *strides, char *data)
{
    PyArray_Descr *descr = PyArray_DESCR(a);
    Py_INCREF(descr);
    PyObject *view = PyArray_NewFromDescr(
        &PyArray_Type, descr, nd, (npy_intp *)dims, (npy_intp *)strides, data, PyArray_FLAGS(a),
        NULL);
    if (view != NULL && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(base)) < 0) {
        Py_CLEAR(view);
    }
    return view;
}

PyObject *make_view(PyArrayObject *a, int nd, const npy_intp *dims, const npy_intp *strides,
                    char *data)
{
    return make_view_on((PyObject *)a, a, nd, dims, strides, data);
}

/* Not tracked by the collector: a NumPy array, whose contents it does not visit, and a base. */
PyObject *direct_over(PyObject *value, PyObject *base, int thin)
{
    Py_INCREF(base); /* of an array that a collection may give another one */
    Core *x = array_made();
    if (x == NULL) {
        Py_DECREF(base);
        Py_DECREF(value);
        return NULL;
    }
    x->eager = value;
    x->node = Py_NewRef(Py_None);
    x->storage = Py_NewRef(Py_None);
    x->base = base;
    x->may_grow = Py_NewRef(thin ? Py_True : Py_False);
    return (PyObject *)x;
}

PyObject *placed(PyObject *value)
{
    return value != NULL && IS_REAL(value) ? direct_over(value, Py_None, 0) : value;
}

int may_grow(PyArrayObject *value)
{
    npy_intp size = PyArray_SIZE(value);
    if (size >= eager_below()) {
        return 1;
    }
    int nd = PyArray_NDIM(value);
    if (nd > 1 && size > 1) {
        for (int axis = 0; axis < nd; axis++) {
            if (PyArray_DIM(value, axis) == 1) {
                return 1;
            }
        }
    }
    return 0;
}

int is_small_array(PyArrayObject *value)
{
    Py_ssize_t size = PyArray_SIZE(value), limit = eager_below();
    return size < limit ||
           (PyArray_ITEMSIZE(value) == 1 && size / MIDDLING <= limit &&
            size <= MIDDLING * limit && limit > 1);
}

Py_ssize_t limit_of(PyObject *left, PyObject *right)
{
    PyObject *const both[] = {left, right};
    Py_ssize_t limit = eager_below();
    int are_large = 0;
    for (int k = 0; k < 2; k++) {
        PyArrayObject *a = (PyArrayObject *)both[k];
        if (IS_REAL(a) && PyArray_SIZE(a) >= limit) {
            if (!is_small_array(a)) {
                return 0;
            }
            are_large = 1;
        }
    }
    int spread = IS_REAL(left) && IS_REAL(right) &&
                 !same_shape((PyArrayObject *)left, (PyArrayObject *)right);
    return !spread ? PY_SSIZE_T_MAX : are_large ? 0 : limit;
}

PyObject *placed_as_is(PyObject *value)
{
    if (value == NULL || !IS_REAL(value)) {
        return value;
    }
    return direct_over(value, Py_None, may_grow((PyArrayObject *)value));
}

/* An array that owns its values, those of a node; steals `node`. */
static PyObject *alone(PyObject *node)
{
    Core *x = array_made();
    if (x == NULL) {
        Py_DECREF(node);
        return NULL;
    }
    x->eager = Py_NewRef(Py_None);
    x->node = node;
    x->storage = Py_NewRef(Py_None);
    x->base = Py_NewRef(Py_None);
    PyObject_GC_Track((PyObject *)x);
    return (PyObject *)x;
}

PyObject *array_alone(PyObject *Py_UNUSED(module), PyObject *node)
{
    return alone(Py_NewRef(node));
}
