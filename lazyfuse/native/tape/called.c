/* Calls that NumPy does at once: its own function on the values of the operands. */

#include "tape.h"

/* The values of an argument, as NumPy's function takes them (new): if `sealed`, arrays cannot be
   written through. NULL without an exception: Python does it. */
static PyObject *value_of(PyObject *x, int sealed)
{
    if (PyTuple_CheckExact(x) || PyList_CheckExact(x)) {
        Py_ssize_t count = PySequence_Fast_GET_SIZE(x);
        PyObject *made = PyTuple_CheckExact(x) ? PyTuple_New(count) : PyList_New(count);
        for (Py_ssize_t at = 0; made != NULL && at < count; at++) {
            int there = at < PySequence_Fast_GET_SIZE(x); /* Python code may shorten a list */
            PyObject *item = there ? Py_NewRef(PySequence_Fast_GET_ITEM(x, at)) : NULL;
            PyObject *each = there ? value_of(item, sealed) : NULL;
            Py_XDECREF(item);
            if (each == NULL) {
                Py_CLEAR(made);
            }
            else if (PyTuple_CheckExact(made)) {
                PyTuple_SET_ITEM(made, at, each);
            }
            else {
                PyList_SET_ITEM(made, at, each);
            }
        }
        return made;
    }
    if (!IS_ARRAY(x)) {
        return (PyObject *)Py_TYPE(x) == hooks.scalar ? NULL : Py_NewRef(x);
    }
    PyObject *shown = view_of_block((Core *)x);
    PyObject *value = shown != NULL || PyErr_Occurred() ? NULL : value_there(x);
    if (value != NULL) {
        shown = PyArray_View((PyArrayObject *)value, NULL, NULL);
        Py_DECREF(value);
    }
    if (shown != NULL && sealed) {
        PyArray_CLEARFLAGS((PyArrayObject *)shown, NPY_ARRAY_WRITEABLE);
    }
    return shown;
}

static int is_plain_number(PyObject *x)
{
    return PyBool_Check(x) || PyFloat_CheckExact(x) || PyLong_CheckExact(x) ||
           PyComplex_CheckExact(x) || (PyArray_CheckScalar(x) && !PyArray_Check(x));
}

int is_taken_over(PyObject *result)
{
    if (PyTuple_CheckExact(result)) {
        Py_ssize_t count = PyTuple_GET_SIZE(result), at = 0;
        while (at < count && !PyTuple_Check(PyTuple_GET_ITEM(result, at)) &&
               is_taken_over(PyTuple_GET_ITEM(result, at))) {
            at++;
        }
        return count > 0 && at == count;
    }
    if (!IS_REAL(result)) {
        return IS_ARRAY(result) || is_plain_number(result);
    }
    PyArrayObject *a = (PyArrayObject *)result;
    return PyArray_SIZE(a) > 0 && plain_type(a) >= 0 && PyArray_ISWRITEABLE(a) &&
           has_own_memory(result);
}

PyObject *call_numpy(PyObject *theirs, PyObject *const *args, Py_ssize_t count, PyObject *names,
                     int sealed)
{
    PyObject *given[MOST_WORDS], *result = NULL;
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names)), there = 0;
    while (there < all && there < MOST_WORDS &&
           (given[there] = value_of(args[there], sealed)) != NULL) {
        there++;
    }
    if (there == all) {
        result = PyObject_Vectorcall(theirs, given, (size_t)count, names);
    }
    while (there > 0) {
        Py_DECREF(given[--there]);
    }
    if (result == NULL) {
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear(); /* Python says what is wrong, or can do it */
        }
        return NULL;
    }
    if (!is_taken_over(result)) { /* a view, for example */
        Py_DECREF(result);
        return NULL;
    }
    return wrapped(result);
}
