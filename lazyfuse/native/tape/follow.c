/* A call that was done before, done again: the nodes that Python would make, on other operands. */

#include "tape.h"

#include <string.h>

/* The nodes that a call makes, in tuples that Python has made (steps.py). */
typedef struct {
    PyObject *numbers; /* nodes with values, or pairs: a number of the call, its dtype */
    PyObject *nodes; /* of each node: op, positions of sources, arg, shape, dtype, perm, placed */
    PyObject *writes; /* pairs: an operand, the position of its new values */
    PyObject *result; /* kind, and what it is of */
} Template;

/* One node of a template: what Python's tuple of it holds. */
enum { OP, SOURCES, ARG, SHAPE, DTYPE, PERM, PLACED };

/* The source locations of a call: the user's line, and those that name a function. */
typedef struct {
    PyObject *where, *names[MOST_VALUES], *places[MOST_VALUES];
    int count;
} Places;

/* The location of a node (borrowed); NULL with an exception. */
static PyObject *place_of(Places *places, PyObject *placed)
{
    if (placed == Py_False || placed == Py_True) {
        return placed == Py_True ? places->where : Py_None;
    }
    for (int at = 0; at < places->count; at++) { /* nodes with one location report as one */
        if (places->names[at] == placed) {
            return places->places[at];
        }
    }
    PyObject *place = place_like(places->where, name_name, PyTuple_GET_ITEM(placed, 0));
    if (place != NULL) {
        places->names[places->count] = placed;
        places->places[places->count++] = place;
    }
    return place;
}

/* The values of an operand as recorded work reads them (new); NULL without an exception: they have
   changed since the call was described. */
static PyObject *input_of(Core *x)
{
    if (IS_DIRECT(x)) {
        return snapshot_of((PyArrayObject *)EAGER(x));
    }
    if (x->node != NULL && x->node != Py_None) {
        return Py_NewRef(x->node);
    }
    if (any_node(x) == NULL) {
        return NULL;
    }
    PyObject *storage = Py_NewRef(x->storage);
    PyObject *node = has_exports(storage) ? NULL : read_storage(storage);
    Py_DECREF(storage);
    return node;
}

/* A node of a template (new). */
static PyObject *node_again(PyObject *step, PyObject *const *values, Places *all)
{
    PyObject *place = place_of(all, PyTuple_GET_ITEM(step, PLACED));
    if (place == NULL) {
        return NULL;
    }
    PyObject *places = PyTuple_GET_ITEM(step, SOURCES);
    Py_ssize_t count = PyTuple_GET_SIZE(places);
    PyObject *src = PyTuple_New(count);
    for (Py_ssize_t at = 0; src != NULL && at < count; at++) {
        PyTuple_SET_ITEM(
            src, at, Py_NewRef(values[PyLong_AsSsize_t(PyTuple_GET_ITEM(places, at))]));
    }
    return make_node(PyTuple_GET_ITEM(step, OP), src, PyTuple_GET_ITEM(step, ARG),
                     PyTuple_GET_ITEM(step, SHAPE), PyTuple_GET_ITEM(step, DTYPE),
                     PyTuple_GET_ITEM(step, PERM), place);
}

/* A part of an operand's block, where it was the last time (new). */
static PyObject *part_again(PyObject *operand, PyObject *view)
{
    Core *x = (Core *)operand;
    if (storage_for(x) <= 0) { /* the block gets its storage now */
        return NULL;
    }
    PyObject *own = PyArray_View((PyArrayObject *)view, NULL, NULL);
    Core *part = own == NULL ? NULL : new_part(x, Py_None);
    if (part == NULL) {
        Py_XDECREF(own);
        return NULL;
    }
    part->view = own;
    return (PyObject *)part;
}

/* As nodes.may_be_shared: whether a copy may have the values of a node; -1: an error. */
static int may_be_shared(PyObject *node)
{
    PyObject *op = NODE(node, op), *value = NODE(node, value);
    if (op == hooks.view_op || (IS_REAL(value) && !PyArray_ISWRITEABLE((PyArrayObject *)value))) {
        return 0;
    }
    PyObject *name = PyObject_GetAttr(op, name_name);
    int found = name == NULL ? -1 : PyUnicode_CompareWithASCIIString(name, "real") != 0 &&
        PyUnicode_CompareWithASCIIString(name, "imag") != 0;
    Py_XDECREF(name);
    return found;
}

/* What the call gives (new). */
static PyObject *result_again(PyObject *result, PyObject *const *operands, PyObject *const *values)
{
    long kind = PyLong_AsLong(PyTuple_GET_ITEM(result, 0));
    PyObject *of = PyTuple_GET_ITEM(result, 1), *x = NULL;
    if (kind == NOTHING) {
        Py_RETURN_NONE;
    }
    if (kind == A_TUPLE || kind == A_LIST) {
        Py_ssize_t count = PyTuple_GET_SIZE(of);
        x = kind == A_TUPLE ? PyTuple_New(count) : PyList_New(count);
        for (Py_ssize_t at = 0; x != NULL && at < count; at++) {
            PyObject *each = result_again(PyTuple_GET_ITEM(of, at), operands, values);
            if (each == NULL) {
                Py_CLEAR(x);
            }
            else if (kind == A_TUPLE) {
                PyTuple_SET_ITEM(x, at, each);
            }
            else {
                PyList_SET_ITEM(x, at, each);
            }
        }
        return x;
    }
    Py_ssize_t at = PyLong_AsSsize_t(of);
    if (kind == AN_OPERAND) {
        return Py_NewRef(operands[at]);
    }
    if (kind == A_PART) {
        return part_again(operands[at], PyTuple_GET_ITEM(result, 2));
    }
    if (kind == A_NUMBER) {
        return from_node(Py_NewRef(values[at]));
    }
    if (kind == SHARED && may_be_shared(values[at]) <= 0) {
        return NULL;
    }
    PyObject *done = PyObject_CallOneArg(hooks.note, values[at]);
    x = done == NULL ? NULL : array_alone(NULL, values[at]);
    Py_XDECREF(done);
    return x;
}

/* Marks the values that a result is made of. */
static void mark_needed(PyObject *result, char *needed)
{
    long kind = PyLong_AsLong(PyTuple_GET_ITEM(result, 0));
    PyObject *of = PyTuple_GET_ITEM(result, 1);
    if (kind == A_TUPLE || kind == A_LIST) {
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(of); at++) {
            mark_needed(PyTuple_GET_ITEM(of, at), needed);
        }
    }
    else if (kind == AN_ARRAY || kind == A_NUMBER || kind == SHARED) {
        needed[PyLong_AsSsize_t(of)] = 1;
    }
}

/* A number of a template (new). */
static PyObject *number_again(PyObject *number, const Call *call, PyObject *const *args)
{
    if (!PyTuple_CheckExact(number)) {
        return Py_NewRef(number);
    }
    Py_ssize_t which = PyLong_AsSsize_t(PyTuple_GET_ITEM(number, 0));
    PyObject *dtype = PyTuple_GET_ITEM(number, 1), *shape = PyTuple_GET_ITEM(number, 2);
    PyObject *node = number_node(args[call->numbers[which]], dtype);
    if (node == NULL || PyTuple_GET_SIZE(shape) == 0) {
        return node;
    }
    PyObject *src = PyTuple_Pack(1, node); /* an array of one element */
    Py_DECREF(node);
    return make_node(hooks.full_op, src, Py_None, shape, dtype, Py_None, Py_None);
}

/* The nodes; 0: Python makes them, -1 with an exception. */
static int values_again(const Template *from, const Call *call, PyObject *const *args,
                        PyObject **values)
{
    PyObject *const *operands = call->operands;
    int made = 0, count = call->operands_count;
    Places places = {.where = NULL, .count = 0};
    for (; made < count; made++) {
        values[made] = input_of((Core *)operands[made]);
        if (values[made] == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(from->writes); at++) {
        PyObject *pair = PyTuple_GET_ITEM(from->writes, at);
        Py_ssize_t of = PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 1));
        int may = of >= count ? 1 : may_be_shared(values[of]); /* an operand's values */
        if (may <= 0) {
            return may;
        }
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(from->numbers); at++) {
        values[made] = number_again(PyTuple_GET_ITEM(from->numbers, at), call, args);
        if (values[made++] == NULL) {
            return -1;
        }
    }
    if (PyTuple_GET_SIZE(from->nodes) > 0 && (places.where = find_caller()) == NULL) {
        return -1;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(from->nodes); at++, made++) {
        values[made] = node_again(PyTuple_GET_ITEM(from->nodes, at), values, &places);
        if (values[made] == NULL) {
            break;
        }
    }
    Py_XDECREF(places.where);
    while (places.count > 0) {
        Py_DECREF(places.places[--places.count]);
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    return 1;
}

/* Writes what a template does; 0: nothing was done, as the targets have other values than those that
   were read. -1: an error. */
static int write_again(const Template *from, PyObject *const *operands, PyObject *const *values)
{
    int done = 1;
    Py_ssize_t count = PyTuple_GET_SIZE(from->writes);
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t to = PyLong_AsSsize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(from->writes, at), 0));
        done &= has_node((Core *)operands[to], values[to]);
    }
    for (Py_ssize_t at = 0; done > 0 && at < count; at++) {
        PyObject *pair = PyTuple_GET_ITEM(from->writes, at);
        Core *x = (Core *)operands[PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 0))];
        done = become(x, values[PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 1))]) < 0 ? -1 : 1;
    }
    return done;
}

/* Notes what was written, when the lock is free again; -1: an error. */
static int note_writes(const Template *from, PyObject *const *values)
{
    PyObject *done = Py_None;
    for (Py_ssize_t at = 0; done != NULL && at < PyTuple_GET_SIZE(from->writes); at++) {
        PyObject *pair = PyTuple_GET_ITEM(from->writes, at);
        done = PyObject_CallOneArg(
            hooks.note, values[PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 1))]);
        Py_XDECREF(done);
    }
    return done == NULL ? -1 : 1;
}

PyObject *template_follow(PyObject *made, Call *call, PyObject *const *args)
{
    PyObject *const *operands = call->operands;
    PyObject *values[MOST_VALUES], *result = NULL;
    if (!PyTuple_CheckExact(made) || PyTuple_GET_SIZE(made) != 4) {
        PyErr_SetString(PyExc_TypeError, "follow: expected a template");
        return NULL;
    }
    Template from = { /* as steps._template has made it */
        .numbers = PyTuple_GET_ITEM(made, 0), .nodes = PyTuple_GET_ITEM(made, 1),
        .writes = PyTuple_GET_ITEM(made, 2), .result = PyTuple_GET_ITEM(made, 3),
    };
    Py_ssize_t count = call->operands_count + PyTuple_GET_SIZE(from.numbers) +
                       PyTuple_GET_SIZE(from.nodes); /* of values: MOST_VALUES at most */
    memset(values, 0, (size_t)count * sizeof(PyObject *));
    int lock = PyTuple_GET_SIZE(from.writes) > 0 ? lock_writes() : 0;
    if (lock < 0 || (lock == 0 && PyTuple_GET_SIZE(from.writes) > 0)) {
        return NULL;
    }
    int done = values_again(&from, call, args, values);
    if (lock) {
        done = unlock_writes(done > 0 ? write_again(&from, operands, values) : done);
        done = done > 0 ? note_writes(&from, values) : done;
    }
    if (done > 0) { /* a number is evaluated now: what only it reads must have no other holder */
        char needed[MOST_VALUES] = {0};
        mark_needed(from.result, needed);
        for (Py_ssize_t at = 0; at < count; at++) {
            if (!needed[at]) {
                Py_CLEAR(values[at]);
            }
        }
        result = result_again(from.result, operands, values);
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_XDECREF(values[at]);
    }
    return result;
}
