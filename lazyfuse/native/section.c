/* Sections in which no user code runs: devices/critical.py in C; its docstring gives the
   reasons.

   An evaluation enters a section, so it must cost little compared with a lock: it only asks
   for ten handlers, and exchanges Ctrl-C's handler for a note and back. */

#include "native.h"
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
    PyObject *waiting, *catch_up, *find, *put, *abandoned; /* of critical, and of _signal */
    PyObject *breathe; /* a Python function, where collections that are due run though disabled */
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

/* An exception that is set aside; it becomes the context of a later one. */
typedef struct {
    PyObject *kind, *value, *trace;
} Aside;

static void set_aside(Aside *error)
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

/* -1 if there is one; then it is raised. */
static int raise_aside(Aside *error)
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

/* section_setup(main, waiting, numbers, catch_up, find, put, breathe, abandoned): see
   critical.use. */
PyObject *section_setup(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *waiting, *numbers, *catch_up, *finds, *puts, *breathe, *abandoned;
    unsigned long thread;
    if (!PyArg_ParseTuple(args, "kO!O!OO!OOO", &thread, &PyList_Type, &waiting, &PyTuple_Type,
                          &numbers, &catch_up, &PyCFunction_Type, &finds, &puts, &breathe,
                          &abandoned)) {
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
    Py_XSETREF(state.abandoned, Py_NewRef(abandoned));
    Py_XSETREF(state.breathe, breathe == Py_None ? NULL : Py_NewRef(breathe));
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

typedef struct {
    unsigned long thread;
    Py_ssize_t times;
} Inside;

/* A lock; no user code runs while a thread holds it. */
typedef struct {
    PyObject_HEAD
    PyObject *lock, *take, *give, *weak;
    Inside *inside; /* how often each thread has entered: a thread may release the lock inside */
    Py_ssize_t count, room;
    int collects;
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
    PyMem_Free(self->inside);
    Py_XDECREF(self->lock);
    Py_XDECREF(self->take);
    Py_XDECREF(self->give);
    Py_TYPE(self)->tp_free(self);
}

/* The lock's entry of a thread; NULL: it has not entered. */
static Inside *inside_of(Section *self, unsigned long thread)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        if (self->inside[i].thread == thread) {
            return &self->inside[i];
        }
    }
    return NULL;
}

/* Call a method of the lock; an exception that is set stays, or is the context of the method's. */
static int of_lock(PyObject *method)
{
    Aside error = {NULL, NULL, NULL};
    set_aside(&error);
    PyObject *done = PyObject_CallNoArgs(method);
    Py_XDECREF(done);
    set_aside(&error);
    return raise_aside(&error);
}

/* Take the lock. When the interpreter ends, no other thread runs: what one of them has is taken. */
static int take(Section *self)
{
#if PY_VERSION_HEX < 0x030D0000
#define Py_IsFinalizing _Py_IsFinalizing
#endif
    if (!Py_IsFinalizing()) {
        return of_lock(self->take);
    }
    PyObject *taken = PyObject_CallOneArg(self->take, Py_False);
    if (taken == Py_False) {
        Py_SETREF(taken, PyObject_CallOneArg(state.abandoned, self->lock));
    }
    Py_XDECREF(taken);
    return taken == NULL ? -1 : 0;
}

static PyObject *section_acquire(Section *self, PyObject *Py_UNUSED(nothing))
{
    unsigned long me = PyThread_get_thread_ident();
    int handles = me == state.main;
    if (handles && put_off() < 0) {
        return NULL;
    }
    if (take(self) < 0) {
        goto failed;
    }
    Inside *mine = inside_of(self, me);
    int first = 0;
    if (mine == NULL) {
        if (self->count == self->room) {
            Inside *more = PyMem_Realloc(self->inside, (self->room + 8) * sizeof(Inside));
            if (more == NULL) {
                PyErr_NoMemory();
                of_lock(self->give);
                goto failed;
            }
            self->inside = more;
            self->room += 8;
        }
        if (!self->count) {
            self->collects = first = PyGC_Disable();
        }
        mine = &self->inside[self->count++];
        mine->thread = me;
        mine->times = 0;
    }
    mine->times++;
    if (first && state.breathe != NULL) {
        PyObject *done = PyObject_CallNoArgs(state.breathe);
        if (done == NULL) {
            PyErr_Clear(); /* no memory for its frame: then nothing has run, either */
        }
        Py_XDECREF(done);
    }
    Py_RETURN_NONE;
failed:
    if (handles) {
        bring_back();
    }
    return NULL;
}

static PyObject *section_release(Section *self, PyObject *Py_UNUSED(nothing))
{
    unsigned long me = PyThread_get_thread_ident();
    Inside *mine = inside_of(self, me);
    if (mine == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has not entered the section");
        return NULL;
    }
    if (!--mine->times) {
        *mine = self->inside[--self->count];
        if (!self->count && self->collects) {
            PyGC_Enable();
        }
    }
    of_lock(self->give);
    if (me == state.main) {
        bring_back();
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *section_exit(Section *self, PyObject *const *Py_UNUSED(exception),
                              Py_ssize_t Py_UNUSED(count))
{
    return section_release(self, NULL);
}

static PyObject *section_after_fork(Section *self, PyObject *Py_UNUSED(nothing))
{
    if (self->count) {
        Inside *mine = inside_of(self, PyThread_get_thread_ident());
        if (mine != NULL) {
            self->inside[0] = *mine;
        }
        self->count = mine != NULL;
        if (mine == NULL && self->collects) {
            PyGC_Enable();
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef section_methods[] = {
    {"acquire", (PyCFunction)section_acquire, METH_NOARGS, "Enter."},
    {"release", (PyCFunction)section_release, METH_NOARGS,
     "Leave; handlers whose signals have come run now, if no other section is entered."},
    {"__enter__", (PyCFunction)section_acquire, METH_NOARGS, "Enter."},
    {"__exit__", (PyCFunction)(void (*)(void))section_exit, METH_FASTCALL, "Leave."},
    {"after_fork", (PyCFunction)section_after_fork, METH_NOARGS,
     "In the child the thread that forked is alone, and as deep inside as it was."},
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
