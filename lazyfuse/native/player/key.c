/* A key of numbers, and whether operands die or may be overwritten, which such a key says. */

#include "replay.h"

#include <string.h>

/* How often the graph refers to a node; -1: not at all. */
Py_ssize_t edges_to(const Edges *edges, PyObject *node)
{
    if (edges->table != NULL) {
        Py_ssize_t found = edges->table->entries[entry_place(edges->table, node)].edges;
        return found ? found : -1;
    }
    PyObject *key = PyLong_FromVoidPtr(node);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(edges->counts, key);
    Py_XDECREF(key);
    return found == NULL ? -1 : PyLong_AsSsize_t(found);
}

/* Whether an array has exactly this number of references, and only it refers to its memory. */
int is_unseen(PyObject *array, Py_ssize_t owners)
{
    if (!IS_REAL(array) || is_held_beyond(array, owners) ||
        !PyArray_ISWRITEABLE((PyArrayObject *)array)) {
        return 0;
    }
    PyObject *base = PyArray_BASE((PyArrayObject *)array);
    while (base != NULL && PyArray_Check(base)) {
        if (is_held_beyond(base, 1)) {
            return 0;
        }
        base = PyArray_BASE((PyArrayObject *)base);
    }
    return 1;
}

/* As `Memory.has_readers`, with the list of nodes as one more holder of what it holds; -1: an
   error. */
int is_captured(PyObject *memory, const Edges *edges)
{
    PyObject *alive = PyList_New(0); /* first: the collector may run code that changes the leaves */
    PyObject *leaves = MEMORY(memory, leaves);
    if (leaves == NULL || !PyList_CheckExact(leaves)) {
        Py_XDECREF(alive);
        return alive == NULL ? -1 : 1;
    }
    Py_ssize_t count = PyList_GET_SIZE(leaves), kept = 0;
    int found = 0;
    for (Py_ssize_t at = 0; alive != NULL && at < count; at++) {
        PyObject *leaf = PyList_GET_ITEM(leaves, at);
        Py_ssize_t held = edges_to(edges, leaf);
        int is_held = is_held_beyond(leaf, held + 2);
        found |= is_held;
        if (is_held || held >= 0) {
            kept++;
            if (PyList_Append(alive, leaf) < 0) {
                Py_CLEAR(alive);
            }
        }
    }
    if (alive == NULL || PyErr_Occurred()) {
        Py_XDECREF(alive);
        return -1;
    }
    if (kept < count) {
        MEMORY(memory, leaves) = alive;
        Py_DECREF(leaves);
    }
    else {
        Py_DECREF(alive);
    }
    return found;
}

/* Whether a run may overwrite a leaf's memory: as `RunValues.free`; -1: an error. */
int is_free(PyObject *node, const Edges *edges)
{
    PyObject *arg = NODE(node, arg), *value = NODE(node, value);
    if (arg != NULL && (PyObject *)Py_TYPE(arg) == hooks.memory) {
        if (NODE(node, op) != hooks.leaf_op || MEMORY(arg, owned) != Py_True) {
            return 0;
        }
        int captured = is_captured(arg, edges);
        return captured < 0 ? -1 : !captured;
    }
    Py_ssize_t held = edges_to(edges, node);
    if (held < 0 && PyErr_Occurred()) {
        return -1;
    }
    return !is_held_beyond(node, (held < 0 ? 0 : held) + 1) && is_unseen(value, 1);
}

int put(Key *key, int64_t number)
{
    if (key->count == key->room) {
        int64_t *more = PyMem_Malloc(2 * key->room * sizeof(int64_t));
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(more, key->numbers, key->count * sizeof(int64_t));
        if (key->numbers != key->few) {
            PyMem_Free(key->numbers);
        }
        key->numbers = more;
        key->room *= 2;
    }
    key->numbers[key->count++] = number;
    return 0;
}

int put_all(Key *key, PyObject *numbers) /* a list or a tuple */
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(numbers);
    PyObject **items = PySequence_Fast_ITEMS(numbers);
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t number = PyLong_AsLongLong(items[i]);
        if ((number == -1 && PyErr_Occurred()) || put(key, number) < 0) {
            return -1;
        }
    }
    return 0;
}

int put_layout(Key *key, PyObject *layout, int slides)
{
    PyObject *shape, *strides;
    if (layout != NULL && (PyObject *)Py_TYPE(layout) == hooks.moves) {
        return put(key, (int64_t)(intptr_t)layout); /* the replay keeps it */
    }
    if (layout == NULL || !IS_LAYOUT(layout) || PyTuple_GET_SIZE(layout) != LAYOUT_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "bind: expected layouts");
        return -1;
    }
    shape = PyTuple_GET_ITEM(layout, LAYOUT_SHAPE);
    strides = PyTuple_GET_ITEM(layout, LAYOUT_STRIDES);
    int64_t offset = slides ? 0 : PyLong_AsLongLong(PyTuple_GET_ITEM(layout, LAYOUT_OFFSET));
    if ((offset == -1 && PyErr_Occurred()) || put(key, offset) < 0 || put_all(key, shape) < 0) {
        return -1;
    }
    return put_all(key, strides);
}
