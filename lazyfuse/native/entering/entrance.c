/* One step into a hot loop that is compiled: what take_over.Run and entering.Version do for a loop
   whose values are words alone. Python's modules that a loop enters by are cold when it has not run
   for a while; this file is a few kilobytes.

   An entrance is called for the parts of an execution. It gives an entry, which is the one part and
   the iterator of it: without turns for Python, and then with a run of the compiled loop. Where
   anything is not as expected, the parts are Python's (`slow`). */

#include "entering.h"

#include <string.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *loop; /* borrowed: it holds this */
    PyObject *slow, *left, *is_watched, *unbound;
    PyObject *version, *rows, *exits, *constants; /* NULL: there is none to enter */
    Compiled entry;
    npy_int64 asked, objects;
    Py_ssize_t words, blocks;
    Py_ssize_t least; /* turns for which it pays */
    int takes_items;  /* whether the last value is what the loop goes over */
} Entrance;

enum { NEW, PART, TURNS, ENDED };

typedef struct {
    PyObject_HEAD
    Entrance *way;
    PyObject *items; /* NULL: a `while` */
    PyObject *rest;  /* the parts by Python, once it has them */
    PyObject *values;
    npy_int64 begin, stop, step;
    int state;
    char broke, finished;
} OneRun;

/* ---------------------------------------------------------------------------------------- entry */

static void entry_dealloc(OneRun *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->way);
    Py_XDECREF(self->items);
    Py_XDECREF(self->rest);
    Py_XDECREF(self->values);
    PyObject_GC_Del(self);
}

static int entry_traverse(OneRun *self, visitproc visit, void *arg)
{
    Py_VISIT(self->way);
    Py_VISIT(self->items);
    Py_VISIT(self->rest);
    Py_VISIT(self->values);
    return 0;
}

static PyObject *entry_next(OneRun *self)
{
    if (self->state == NEW) {
        self->state = PART;
        return Py_NewRef(self);
    }
    if (self->state == PART || self->state == ENDED) {
        self->state = self->state == PART ? TURNS : ENDED;
        return NULL;
    }
    if (self->rest == NULL) {
        PyObject *items = self->items == NULL ? Py_None : self->items;
        self->rest = PyObject_CallFunctionObjArgs(self->way->slow, self->way->loop, items, NULL);
    }
    return self->rest == NULL ? NULL : PyIter_Next(self->rest);
}

static PyObject *entry_wants(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Py_RETURN_TRUE;
}

/* Whether a debugger, a tracer or a profiler looks on; -1 with an exception. */
static int is_watched(Entrance *way)
{
#if PY_VERSION_HEX < 0x030C0000
    PyThreadState *state = PyThreadState_Get();
    return state->c_tracefunc != NULL || state->c_profilefunc != NULL;
#else
    PyObject *found = PyObject_CallNoArgs(way->is_watched);
    int is = found == NULL ? -1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return is;
#endif
}

/* Whether the functions that it contains are still those of the program; -1 with an exception. */
static int is_current(PyObject *constants)
{
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(constants); at++) {
        PyObject *each = PyTuple_GET_ITEM(constants, at); /* function, arguments, result */
        PyObject *found = PyObject_Call(PyTuple_GET_ITEM(each, 0), PyTuple_GET_ITEM(each, 1), NULL);
        Py_XDECREF(found); /* what holds it is asked */
        if (found != PyTuple_GET_ITEM(each, 2)) {
            return found == NULL ? -1 : 0;
        }
    }
    return 1;
}

static int add_to(PyObject *loop, PyObject *name, PyObject *amount)
{
    PyObject *before = amount == NULL ? NULL : PyObject_GetAttr(loop, name);
    PyObject *sum = before == NULL ? NULL : PyNumber_Add(before, amount);
    int failed = sum == NULL || PyObject_SetAttr(loop, name, sum) < 0;
    Py_XDECREF(sum);
    Py_XDECREF(before);
    Py_XDECREF(amount);
    return failed ? -1 : 0;
}

/* The loop has ended, or Python has to go on: what `run` returns. */
static PyObject *ended(OneRun *self, Entrance *held, int code, const Word *words, PyObject *given,
                       double seconds)
{
    PyObject *number = PyLong_FromLong(code), *found = Py_None;
    PyObject *rows = number == NULL ? NULL : PyDict_GetItemWithError(held->exits, number);
    Py_INCREF(found);
    if (rows != NULL && PyBytes_Check(rows)) {
        Py_SETREF(found, words_read(rows, words, held->unbound));
    }
    if (PyErr_Occurred()) {
        Py_XDECREF(number);
        Py_XDECREF(found);
        return NULL;
    }
    if (code <= BROKE && found != Py_None) {
        npy_int64 turns = (words[CUR].whole - self->begin) / self->step;
        Py_DECREF(number);
        Py_XSETREF(self->values, found);
        self->finished = code == FINISHED;
        self->broke = code == BROKE || self->items == NULL;
        self->state = ENDED;
        int failed = add_to(held->loop, name_entered, PyLong_FromLong(1)) < 0 ||
                     add_to(held->loop, name_compiled_turns, PyLong_FromLongLong(turns)) < 0 ||
                     add_to(held->loop, name_compiled_seconds, PyFloat_FromDouble(seconds)) < 0;
        return failed ? NULL : Py_NewRef(self);
    }
    PyObject *both = PyObject_CallFunction(
        held->left, "OOOOOy#O(LL)d", held->loop, self->items == NULL ? Py_None : self->items,
        held->version, number, found, (const char *)words,
        (Py_ssize_t)(held->words * (Py_ssize_t)sizeof(Word)), given, (long long)self->begin,
        (long long)self->step, seconds);
    Py_DECREF(number);
    Py_DECREF(found);
    if (both == NULL) {
        return NULL;
    }
    self->rest = Py_NewRef(PyTuple_GET_ITEM(both, 1));
    PyObject *exit = Py_NewRef(PyTuple_GET_ITEM(both, 0));
    Py_DECREF(both);
    return exit;
}

/* run(values): run the compiled loop; None where it cannot be entered here. */
static PyObject *entry_run(OneRun *self, PyObject *given)
{
    Entrance *way = self->way;
    if (!PyList_CheckExact(given) || self->state != TURNS || way->version == NULL ||
        !is_default_state()) {
        Py_RETURN_NONE;
    }
    PyObject *version = way->version; /* compared alone */
    PyObject *constants = Py_XNewRef(way->constants);
    int is = is_watched(way);
    is = is != 0 ? -is : is_current(constants);
    Py_XDECREF(constants);
    if (is != 1 || way->version != version) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    if (way->takes_items && PyList_Append(given, self->items) < 0) {
        return NULL;
    }
    /* handlers of signals that run meanwhile may give the entrance another version */
    Entrance held = *way;
    Py_INCREF(held.version);
    Py_INCREF(held.rows);
    Py_INCREF(held.exits);
    PyObject *kept = PyList_New(0), *made = NULL;
    Word local[256], *words = local;
    if (held.words > 256) {
        words = PyMem_Malloc(held.words * sizeof(Word));
    }
    if (kept != NULL && words != NULL) {
        double began = seconds_now();
        memset(words, 0, held.words * sizeof(Word));
        words[ASKED].whole = held.asked;
        words[CUR].whole = self->begin;
        words[STOP].whole = self->stop;
        words[STEP].whole = self->step;
        words[OBJECTS].whole = held.objects;
        if (words_fill(held.rows, given, words, held.blocks, kept) >= 0) {
            int code = held.entry(words, words);
            made = PyErr_Occurred() ? NULL
                                    : ended(self, &held, code, words, given, seconds_now() - began);
        }
        else if (!PyErr_Occurred()) {
            made = Py_NewRef(Py_None);
        }
    }
    else {
        PyErr_NoMemory();
    }
    if (words != local) {
        PyMem_Free(words);
    }
    Py_XDECREF(kept);
    Py_DECREF(held.version);
    Py_DECREF(held.rows);
    Py_DECREF(held.exits);
    return made;
}

static PyObject *no_statement(PyObject *Py_UNUSED(self), void *Py_UNUSED(context))
{
    return PyLong_FromLong(0);
}

static PyObject *no_turns(PyObject *Py_UNUSED(self), void *Py_UNUSED(context))
{
    return PyTuple_New(0);
}

static PyMethodDef entry_methods[] = {
    {"wants", entry_wants, METH_NOARGS, "Whether the loop is to go on compiled."},
    {"run", (PyCFunction)entry_run, METH_O, "Run the compiled loop; None if it cannot be entered."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef entry_members[] = {
    {"values", T_OBJECT, offsetof(OneRun, values), 0, "Of the names, until they have them."},
    {"broke", T_BOOL, offsetof(OneRun, broke), READONLY, "Whether it ended by `break`."},
    {"finished", T_BOOL, offsetof(OneRun, finished), READONLY, "Whether its last turn has ended."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef entry_getset[] = {
    {"at", no_statement, NULL, "The statement to go on with: none.", NULL},
    {"turns", no_turns, NULL, "A turn to go on with: none.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject LoopEntryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.LoopEntry",
    .tp_doc = "An execution of a loop that is entered at once: its one part, and its end.",
    .tp_basicsize = sizeof(OneRun),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)entry_next,
    .tp_methods = entry_methods,
    .tp_members = entry_members,
    .tp_getset = entry_getset,
};

/* ------------------------------------------------------------------------------------- entrance */

/* A small integer of a range; 0 where it is none. */
static int bound_of(PyObject *range, PyObject *name, npy_int64 *bound)
{
    const long long limit = 1LL << SMALL;
    PyObject *value = PyObject_GetAttr(range, name);
    int beyond = 0;
    long long found = value == NULL ? 0 : PyLong_AsLongLongAndOverflow(value, &beyond);
    Py_XDECREF(value);
    *bound = found;
    return !PyErr_Occurred() && !beyond && found > -limit && found < limit;
}

/* How many turns there are; 0: it is Python's. */
static Py_ssize_t turns_of(Entrance *self, PyObject *items, OneRun *entry)
{
    entry->begin = 0;
    entry->step = 1;
    if (items == NULL) {
        entry->stop = -1;
        return PY_SSIZE_T_MAX;
    }
    if (!self->takes_items) {
        return PyRange_Check(items) && bound_of(items, name_start, &entry->begin) &&
                       bound_of(items, name_stop, &entry->stop) &&
                       bound_of(items, name_step, &entry->step)
                   ? PyObject_Size(items)
                   : 0;
    }
    PyObject *real = IS_ARRAY(items) && IS_DIRECT(items) ? EAGER(items) : items;
    if (IS_REAL(real)) {
        PyArrayObject *array = (PyArrayObject *)real;
        entry->stop = PyArray_NDIM(array) > 0 ? PyArray_DIM(array, 0) : 0;
    }
    else if (PyTuple_CheckExact(items) || PyBytes_CheckExact(items) || PyUnicode_CheckExact(items)) {
        entry->stop = PyObject_Size(items);
    }
    else {
        entry->stop = 0;
    }
    return (Py_ssize_t)entry->stop;
}

static PyObject *entrance_call(Entrance *self, PyObject *const *args, size_t flags,
                               PyObject *Py_UNUSED(names))
{
    PyObject *items = PyVectorcall_NARGS(flags) > 0 ? args[0] : NULL;
    if (self->version != NULL && (items != NULL || !self->takes_items)) {
        OneRun *entry = PyObject_GC_New(OneRun, &LoopEntryType);
        if (entry == NULL) {
            return NULL;
        }
        entry->way = (Entrance *)Py_NewRef(self);
        entry->items = Py_XNewRef(items);
        entry->rest = entry->values = NULL;
        entry->state = NEW;
        entry->broke = entry->finished = 0;
        PyObject_GC_Track(entry);
        Py_ssize_t turns = turns_of(self, items, entry);
        if (turns > 0 && turns >= self->least) {
            return (PyObject *)entry;
        }
        Py_DECREF(entry);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    return PyObject_CallFunctionObjArgs(self->slow, self->loop, items == NULL ? Py_None : items,
                                        NULL);
}

static void forget(Entrance *self)
{
    Py_CLEAR(self->version);
    Py_CLEAR(self->rows);
    Py_CLEAR(self->exits);
    Py_CLEAR(self->constants);
}

/* prepare(version, rows, exits, constants, entry, asked, objects, words, blocks, least, takes_items):
   what is entered from now on; without arguments nothing is. */
static PyObject *entrance_prepare(Entrance *self, PyObject *args)
{
    PyObject *version = NULL, *rows, *exits, *constants;
    unsigned long long entry, asked, objects;
    Py_ssize_t words, blocks, least;
    int takes_items;
    if (PyTuple_GET_SIZE(args) > 0 &&
        !PyArg_ParseTuple(args, "OSO!O!KKKnnnp", &version, &rows, &PyDict_Type, &exits,
                          &PyTuple_Type, &constants, &entry, &asked, &objects, &words, &blocks,
                          &least, &takes_items)) {
        return NULL;
    }
    forget(self);
    if (version != NULL) {
        self->rows = Py_NewRef(rows);
        self->exits = Py_NewRef(exits);
        self->constants = Py_NewRef(constants);
        self->entry = (Compiled)(uintptr_t)entry;
        self->asked = (npy_int64)asked;
        self->objects = (npy_int64)objects;
        self->words = words;
        self->blocks = blocks;
        self->least = least;
        self->takes_items = takes_items;
        self->version = Py_NewRef(version);
    }
    Py_RETURN_NONE;
}

static void entrance_dealloc(Entrance *self)
{
    forget(self);
    Py_XDECREF(self->slow);
    Py_XDECREF(self->left);
    Py_XDECREF(self->is_watched);
    Py_XDECREF(self->unbound);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* LoopEntrance(loop, slow, left, is_watched, unbound) */
static PyObject *entrance_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *loop, *slow, *left, *watched, *unbound;
    if (!PyArg_ParseTuple(args, "OOOOO", &loop, &slow, &left, &watched, &unbound)) {
        return NULL;
    }
    Entrance *self = (Entrance *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->call = (vectorcallfunc)entrance_call;
        self->loop = loop;
        self->slow = Py_NewRef(slow);
        self->left = Py_NewRef(left);
        self->is_watched = Py_NewRef(watched);
        self->unbound = Py_NewRef(unbound);
    }
    return (PyObject *)self;
}

static PyMethodDef entrance_methods[] = {
    {"prepare", (PyCFunction)entrance_prepare, METH_VARARGS, "What is entered from now on."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject LoopEntranceType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.LoopEntrance",
    .tp_doc = "Gives the parts of an execution of a loop.",
    .tp_basicsize = sizeof(Entrance),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Entrance, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = entrance_new,
    .tp_dealloc = (destructor)entrance_dealloc,
    .tp_methods = entrance_methods,
};
