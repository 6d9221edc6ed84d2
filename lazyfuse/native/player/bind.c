/* What a run begins with: the key under which captured runs are kept, and the operands' values.

   `bind` is given a recording; find.c is given the roots of an evaluation. */

#include "replay.h"

/* The node of an operand (origin, index, whether it is an array); NULL: an error. */
static PyObject *node_of(PyObject *operand, PyObject *nodes)
{
    Py_ssize_t origin = PyLong_AsSsize_t(PyTuple_GET_ITEM(operand, 0));
    if (origin < 0 || origin >= PyList_GET_SIZE(nodes)
        || !IS_NODE(PyList_GET_ITEM(nodes, origin))) {
        PyErr_SetString(PyExc_IndexError, "bind: expected places of nodes");
        return NULL;
    }
    return PyList_GET_ITEM(nodes, origin);
}

/* Adds to the key what decides about an operand: 0 where it does not lie in host memory. */
static int put_operand(Key *key, PyObject *operand, PyObject *nodes, const Edges *edges,
                       PyObject *free)
{
    PyObject *node = node_of(operand, nodes);
    if (node == NULL) {
        return -1;
    }
    if (!IS_SET(node, value) || IS_SET(node, resident) || !IS_REAL(NODE(node, value))) {
        return 0;
    }
    if (PyTuple_GET_ITEM(operand, 2) != Py_True) {
        return 1;
    }
    PyArrayObject *array = (PyArrayObject *)NODE(node, value);
    int is_written = 0, rank = PyArray_NDIM(array);
    if (free == Py_True) {
        is_written = is_free(node, edges);
    }
    else if (free != Py_False) {
        is_written = PySet_Contains(free, PyTuple_GET_ITEM(operand, 0));
    }
    Py_ssize_t held = edges_to(edges, node);
    if (is_written < 0 || (held < 0 && PyErr_Occurred())) {
        return -1;
    }
    int dies = !is_held_beyond(node, (held < 0 ? 0 : held) + 1);
    for (int axis = 0; axis < rank; axis++) {
        if (put(key, PyArray_STRIDES(array)[axis]) < 0) {
            return -1;
        }
    }
    return put(key, dies + 2 * is_written + 4 * (PyArray_ISWRITEABLE(array) != 0)) < 0 ? -1 : 1;
}

/* The values of a plan with `size` values: the operands' are there (new). */
PyObject *values_for(PyObject *size, PyObject *operands, PyObject *nodes)
{
    Py_ssize_t count = PyLong_AsSsize_t(size);
    PyObject *env = count < 0 ? NULL : PyList_New(count);
    for (Py_ssize_t i = 0; env != NULL && i < count; i++) {
        PyList_SET_ITEM(env, i, Py_NewRef(Py_None));
    }
    for (Py_ssize_t i = 0; env != NULL && i < PyTuple_GET_SIZE(operands); i++) {
        PyObject *operand = PyTuple_GET_ITEM(operands, i), *node = node_of(operand, nodes);
        Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(operand, 1));
        if (node == NULL || PyList_SetItem(env, index, Py_NewRef(NODE(node, value))) < 0) {
            Py_CLEAR(env);
        }
    }
    return env;
}

/* bind(count, operands, windows, slides, free, nodes, edges, sizes): the key and the values that
   a run begins with, or None. `free`: the nodes whose memory the run may overwrite; True: look. */
PyObject *replay_bind(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 8 || !PyLong_Check(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])
        || !PyList_Check(args[5]) || !PyDict_Check(args[6]) || !PyList_Check(args[7])) {
        PyErr_SetString(PyExc_TypeError, "bind: expected a plan's operands and a recording");
        return NULL;
    }
    PyObject *operands = args[1], *windows = args[2], *nodes = args[5];
    const Edges edges = {args[6], NULL};
    PyObject *env = NULL;
    Key key = {.count = 0, .room = 128};
    key.numbers = key.few;
    int fits = put_all(&key, args[7]) < 0 ? -1 : 1;
    for (Py_ssize_t i = 0; fits > 0 && i < PyTuple_GET_SIZE(operands); i++) {
        fits = put_operand(&key, PyTuple_GET_ITEM(operands, i), nodes, &edges, args[4]);
    }
    /* the values come last, after the check for other readers of an array */
    if (fits > 0 && (env = values_for(args[0], operands, nodes)) == NULL) {
        fits = -1;
    }
    for (Py_ssize_t i = 0; fits > 0 && i < PyTuple_GET_SIZE(windows); i++) {
        Py_ssize_t origin = PyLong_AsSsize_t(PyTuple_GET_ITEM(windows, i));
        if (origin < 0 || origin >= PyList_GET_SIZE(nodes)) {
            PyErr_SetString(PyExc_IndexError, "bind: expected places of nodes");
            fits = -1;
        }
        else {
            PyObject *layout = NODE(PyList_GET_ITEM(nodes, origin), arg);
            fits = put_layout(&key, layout, args[3] == Py_True) < 0 ? -1 : fits;
        }
    }
    PyObject *result = NULL;
    if (fits > 0) {
        Py_ssize_t size = key.count * sizeof(int64_t);
        PyObject *bytes = PyBytes_FromStringAndSize((char *)key.numbers, size);
        result = bytes == NULL ? NULL : PyTuple_Pack(2, bytes, env);
        Py_XDECREF(bytes);
    }
    else if (fits == 0) {
        result = Py_NewRef(Py_None);
    }
    if (key.numbers != key.few) {
        PyMem_Free(key.numbers);
    }
    Py_XDECREF(env);
    return result;
}
