/* Replays a captured run in C.

   program.c turns a replay into numbers, `begin` finds the blocks of such a program. `play` goes
   through its events up to the next that needs Python (a NumPy call, floating-point exceptions to
   report, Python threads). `commit` gives the nodes their values. */

#include "replay.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- begin */

/* begin(program, env): the blocks and their addresses; None: they differ from the captured run. */
PyObject *replay_begin(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 2 || !Py_IS_TYPE(args[0], &ReplayProgramType) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "begin: expected a program and values");
        return NULL;
    }
    Program *self = (Program *)args[0];
    Py_ssize_t known = PyTuple_GET_SIZE(self->leaves);
    PyObject *roots = PyList_New(self->blocks), *addresses = PyList_New(self->blocks);
    int fits = roots != NULL && addresses != NULL;
    for (Py_ssize_t i = 0; fits && i < self->blocks; i++) {
        PyObject *root = Py_None;
        void *address = NULL;
        if (i < known) {
            Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(self->leaves, i));
            int is_there = index >= 0 && index < PyList_GET_SIZE(args[1]);
            root = is_there ? PyList_GET_ITEM(args[1], index) : NULL;
            fits = root != NULL && IS_REAL(root);
            address = fits ? PyArray_DATA((PyArrayObject *)root) : NULL;
        }
        PyList_SET_ITEM(roots, i, Py_NewRef(fits ? root : Py_None));
        PyObject *number = PyLong_FromVoidPtr(address);
        if (number == NULL) {
            fits = 0;
        }
        PyList_SET_ITEM(addresses, i, number == NULL ? Py_NewRef(Py_None) : number);
    }
    for (Py_ssize_t i = 0; fits && known > 1 && i < PyTuple_GET_SIZE(self->written); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(self->written, i));
        PyArrayObject *root = (PyArrayObject *)PyList_GET_ITEM(roots, at);
        char *start = PyArray_BYTES(root), *end = start + PyArray_NBYTES(root);
        for (Py_ssize_t other = 0; fits && other < known; other++) {
            PyArrayObject *each = (PyArrayObject *)PyList_GET_ITEM(roots, other);
            char *from = PyArray_BYTES(each), *to = from + PyArray_NBYTES(each);
            fits = other == at || !(start < to && from < end);
        }
    }
    for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(self->given); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(self->given, i));
        fits = is_unseen(PyList_GET_ITEM(roots, at), 3); /* the two lists and the node */
    }
    PyObject *result = NULL;
    if (fits) {
        result = PyTuple_Pack(2, roots, addresses);
    }
    else if (!PyErr_Occurred()) {
        result = Py_NewRef(Py_None);
    }
    Py_XDECREF(roots);
    Py_XDECREF(addresses);
    return result;
}

/* ----------------------------------------------------------------------------------------- play */

/* A run of a program. */
typedef struct {
    Program *program;
    PyObject *roots, *addresses, *env, *nodes, *pool;
    int64_t *at; /* addresses as numbers */
} Turn;

static int set_address(Turn *turn, Py_ssize_t root, int64_t address)
{
    PyObject *number = PyLong_FromLongLong(address);
    turn->at[root] = address;
    return number == NULL ? -1 : PyList_SetItem(turn->addresses, root, number);
}

static int set_block(Turn *turn, Py_ssize_t root, PyObject *array) /* steals it */
{
    if (array == NULL || !IS_REAL(array)) {
        Py_XDECREF(array);
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "play: expected an array");
        }
        return -1;
    }
    int64_t address = (int64_t)(intptr_t)PyArray_DATA((PyArrayObject *)array);
    PyList_SetItem(turn->roots, root, array);
    return set_address(turn, root, address);
}

/* The address and the type of a scalar, -1: C does not read it. */
static int find_scalar(const Turn *turn, const Scalar *scalar, const char **from)
{
    if (scalar->index < 0) {
        *from = (const char *)(intptr_t)(turn->at[scalar->place.root] + scalar->place.offset);
        return scalar->type;
    }
    PyObject *value = PyList_GetItem(turn->env, scalar->index);
    if (value == NULL) {
        PyErr_Clear();
        return -1;
    }
    if (!IS_REAL(value) || PyArray_NDIM((PyArrayObject *)value) != 0) {
        return -1;
    }
    *from = PyArray_BYTES((PyArrayObject *)value);
    return plain_type((PyArrayObject *)value);
}

/* Packs a scalar as programs read it (`NumbaProgram.pack`), two words. 0: Python does it. */
static int pack_scalar(const char *from, int type, char kind, int64_t *to)
{
#define AS(code, number, kept, letter)                                                             \
    case code: {                                                                                   \
        number found;                                                                              \
        memcpy(&found, from, sizeof found);                                                        \
        kept value = (kept)found;                                                                  \
        memcpy(to, &value, sizeof value);                                                          \
        return kind == letter;                                                                     \
    }
    to[0] = to[1] = 0;
    switch (type) {
        AS(NPY_BOOL, npy_bool, int64_t, 'b')
        AS(NPY_BYTE, npy_byte, int64_t, 'i')
        AS(NPY_SHORT, npy_short, int64_t, 'i')
        AS(NPY_INT, npy_int, int64_t, 'i')
        AS(NPY_LONG, npy_long, int64_t, 'i')
        AS(NPY_LONGLONG, npy_longlong, int64_t, 'i')
        AS(NPY_UBYTE, npy_ubyte, uint64_t, 'u')
        AS(NPY_USHORT, npy_ushort, uint64_t, 'u')
        AS(NPY_UINT, npy_uint, uint64_t, 'u')
        AS(NPY_ULONG, npy_ulong, uint64_t, 'u')
        AS(NPY_ULONGLONG, npy_ulonglong, uint64_t, 'u')
        AS(NPY_FLOAT, npy_float, double, 'f')
        AS(NPY_DOUBLE, npy_double, double, 'f')
    case NPY_CDOUBLE:
        memcpy(to, from, 16);
        return kind == 'c';
    case NPY_CFLOAT: {
        float parts[2];
        memcpy(parts, from, sizeof parts);
        double wide[2] = {parts[0], parts[1]};
        memcpy(to, wide, sizeof wide);
        return kind == 'c';
    }
    default:
        return 0;
    }
#undef AS
}

enum { FEW = 40, DONE = -3, NOT_BEGUN = -2, FAILED = -1 };

#define EXACT_IN_DOUBLE 9007199254740992.0 /* whole numbers up to 2^53 */

static long start_with(Turn *turn, Event *event, const Crew *crew)
{
    int64_t few[FEW], packed[FEW * WORDS], *addresses = few, *scalars = packed;
    if (event->places_count > FEW || event->scalars_count > FEW) {
        return NOT_BEGUN;
    }
    for (Py_ssize_t i = 0; i < event->scalars_count; i++) {
        const char *from = NULL;
        int type = find_scalar(turn, &event->scalars[i], &from);
        if (type < 0 || !pack_scalar(from, type, event->kinds[i], scalars + WORDS * i)) {
            return NOT_BEGUN;
        }
    }
    for (Py_ssize_t i = 0; i < event->places_count; i++) {
        addresses[i] = turn->at[event->places[i].root] + event->places[i].offset;
    }
    long flags = rows_launch(event->first, addresses, (char *)scalars, crew);
    if (flags < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_RuntimeError, "[launch] the program raised an exception");
        }
        return FAILED;
    }
    if (flags != 0 || event->ends_in_python) {
        return flags;
    }
    for (Py_ssize_t i = 0; i < event->combining_count; i++) {
        const Combining *one = &event->combining[i];
        if (!combine(one, (const char *)(intptr_t)(turn->at[one->from.root] + one->from.offset),
                     (char *)(intptr_t)(turn->at[one->to.root] + one->to.offset))) {
            return 0;
        }
    }
    return DONE;
}

/* As in base.py and native_threads.py. */
enum { CREW = 2, CHANGES = 5, SURE = 6, CREW_FIELDS = 7, LATE_WORD = 64 };

/* How often workers of a team were late. */
static int64_t late_of(PyObject *crew)
{
    const int64_t *words = PyLong_AsVoidPtr(PyTuple_GET_ITEM(crew, CREW));
    return words == NULL ? 0 : words[LATE_WORD];
}

/* Who shares the chunks of a launch (new): as Python has said, while the number of threads is what
   it was then, no worker has been late since, and a time has not come. */
static PyObject *crew_of(Event *event)
{
    static const int64_t *changes;
    int64_t now = changes == NULL ? 0 : *changes;
    if (PyTuple_CheckExact(event->second)) {
        return Py_NewRef(event->second);
    }
    if (event->crew != NULL && event->changes == now && event->late == late_of(event->crew) &&
        (isinf(event->until) || seconds_now() < event->until)) {
        return Py_NewRef(event->crew);
    }
    PyObject *found = PyObject_CallNoArgs(event->second);
    int known = found != NULL && PyTuple_Check(found) && PyTuple_GET_SIZE(found) == CREW_FIELDS;
    const int64_t *lasting = known ? PyLong_AsVoidPtr(PyTuple_GET_ITEM(found, CHANGES)) : NULL;
    if (lasting != NULL && lasting == changes) {
        event->changes = now;
        event->late = late_of(found);
        event->until = seconds_now() + PyFloat_AsDouble(PyTuple_GET_ITEM(found, SURE));
        Py_XSETREF(event->crew, Py_NewRef(found));
    }
    changes = lasting != NULL ? lasting : changes;
    return found;
}

/* DONE; NOT_BEGUN: Python does it; FAILED: an exception; IEEE flags, or 0 where Python does only
   the last part. */
static long start(Turn *turn, Event *event)
{
    Crew crew = {NULL, NULL, NULL, 0};
    if (event->second == Py_None) {
        return start_with(turn, event, &crew);
    }
    PyObject *found = crew_of(event);
    if (found == NULL) {
        return FAILED;
    }
    if (PyTuple_Check(found) && PyTuple_GET_SIZE(found) == CREW_FIELDS) {
        crew.loop = PyLong_AsVoidPtr(PyTuple_GET_ITEM(found, 0));
        crew.share = PyLong_AsVoidPtr(PyTuple_GET_ITEM(found, 1));
        crew.crew = PyLong_AsVoidPtr(PyTuple_GET_ITEM(found, 2));
        crew.helpers = PyLong_AsSsize_t(PyTuple_GET_ITEM(found, 3));
    }
    long flags = PyErr_Occurred() ? FAILED
        : crew.loop == NULL ? NOT_BEGUN : start_with(turn, event, &crew);
    Py_DECREF(found); /* it holds the team, which another thread may dismiss meanwhile */
    return flags;
}

/* A number as one of floating point, by value; 0: NumPy may have something to say of it. */
static int as_float(const char *from, int type, int wanted, char *to)
{
    int64_t wide[WORDS];
    double value;
    if (pack_scalar(from, type, 'f', wide)) {
        memcpy(&value, wide, sizeof value);
    }
    else if (pack_scalar(from, type, 'i', wide) || pack_scalar(from, type, 'b', wide)) {
        value = (double)wide[0];
    }
    else if (pack_scalar(from, type, 'u', wide)) {
        value = (double)(uint64_t)wide[0];
    }
    else {
        return 0;
    }
    float narrow = (float)value;
    if (wanted == NPY_DOUBLE) {
        memcpy(to, &value, sizeof value);
        return 1;
    }
    memcpy(to, &narrow, sizeof narrow);
    int is_whole = !PyTypeNum_ISFLOAT(type); /* a large one would be rounded twice */
    return wanted == NPY_FLOAT && (!is_whole || fabs(value) < EXACT_IN_DOUBLE) &&
           isinf(narrow) == isinf(value) &&
           (narrow == value || isnan(value) || fabsf(narrow) >= FLT_MIN);
}

static long number(Turn *turn, Event *event)
{
    char *args[3] = {NULL, NULL, NULL};
    npy_longdouble room[2], others[2]; /* for any element, aligned */
    for (Py_ssize_t i = 0; i < event->scalars_count; i++) {
        const char *from = NULL;
        int type = find_scalar(turn, &event->scalars[i], &from);
        args[i] = (char *)from;
        if (type != event->type || event->loops == NULL) {
            args[i] = (char *)&others[i];
            if (type < 0 || !as_float(from, type, event->type, args[i])) {
                return NOT_BEGUN;
            }
        }
    }
    args[event->scalars_count] = (char *)room;
    if (event->loops == NULL) { /* nothing but the conversion */
        memcpy(room, others, sizeof others[0]);
    }
    else if (!loops_element(event->loops, event->type, args)) {
        return NOT_BEGUN;
    }
    PyArrayObject *made = (PyArrayObject *)PyArray_SimpleNew(0, NULL, event->out);
    if (made == NULL) {
        return FAILED;
    }
    memcpy(PyArray_DATA(made), room, PyArray_ITEMSIZE(made));
    PyList_SetItem(turn->env, event->item, Py_NewRef(made));
    return set_block(turn, event->places[0].root, (PyObject *)made) < 0 ? FAILED : DONE;
}

static long slide(Turn *turn, Event *event)
{
    Py_ssize_t root = event->places[0].root, source = event->places[1].root;
    Py_ssize_t origin = event->places[0].offset; /* the node's index */
    int is_there = origin >= 0 && origin < PyList_GET_SIZE(turn->nodes);
    PyObject *layout = is_there ? NODE(PyList_GET_ITEM(turn->nodes, origin), arg) : NULL;
    if (layout == NULL || !IS_LAYOUT(layout)) {
        PyErr_SetString(PyExc_IndexError, "play: expected the node of a part");
        return FAILED;
    }
    int64_t offset = PyLong_AsLongLong(PyTuple_GET_ITEM(layout, LAYOUT_OFFSET));
    if (offset == -1 && PyErr_Occurred()) {
        return FAILED;
    }
    int64_t address = turn->at[source] + event->places[1].offset;
    const Step *steps = (const Step *)PyBytes_AS_STRING(event->first);
    for (size_t i = 0; i < PyBytes_GET_SIZE(event->first) / sizeof(Step); i++) {
        address += offset / steps[i].elements * steps[i].bytes;
        offset %= steps[i].elements;
    }
    PyList_SetItem(turn->roots, root, Py_NewRef(PyList_GET_ITEM(turn->roots, source)));
    return set_address(turn, root, address) < 0 ? FAILED : DONE;
}

static long step(Turn *turn, Event *event)
{
    switch (event->kind) {
    case LAUNCH:
        return start(turn, event);
    case BLOCK: {
        PyObject *made = array_from(turn->pool, event->first, event->second);
        return set_block(turn, event->places[0].root, made) < 0 ? FAILED : DONE;
    }
    case COPY: {
        const Place *to = &event->places[0], *from = &event->places[1];
        int done = copy_elements(turn->at[to->root] + to->offset,
                                 turn->at[from->root] + from->offset, event->first);
        return done < 0 ? FAILED : done ? DONE : NOT_BEGUN;
    }
    case WINDOW:
        return slide(turn, event);
    case NUMBER:
        return number(turn, event);
    default:
        return NOT_BEGUN;
    }
}

/* play(program, at, roots, addresses, env, nodes, pool): goes through the events from `at` on.
   None when all are done; else (at, IEEE flags), -2: not begun. A failure leaves the event's
   index in the last address. */
PyObject *replay_play(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 7 || !Py_IS_TYPE(args[0], &ReplayProgramType) || !PyLong_Check(args[1])
        || !PyList_Check(args[2]) || !PyList_Check(args[3]) || !PyList_Check(args[4])
        || !PyList_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "play: expected a program, blocks, values and nodes");
        return NULL;
    }
    int64_t few[64];
    Turn turn = {(Program *)args[0], args[2], args[3], args[4], args[5], args[6], few};
    Program *self = turn.program;
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    if (PyList_GET_SIZE(turn.roots) != self->blocks ||
        PyList_GET_SIZE(turn.addresses) != self->blocks) {
        PyErr_SetString(PyExc_ValueError, "play: expected the program's blocks");
        return NULL;
    }
    if (self->blocks > 64 && (turn.at = PyMem_Malloc(self->blocks * sizeof(int64_t))) == NULL) {
        return PyErr_NoMemory();
    }
    long how = DONE;
    for (Py_ssize_t i = 0; i < self->blocks; i++) {
        turn.at[i] = PyLong_AsLongLong(PyList_GET_ITEM(turn.addresses, i));
    }
    if (at < 0 || PyErr_Occurred()) {
        how = FAILED;
    }
    Py_INCREF(self);
    for (; how == DONE && at < self->count; at++) {
        Event *event = &self->events[at];
        how = step(&turn, event);
        if (how != DONE) {
            break;
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(event->dead); i++) {
            Py_ssize_t root = PyLong_AsSsize_t(PyTuple_GET_ITEM(event->dead, i));
            PyList_SetItem(turn.roots, root, Py_NewRef(Py_None));
        }
    }
    PyObject *result = NULL;
    if (how == FAILED) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        set_address(&turn, self->blocks - 1, at);
        PyErr_Restore(type, value, trace);
    }
    else if (how == DONE) {
        result = Py_NewRef(Py_None);
    }
    else {
        result = Py_BuildValue("nl", at, how);
    }
    if (turn.at != few) {
        PyMem_Free(turn.at);
    }
    Py_DECREF(self);
    return result;
}

/* --------------------------------------------------------------------------------------- commit */

/* commit(program, roots, nodes): gives the results' nodes their values. Returns the
   indices of the results that are parts of blocks: Python makes these arrays. */
PyObject *replay_commit(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 3 || !Py_IS_TYPE(args[0], &ReplayProgramType) || !PyList_Check(args[1])
        || !PyList_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "commit: expected a program, blocks and nodes");
        return NULL;
    }
    Program *self = (Program *)args[0];
    PyObject *left = NULL, *empty = PyTuple_New(0);
    if (empty == NULL) {
        return NULL;
    }
    Py_INCREF(self);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->results); i++) {
        /* (node's index, block, offset, shape, strides, dtype) */
        PyObject *each = PyTuple_GET_ITEM(self->results, i);
        Py_ssize_t origin = PyLong_AsSsize_t(PyTuple_GET_ITEM(each, 0));
        Py_ssize_t root = PyLong_AsSsize_t(PyTuple_GET_ITEM(each, 1));
        Py_ssize_t offset = PyLong_AsSsize_t(PyTuple_GET_ITEM(each, 2));
        PyObject *shape = PyTuple_GET_ITEM(each, 3), *strides = PyTuple_GET_ITEM(each, 4);
        PyObject *block = PyList_GET_ITEM(args[1], root), *node = PyList_GET_ITEM(args[2], origin);
        PyArrayObject *a = (PyArrayObject *)block;
        int whole = offset == 0 && IS_REAL(block) &&
                    (PyObject *)PyArray_DESCR(a) == PyTuple_GET_ITEM(each, 5) &&
                    PyArray_NDIM(a) == PyTuple_GET_SIZE(shape);
        for (int axis = 0; whole && axis < PyArray_NDIM(a); axis++) {
            whole = PyArray_DIM(a, axis) == PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis)) &&
                    PyArray_STRIDE(a, axis) == PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, axis));
        }
        if (whole) {
            Py_XSETREF(NODE(node, value), Py_NewRef(block));
            Py_XSETREF(NODE(node, src), Py_NewRef(empty));
            continue;
        }
        PyObject *number = PyLong_FromSsize_t(i);
        if (left == NULL) {
            left = PyList_New(0);
        }
        if (left == NULL || number == NULL || PyList_Append(left, number) < 0) {
            Py_XDECREF(number);
            Py_CLEAR(left);
            break;
        }
        Py_DECREF(number);
    }
    Py_DECREF(self);
    Py_DECREF(empty);
    if (PyErr_Occurred()) {
        Py_XDECREF(left);
        return NULL;
    }
    return left == NULL ? Py_NewRef(Py_None) : left;
}
