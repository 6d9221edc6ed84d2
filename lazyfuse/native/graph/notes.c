/* What is noted of each operation that is recorded: as `Pending.note` in flush.py. */

#include "graph.h"

#include <string.h>

enum {
    DUE, DUE_FOR, ELEMENTS, ELEMENTS_DUE, FILTERS, FILTERS_FIRST, FILTERS_SIZE, LAST, LINES,
    LOOPING, NODES, NODES_DUE, NODES_PLANNED, OVERDUE, PLAIN, REDUCING, ROOM, ROUNDS, STEADY,
    WAITING, FIELDS
};

static const char *const field_names[FIELDS] = {
    "due", "due_for", "elements", "elements_due", "filters", "filters_first", "filters_size",
    "last", "lines", "looping", "nodes", "nodes_due", "nodes_planned", "overdue", "plain",
    "reducing", "room", "rounds", "steady", "waiting",
};

/* A callable that notes nodes; it calls `flush.Pending.note` where Python decides. */
typedef struct {
    PyObject_HEAD
    PyObject *type, *find; /* `flush.Pending`, and what finds a thread's */
    PyObject *pending; /* the last that it found */
    PyObject *warnings, *compound, *flush; /* names of modules */
    uint64_t thread; /* whose `pending` it is */
    Py_ssize_t fields[FIELDS];
    long most, fewer; /* repeats of a line without a decision; `fewer`: where iterations reduce */
    long together; /* pending nodes from which loop iterations stop being joined */
    long long vast; /* elements from which Python looks whether there is memory */
} Notes;

#define FIELD(which) (AT(pending, self->fields[which]))

static int is_true_name(PyObject *names, PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(names, name);
    return found != NULL && PyObject_IsTrue(found) == 0 ? 0 : 1;
}

/* As `flush.line_of`; -1 with an exception. */
static long long line_at(PyObject *where)
{
    long offset = PyLong_AsLong(PyTuple_GET_ITEM(where, 1));
    return ((long long)(size_t)PyTuple_GET_ITEM(where, 0) << 16) + offset;
}

/* The line of a node as a number; -1: Python decides. */
static long long line_of(Notes *self, PyObject *pending, PyObject *node)
{
    PyObject *where = NODE(node, location);
    if (where == NULL || !PyTuple_Check(where) || PyTuple_GET_SIZE(where) != 2
        || (!PyTuple_CheckExact(where) && (PyObject *)Py_TYPE(where) != hooks.source_location)) {
        return -1;
    }
    PyObject *filters = PyDict_GetItemWithError(self->warnings, name_filters);
    if (filters == NULL || filters != FIELD(FILTERS) || !PyList_CheckExact(filters)) {
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(filters);
    if (PyLong_AsSsize_t(FIELD(FILTERS_SIZE)) != count
        || (count && PyList_GET_ITEM(filters, 0) != FIELD(FILTERS_FIRST))) {
        return -1; /* changed, or warnings are errors */
    }
    return line_at(where);
}

/* Elements of a shape; -1: Python decides. */
static long long elements_of(PyObject *shape)
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
static int is_due(Notes *self, PyObject *pending, long rounds)
{
    long room = PyLong_AsLong(FIELD(ROOM)); /* above `together`: iterations are not counted */
    return FIELD(PLAIN) != Py_True || self->most <= 0
        || (rounds % self->most == 1 && room <= self->together)
        || PyList_GET_SIZE(FIELD(NODES)) >= room
        || !PyLong_CheckExact(FIELD(WAITING)) || PyLong_AsLong(FIELD(WAITING)) != 0;
}

/* Whether the pending elements pay for a launch: fewer never end an iteration. */
static int is_worth_it(Notes *self, long long elements)
{
    PyObject *least = PyDict_GetItemWithError(self->flush, name_worth);
    return least == NULL || elements >= PyLong_AsLongLong(least);
}

/* One more repeat of a line; -1: an error. */
static int count_line(PyObject *rounds, PyObject *line)
{
    PyObject *before = PyDict_GetItemWithError(rounds, line);
    PyObject *after = PyErr_Occurred() ? NULL
        : PyLong_FromLong(1 + (before == NULL ? 0 : PyLong_AsLong(before)));
    int failed = after == NULL || PyDict_SetItem(rounds, line, after) < 0;
    Py_XDECREF(after);
    return failed ? -1 : 0;
}

/* Counts one more repeat of a line; 0: done, 1: Python decides, -1: an error. */
static int count_round(Notes *self, PyObject *pending, PyObject *line, long long elements)
{
    PyObject *rounds = FIELD(ROUNDS);
    if (!PyDict_CheckExact(rounds) || !PyAnySet_CheckExact(FIELD(LINES)) ||
        !PyAnySet_CheckExact(FIELD(STEADY))) {
        return 1;
    }
    PyObject *before = PyDict_GetItemWithError(rounds, line);
    long count = before == NULL ? 0 : PyLong_AsLong(before);
    if (count >= (FIELD(REDUCING) == Py_False ? self->most : self->fewer)) {
        if (is_worth_it(self, elements) && PySet_Contains(FIELD(LINES), line) &&
            is_due(self, pending, count + 1)) {
            return 1;
        }
        if (PySet_GET_SIZE(FIELD(STEADY)) > 0 && PySet_Contains(FIELD(STEADY), line)) {
            Py_SETREF(FIELD(OVERDUE), Py_NewRef(Py_True));
        }
    }
    return count_line(rounds, line) < 0 || PySet_Add(FIELD(LINES), line) < 0 ? -1 : 0;
}

static PyObject *slowly(PyObject *pending, PyObject *node)
{
    return PyObject_CallMethodOneArg(pending, name_note, node);
}

static PyObject *note_down(Notes *self, PyObject *pending, PyObject *node)
{
    PyObject *op = NODE(node, op);
    PyObject *arg = NODE(node, arg), *shape = NODE(node, shape);
    if (op == hooks.update_op) { /* what it writes: the shape of a layout */
        shape = IS_LAYOUT(arg) ? PyTuple_GET_ITEM(arg, LAYOUT_SHAPE) : Py_None;
    }
    long long number = line_of(self, pending, node), size = elements_of(shape);
    long long elements = PyLong_AsLongLong(FIELD(ELEMENTS));
    if (number < 0 || size < 0 || size >= self->vast || !PyList_CheckExact(FIELD(NODES))
        || is_true_name(self->compound, name_depth)) {
        PyErr_Clear();
        return slowly(pending, node);
    }
    PyObject *line = PyLong_FromLongLong(number);
    int state = line == NULL ? -1 : count_round(self, pending, line, elements);
    if (state) {
        Py_XDECREF(line);
        return state < 0 ? NULL : slowly(pending, node);
    }
    Py_XSETREF(FIELD(LAST), line);
    PyObject *seen = PyWeakref_NewRef(node, NULL);
    if (seen == NULL) {
        return NULL;
    }
    state = PyList_Append(FIELD(NODES), seen);
    Py_DECREF(seen);
    PyObject *kind = PyObject_GetAttr(op, name_kind);
    if (state < 0 || kind == NULL) {
        return NULL;
    }
    if (kind != name_map && PyUnicode_Compare(kind, name_map) != 0) {
        Py_XSETREF(FIELD(PLAIN), Py_NewRef(Py_False));
        if (PyUnicode_CompareWithASCIIString(kind, "reduce") == 0) {
            Py_XSETREF(FIELD(REDUCING), Py_NewRef(Py_True));
        }
    }
    Py_DECREF(kind);
    elements += size;
    if (set_number(&FIELD(ELEMENTS), elements) < 0) {
        return NULL;
    }
    if (PyList_GET_SIZE(FIELD(NODES)) >= PyLong_AsSsize_t(FIELD(NODES_DUE))
        || elements >= PyLong_AsLongLong(FIELD(ELEMENTS_DUE))) {
        return PyObject_CallMethodOneArg(pending, name_check_limits, node);
    }
    Py_RETURN_NONE;
}

/* What a thread has recorded (new): each thread notes its own nodes. */
static PyObject *pending_here(Notes *self)
{
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
    if (thread == self->thread) {
        return Py_NewRef(self->pending);
    }
    PyObject *found = PyObject_CallNoArgs(self->find), *last = self->pending;
    if (found == NULL || (PyObject *)Py_TYPE(found) != self->type) {
        if (found != NULL) { /* else an interrupt has come */
            PyErr_SetString(PyExc_TypeError, "note: expected what a thread has recorded");
        }
        Py_XDECREF(found);
        return NULL;
    }
    self->thread = thread;
    self->pending = Py_NewRef(found);
    Py_XDECREF(last);
    return found;
}

long notes_made;
PyObject *operations_noted;
unsigned long noting_thread;

enum { MOST_NOTED = 1024 };

/* Notes an operation and its argument, one after the other, and the pending ones below it: a list
   grows without a collection, so that no finaliser evaluates the graph meanwhile. -1: an error. */
static int note_operation(PyObject *node)
{
    if (!is_pending(node) || PyList_GET_SIZE(operations_noted) > 2 * MOST_NOTED) {
        return 0;
    }
    PyObject *src = NODE(node, src);
    int failed = PyList_Append(operations_noted, NODE(node, op)) < 0 ||
                 PyList_Append(operations_noted, NODE(node, arg)) < 0 ? -1 : 0;
    for (Py_ssize_t at = 0; failed == 0 && at < PyTuple_GET_SIZE(src); at++) {
        failed = note_operation(PyTuple_GET_ITEM(src, at));
    }
    return failed;
}

static PyObject *notes_call(PyObject *callable, PyObject *const *args, size_t count,
                            PyObject *names)
{
    Notes *self = (Notes *)callable;
    if (PyVectorcall_NARGS(count) != 1 || names != NULL || !IS_NODE(args[0])) {
        PyErr_SetString(PyExc_TypeError, "note: expected a node");
        return NULL;
    }
    if (is_tracing()) {
        Py_RETURN_NONE;
    }
    if (!is_pending(args[0])) { /* the values are there: nothing of it is left to do */
        Py_RETURN_NONE;
    }
    notes_made++;
    if (operations_noted != NULL && noting_thread == PyThread_get_thread_ident() &&
        note_operation(args[0]) < 0) {
        return NULL;
    }
    PyObject *pending = pending_here(self);
    PyObject *result = pending == NULL ? NULL : note_down(self, pending, args[0]);
    Py_XDECREF(pending);
    return result;
}

static Notes *the_notes; /* made once */

/* Whether the limits under which Python has set the next check are the options' now. */
static int is_due_for_options(PyObject *due)
{
    return PyTuple_CheckExact(due) && PyTuple_GET_SIZE(due) == 2 && hooks.options != NULL &&
           PyObject_RichCompareBool(OPTION(flush_nodes), PyTuple_GET_ITEM(due, 0), Py_EQ) == 1 &&
           PyObject_RichCompareBool(OPTION(flush_bytes), PyTuple_GET_ITEM(due, 1), Py_EQ) == 1;
}

enum { CHECK_AFTER = 64, STEADY_LINES = 64 }; /* as in flush.py */

/* The references to nodes that are pending (new). */
static PyObject *left_of(PyObject *noted)
{
    PyObject *left = PyList_New(0);
    for (Py_ssize_t i = 0; left != NULL && i < PyList_GET_SIZE(noted); i++) {
        PyObject *node = PyWeakref_GetObject(PyList_GET_ITEM(noted, i));
        if (node != Py_None && is_pending(node) &&
            PyList_Append(left, PyList_GET_ITEM(noted, i)) < 0) {
            Py_CLEAR(left);
        }
    }
    return left;
}

/* How often each line has recorded what is left (new). */
static PyObject *turns_of(PyObject *left)
{
    PyObject *turns = PyDict_New();
    for (Py_ssize_t i = 0; turns != NULL && i < PyList_GET_SIZE(left); i++) {
        PyObject *node = PyWeakref_GetObject(PyList_GET_ITEM(left, i));
        PyObject *where = node == Py_None ? Py_None : NODE(node, location);
        PyObject *line = where == Py_None ? NULL : PyLong_FromLongLong(line_at(where));
        if (line != NULL && count_line(turns, line) < 0) {
            Py_CLEAR(turns);
        }
        Py_XDECREF(line);
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(turns);
    }
    return turns;
}

/* As `Pending.keep_rounds`; -1: an error. */
static int keep_rounds(Notes *self, PyObject *pending, PyObject *left)
{
    PyObject *turns = turns_of(left), *steady = FIELD(STEADY), *line, *count;
    PyObject *most = turns == NULL ? NULL : PyLong_FromLong(self->most);
    int failed = most == NULL ||
                 (PySet_GET_SIZE(steady) > STEADY_LINES && PySet_Clear(steady) < 0);
    for (Py_ssize_t at = 0; !failed && PyDict_Next(turns, &at, &line, &count);) {
        failed = PyLong_AsLong(count) > self->most && PySet_Add(steady, line) < 0;
    }
    PyObject *lines = failed ? NULL : PyObject_GetIter(steady);
    while (lines != NULL && (line = PyIter_Next(lines)) != NULL) {
        failed |= PyDict_SetItem(turns, line, most) < 0;
        Py_DECREF(line);
    }
    Py_XDECREF(lines);
    Py_XDECREF(most);
    if (failed || PyErr_Occurred()) {
        Py_XDECREF(turns);
        return -1;
    }
    Py_SETREF(FIELD(ROUNDS), turns);
    return 0;
}

/* As `Pending.reset`: 1, 0 where Python does it, -1 with an exception. */
static int reset_quickly(Notes *self, PyObject *pending)
{
    PyObject *due = FIELD(DUE), *listeners = PyDict_GetItemWithError(hooks.tracing, name_listeners);
    if (listeners == NULL || PyObject_Size(listeners) != 0 ||
        !PyAnySet_CheckExact(FIELD(STEADY)) || !PyAnySet_CheckExact(FIELD(LINES)) ||
        !PyDict_CheckExact(FIELD(ROUNDS)) || !PyTuple_CheckExact(due) ||
        !PyList_CheckExact(FIELD(NODES)) || !is_due_for_options(FIELD(DUE_FOR))) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *left = left_of(FIELD(NODES));
    Py_ssize_t count = left == NULL ? -1 : PyList_GET_SIZE(left);
    if (count < 0 || 2 * count > CHECK_AFTER ||
        (count > 0 && count >= PyLong_AsSsize_t(PyTuple_GET_ITEM(due, 0)))) {
        Py_XDECREF(left);
        return count < 0 ? -1 : 0;
    }
    int is_looping = FIELD(LOOPING) == Py_True;
    int counts = !is_looping && (count > 0 || PySet_GET_SIZE(FIELD(STEADY)) > 0);
    if (counts && keep_rounds(self, pending, left) < 0) {
        Py_DECREF(left);
        return -1;
    }
    Py_SETREF(FIELD(NODES), left);
    Py_SETREF(FIELD(PLAIN), Py_NewRef(Py_True));
    Py_SETREF(FIELD(REDUCING), Py_NewRef(Py_False));
    Py_SETREF(FIELD(OVERDUE), Py_NewRef(Py_False));
    Py_SETREF(FIELD(NODES_PLANNED), Py_NewRef(PyTuple_GET_ITEM(due, 0)));
    Py_SETREF(FIELD(NODES_DUE), Py_NewRef(PyTuple_GET_ITEM(due, 0)));
    Py_SETREF(FIELD(ELEMENTS_DUE), Py_NewRef(PyTuple_GET_ITEM(due, 1)));
    if (!counts && !is_looping) {
        PyDict_Clear(FIELD(ROUNDS));
    }
    return PySet_Clear(FIELD(LINES)) < 0 || set_number(&FIELD(ELEMENTS), 0) < 0 ||
                   set_number(&FIELD(WAITING), 0) < 0 ||
                   set_number(&FIELD(ROOM), self->together) < 0
        ? -1 : 1;
}

int reset_recorded(PyObject *pending)
{
    int done = the_notes != NULL && (PyObject *)Py_TYPE(pending) == the_notes->type
        ? reset_quickly(the_notes, pending) : 0;
    if (done == 0) {
        PyObject *found = PyObject_CallMethodNoArgs(pending, name_reset);
        Py_XDECREF(found);
        done = found == NULL ? -1 : 1;
    }
    return done;
}

PyObject *recorded_here(void)
{
    if (the_notes == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "evaluate: notes comes first");
        return NULL;
    }
    return pending_here(the_notes);
}

PyObject *noted_in(PyObject *pending, int *is_overdue)
{
    Notes *self = the_notes;
    *is_overdue = FIELD(OVERDUE) != Py_False;
    return Py_NewRef(FIELD(NODES));
}

int forget_recorded(PyObject *pending, PyObject *left)
{
    if (the_notes == NULL || (PyObject *)Py_TYPE(pending) != the_notes->type) {
        PyErr_SetString(PyExc_TypeError, "forget: expected what a thread has recorded");
        return -1;
    }
    Notes *self = the_notes;
    PyObject *noted = FIELD(NODES), *kept = PyList_New(0);
    for (Py_ssize_t i = 0; kept != NULL && i < PyList_GET_SIZE(noted); i++) {
        PyObject *node = PyWeakref_GetObject(PyList_GET_ITEM(noted, i));
        int drops = node == Py_None;
        for (Py_ssize_t at = 0; !drops && at < PyList_GET_SIZE(left); at++) {
            drops = PyList_GET_ITEM(left, at) == node;
        }
        if (!drops && PyList_Append(kept, PyList_GET_ITEM(noted, i)) < 0) {
            Py_CLEAR(kept);
        }
    }
    if (kept == NULL) {
        return -1;
    }
    Py_SETREF(FIELD(NODES), kept);
    return 0;
}

static void notes_dealloc(PyObject *object)
{
    Notes *self = (Notes *)object;
    Py_XDECREF(self->find);
    Py_XDECREF(self->type);
    Py_XDECREF(self->pending);
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
    .tp_doc = "As `flush.Pending.note`, which it calls where there is something to decide.",
};

PyObject *notes_new(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *find, *warnings, *compound, *flush;
    long most, fewer, together;
    long long vast;
    if (!PyArg_ParseTuple(args, "OOO!O!O!lllL", &type, &find, &PyDict_Type, &warnings,
                          &PyDict_Type, &compound, &PyDict_Type, &flush, &most, &fewer,
                          &together, &vast)) {
        return NULL;
    }
    if (hooks.node == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "notes: bind comes first");
        return NULL;
    }
    Py_ssize_t fields[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        if ((fields[i] = slot_offset(type, field_names[i])) < 0) {
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
    made->vast = vast;
    made->thread = UINT64_MAX; /* of no thread */
    made->type = Py_NewRef(type);
    made->find = Py_NewRef(find);
    made->warnings = Py_NewRef(warnings);
    made->compound = Py_NewRef(compound);
    ((CallableNotes *)made)->call = notes_call;
    the_notes = (Notes *)Py_NewRef(made);
    return (PyObject *)made;
}
