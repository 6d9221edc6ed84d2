/* A replay as numbers: what native_replay.py gives, checked and turned into structures once. */

#include "replay.h"

/* Memory for so many items; NULL with an exception. */
static void *zeroed(Py_ssize_t count, size_t size)
{
    void *made = PyMem_Calloc(count, size);
    if (made == NULL) {
        PyErr_NoMemory();
    }
    return made;
}

static int place_of(PyObject *given, Py_ssize_t at, Place *place, Py_ssize_t blocks)
{
    place->root = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, at));
    place->offset = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, at + 1));
    if (PyErr_Occurred()) {
        return -1;
    }
    if (place->root < 0 || place->root >= blocks) {
        PyErr_SetString(PyExc_IndexError, "program: expected a block of the run");
        return -1;
    }
    return 0;
}

/* A tuple of (index, root, offset, type). */
static int scalars_of(PyObject *given, Event *event, Py_ssize_t blocks)
{
    Py_ssize_t count = PyTuple_GET_SIZE(given);
    if ((event->scalars = zeroed(count + 1, sizeof(Scalar))) == NULL) {
        return -1;
    }
    event->scalars_count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *each = PyTuple_GET_ITEM(given, i);
        Scalar *scalar = &event->scalars[i];
        scalar->index = PyLong_AsSsize_t(PyTuple_GET_ITEM(each, 0));
        scalar->type = (int)PyLong_AsLong(PyTuple_GET_ITEM(each, 3));
        if (place_of(each, 1, &scalar->place, blocks) < 0) {
            return -1;
        }
    }
    return 0;
}

/* (kind, dead, rows, threads, places, scalars, combining) */
static int launch_of(PyObject *given, Event *event, Py_ssize_t blocks)
{
    PyObject *places = PyTuple_GET_ITEM(given, 4), *combining = PyTuple_GET_ITEM(given, 6);
    event->first = Py_NewRef(PyTuple_GET_ITEM(given, 2));
    event->second = Py_NewRef(PyTuple_GET_ITEM(given, 3));
    Py_ssize_t arrays = 0, rows = rows_look(event->first, &arrays, &event->kinds);
    event->places_count = PyTuple_GET_SIZE(places);
    if ((event->places = zeroed(event->places_count + 1, sizeof(Place))) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < event->places_count; i++) {
        if (place_of(PyTuple_GET_ITEM(places, i), 0, &event->places[i], blocks) < 0) {
            return -1;
        }
    }
    if (scalars_of(PyTuple_GET_ITEM(given, 5), event, blocks) < 0) {
        return -1;
    }
    if (rows < 0) { /* of another module: Python launches */
        event->kind = BY_PYTHON;
        return PyErr_Occurred() ? -1 : 0;
    }
    if (arrays != event->places_count
        || (Py_ssize_t)strlen(event->kinds) != event->scalars_count) {
        PyErr_SetString(PyExc_ValueError, "program: the launch has other arrays or scalars");
        return -1;
    }
    if (!PyTuple_Check(combining)) {
        event->ends_in_python = combining == Py_True;
        return 0;
    }
    event->combining_count = PyTuple_GET_SIZE(combining);
    if ((event->combining = zeroed(event->combining_count + 1, sizeof(Combining))) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < event->combining_count; i++) {
        PyObject *each = PyTuple_GET_ITEM(combining, i);
        Combining *one = &event->combining[i];
        one->how = (int)PyLong_AsLong(PyTuple_GET_ITEM(each, 0));
        one->joins = Py_NewRef(PyTuple_GET_ITEM(each, 5));
        one->count = PyBytes_GET_SIZE(one->joins);
        one->type = (int)PyLong_AsLong(PyTuple_GET_ITEM(each, 6));
        one->width = PyLong_AsSsize_t(PyTuple_GET_ITEM(each, 7));
        if (place_of(each, 1, &one->from, blocks) < 0 || place_of(each, 3, &one->to, blocks) < 0) {
            return -1;
        }
    }
    return 0;
}

static int event_of(PyObject *given, Event *event, Py_ssize_t blocks)
{
    event->kind = (int)PyLong_AsLong(PyTuple_GET_ITEM(given, 0));
    event->dead = Py_NewRef(PyTuple_GET_ITEM(given, 1));
    event->places = NULL;
    if (event->kind == BY_PYTHON) {
        return 0;
    }
    if (event->kind == LAUNCH) {
        return launch_of(given, event, blocks);
    }
    if ((event->places = zeroed(2, sizeof(Place))) == NULL) {
        return -1;
    }
    if (event->kind == COPY || event->kind == WINDOW) {
        if (place_of(given, 2, &event->places[0], blocks) < 0
            || place_of(given, 4, &event->places[1], blocks) < 0) {
            return -1;
        }
        event->first = Py_NewRef(PyTuple_GET_ITEM(given, 6));
        if (event->kind == WINDOW
            && (!PyBytes_Check(event->first) || PyBytes_GET_SIZE(event->first) % sizeof(Step))) {
            PyErr_SetString(PyExc_TypeError, "program: expected the steps of a part");
        }
        return PyErr_Occurred() ? -1 : 0;
    }
    event->places[0].root = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, 2));
    if (event->places[0].root < 0 || event->places[0].root >= blocks) {
        PyErr_SetString(PyExc_IndexError, "program: expected a block of the run");
        return -1;
    }
    if (event->kind == BLOCK) {
        event->first = Py_NewRef(PyTuple_GET_ITEM(given, 3));
        event->second = Py_NewRef(PyTuple_GET_ITEM(given, 4));
        return 0;
    }
    /* NUMBER: (kind, dead, root, index, ufunc, type, out, operands) */
    event->item = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, 3));
    event->type = (int)PyLong_AsLong(PyTuple_GET_ITEM(given, 5));
    event->out = (int)PyLong_AsLong(PyTuple_GET_ITEM(given, 6));
    int converts = PyTuple_GET_ITEM(given, 4) == Py_None;
    event->loops = converts ? NULL : loops_new(PyTuple_GET_ITEM(given, 4));
    if ((event->loops == NULL && !converts) || PyErr_Occurred()) {
        return -1;
    }
    if (converts) {
        return scalars_of(PyTuple_GET_ITEM(given, 7), event, blocks);
    }
    if ((unsigned)event->type >= TYPES || event->loops->index[event->type] < 0
        || !event->loops->exact[event->type] || event->loops->out[event->type] != event->out
        || PyTuple_GET_SIZE(PyTuple_GET_ITEM(given, 7)) != event->loops->ufunc->nin) {
        event->kind = BY_PYTHON;
        return 0;
    }
    return scalars_of(PyTuple_GET_ITEM(given, 7), event, blocks);
}

static void program_dealloc(PyObject *object)
{
    Program *self = (Program *)object;
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t i = 0; self->events != NULL && i < self->count; i++) {
        Event *event = &self->events[i];
        Py_XDECREF(event->first);
        Py_XDECREF(event->second);
        Py_XDECREF(event->dead);
        Py_XDECREF(event->crew);
        for (Py_ssize_t at = 0; at < event->combining_count; at++) {
            Py_XDECREF(event->combining[at].joins);
        }
        PyMem_Free(event->places);
        PyMem_Free(event->scalars);
        PyMem_Free(event->combining);
        if (event->loops != NULL) {
            loops_free(event->loops);
        }
    }
    PyMem_Free(self->events);
    Py_XDECREF(self->leaves);
    Py_XDECREF(self->written);
    Py_XDECREF(self->given);
    Py_XDECREF(self->results);
    Py_XDECREF(self->pool);
    Py_XDECREF(self->reserved);
    Py_TYPE(object)->tp_free(object);
}

static int program_traverse(PyObject *object, visitproc visit, void *arg)
{
    Program *self = (Program *)object;
    for (Py_ssize_t i = 0; self->events != NULL && i < self->count; i++) {
        Py_VISIT(self->events[i].first);
        Py_VISIT(self->events[i].second);
        Py_VISIT(self->events[i].dead);
        Py_VISIT(self->events[i].crew);
    }
    Py_VISIT(self->results);
    Py_VISIT(self->pool);
    return 0;
}

PyTypeObject ReplayProgramType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Program",
    .tp_basicsize = sizeof(Program),
    .tp_dealloc = program_dealloc,
    .tp_traverse = program_traverse,
    .tp_free = PyObject_GC_Del,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "A replay as numbers.",
};

/* program(blocks, leaves, written, given, events, results, pool, reserved): tuples of indices and of
   tuples; the pool of a device, and what a run reserves of it. */
PyObject *replay_program(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *leaves, *written, *given, *events, *results, *pool = Py_None, *reserved = Py_None;
    Py_ssize_t blocks;
    if (!PyArg_ParseTuple(args, "nO!O!O!O!O!|OO", &blocks, &PyTuple_Type, &leaves, &PyTuple_Type,
                          &written, &PyTuple_Type, &given, &PyTuple_Type, &events, &PyTuple_Type,
                          &results, &pool, &reserved)) {
        return NULL;
    }
    Program *made = PyObject_GC_New(Program, &ReplayProgramType);
    if (made == NULL) {
        return NULL;
    }
    made->count = PyTuple_GET_SIZE(events);
    made->blocks = blocks;
    made->leaves = Py_NewRef(leaves);
    made->written = Py_NewRef(written);
    made->given = Py_NewRef(given);
    made->results = Py_NewRef(results);
    made->pool = Py_NewRef(pool);
    made->reserved = PyObject_IsTrue(reserved) == 1 ? Py_NewRef(reserved) : NULL;
    made->events = PyMem_Calloc(made->count + 1, sizeof(Event));
    PyObject_GC_Track(made);
    if (made->events == NULL) {
        Py_DECREF(made);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < made->count; i++) {
        if (event_of(PyTuple_GET_ITEM(events, i), &made->events[i], blocks) < 0) {
            Py_DECREF(made);
            return NULL;
        }
    }
    return (PyObject *)made;
}
