/* Sections in which no user code runs: devices/critical.py in C; its docstring gives the
   reasons.

   An evaluation enters a section, so it must cost little compared with a lock: it only asks
   for ten handlers, and exchanges Ctrl-C's handler for a note and back. */

#include "base.h"
#include <signal.h>

#define SIGNALS 16
#define TRIES 100 /* tries to restore a handler, each of which may run handlers that raise */

/* Replaces a handler, and notes its signals. */
typedef struct {
    PyObject_HEAD
    PyObject *handler;
} Note;

#ifdef SA_RESTART
typedef struct sigaction Action; /* what the system does at a signal */
#else
typedef int Action;

#endif

typedef struct {
    PyObject *number; /* borrowed: state.numbers keep it */
    Note *note;
    int differs; /* whether `action` is something else than what Python tells the system */
    Action action;
} Noted;

static struct {
    PyObject *waiting, *catch_up, *find, *put, *survive; /* of critical, and of _signal */
    PyObject *numbers[SIGNALS];
    Py_ssize_t count; /* of them; 0: before section_setup */
    unsigned long main; /* the thread that runs handlers */
    Py_ssize_t depth; /* how many sections it is in */
    Noted noted[SIGNALS];
    int puts;
    Action usual; /* what Python tells the system */
} state;

/* ---------------------------------------------------------------------------------------- notes */

static void note_dealloc(Note *self)
{
    Py_XDECREF(self->handler);
    PyObject_Free(self);
}

static PyObject *note_call(Note *self, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *number, *frame;
    if (!PyArg_UnpackTuple(args, "note", 2, 2, &number, &frame)) {
        return NULL;
    }
    PyObject *item = PyTuple_Pack(3, self->handler, number, frame);
    int failed = item == NULL || PyList_Append(state.waiting, item) < 0;
    Py_XDECREF(item);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMemberDef note_members[] = {
    {"handler", T_OBJECT, offsetof(Note, handler), READONLY, "What is to be called later."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject NoteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Note",
    .tp_basicsize = sizeof(Note),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Stands for a handler, and notes its signals.",
    .tp_dealloc = (destructor)note_dealloc,
    .tp_call = (ternaryfunc)note_call,
    .tp_members = note_members,
};

/* ------------------------------------------------------------------------ putting off, and back */

void set_aside(Aside *error)
{
    Aside found;
    PyErr_Fetch(&found.kind, &found.value, &found.trace);
    if (found.kind == NULL) {
        return;
    }
    PyErr_NormalizeException(&found.kind, &found.value, &found.trace);
    if (found.trace != NULL) {
        PyException_SetTraceback(found.value, found.trace);
    }
    if (error->kind != NULL) {
        if (error->value != found.value) {
            PyException_SetContext(found.value, error->value); /* steals */
        } else {
            Py_DECREF(error->value);
        }
        Py_DECREF(error->kind);
        Py_XDECREF(error->trace);
    }
    *error = found;
}

int raise_aside(Aside *error)
{
    if (error->kind == NULL) {
        return 0;
    }
    PyErr_Restore(error->kind, error->value, error->trace);
    return -1;
}

/* Python's handler of a signal (borrowed). */
static PyObject *find(PyObject *number)
{
    PyObject *handler = PyCFunction_GET_FUNCTION(state.find)(PyCFunction_GET_SELF(state.find),
                                                             number);
    Py_XDECREF(handler); /* Python's table has it */
    return handler;
}

/* Note what the system does at a signal, and whether Python has told it so. */
static void note_action(Noted *noted)
{
#ifdef SA_RESTART
    sigaction((int)PyLong_AsLong(noted->number), NULL, &noted->action);
    noted->differs = noted->action.sa_handler != state.usual.sa_handler ||
                     noted->action.sa_flags != state.usual.sa_flags;
#else
    noted->differs = 0;
#endif
}

/* Give a signal a handler of Python's. What the system did at the signal, it goes on to do: it may
   call a handler in C, or not as Python would have it called (siginterrupt). */
static int put(Noted *noted, PyObject *handler)
{
    PyObject *args[] = {noted->number, handler};
    PyObject *done = PyObject_Vectorcall(state.put, args, 2, NULL);
    if (done == NULL) {
        return -1;
    }
    Py_DECREF(done);
#ifdef SA_RESTART
    if (noted->differs) {
        sigaction((int)PyLong_AsLong(noted->number), &noted->action, &state.usual);
    }
#endif
    return 0;
}

/* Restore handlers, except where the user has set another handler meanwhile. */
static void restore(Noted *noted, int count, Aside *error)
{
    for (int i = 0; i < count; i++) {
        int ours = find(noted[i].number) == (PyObject *)noted[i].note;
        for (int tries = 0; ours && tries < TRIES; tries++) {
            if (put(&noted[i], noted[i].note->handler) == 0) {
                break;
            }
            set_aside(error); /* from a restored handler: this one was not set yet */
        }
        if (PyErr_Occurred()) {
            set_aside(error);
        }
        Py_DECREF(noted[i].note);
    }
}

static int put_off(void)
{
    if (state.depth) {
        state.depth++;
        return 0;
    }
    Noted noted[SIGNALS]; /* `signal` runs handlers that are still there: they may enter sections */
    int puts = 0;
    Aside error = {NULL, NULL, NULL};
    for (Py_ssize_t i = 0; i < state.count; i++) {
        PyObject *handler = find(state.numbers[i]);
        if (handler == NULL) {
            goto failed;
        }
        if (!PyCallable_Check(handler)) { /* the default, ignored, or not Python's */
            continue;
        }
        Note *note = PyObject_New(Note, &NoteType);
        if (note == NULL) {
            goto failed;
        }
        note->handler = Py_NewRef(handler);
        noted[puts].number = state.numbers[i];
        noted[puts].note = note;
        note_action(&noted[puts]);
        if (put(&noted[puts++], (PyObject *)note) < 0) {
            goto failed;
        }
    }
    memcpy(state.noted, noted, sizeof noted[0] * puts);
    state.puts = puts;
    state.depth = 1;
    return 0;
failed:
    set_aside(&error);
    restore(noted, puts, &error);
    return raise_aside(&error);
}

/* Restores handlers and runs those whose signals have arrived. An exception that is set stays,
   or becomes the context of a handler's. */
static int bring_back(void)
{
    if (--state.depth) {
        return 0;
    }
    Noted noted[SIGNALS];
    int puts = state.puts;
    Aside error = {NULL, NULL, NULL};
    set_aside(&error);
    memcpy(noted, state.noted, sizeof noted[0] * puts);
    state.puts = 0;
    restore(noted, puts, &error);
    if (PyList_GET_SIZE(state.waiting)) {
        PyObject *done = PyObject_CallNoArgs(state.catch_up);
        Py_XDECREF(done);
        set_aside(&error);
    }
    return raise_aside(&error);
}

PyObject *section_put_off(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return put_off() < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *section_bring_back(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return bring_back() < 0 ? NULL : Py_NewRef(Py_None);
}

/* section_setup(main, waiting, numbers, catch_up, find, put, survive): see critical.use. */
PyObject *section_setup(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *waiting, *numbers, *catch_up, *finds, *puts, *survive;
    unsigned long thread;
    if (!PyArg_ParseTuple(args, "kO!O!OO!OO", &thread, &PyList_Type, &waiting, &PyTuple_Type,
                          &numbers, &catch_up, &PyCFunction_Type, &finds, &puts, &survive)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(numbers) > SIGNALS || PyCFunction_GET_FLAGS(finds) != METH_O) {
        PyErr_SetString(PyExc_ValueError, "too many signals, or another getsignal");
        return NULL;
    }
    Py_XSETREF(state.waiting, Py_NewRef(waiting));
    Py_XSETREF(state.catch_up, Py_NewRef(catch_up));
    Py_XSETREF(state.find, Py_NewRef(finds));
    Py_XSETREF(state.put, Py_NewRef(puts));
    Py_XSETREF(state.survive, Py_NewRef(survive));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
        Py_XSETREF(state.numbers[i], Py_NewRef(PyTuple_GET_ITEM(numbers, i)));
    }
    state.count = PyTuple_GET_SIZE(numbers);
    state.main = thread;
    Py_RETURN_NONE;
}

/* In a child process that another thread than the main thread has forked: that thread is the
   main thread from now on. */
PyObject *section_new_main(PyObject *Py_UNUSED(module), PyObject *ident)
{
    unsigned long thread = PyLong_AsUnsignedLong(ident);
    if (thread == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    Aside error = {NULL, NULL, NULL};
    int puts = state.puts;
    state.main = thread;
    state.depth = state.puts = 0;
    restore(state.noted, puts, &error);
    return raise_aside(&error) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------------------------- sections */

/* A lock; no user code runs while a thread holds it. */
typedef struct {
    PyObject_HEAD
    PyObject *lock, *take, *give, *weak;
} Section;

static PyObject *section_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *lock;
    if (!PyArg_ParseTuple(args, "O", &lock)) {
        return NULL;
    }
    if (!state.count) {
        PyErr_SetString(PyExc_RuntimeError, "section_setup comes first");
        return NULL;
    }
    Section *self = (Section *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->lock = Py_NewRef(lock);
    self->take = PyObject_GetAttrString(lock, "acquire");
    self->give = PyObject_GetAttrString(lock, "release");
    if (self->take == NULL || self->give == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void section_dealloc(Section *self)
{
    if (self->weak != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    Py_XDECREF(self->lock);
    Py_XDECREF(self->take);
    Py_XDECREF(self->give);
    Py_TYPE(self)->tp_free(self);
}

/* Call a method of a lock; an exception that is set stays, or is the context of the method's. */
static int of_lock(PyObject *method)
{
    Aside error = {NULL, NULL, NULL};
    int plain = PyErr_Occurred() == NULL; /* as nearly always */
    if (!plain) {
        set_aside(&error);
    }
    PyObject *done = PyObject_CallNoArgs(method);
    Py_XDECREF(done);
    if (plain) {
        return done == NULL ? -1 : 0;
    }
    set_aside(&error);
    return raise_aside(&error);
}

/* Before a lock is taken: when the interpreter ends, what other threads have is dropped, once. */
int drop_threads(void)
{
    static int dropped;
    if (dropped || !Py_IsFinalizing() || state.survive == NULL) {
        return 0;
    }
    dropped = 1;
    return of_lock(state.survive);
}

int section_lock(PyObject *section)
{
    Section *self = (Section *)section;
    if (drop_threads() < 0 || of_lock(self->take) < 0) {
        return -1;
    }
    if (collector_enter() < 0) {
        of_lock(self->give);
        return -1;
    }
    return 0;
}

static int is_main(void)
{
    return PyThread_get_thread_ident() == state.main;
}

int handlers_wait(void)
{
    return is_main() ? put_off() : 0;
}

int handlers_run(void)
{
    return is_main() ? bring_back() : 0;
}

int section_begin(PyObject *section)
{
    int handles = is_main();
    if (handles && put_off() < 0) {
        return -1;
    }
    int done = section_lock(section);
    if (done < 0 && handles) {
        bring_back();
    }
    return done;
}

/* Ends a section, and what has put the handlers off. */
static int end(PyObject *section, int handles)
{
    if (collector_leave() < 0) {
        return -1;
    }
    of_lock(((Section *)section)->give);
    if (handles) {
        bring_back();
    }
    collector_late();
    return PyErr_Occurred() ? -1 : 0;
}

int section_unlock(PyObject *section)
{
    return end(section, 0);
}

int section_end(PyObject *section)
{
    return end(section, is_main());
}

static PyObject *section_acquire(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return section_begin(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *section_release(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return section_end(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *section_exit(PyObject *self, PyObject *const *Py_UNUSED(exception),
                              Py_ssize_t Py_UNUSED(count))
{
    return section_release(self, NULL);
}

static PyMethodDef section_methods[] = {
    {"acquire", section_acquire, METH_NOARGS, "Enter."},
    {"release", section_release, METH_NOARGS,
     "Leave; handlers whose signals have come run now, if no other section is entered."},
    {"__enter__", section_acquire, METH_NOARGS, "Enter."},
    {"__exit__", (PyCFunction)(void (*)(void))section_exit, METH_FASTCALL, "Leave."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef section_members[] = {
    {"lock", T_OBJECT, offsetof(Section, lock), READONLY, "The lock."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject SectionType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Section",
    .tp_basicsize = sizeof(Section),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A lock; no code of the user's runs while it is held: see devices/critical.py.",
    .tp_new = section_new,
    .tp_dealloc = (destructor)section_dealloc,
    .tp_weaklistoffset = offsetof(Section, weak),
    .tp_methods = section_methods,
    .tp_members = section_members,
};
