/* The collector waits in the thread that is in a section. The same in Python: critical.py. */

#include "base.h"

static struct {
    PyObject *callbacks, *objects, *collect; /* of `gc` */
    PyObject *freeze, *unfreeze, *frozen;    /* of `gc`; NULL: they take longer than a list */
    PyObject *postpone;        /* what stands first among the callbacks */
    PyObject *held[3], *others; /* what the collector looks at; callbacks that wait */
    long generations; /* that a collection looks at beyond its own */
    int is_frozen;    /* whether all that the collector looks at is set aside */
} state;

/* The sections that a thread is in, and the collection that is due after them: its generation + 1. */
static _Thread_local struct {
    Py_ssize_t depth;
    long due;
} mine;

/* Sets all objects aside while a collection of all runs, which takes no longer for many: 1, 0 where
   the program has set some aside itself, -1 with an exception. */
static int freeze(void)
{
    PyObject *count = state.freeze == NULL ? NULL : PyObject_CallNoArgs(state.frozen);
    long found = count == NULL ? -1 : PyLong_AsLong(count);
    Py_XDECREF(count);
    if (found != 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *done = PyObject_CallNoArgs(state.freeze);
    state.is_frozen = done != NULL;
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

/* The collection has ended. */
static PyObject *let_go(void)
{
    for (int k = 0; k < 3; k++) {
        Py_CLEAR(state.held[k]);
    }
    if (!state.is_frozen) {
        Py_RETURN_NONE;
    }
    state.is_frozen = 0;
    return PyObject_CallNoArgs(state.unfreeze);
}

/* As critical._postpone: all that the collector looks at is held, or set aside, until it has
   ended. */
static PyObject *postpone(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!mine.depth || count != 2) {
        Py_RETURN_NONE;
    }
    if (!PyUnicode_Check(args[0]) || PyUnicode_CompareWithASCIIString(args[0], "start") != 0) {
        return let_go();
    }
    PyObject *number = PyDict_GetItemString(args[1], "generation");
    long generation = number == NULL ? 2 : PyLong_AsLong(number);
    mine.due = generation + 1 > mine.due ? generation + 1 : mine.due;
    if (PyList_GET_SIZE(state.callbacks) > 1 && state.others == NULL) {
        state.others = PyList_GetSlice(state.callbacks, 1, PY_SSIZE_T_MAX);
        if (state.others == NULL || PyList_SetSlice(state.callbacks, 1, PY_SSIZE_T_MAX, NULL) < 0) {
            return NULL;
        }
    }
    int aside = generation >= 2 ? freeze() : 0;
    for (long k = 0; aside == 0 && k < 3 && k <= generation + state.generations; k++) {
        state.held[k] = PyObject_CallFunction(state.objects, "l", k);
        aside = state.held[k] == NULL ? -1 : 0;
    }
    return aside < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef postpone_method = {
    "postpone", (PyCFunction)(void (*)(void))postpone, METH_FASTCALL,
    "In a section, no collection finds anything.",
};

int collector_enter(void)
{
    PyObject *callbacks = state.callbacks;
    if (PyList_GET_SIZE(callbacks) == 0 || PyList_GET_ITEM(callbacks, 0) != state.postpone) {
        for (Py_ssize_t at = PyList_GET_SIZE(callbacks) - 1; at > 0; at--) {
            if (PyList_GET_ITEM(callbacks, at) == state.postpone &&
                PyList_SetSlice(callbacks, at, at + 1, NULL) < 0) {
                return -1;
            }
        }
        if (PyList_Insert(callbacks, 0, state.postpone) < 0) {
            return -1;
        }
    }
    mine.depth++;
    return 0;
}

void collector_late(void)
{
    if (!mine.due || mine.depth) {
        return;
    }
    Aside error = {NULL, NULL, NULL};
    long generation = mine.due - 1;
    PyObject *others = state.others;
    mine.due = 0;
    state.others = NULL;
    set_aside(&error);
    if (others != NULL) {
        PyList_SetSlice(state.callbacks, 1, 1, others);
        Py_DECREF(others);
    }
    if (PyGC_IsEnabled()) { /* what the youngest generation held is in the next one */
        Py_XDECREF(PyObject_CallFunction(state.collect, "l", generation > 0 ? generation : 1));
    }
    set_aside(&error);
    raise_aside(&error);
}

PyObject *section_enter(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return collector_enter() < 0 ? NULL : Py_NewRef(Py_None);
}

int collector_leave(void)
{
    if (mine.depth == 0) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has not entered the section");
        return -1;
    }
    mine.depth--;
    return 0;
}

PyObject *section_leave(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return collector_leave() < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *section_collect_late(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    collector_late();
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* collector_setup(callbacks, objects, collect, generations, freeze, unfreeze, frozen): see
   critical.use. */
PyObject *collector_setup(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *callbacks, *objects, *collect, *set_aside, *bring_back, *count;
    long generations;
    if (!PyArg_ParseTuple(args, "O!OOlOOO", &PyList_Type, &callbacks, &objects, &collect,
                          &generations, &set_aside, &bring_back, &count)) {
        return NULL;
    }
    PyObject *made = PyCFunction_New(&postpone_method, NULL);
    if (made == NULL) {
        return NULL;
    }
    Py_XSETREF(state.postpone, made);
    Py_XSETREF(state.callbacks, Py_NewRef(callbacks));
    Py_XSETREF(state.objects, Py_NewRef(objects));
    Py_XSETREF(state.collect, Py_NewRef(collect));
    Py_XSETREF(state.freeze, set_aside == Py_None ? NULL : Py_NewRef(set_aside));
    Py_XSETREF(state.unfreeze, Py_NewRef(bring_back));
    Py_XSETREF(state.frozen, Py_NewRef(count));
    state.generations = generations;
    Py_RETURN_NONE;
}
