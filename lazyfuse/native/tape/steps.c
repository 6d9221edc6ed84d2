/* What is known of calls: how often one came, and its template once Python has made one. */

#include "tape.h"

#include <string.h>

enum { LIMIT = 4096, SLOTS = 2 * LIMIT, LATER = 256, FEW = 65, FEWER = 64, OFTEN = 48 };
/* How many times as long a way may take that is tried at all visits to be tried. */
static const double FAR = 2;

/* A call that was met before. */
typedef struct {
    uint64_t hash;
    Py_ssize_t count;
    int holds, visits; /* visits below zero: it is not recorded the same way each time */
    int by_value; /* whether its numbers decide what is recorded */
    PyObject *template; /* NULL: none yet */
    Small *small; /* the same of a call on small arrays alone */
    PyObject *called; /* the name under which calls are counted, if they are NumPy's at once; True */
    int reads; /* such a call was made on arrays that cannot be written: it writes to none */
    int compares; /* such a call records, too, and has been done when it returns */
    double seconds[2]; /* the least of late that our function took, and NumPy's; 0: not known */
    PyObject **held;
    uint64_t words[];
} Step;

static Step *table[SLOTS];
static int known, after; /* `after`: the visit at which a template is made; 0: never */
static long followed; /* calls that were done by their templates */

static uint64_t hash_of(const Call *call)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ (uint64_t)call->count;
    for (Py_ssize_t at = 0; at < call->count; at++) {
        hash = (hash ^ call->words[at]) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    return hash;
}

/* Where the step of a call is, or would be. */
static Step **place_of(const Call *call, uint64_t hash)
{
    size_t at = (size_t)hash % SLOTS;
    while (table[at] != NULL &&
           (table[at]->hash != hash || table[at]->count != call->count ||
            memcmp(table[at]->words, call->words, (size_t)call->count * sizeof(uint64_t)) != 0)) {
        at = (at + 1) % SLOTS;
    }
    return &table[at];
}

static void release_step(Step *step)
{
    for (int each = 0; each < step->holds; each++) {
        Py_DECREF(step->held[each]);
    }
    Py_XDECREF(step->template);
    Py_XDECREF(step->called);
    small_free(step->small);
    PyMem_Free(step->held);
    PyMem_Free(step);
}

static void forget_all(void)
{
    known = 0;
    for (size_t at = 0; at < SLOTS; at++) {
        Step *step = table[at];
        table[at] = NULL; /* before anything is released: that may come back here */
        if (step != NULL) {
            release_step(step);
        }
    }
}

/* A step for a call that was not met before; NULL: no memory, which only costs time. */
static Step *step_new(const Call *call, uint64_t hash)
{
    Step *step = PyMem_Malloc(sizeof(Step) + (size_t)call->count * sizeof(uint64_t));
    PyObject **held = PyMem_Malloc((size_t)call->holds * sizeof(PyObject *));
    if (step == NULL || held == NULL) {
        PyMem_Free(step);
        PyMem_Free(held);
        return NULL;
    }
    *step = (Step){.hash = hash, .count = call->count, .holds = call->holds, .held = held};
    memcpy(step->words, call->words, (size_t)call->count * sizeof(uint64_t));
    for (int at = 0; at < call->holds; at++) {
        held[at] = Py_NewRef(call->held[at]);
    }
    if (known >= LIMIT) {
        forget_all();
    }
    Step **place = place_of(call, hash);
    if (*place != NULL) { /* what was released has made the same call */
        release_step(step);
        return *place;
    }
    *place = step;
    known++;
    return step;
}

/* The node of an array, or of the block that it lies in (borrowed); NULL: it has none. */
static PyObject *node_below(PyObject *x)
{
    Core *core = (Core *)x;
    return EAGER(x) != Py_None || core->node == NULL ? NULL
        : core->node != Py_None ? core->node : any_node(core);
}

/* Whether an array waits: it is pending, or a part of a pending block. */
static int waits(PyObject *x)
{
    PyObject *node = node_below(x);
    return node != NULL && IS_NODE(node) && is_pending(node);
}

/* Whether a result waits, or one of several. */
static int waits_among(PyObject *result)
{
    int found = IS_ARRAY(result) && waits(result);
    for (Py_ssize_t at = 0; PyTuple_CheckExact(result) && at < PyTuple_GET_SIZE(result); at++) {
        found |= waits_among(PyTuple_GET_ITEM(result, at));
    }
    return found;
}

/* Whether an array has the node of an operand, as a copy that shares its values. */
static int shares_node(const Call *call, PyObject *x)
{
    PyObject *node = ((Core *)x)->node;
    for (int at = 0; node != NULL && node != Py_None && at < call->operands_count; at++) {
        if (call->operands[at] != x && node_below(call->operands[at]) == node) {
            return 1;
        }
    }
    return 0;
}

/* Whether a call has recorded something: what it gave waits, or is a part or a copy of an operand,
   or a number for which it `noted` operations; or an operand waits now. */
static int has_recorded(const Call *call, PyObject *result, int noted)
{
    if (PyTuple_CheckExact(result) || PyList_CheckExact(result)) {
        for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(result); at++) {
            if (!has_recorded(call, PySequence_Fast_GET_ITEM(result, at), noted)) {
                return 0;
            }
        }
        return PySequence_Fast_GET_SIZE(result) > 0;
    }
    if (IS_ARRAY(result) || (PyObject *)Py_TYPE(result) == hooks.scalar) {
        PyObject *storage = EAGER(result) == Py_None ? ((Core *)result)->storage : NULL;
        int count = storage == NULL || storage == Py_None ? 0 : call->operands_count;
        for (int at = 0; at < count; at++) {
            if (((Core *)call->operands[at])->storage == storage) {
                return 1;
            }
        }
        return waits(result) || (IS_ARRAY(result) && shares_node(call, result));
    }
    for (int at = 0; result == Py_None && at < call->operands_count; at++) {
        if (waits(call->operands[at]) || shares_node(call, call->operands[at])) {
            return 1;
        }
    }
    return (noted || call->waits) && PyArray_CheckScalar(result) && !PyArray_Check(result);
}

/* What Python makes of a call, with operands that have no values (new). */
static PyObject *traced(PyObject *hook, const Call *call, PyObject *function,
                        PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject *given = PyTuple_New(count + named), *numbers = PyTuple_New(call->numbers_count);
    PyObject *made = NULL;
    for (Py_ssize_t at = 0; given != NULL && at < count + named; at++) {
        PyTuple_SET_ITEM(given, at, Py_NewRef(args[at]));
    }
    for (int at = 0; numbers != NULL && at < call->numbers_count; at++) {
        PyTuple_SET_ITEM(numbers, at, PyLong_FromLong(call->numbers[at]));
    }
    if (given != NULL && numbers != NULL) {
        tracing_thread = PyThread_get_thread_ident();
        made = PyObject_CallFunctionObjArgs(
            hook, function, given, names == NULL ? Py_None : names, numbers, NULL);
        tracing_thread = 0;
    }
    Py_XDECREF(numbers);
    Py_XDECREF(given);
    return made;
}

/* Has Python make the template of a call; -1 with an exception that is the program's. */
static int trace(const Call *call, uint64_t hash, PyObject *function, PyObject *const *args,
                 Py_ssize_t count, PyObject *names)
{
    PyObject *made = traced(hooks.traced, call, function, args, count, names);
    if (made == NULL) {
        return -1;
    }
    Step *step = *place_of(call, hash);
    if (step != NULL && made == Py_False) {
        step->by_value = 1;
    }
    else if (step != NULL && made == Py_None) {
        step->visits = -LATER;
    }
    else if (step != NULL) {
        Py_XSETREF(step->template, Py_NewRef(made));
    }
    Py_DECREF(made);
    return 0;
}

/* What has happened so far: what a call adds says who has done it. */
typedef struct {
    long notes;
    PyObject *calls; /* of NumPy's functions, by name */
    PyObject *noted; /* operations that are recorded meanwhile, with their arguments */
    PyObject *outer; /* the same of a call around it, or NULL */
    int begun;       /* 0: another thread learns now */
} Done;

/* `theirs`: the function of NumPy that may have run; NULL: none, and no calls are asked for. */
static int look_at_done(Done *done, PyObject *theirs)
{
    *done = (Done){.notes = notes_made, .begun = theirs == NULL};
    if (theirs == NULL) {
        return 0;
    }
    PyObject *noted = PyList_New(0); /* a collection may begin to note in another thread */
    if (noted == NULL) {
        return -1;
    }
    if (operations_noted != NULL && noting_thread != PyThread_get_thread_ident()) {
        Py_DECREF(noted);
        return 0;
    }
    done->begun = 1;
    done->noted = noted;
    done->outer = operations_noted; /* this thread's, before Python runs and another may begin */
    operations_noted = Py_NewRef(done->noted);
    noting_thread = PyThread_get_thread_ident();
    done->calls = PyObject_CallNoArgs(hooks.calls_counted);
    return done->calls == NULL ? -1 : 0;
}

/* Ends what `look_at_done` has begun: what was noted counts for the call around, too. */
static void end_done(Done *done)
{
    if (done->noted != NULL && operations_noted == done->noted) {
        Py_SETREF(operations_noted, done->outer);
        if (done->outer != NULL) {
            PyObject *kind, *error, *trace;
            PyErr_Fetch(&kind, &error, &trace);
            if (PyList_SetSlice(done->outer, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, done->noted) < 0) {
                PyErr_Clear();
            }
            PyErr_Restore(kind, error, trace);
        }
    }
    Py_XDECREF(done->noted);
    Py_XDECREF(done->calls);
}

/* Whether an operand waits. */
static int waits_below(const Call *call)
{
    int at = 0;
    while (at < call->operands_count && !waits(call->operands[at])) {
        at++;
    }
    return at < call->operands_count;
}

/* Evaluates the operands that wait; -1 with an exception. */
static int settle(const Call *call)
{
    PyObject *nodes = PyList_New(0);
    for (int at = 0; nodes != NULL && at < call->operands_count; at++) {
        if (waits(call->operands[at]) && PyList_Append(nodes, node_below(call->operands[at])) < 0) {
            Py_CLEAR(nodes);
        }
    }
    PyObject *const given[] = {nodes, hooks.gather_rule};
    PyObject *done = nodes == NULL || hooks.gather_rule == NULL ? NULL
        : evaluate_nodes(NULL, given, 2);
    Py_XDECREF(done);
    Py_XDECREF(nodes);
    return done == NULL ? -1 : 0;
}

/* Notes that NumPy may do such a call at once: it has, or all that was recorded is done, exactly;
   all operands have their values now, the results are arrays and numbers. 1: it may, 0: it may not,
   -1: an error. */
static int note_called(const Call *call, uint64_t hash, PyObject *theirs, PyObject *result,
                       const Done *before)
{
    if (theirs == NULL || !is_taken_over(result) || waits_among(result) || waits_below(call)) {
        return 0;
    }
    PyObject *name = PyObject_CallFunctionObjArgs(
        hooks.called_name, theirs, before->calls, before->noted, NULL);
    if (name == NULL || name == Py_None) {
        Py_XDECREF(name);
        return name == NULL ? -1 : 0;
    }
    Step *step = *place_of(call, hash); /* Python has run: the table may be another */
    if (step == NULL) {
        Py_DECREF(name);
        return 1;
    }
    Py_XSETREF(step->called, name);
    step->compares = notes_made != before->notes;
    step->seconds[0] = step->seconds[1] = 0;
    step->visits = 0;
    return 1;
}

/* Notes what came of a call that was met often enough; -1 with an exception. */
static int learn(const Call *call, uint64_t hash, PyObject *const *objects, PyObject *const *args,
                 Py_ssize_t count, PyObject *names, PyObject *result, const Done *before)
{
    if (tracing_thread != 0) { /* another thread's call, begun meanwhile: later */
        return 0;
    }
    Step *step;
    if (!call->is_settled && has_recorded(call, result, notes_made != before->notes)) {
        int failed = trace(call, hash, objects[0], args, count, names);
        step = *place_of(call, hash);
        if (failed || step == NULL || step->visits >= 0) {
            return failed;
        }
    }
    int done = *place_of(call, hash) == NULL ? 1
        : note_called(call, hash, objects[1], result, before);
    step = *place_of(call, hash);
    if (done == 0 && step != NULL) {
        step->visits = -LATER;
    }
    return done < 0 ? -1 : 0;
}

/* The call as it was done before (new); NULL without an exception: Python does it. */
static PyObject *again(Step *step, Call *call, PyObject *theirs, PyObject *const *args,
                       Py_ssize_t count, PyObject *names)
{
    PyObject *found = NULL;
    if (step->template != NULL) {
        PyObject *template = Py_NewRef(step->template);
        found = template_follow(template, call, args);
        Py_DECREF(template);
    }
    else if (step->called != NULL && theirs != NULL) {
        PyObject *name = Py_NewRef(step->called);
        uint64_t hash = step->hash;
        int reads = step->reads;
        /* some of NumPy's functions copy indices that cannot be written (take: ten times as long) */
        if (!call->waits || settle(call) == 0) {
            found = call_numpy(theirs, args, count, names, !reads);
        }
        else if (PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear(); /* Python meets it again */
        }
        step = *place_of(call, hash);
        if (found != NULL) {
            if (name != Py_True) {
                count_run(name);
            }
            if (step != NULL) {
                step->reads = 1;
            }
        }
        else if (step != NULL) {
            step->visits = -LATER; /* it gives something else now, or fails */
            step->reads = step->compares = 0;
            Py_CLEAR(step->called);
        }
        Py_DECREF(name);
    }
    followed += found != NULL;
    return found;
}

/* A call that our function and NumPy's both do to the end: by the one that was quicker of late. The
   other is tried at visits that are powers of two, seldom if it takes much longer. */
static PyObject *quicker(Step *step, Call *call, PyObject *const *functions,
                         PyObject *const *args, size_t flags, PyObject *names)
{
    int visit = step->visits = step->visits >= LATER ? FEW : step->visits + 1;
    double ours = step->seconds[0], numpys = step->seconds[1];
    int is_near = ours < FAR * numpys && numpys < FAR * ours;
    int tries = (visit & (visit - 1)) == 0 && (is_near || visit % FEWER == 0);
    int which = numpys == 0 || (ours != 0 && (numpys < ours) != tries);
    uint64_t hash = step->hash;
    double began = seconds_now();
    PyObject *found = which == 0 ? NULL
        : again(step, call, functions[1], args, PyVectorcall_NARGS(flags), names);
    if (found == NULL && !PyErr_Occurred()) {
        which = 0;
        found = PyObject_Vectorcall(functions[0], args, flags, names);
    }
    double took = seconds_now() - began;
    step = *place_of(call, hash);
    if (step != NULL && step->compares) {
        step->seconds[which] = least_of_late(step->seconds[which], took);
    }
    return found;
}

/* Does a call that was described, and learns how; `objects`: our function, NumPy's. */
static PyObject *stepped(Call *call, uint64_t hash, PyObject *const *objects,
                         PyObject *const *args, size_t flags, PyObject *names)
{
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    Step *step = *place_of(call, hash);
    if (step == NULL && (step = step_new(call, hash)) == NULL) {
        return PyObject_Vectorcall(objects[0], args, flags, names);
    }
    if (step->called != NULL && call->waits && !is_alone()) { /* chunks may be pending */
        return PyErr_Occurred() ? NULL : PyObject_Vectorcall(objects[0], args, flags, names);
    }
    if (step->compares && objects[1] != NULL) {
        return quicker(step, call, objects, args, flags, names);
    }
    if (step->template != NULL || step->called != NULL) {
        PyObject *found = again(step, call, objects[1], args, count, names);
        return found != NULL || PyErr_Occurred()
            ? found : PyObject_Vectorcall(objects[0], args, flags, names);
    }
    int learns = ++step->visits >= after &&
        (operations_noted == NULL || noting_thread == PyThread_get_thread_ident());
    Done before = {0};
    PyObject *result = learns && look_at_done(&before, objects[1]) < 0
        ? NULL : PyObject_Vectorcall(objects[0], args, flags, names);
    if (result != NULL && before.begun &&
        learn(call, hash, objects, args, count, names, result, &before) < 0) {
        Py_CLEAR(result);
    }
    end_done(&before);
    return result;
}

/* Whether calls are remembered now, by this thread. */
static int may_follow(void)
{
    PyObject *listeners = after == 0 || hooks.traced == NULL || tracing_thread != 0 ? NULL
        : PyDict_GetItemWithError(hooks.tracing, name_listeners);
    return listeners != NULL && PyTuple_CheckExact(listeners) &&
           PyTuple_GET_SIZE(listeners) == 0 && stretch_thread == 0 && may_record();
}

/* Has Python make the program of a call, and compares what it gives with what NumPy gives (new). */
static PyObject *make_small(const Call *call, uint64_t hash, PyObject *const *objects,
                            PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *made = traced(hooks.small_program, call, objects[0], args, count, names);
    Small *small = made == NULL || made == Py_None ? NULL : small_new(made);
    Py_XDECREF(made);
    PyObject *wanted = small == NULL ? NULL : call_numpy(objects[1], args, count, names, 1);
    Call now; /* what Python has run may have changed operands */
    int still = wanted != NULL && describe_call(&now, objects[0], args, count, names, 0, 0, 1) &&
                now.count == call->count &&
                memcmp(now.words, call->words, (size_t)now.count * sizeof(uint64_t)) == 0;
    PyObject *found = still ? small_run(small, &now, args) : NULL;
    PyObject *same = found == NULL ? NULL
        : PyObject_CallFunctionObjArgs(hooks.is_same, found, wanted, NULL);
    Step *step = *place_of(call, hash); /* Python has run: the table may be another */
    if (same == Py_True && step != NULL && step->small == NULL) {
        step->small = small;
        small = NULL;
    }
    small_free(small);
    Py_XDECREF(found);
    Py_XDECREF(same);
    if (PyErr_Occurred()) {
        Py_CLEAR(wanted);
    }
    return wanted;
}

PyObject *step_small(PyObject *function, PyObject *theirs, PyObject *const *args, Py_ssize_t count,
                     PyObject *names, int *has_none)
{
    Call call;
    if (!may_follow() || hooks.small_program == NULL ||
        !describe_call(&call, function, args, count, names, 0, 0, 1)) {
        return NULL;
    }
    uint64_t hash = hash_of(&call);
    Step *step = *place_of(&call, hash);
    if (step == NULL && (step = step_new(&call, hash)) == NULL) {
        return NULL;
    }
    int operands = call.operands_count;
    PyObject *found = NULL;
    *has_none = step->small == NULL && step->visits < 0;
    /* a program costs what it saves in some hundred calls */
    if (*has_none || (step->small == NULL && ++step->visits <= OFTEN * (after - 1))) {
        return NULL;
    }
    for (int at = 0; at < operands; at++) {
        Py_INCREF(call.operands[at]); /* those in a list may leave it during the call */
    }
    if (step->small == NULL) {
        PyObject *const objects[] = {function, theirs};
        step->visits = -LATER; /* unless it gets one */
        found = make_small(&call, hash, objects, args, count, names);
    }
    else if ((found = small_run(step->small, &call, args)) != NULL) {
        followed++;
    }
    for (int at = 0; at < operands; at++) {
        Py_DECREF(call.operands[at]);
    }
    return found;
}

PyObject *step_function(PyObject *function, PyObject *theirs, PyObject *const *args, size_t flags,
                        PyObject *names, Py_ssize_t fixed)
{
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    Call call;
    if (!may_follow() || !describe_call(&call, function, args, count, names, fixed, 0, 0) ||
        (call.is_settled && theirs == NULL)) {
        return PyObject_Vectorcall(function, args, flags, names);
    }
    uint64_t hash = hash_of(&call);
    Step *step = *place_of(&call, hash);
    if (step != NULL && step->by_value) {
        if (!describe_call(&call, function, args, count, names, fixed, 1, 0)) {
            return PyObject_Vectorcall(function, args, flags, names);
        }
        hash = hash_of(&call);
    }
    int operands = call.operands_count;
    for (int at = 0; at < operands; at++) {
        Py_INCREF(call.operands[at]); /* those in a list may leave it during the call */
    }
    PyObject *const objects[] = {function, theirs};
    PyObject *result = stepped(&call, hash, objects, args, flags, names);
    for (int at = 0; at < operands; at++) {
        Py_DECREF(call.operands[at]);
    }
    return result;
}

PyObject *step_call(PyObject *function, PyObject *const *args, size_t flags, PyObject *names,
                    Py_ssize_t fixed)
{
    return step_function(function, NULL, args, flags, names, fixed);
}

PyObject *steps_after(PyObject *Py_UNUSED(module), PyObject *visits)
{
    long found = PyLong_AsLong(visits);
    if (found == -1 && PyErr_Occurred()) {
        return NULL;
    }
    after = (int)(found > LATER ? LATER : found);
    forget_all();
    Py_RETURN_NONE;
}

PyObject *steps_forget(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    forget_all();
    Py_RETURN_NONE;
}

PyObject *steps_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("il", known, followed);
}
