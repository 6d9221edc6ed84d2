/* Evaluations that were done before, done again in one step: found by their key, played, and
   committed. Python goes on where an event is its own (native_replay.go_on). */

#include "replay.h"

/* What evaluations.py keeps by a key. */
enum { PROGRAM, VALUES, OPERANDS, PLAN, CACHE, REPLAY, SIZES, PINS, ELIDED };
/* As there: a caller waits; how many bits of the mode come before the number of the state. */
enum { WAITS_BIT = 4, BITS = 3 };

/* Reserves the blocks that a replay takes: 1, 0 where memory is short, -1 with an exception.
   `held`: whether they are to be released. */
static int reserve(PyObject *replay, PyObject *pool, int *held)
{
    PyObject *blocks = PyObject_GetAttr(replay, name_blocks);
    int any = blocks == NULL ? -1 : PyObject_IsTrue(blocks);
    PyObject *done = any > 0 ? PyObject_CallMethodOneArg(pool, name_reserve, blocks) : NULL;
    int fine = any <= 0 ? any + 1 : done == NULL ? -1 : PyObject_IsTrue(done);
    *held = any > 0 && fine > 0;
    Py_XDECREF(done);
    Py_XDECREF(blocks);
    return any < 0 ? -1 : fine;
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
    if (given != 9) {
        PyErr_SetString(PyExc_TypeError, "run: expected a replay, and what it runs on");
        return NULL;
    }
    PyObject *device = PyObject_GetAttr(args[1], name_device), *raised = NULL;
    PyObject *pool = device == NULL ? NULL : PyObject_GetAttr(device, name_buffers);
    int held = 0, fine = pool == NULL ? -1 : reserve(args[1], pool, &held);
    if (fine == 0) {
        raised = Py_NewRef(Py_None);
    }
    else if (fine > 0) {
        PyObject *stop = play_all(args, pool), *kind, *error, *trace;
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
    if (held) {
        release(pool);
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(raised);
    }
    Py_XDECREF(pool);
    Py_XDECREF(device);
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
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != ASKED_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "replay_setup: expected what evaluations ask for");
        return NULL;
    }
    Py_XSETREF(asked, Py_NewRef(given));
    Py_RETURN_NONE;
}

int add_to(PyObject *numbers, PyObject *key, long more)
{
    PyObject *before = PyDict_GetItemWithError(numbers, key);
    PyObject *now = PyErr_Occurred() ? NULL
        : PyLong_FromLong(more + (before == NULL ? 0 : PyLong_AsLong(before)));
    int failed = now == NULL || PyErr_Occurred() || PyDict_SetItem(numbers, key, now) < 0;
    Py_XDECREF(now);
    return failed ? -1 : 0;
}

/* Adds to a number that is an attribute; -1: an error. */
static int add_to_name(PyObject *object, PyObject *name, long more)
{
    PyObject *before = PyObject_GetAttr(object, name);
    PyObject *now = before == NULL ? NULL : PyLong_FromLong(more + PyLong_AsLong(before));
    int failed = now == NULL || PyErr_Occurred() || PyObject_SetAttr(object, name, now) < 0;
    Py_XDECREF(before);
    Py_XDECREF(now);
    return failed ? -1 : 0;
}

int add_in(PyObject *object, PyObject *name, PyObject *key, long more)
{
    PyObject *numbers = PyObject_GetAttr(object, name);
    int done = numbers == NULL || !PyDict_Check(numbers) ? -1 : add_to(numbers, key, more);
    Py_XDECREF(numbers);
    return done;
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
    PyObject *totals = PyDict_GetItemWithError(ASKED(COUNTERS), name_totals);
    PyObject *cache = PyTuple_GET_ITEM(kept, CACHE), *none = PyLong_FromLong(0);
    PyObject *program = PyObject_GetAttr(PyTuple_GET_ITEM(kept, REPLAY), name_program);
    int fine = totals != NULL && none != NULL && program != NULL && PyList_Check(program) &&
        PyList_GET_SIZE(program) == 3 && PyObject_SetAttr(cache, name_unmet, none) == 0 &&
        PyObject_SetAttr(cache, name_learnt, none) == 0 &&
        add_to(ASKED(COUNTS), name_evaluations, 1) == 0 &&
        add_to(ASKED(COUNTS), name_plan_hits, 1) == 0 &&
        add_in(totals, name_flushes, rule, 1) == 0 &&
        add_in(totals, name_decisions, ASKED(REPLAYED), 1) == 0;
    PyObject *launched = fine ? PyList_GET_ITEM(program, 1) : NULL;
    long numbers = fine ? PyLong_AsLong(PyList_GET_ITEM(program, 2)) : 0;
    PyObject *languages = fine ? PyTuple_GET_ITEM(launched, 1) : NULL;
    fine = fine && (numbers == 0 || add_to_name(totals, name_singles, numbers) == 0) &&
        add_to_name(totals, name_fused, PyLong_AsLong(PyTuple_GET_ITEM(launched, 0))) == 0;
    for (Py_ssize_t at = 0; fine && at < PyTuple_GET_SIZE(languages); at++) {
        PyObject *each = PyTuple_GET_ITEM(languages, at);
        long count = PyLong_AsLong(PyTuple_GET_ITEM(each, 1));
        fine = add_to_name(totals, name_kernels, count) == 0 &&
            add_in(totals, name_languages, PyTuple_GET_ITEM(each, 0), count) == 0 &&
            add_in(totals, name_launches, name_cpu, count) == 0;
    }
    Py_XDECREF(none);
    Py_XDECREF(program);
    return fine && !PyErr_Occurred() ? 0 : -1;
}

int busy_begin(void)
{
    return add_to(ASKED(CONCURRENCY), name_busy, 1);
}

int busy_end(void)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    if (add_to(ASKED(CONCURRENCY), name_busy, -1) < 0) {
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
        PyObject *totals = PyDict_GetItemWithError(ASKED(COUNTERS), name_totals);
        int done = PyList_CheckExact(found);
        if (done && (totals == NULL || add_in(totals, name_decisions, why, 1) < 0)) {
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
