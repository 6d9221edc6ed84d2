/* Blocks of recorded arrays: their nodes, and what a write makes of them. */

#include "native.h"

#include "record.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- operands */

PyObject *any_node(Core *x)
{
    PyObject *storage = x->storage;
    if (storage == NULL || Py_TYPE(storage) != (PyTypeObject *)hooks.storage ||
        in_storage.node < 0 || STORAGE(storage, always_eager) != Py_False ||
        part_geometry(x) == NULL) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *node = STORAGE(storage, node);
    return node == NULL || !IS_NODE(node) || NODE(node, resident) != Py_None ? NULL : node;
}

PyObject *read_storage(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node);
    if (NODE(node, op) != hooks.leaf_op && !is_pending(node) && !is_held_beyond(node, 1)) {
        return PyObject_CallMethodNoArgs(storage, name_read); /* which counts its references */
    }
    return Py_NewRef(node);
}

/* As nodes.constant, for numbers that were met before (new); NULL without an exception. */
static PyObject *known_constant(PyObject *number, PyObject *dtype)
{
    if (hooks.constants == NULL || PyComplex_CheckExact(number) || PyObject_IsTrue(number) != 1) {
        return NULL; /* zeros with either sign are equal keys */
    }
    PyObject *key = PyTuple_Pack(2, number, dtype);
    PyObject *node = key == NULL ? NULL : PyDict_GetItemWithError(hooks.constants, key);
    Py_XDECREF(key);
    return Py_XNewRef(node);
}

PyObject *number_node(PyObject *number, PyObject *dtype)
{
    PyObject *node = known_constant(number, dtype);
    return node != NULL || PyErr_Occurred() ? node
        : PyObject_CallFunctionObjArgs(hooks.constant, number, dtype, NULL);
}

/* --------------------------------------------------------------------------------------- writes */

/* As `Storage.replace`, or a new node for an array that owns its values; steals `node`. -1: an
   error. */
int become(Core *x, PyObject *node)
{
    if (node == NULL) {
        return -1;
    }
    if (x->node != Py_None) {
        Py_SETREF(x->node, Py_NewRef(node));
    }
    else {
        PyObject *storage = x->storage, *reals = STORAGE(storage, reals);
        Py_SETREF(STORAGE(storage, node), Py_NewRef(node));
        Py_SETREF(STORAGE(storage, value), Py_NewRef(Py_None));
        Py_SETREF(STORAGE(storage, flat), Py_NewRef(Py_None));
        if (!is_empty(reals)) {
            PyObject *fresh = reals_new();
            if (fresh == NULL) {
                Py_DECREF(node);
                return -1;
            }
            Py_INCREF(reals);
            Py_SETREF(STORAGE(storage, reals), fresh);
            reals_clear(reals); /* arrays that hold the old table find it empty */
            Py_DECREF(reals);
        }
    }
    PyObject *done = PyObject_CallOneArg(hooks.note, node);
    Py_DECREF(node);
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

/* Writes refer to the values before them: one thread at a time, as in ndarray.write_region. 1:
   this thread has the lock, 0: Python does it, -1: an error. */
int lock_writes(void)
{
    PyObject *listeners = hooks.acquire == NULL || hooks.release == NULL || hooks.tracing == NULL
        ? NULL : PyDict_GetItemWithError(hooks.tracing, name_listeners);
    if (!may_record() || listeners == NULL || !PyTuple_CheckExact(listeners) ||
        PyTuple_GET_SIZE(listeners) != 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *done = drop_threads() < 0 ? NULL : PyObject_CallNoArgs(hooks.acquire);
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

int unlock_writes(int result)
{
    PyObject *kind, *error, *trace, *done;
    PyErr_Fetch(&kind, &error, &trace);
    done = PyObject_CallNoArgs(hooks.release);
    if (done == NULL) {
        result = -1;
        Py_XDECREF(kind);
        Py_XDECREF(error);
        Py_XDECREF(trace);
    }
    else {
        Py_DECREF(done);
        PyErr_Restore(kind, error, trace);
    }
    return result;
}
