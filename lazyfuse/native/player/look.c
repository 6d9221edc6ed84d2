/* An evaluation, from the call on. What was done before is done again without a call of Python's:
   by a captured run (again.c), or, while a structure is fresh, by NumPy's loops (plain.c). So are
   the first evaluations of a process, before Python has set up anything. All else is
   `evaluate.in_full`'s. */

#include "replay.h"

#include <math.h>

/* Additions of one evaluation from which it is planned at once: as fresh.LARGEST. */
enum { LARGEST = 1 << 24 };

int is_set_up(void)
{
    if (asked == NULL && hooks.evaluations_begin != NULL) {
        Py_XDECREF(PyObject_CallNoArgs(hooks.evaluations_begin));
    }
    return asked != NULL;
}

double first_seconds;

/* The rule that counts an evaluation before anything is set up (new); NULL: there is none such,
   perhaps with an exception. */
static PyObject *first_rule(void)
{
    PyObject *spent = asked != NULL || hooks.evaluations_first == NULL ? NULL
        : PyFloat_FromDouble(first_seconds);
    PyObject *rule = spent == NULL ? NULL : PyObject_CallOneArg(hooks.evaluations_first, spent);
    Py_XDECREF(spent);
    if (rule == Py_None || (rule != NULL && asked != NULL)) {
        Py_CLEAR(rule);
    }
    return rule;
}

int is_alone(void)
{
    PyObject *rule = first_rule();
    if (rule != NULL) {
        Py_DECREF(rule);
        return 1;
    }
    return !PyErr_Occurred() && is_set_up() && is_none(ASKED(CONCURRENCY), name_busy) &&
           is_none(ASKED(CONCURRENCY), name_share) && is_none(ASKED(STAND_INS), name_active) &&
           PyDict_GetItemWithError(ASKED(EVALUATE), name_chunked) == Py_None;
}

/* The number of the devices' state, as evaluate's: -1 where the user names another one than the
   CPU, or with an exception. */
long device_state(void)
{
    PyObject *within = NULL;
    if (PyContextVar_Get(ASKED(WITHIN), NULL, &within) < 0) {
        return -1;
    }
    PyObject *offload = PyDict_GetItemWithError(ASKED(OFFLOAD), name_state);
    int inside = within == NULL ? -1 : PyObject_IsTrue(within);
    int known = inside != 0 || offload == NULL || offload == Py_None ? 0
        : PySequence_Contains(ASKED(AT_HOME), OPTION(device));
    Py_XDECREF(within);
    if (known <= 0) { /* a block names it, or nothing is known yet */
        PyObject *found = inside < 0 || known < 0 ? NULL : PyObject_CallNoArgs(ASKED(STATE));
        long number = found == NULL ? -1 : PyLong_AsLong(found);
        Py_XDECREF(found);
        return number;
    }
    PyObject *number = PyObject_GetAttr(offload, name_number);
    int named = PyUnicode_CompareWithASCIIString(OPTION(device), "cpu") == 0;
    long found = number == NULL ? -1 : 2 * PyLong_AsLong(number) + named;
    Py_XDECREF(number);
    return found;
}

/* What NumPy has spent on the structure of an evaluation that C may run (new); NULL without an
   exception: C is not to run it. */
static PyObject *spent_on(PyObject *key)
{
    PyObject *spent = PyDict_GetItemWithError(ASKED(FRESH), key);
    if (spent == NULL) {
        return NULL;
    }
    double most = PyFloat_AsDouble(OPTION(plan_after));
    if (PyFloat_AsDouble(PyList_GET_ITEM(spent, 0)) * 1e3 < most) {
        return Py_NewRef(spent);
    }
    if (!PyErr_Occurred()) {
        (void)PyDict_DelItem(ASKED(FRESH), key); /* it is to be planned */
    }
    return NULL;
}

int plain_again(PyObject *key, PyObject *roots, PyObject *rule, PyObject *recorded)
{
    PyObject *spent = spent_on(key);
    if (spent == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    double began = seconds_now();
    int done = -1;
    if (busy_begin() == 0) {
        done = plain_run(roots, HUGE_VAL);
        done = busy_end() < 0 ? -1 : done;
    }
    if (done > 0) {
        PyObject *seconds = PyFloat_FromDouble(
            PyFloat_AsDouble(PyList_GET_ITEM(spent, 0)) + seconds_now() - began);
        int counted = seconds != NULL && PyList_SetItem(spent, 0, seconds) == 0 &&
            count_done(ASKED(AT_FIRST), rule, 1) == 0 && reset_recorded(recorded) >= 0;
        done = counted ? 1 : -1;
    }
    else if (done == 0 && PyDict_GetItemWithError(ASKED(FRESH), key) != NULL) {
        done = PyDict_DelItem(ASKED(FRESH), key) < 0 ? -1 : 0; /* a change of options empties it */
    }
    Py_DECREF(spent);
    return done;
}

/* The nodes that have no values (new). */
static PyObject *pending_of(PyObject *nodes)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t at = 0; found != NULL && at < PyList_GET_SIZE(nodes); at++) {
        PyObject *node = PyList_GET_ITEM(nodes, at);
        if (!IS_NODE(node)) {
            PyErr_SetString(PyExc_TypeError, "evaluate: expected nodes");
            Py_CLEAR(found);
        }
        else if (NODE(node, value) == Py_None && PyList_Append(found, node) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

/* An evaluation before anything is set up, by NumPy's loops: 1, 0 where it is to be set up, -1: an
   error. */
static int first_run(PyObject *roots, PyObject *rule)
{
    PyObject *counted = first_rule();
    if (counted == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    double began = seconds_now();
    int done = ignored_errors() < 0 ? 0 : plain_run(roots, LARGEST);
    first_seconds += seconds_now() - began;
    if (done > 0) {
        PyObject *recorded = recorded_here();
        done = recorded != NULL && count_done(counted, rule, 1) == 0 &&
               reset_recorded(recorded) >= 0 ? 1 : -1;
        Py_XDECREF(recorded);
    }
    Py_DECREF(counted);
    return done;
}

/* Under the lock: 1, or -1 with an exception. */
static int evaluate_here(PyObject *nodes, PyObject *rule)
{
    PyObject *roots = pending_of(nodes); /* another thread may have evaluated some meanwhile */
    if (roots == NULL || PyList_GET_SIZE(roots) == 0) {
        Py_XDECREF(roots);
        return roots == NULL ? -1 : 1;
    }
    int first = asked == NULL ? first_run(roots, rule) : 0;
    if (first != 0) {
        Py_DECREF(roots);
        return first;
    }
    int is_overdue = 0;
    PyObject *recorded = recorded_here(), *done = NULL;
    PyObject *noted = recorded == NULL ? NULL : noted_in(recorded, &is_overdue);
    PyObject *found = noted == NULL ? NULL
        : is_overdue ? Py_NewRef(Py_None) : again(roots, noted, recorded, rule, 1);
    if (found != NULL && PyList_CheckExact(found)) {
        done = PyList_GET_SIZE(found) == 0 ? Py_NewRef(Py_None)
            : PyObject_CallOneArg(ASKED(WARN), found);
    }
    else if (found != NULL) {
        done = PyObject_CallFunctionObjArgs(hooks.evaluate_in_full, nodes, rule, found, NULL);
    }
    Py_XDECREF(found);
    Py_XDECREF(noted);
    Py_XDECREF(recorded);
    Py_XDECREF(done);
    Py_DECREF(roots);
    return done == NULL ? -1 : 1;
}

int evaluate_locked(PyObject *node, PyObject *rule)
{
    PyObject *nodes = PyList_New(1);
    if (nodes == NULL) {
        return -1;
    }
    PyList_SET_ITEM(nodes, 0, Py_NewRef(node));
    PyObject *const given[] = {nodes, rule};
    int done = -1;
    if (!is_alone()) { /* another thread was here before the lock was this one's */
        PyObject *found = PyErr_Occurred() ? NULL
            : PyObject_Vectorcall(hooks.evaluate_in_full, given, 2, NULL);
        done = found == NULL ? -1 : 0;
        Py_XDECREF(found);
    }
    else if (handlers_wait() == 0) {
        done = evaluate_here(nodes, rule);
        done = handlers_run() < 0 ? -1 : done;
    }
    Py_DECREF(nodes);
    return done < 0 ? -1 : 0;
}

/* evaluate(nodes, rule): gives every node a value. */
PyObject *evaluate_nodes(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    PyObject *listeners = hooks.tracing == NULL || hooks.evaluate_in_full == NULL ? NULL
        : PyDict_GetItemWithError(hooks.tracing, name_listeners);
    if (given != 2 || listeners == NULL) {
        PyErr_SetString(PyExc_TypeError, "evaluate: expected nodes and a rule");
        return NULL;
    }
    PyObject *roots = NULL;
    if (PyList_CheckExact(args[0]) && PyTuple_CheckExact(listeners) &&
        PyTuple_GET_SIZE(listeners) == 0 && is_alone()) {
        roots = pending_of(args[0]);
        if (roots == NULL) {
            return NULL;
        }
    }
    if (roots == NULL) {
        return PyErr_Occurred() ? NULL
            : PyObject_Vectorcall(hooks.evaluate_in_full, args, 2, NULL);
    }
    int done = 0;
    if (PyList_GET_SIZE(roots) > 0 && (done = section_begin(hooks.quiet)) == 0) {
        done = evaluate_here(args[0], args[1]);
        done = section_end(hooks.quiet) < 0 ? -1 : done;
    }
    Py_DECREF(roots);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}
