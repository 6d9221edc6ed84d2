/* Evaluations that were done before, done again in one step: found by their key, played, and
   committed. Python goes on where an event is its own (native_replay.go_on). */

#include "replay.h"

#include <string.h>

/* What evaluations.py keeps by a key. */
enum { PROGRAM, VALUES, OPERANDS, PLAN, CACHE, REPLAY, SIZES, PINS, ELIDED };
/* As there: a caller waits; how many bits of the mode come before the number of the state. */
enum { WAITS_BIT = 4, BITS = 3 };

/* Reserves the blocks that a replay takes: 1, 0 where memory is short, -1 with an exception. */
static int reserve(const Program *program)
{
    if (program->reserved == NULL) {
        return 1;
    }
    PyObject *done = PyObject_CallMethodOneArg(program->pool, name_reserve, program->reserved);
    int fine = done == NULL ? -1 : PyObject_IsTrue(done);
    Py_XDECREF(done);
    return fine;
}

static void release(PyObject *pool)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *done = PyObject_CallMethodNoArgs(pool, name_release);
    if (done == NULL) {
        Py_XDECREF(kind);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return;
    }
    Py_DECREF(done);
    PyErr_Restore(kind, error, trace);
}

/* The events, and the values of the nodes (new): None where C has done all of it, else where it has
   stopped: an event, or parts of blocks that are to be made. */
static PyObject *play_all(PyObject *const *run, PyObject *pool)
{
    PyObject *const play[] = {run[0], PyLong_FromLong(0), run[6], run[7], run[5], run[4], pool};
    PyObject *const commit[] = {run[0], run[6], run[4]};
    PyObject *stop = play[1] == NULL ? NULL : replay_play(NULL, play, 7);
    Py_XDECREF(play[1]);
    if (stop == Py_None) {
        Py_SETREF(stop, replay_commit(NULL, commit, 3));
    }
    return stop;
}

/* run(program, replay, plan, sizes, nodes, values, blocks, addresses, go_on): the exceptions that
   arose; None where memory is short. */
PyObject *replay_run(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 9 || !Py_IS_TYPE(args[0], &ReplayProgramType)) {
        PyErr_SetString(PyExc_TypeError, "run: expected a replay, and what it runs on");
        return NULL;
    }
    Program *program = (Program *)Py_NewRef(args[0]);
    PyObject *raised = NULL;
    int fine = reserve(program);
    if (fine == 0) {
        raised = Py_NewRef(Py_None);
    }
    else if (fine > 0) {
        PyObject *stop = play_all(args, program->pool), *kind, *error, *trace;
        PyErr_Fetch(&kind, &error, &trace);
        if (stop == Py_None) {
            raised = PyList_New(0);
        }
        else { /* NULL: an event has failed */
            PyObject *const rest[] = {args[1], args[2], args[3], args[4], args[5], args[6],
                                      args[7], stop == NULL ? Py_None : stop};
            raised = PyObject_Vectorcall(args[8], rest, 8, NULL);
        }
        if (kind != NULL) {
            Py_CLEAR(raised);
            PyErr_Restore(kind, error, trace);
        }
        Py_XDECREF(stop);
    }
    if (fine > 0 && program->reserved != NULL) {
        release(program->pool);
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(raised);
    }
    Py_DECREF(program);
    return raised;
}

/* Whether the runs of a plan keep their operands, which replays do not; -1: an error. */
static int is_keeping(PyObject *plan)
{
    PyObject *keeping = PyObject_GetAttr(plan, name_keeping);
    int found = keeping == NULL ? -1 : PyObject_IsTrue(keeping);
    Py_XDECREF(keeping);
    return found;
}

PyObject *asked;

PyObject *replay_setup(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (given == Py_None) { /* as at the beginning of a process */
        Py_CLEAR(asked);
        first_seconds = 0;
        Py_RETURN_NONE;
    }
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != ASKED_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "replay_setup: expected what evaluations ask for");
        return NULL;
    }
    Py_XSETREF(asked, Py_NewRef(given));
    Py_RETURN_NONE;
}

/* What evaluations have done since Python has asked for it, see count_done. */
enum { UNCOUNTED = 64 };
typedef struct {
    PyObject *what, *rule;
    long times;
} Uncounted;
static Uncounted uncounted[UNCOUNTED];
static int uncounted_size;

int count_done(PyObject *what, PyObject *rule, long times)
{
    int at = 0;
    while (at < uncounted_size && (uncounted[at].what != what || uncounted[at].rule != rule)) {
        at++;
    }
    if (at == UNCOUNTED) { /* Python asks for all there is */
        PyObject *done = PyObject_CallNoArgs(ASKED(TOTALS));
        Py_XDECREF(done);
        at = uncounted_size;
        if (done == NULL || at == UNCOUNTED) {
            return done == NULL ? -1 : 0;
        }
    }
    if (at == uncounted_size) {
        uncounted[uncounted_size++] = (Uncounted){Py_NewRef(what), Py_NewRef(rule), 0};
    }
    uncounted[at].times += times;
    return 0;
}

PyObject *replay_uncounted(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    Uncounted taken[UNCOUNTED];
    int size = uncounted_size;
    memcpy(taken, uncounted, sizeof taken);
    uncounted_size = 0; /* before anything is made: a finaliser may evaluate */
    PyObject *found = PyTuple_New(size);
    for (int at = 0; at < size; at++) {
        PyObject *each = found == NULL ? NULL
            : Py_BuildValue("OOl", taken[at].what, taken[at].rule, taken[at].times);
        if (each == NULL) {
            Py_CLEAR(found);
        }
        else {
            PyTuple_SET_ITEM(found, at, each);
        }
        Py_DECREF(taken[at].what);
        Py_DECREF(taken[at].rule);
    }
    return found;
}

int is_none(PyObject *names, PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(names, name);
    return found != NULL && PyObject_IsTrue(found) == 0;
}

/* The mode of `find`; -1: evaluations may not be done again now, or an error. */
static long mode_now(PyObject *rule, int waits)
{
    PyObject *may = PyDict_GetItemWithError(ASKED(PERMISSION), name_may_capture);
    PyObject *listeners = PyDict_GetItemWithError(hooks.tracing, name_listeners);
    if (may != Py_True || listeners == NULL || PyObject_Size(listeners) != 0 ||
        !is_none(ASKED(CONCURRENCY), name_busy) || !is_none(ASKED(SPANS), name_on)) {
        return -1;
    }
    long number = device_state();
    PyObject *mode = PyDict_GetItemWithError(ASKED(MODES), rule);
    return number < 0 ? -1
        : (mode == NULL ? 0 : PyLong_AsLong(mode)) + (waits ? WAITS_BIT : 0) + (number << BITS);
}

/* Counts an evaluation that a replay has done. */
static int count_replay(PyObject *kept, PyObject *rule)
{
    static Py_ssize_t unmet, learnt;
    PyObject *cache = PyTuple_GET_ITEM(kept, CACHE), *none = PyLong_FromLong(0);
    if (none != NULL && unmet == 0) {
        unmet = slot_offset((PyObject *)Py_TYPE(cache), "unmet");
        learnt = slot_offset((PyObject *)Py_TYPE(cache), "learnt");
    }
    if (none == NULL || unmet < 0 || learnt < 0) {
        Py_XDECREF(none);
        return -1;
    }
    Py_XSETREF(AT(cache, unmet), Py_NewRef(none));
    Py_XSETREF(AT(cache, learnt), none);
    return count_done(PyTuple_GET_ITEM(kept, REPLAY), rule, 1);
}

/* Adds to the number of evaluations that are under way; -1: an error. */
static int add_to_busy(long more)
{
    PyObject *before = PyDict_GetItemWithError(ASKED(CONCURRENCY), name_busy);
    PyObject *now = before == NULL ? NULL : PyLong_FromLong(more + PyLong_AsLong(before));
    int failed = now == NULL || PyErr_Occurred() ||
                 PyDict_SetItem(ASKED(CONCURRENCY), name_busy, now) < 0;
    Py_XDECREF(now);
    return failed ? -1 : 0;
}

int busy_begin(void)
{
    return add_to_busy(1);
}

int busy_end(void)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    if (add_to_busy(-1) < 0) {
        Py_XDECREF(kind);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return -1;
    }
    PyErr_Restore(kind, error, trace);
    return 0;
}

/* An evaluation that is kept: the exceptions that arose (new), None where Python has to do it. */
static PyObject *play(PyObject *found, PyObject *roots)
{
    PyObject *kept = PyTuple_GET_ITEM(found, 0), *begun = PyTuple_GET_ITEM(found, 3);
    int keeps = is_keeping(PyTuple_GET_ITEM(kept, PLAN));
    int chosen = keeps != 0 ? 0
        : is_chosen(PyTuple_GET_ITEM(kept, ELIDED), PyTuple_GET_ITEM(found, 1), roots);
    PyObject *const run[] = {
        PyTuple_GET_ITEM(kept, PROGRAM), PyTuple_GET_ITEM(kept, REPLAY),
        PyTuple_GET_ITEM(kept, PLAN), PyTuple_GET_ITEM(kept, SIZES),
        PyTuple_GET_ITEM(found, 1), PyTuple_GET_ITEM(found, 2), PyTuple_GET_ITEM(begun, 0),
        PyTuple_GET_ITEM(begun, 1), ASKED(GO_ON),
    };
    if (chosen <= 0) {
        return keeps < 0 || chosen < 0 ? NULL : Py_NewRef(Py_None);
    }
    if (busy_begin() < 0) {
        return NULL;
    }
    PyObject *raised = replay_run(NULL, run, 9);
    if (busy_end() < 0) {
        Py_CLEAR(raised);
    }
    return raised;
}

/* What follows a run of these nodes that raised something, or not. `found` (stolen) keeps them. -1:
   an error. */
static int conclude(PyObject *kept, PyObject *found, PyObject *raised, PyObject *rule,
                    PyObject *recorded)
{
    PyObject *choice = PyTuple_GET_ITEM(kept, ELIDED), *nodes = PyTuple_GET_ITEM(found, 1);
    PyObject *left = NULL;
    if (choice != Py_None) {
        left = PyList_GET_SIZE(raised) == 0 ? elided_begin(choice, nodes, recorded)
            : PyObject_CallFunctionObjArgs(ASKED(CHOSEN), PyTuple_GET_ITEM(choice, 0),
                                           PyTuple_GET_ITEM(choice, 1), nodes, NULL);
    }
    Py_DECREF(found); /* nodes that only it kept are not pending any more */
    int failed = (choice != Py_None && left == NULL) || count_replay(kept, rule) < 0;
    if (!failed && choice == Py_None) {
        failed = reset_recorded(recorded) < 0;
    }
    else if (!failed && PyList_GET_SIZE(raised) == 0) {
        failed = elided_end(left) < 0 || reset_recorded(recorded) < 0;
    }
    else if (!failed) {
        PyObject *done = PyObject_CallFunctionObjArgs(ASKED(NOTE_ELIDED), left, raised, NULL);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(left);
    return failed ? -1 : 0;
}

/* The same among other pending operations, of which some may be computed along. */
static PyObject *again_along(PyObject *roots, PyObject *others, PyObject *recorded,
                             PyObject *rule, int waits, long mode)
{
    PyObject *choice = replay_along(roots, others, ASKED(CHOICES), mode);
    if (choice == NULL || choice == Py_None || PyTuple_GET_SIZE(choice) == 3) {
        return choice;
    }
    PyObject *why = PyTuple_GET_ITEM(choice, 0), *more = PyTuple_GET_ITEM(choice, 1);
    PyObject *all = PySequence_Concat(roots, more), *found = NULL;
    if (all != NULL) {
        found = again(all, Py_None, recorded, rule, waits);
        Py_DECREF(all);
    }
    if (found != NULL && PyList_GET_SIZE(more) > 0) {
        int done = PyList_CheckExact(found);
        if (done && count_done(Py_None, why, 1) < 0) {
            Py_CLEAR(found);
        }
        else if (!done) {
            Py_SETREF(found, Py_NewRef(Py_None)); /* Python decides it once more */
        }
    }
    Py_DECREF(choice);
    return found;
}

/* As `again`; `along`: whether others may have been computed with them. */
static PyObject *once_more(PyObject *roots, PyObject *others, PyObject *recorded, PyObject *rule,
                           int waits, int *along)
{
    long mode = is_set_up() ? mode_now(rule, waits) : -1;
    if (mode < 0) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    int among = 0;
    PyObject *found = replay_find(roots, ASKED(TABLE), others, ASKED(WATCHED), mode, &among);
    if (among && found == Py_None) {
        Py_DECREF(found);
        *along = 1;
        return again_along(roots, others, recorded, rule, waits, mode);
    }
    if (found == NULL || found == Py_None) {
        return found;
    }
    if (PyTuple_GET_SIZE(found) == 2) {
        int done = plain_again(PyTuple_GET_ITEM(found, 0), roots, rule, recorded);
        if (done != 0) {
            Py_SETREF(found, done < 0 ? NULL : PyList_New(0));
        }
        return found;
    }
    PyObject *raised = play(found, roots);
    if (raised == NULL || raised == Py_None) {
        Py_DECREF(found);
        return raised;
    }
    PyObject *kept = Py_NewRef(PyTuple_GET_ITEM(found, 0));
    if (conclude(kept, found, raised, rule, recorded) < 0) {
        Py_CLEAR(raised);
    }
    Py_DECREF(kept);
    return raised;
}

PyObject *again(PyObject *roots, PyObject *others, PyObject *recorded, PyObject *rule, int waits)
{
    PyObject *lone = lone_root(roots);
    double began = lone == NULL ? 0 : seconds_now();
    int along = 0;
    PyObject *raised = once_more(roots, others, recorded, rule, waits, &along);
    if (lone != NULL && !along && raised != NULL && PyList_CheckExact(raised)) {
        alone_looked(lone, seconds_now() - began);
    }
    return raised;
}

/* again(roots, others, recorded, rule, waits): as above. */
PyObject *replay_again(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 5) {
        PyErr_SetString(PyExc_TypeError, "again: expected roots and what was recorded");
        return NULL;
    }
    return again(args[0], args[1], args[2], args[3], args[4] == Py_True);
}
