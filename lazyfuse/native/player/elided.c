/* What an evaluation that was done before leaves pending again: as `elision.chosen` and
   `elision.conclude`, where nothing was raised. */

#include "replay.h"

int is_chosen(PyObject *elided, PyObject *nodes, PyObject *roots)
{
    if (elided == Py_None) {
        return 1;
    }
    PyObject *choice = PyTuple_GET_ITEM(elided, 1), *state = PyTuple_GET_ITEM(elided, 0);
    PyObject *now = PyObject_GetAttr(state, name_choice), *rule = PyObject_GetAttr(state, name_rule);
    PyObject *own = PyObject_GetAttr(choice, name_rule);
    PyObject *places = now == NULL || rule == NULL || own == NULL ? NULL
        : PyObject_GetAttr(choice, name_elided);
    /* what is cheap follows from the structure alone */
    int fits = places == NULL ? -1
        : rule == own && (now == choice || own == ASKED(CHEAP)) && PyTuple_CheckExact(places);
    Py_XDECREF(rule);
    Py_XDECREF(own);
    for (Py_ssize_t at = 0; fits > 0 && at < PyTuple_GET_SIZE(places); at++) {
        PyObject *node = PyList_GetItem(
            nodes, PyLong_AsSsize_t(PyTuple_GET_ITEM(places, at)));
        fits = node == NULL ? -1 : 1;
        for (Py_ssize_t root = 0; fits > 0 && root < PyList_GET_SIZE(roots); root++) {
            fits = PyList_GET_ITEM(roots, root) != node;
        }
    }
    Py_XDECREF(now);
    Py_XDECREF(places);
    return fits;
}

/* What is watched of an elided node: `elision.Watch` (new). */
static PyObject *watch_of(PyObject *node, PyObject *rule, PyObject *state, PyObject *position,
                          PyObject *noted)
{
    int notes = rule == ASKED(CHEAP) ? 0 : PySequence_Contains(noted, position);
    PyObject *weak = notes < 0 ? NULL : PyWeakref_NewRef(node, NULL);
    PyObject *watch = weak == NULL ? NULL
        : PyTuple_Pack(4, weak, rule, notes ? state : Py_None, position);
    Py_XDECREF(weak);
    return watch;
}

PyObject *elided_begin(PyObject *kept, PyObject *nodes, PyObject *recorded)
{
    PyObject *state = PyTuple_GET_ITEM(kept, 0), *choice = PyTuple_GET_ITEM(kept, 1);
    PyObject *rule = PyObject_GetAttr(choice, name_rule);
    PyObject *places = PyObject_GetAttr(choice, name_elided);
    PyObject *pending = PyObject_GetAttr(choice, name_pending);
    PyObject *noted = PyObject_GetAttr(choice, name_rematerialised);
    PyObject *left = pending == NULL ? NULL : nodes_at(pending, nodes);
    PyObject *watches = PyList_New(0);
    int fine = rule != NULL && places != NULL && noted != NULL && left != NULL &&
        watches != NULL && count_done(Py_None, rule, PyTuple_GET_SIZE(places)) == 0 &&
        forget_recorded(recorded, left) == 0;
    for (Py_ssize_t at = 0; fine && at < PyTuple_GET_SIZE(places); at++) {
        PyObject *position = PyTuple_GET_ITEM(places, at);
        PyObject *node = PyList_GetItem(nodes, PyLong_AsSsize_t(position));
        PyObject *watch = node == NULL ? NULL : watch_of(node, rule, state, position, noted);
        fine = watch != NULL && PyList_Append(watches, watch) == 0;
        Py_XDECREF(watch);
    }
    if (!fine) {
        Py_CLEAR(watches);
    }
    Py_XDECREF(left);
    Py_XDECREF(noted);
    Py_XDECREF(pending);
    Py_XDECREF(places);
    Py_XDECREF(rule);
    return watches;
}

int elided_end(PyObject *watches)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(watches); at++) {
        PyObject *watch = PyList_GET_ITEM(watches, at);
        PyObject *node = PyWeakref_GetObject(PyTuple_GET_ITEM(watch, 0));
        PyObject *key = node == Py_None ? NULL : PyLong_FromVoidPtr(node);
        int failed = node != Py_None &&
            (key == NULL || PyDict_SetItem(ASKED(WATCHED), key, watch) < 0);
        Py_XDECREF(key);
        if (failed) {
            return -1;
        }
    }
    return 0;
}
