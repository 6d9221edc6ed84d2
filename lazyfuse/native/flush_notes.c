/* Notes recorded nodes, as flush.Pending.note does where there is nothing to decide. */

#include "native.h"

#include <limits.h>
#include <string.h>

enum {
    ELEMENTS, ELEMENTS_DUE, FILTERS, FILTERS_FIRST, FILTERS_SIZE, LAST, LINES, NODES, NODES_DUE,
    PLAIN, REDUCING, ROOM, ROUNDS, STEADY, WAITING, FIELDS
};

static const char *const field_names[FIELDS] = {
    "elements", "elements_due", "filters", "filters_first", "filters_size", "last", "lines",
    "nodes", "nodes_due", "plain", "reducing", "room", "rounds", "steady", "waiting",
};

/* A callable that notes nodes; it calls `flush.Pending.note` where Python decides. */
typedef struct {
    PyObject_HEAD
    PyObject *pending, *slow, *warnings, *compound, *flush; /* the last three: names of modules */
    Py_ssize_t fields[FIELDS];
    long most, fewer; /* repeats of a line without a decision; `fewer`: where iterations reduce */
    long together; /* pending nodes from which loop iterations stop being joined */
} Notes;

#define FIELD(self, which) (AT((self)->pending, (self)->fields[which]))

static int is_true_name(PyObject *names, PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(names, name);
    return found != NULL && PyObject_IsTrue(found) == 0 ? 0 : 1;
}

/* The line of a node as a number, as `flush.line_of`; -1: Python decides. */
static long long line_of(Notes *self, PyObject *node)
{
    PyObject *where = NODE(node, location);
    if (where == NULL || !PyTuple_Check(where) || PyTuple_GET_SIZE(where) != 2
        || (!PyTuple_CheckExact(where) && (PyObject *)Py_TYPE(where) != hooks.source_location)) {
        return -1;
    }
    PyObject *filters = PyDict_GetItemWithError(self->warnings, name_filters);
    if (filters == NULL || filters != FIELD(self, FILTERS) || !PyList_CheckExact(filters)) {
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(filters);
    if (PyLong_AsSsize_t(FIELD(self, FILTERS_SIZE)) != count
        || (count && PyList_GET_ITEM(filters, 0) != FIELD(self, FILTERS_FIRST))) {
        return -1; /* changed, or warnings are errors */
    }
    long offset = PyLong_AsLong(PyTuple_GET_ITEM(where, 1));
    return ((long long)(size_t)PyTuple_GET_ITEM(where, 0) << 16) + offset;
}

/* Elements of a shape; -1: Python decides. */
static long long size_of(PyObject *shape)
{
    long long size = 1;
    if (!PyTuple_CheckExact(shape)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++) {
        long long length = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
        if (length < 0 || (length > 0 && size > LLONG_MAX / length)) {
            return -1;
        }
        size *= length;
    }
    return size;
}

static int set_number(PyObject **place, long long number)
{
    PyObject *made = PyLong_FromLongLong(number);
    if (made == NULL) {
        return -1;
    }
    Py_XSETREF(*place, made);
    return 0;
}

/* Whether a line with this number of repeats may end the loop iteration. */
static int is_due(Notes *self, long rounds)
{
    long room = PyLong_AsLong(FIELD(self, ROOM)); /* above `together`: iterations are not counted */
    return FIELD(self, PLAIN) != Py_True || self->most <= 0
        || (rounds % self->most == 1 && room <= self->together)
        || PyList_GET_SIZE(FIELD(self, NODES)) >= room
        || !PyLong_CheckExact(FIELD(self, WAITING)) || PyLong_AsLong(FIELD(self, WAITING)) != 0;
}

/* Whether the pending elements pay for a launch: fewer never end an iteration. */
static int is_worth_it(Notes *self, long long elements)
{
    PyObject *least = PyDict_GetItemWithError(self->flush, name_worth);
    return least == NULL || elements >= PyLong_AsLongLong(least);
}

/* Counts one more repeat of a line; 0: done, 1: Python decides, -1: an error. */
static int count_round(Notes *self, PyObject *line, long long elements)
{
    PyObject *rounds = FIELD(self, ROUNDS), *before, *after;
    if (!PyDict_CheckExact(rounds) || !PyAnySet_CheckExact(FIELD(self, LINES))) {
        return 1;
    }
    before = PyDict_GetItemWithError(rounds, line);
    long count = before == NULL ? 0 : PyLong_AsLong(before);
    if (count < 0) {
        return 1;
    }
    if (count >= (FIELD(self, REDUCING) == Py_False ? self->most : self->fewer)
        && (!PyAnySet_CheckExact(FIELD(self, STEADY)) || PySet_GET_SIZE(FIELD(self, STEADY))
            || (is_worth_it(self, elements) && PySet_Contains(FIELD(self, LINES), line)
                && is_due(self, count + 1)))) {
        return 1;
    }
    after = PyLong_FromLong(count + 1);
    if (after == NULL) {
        return -1;
    }
    int failed = PyDict_SetItem(rounds, line, after) < 0 || PySet_Add(FIELD(self, LINES), line) < 0;
    Py_DECREF(after);
    return failed ? -1 : 0;
}

static PyObject *notes_call(PyObject *callable, PyObject *const *args, size_t count,
                            PyObject *names)
{
    Notes *self = (Notes *)callable;
    if (PyVectorcall_NARGS(count) != 1 || names != NULL || !IS_NODE(args[0])) {
        return PyObject_Vectorcall(self->slow, args, count, names);
    }
    PyObject *node = args[0], *op = NODE(node, op);
    PyObject *arg = NODE(node, arg), *shape = NODE(node, shape);
    if (op == hooks.update_op) { /* what it writes: the shape of a layout */
        shape = IS_LAYOUT(arg) ? PyTuple_GET_ITEM(arg, LAYOUT_SHAPE) : Py_None;
    }
    long long number = line_of(self, node), size = size_of(shape);
    long long elements = PyLong_AsLongLong(FIELD(self, ELEMENTS));
    if (number < 0 || size < 0 || !PyList_CheckExact(FIELD(self, NODES))
        || is_true_name(self->compound, name_depth)) {
        PyErr_Clear();
        return PyObject_CallOneArg(self->slow, node);
    }
    PyObject *line = PyLong_FromLongLong(number);
    int state = line == NULL ? -1 : count_round(self, line, elements);
    if (state) {
        Py_XDECREF(line);
        return state < 0 ? NULL : PyObject_CallOneArg(self->slow, node);
    }
    Py_XSETREF(FIELD(self, LAST), line);
    PyObject *seen = PyWeakref_NewRef(node, NULL);
    if (seen == NULL) {
        return NULL;
    }
    state = PyList_Append(FIELD(self, NODES), seen);
    Py_DECREF(seen);
    PyObject *kind = PyObject_GetAttr(op, name_kind);
    if (state < 0 || kind == NULL) {
        return NULL;
    }
    if (kind != name_map && PyUnicode_Compare(kind, name_map) != 0) {
        Py_XSETREF(FIELD(self, PLAIN), Py_NewRef(Py_False));
        if (PyUnicode_CompareWithASCIIString(kind, "reduce") == 0) {
            Py_XSETREF(FIELD(self, REDUCING), Py_NewRef(Py_True));
        }
    }
    Py_DECREF(kind);
    elements += size;
    if (set_number(&FIELD(self, ELEMENTS), elements) < 0) {
        return NULL;
    }
    if (PyList_GET_SIZE(FIELD(self, NODES)) >= PyLong_AsSsize_t(FIELD(self, NODES_DUE))
        || elements >= PyLong_AsLongLong(FIELD(self, ELEMENTS_DUE))) {
        return PyObject_CallMethodOneArg(self->pending, name_check_limits, node);
    }
    Py_RETURN_NONE;
}

static void notes_dealloc(PyObject *object)
{
    Notes *self = (Notes *)object;
    Py_XDECREF(self->pending);
    Py_XDECREF(self->slow);
    Py_XDECREF(self->warnings);
    Py_XDECREF(self->compound);
    Py_XDECREF(self->flush);
    Py_TYPE(object)->tp_free(object);
}

/* It lives as long as the process: the collector need not find its cycles. */
typedef struct {
    Notes notes;
    vectorcallfunc call;
} CallableNotes;

PyTypeObject NotesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Notes",
    .tp_basicsize = sizeof(CallableNotes),
    .tp_dealloc = notes_dealloc,
    .tp_vectorcall_offset = offsetof(CallableNotes, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Calls `slow(node)`, or does the same where nothing has to be looked at.",
};

PyObject *notes_new(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *pending, *slow, *warnings, *compound, *flush;
    long most, fewer, together;
    if (!PyArg_ParseTuple(args, "OOO!O!O!lll", &pending, &slow, &PyDict_Type, &warnings,
                          &PyDict_Type, &compound, &PyDict_Type, &flush, &most, &fewer,
                          &together)) {
        return NULL;
    }
    if (hooks.node == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "notes: bind comes first");
        return NULL;
    }
    Py_ssize_t fields[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        if ((fields[i] = slot_offset((PyObject *)Py_TYPE(pending), field_names[i])) < 0) {
            return NULL;
        }
    }
    Notes *made = (Notes *)NotesType.tp_alloc(&NotesType, 0);
    if (made == NULL) {
        return NULL;
    }
    memcpy(made->fields, fields, sizeof fields);
    made->most = most;
    made->fewer = fewer;
    made->together = together;
    made->flush = Py_NewRef(flush);
    made->pending = Py_NewRef(pending);
    made->slow = Py_NewRef(slow);
    made->warnings = Py_NewRef(warnings);
    made->compound = Py_NewRef(compound);
    ((CallableNotes *)made)->call = notes_call;
    return (PyObject *)made;
}
