/* Exported memory, which exporters also see. Operations that NumPy does at once on concrete
   values: on small parts of blocks, and exact ones on such memory, which recorded work would have
   to copy. The same in Python: exported_memory.py, eager_policy.py, and the functions of
   operators.py, ufunc.py and indexing.py that ask it. What needs a closer look returns NULL (or
   0) without an exception, and they decide. */

#include "arrays.h"

#include <string.h>

enum { AXES = 32 };

/* ----------------------------------------------------------------------------------------- rows */

/* What the op table says of an op; it lives as long as the module. */
typedef struct {
    PyObject *op, *name;
    unsigned char most[TYPES]; /* times `eager_below`: elements for NumPy; 0: inexact, or none */
} Row;

enum { ROWS = 256 };
static Row rows[ROWS];

static Row *row_of(PyObject *op)
{
    size_t at = ((size_t)op >> 4) % ROWS, tries = 0;
    while (rows[at].op != NULL && rows[at].op != op && tries++ < ROWS) {
        at = (at + 1) % ROWS;
    }
    if (rows[at].op == op) {
        return &rows[at];
    }
    if (rows[at].op != NULL) {
        return NULL;
    }
    PyObject *found = PyObject_CallOneArg(hooks.exact_types, op);
    PyObject *name = PyObject_GetAttr(op, name_name);
    if (rows[at].op != NULL) { /* Python has run: another op, or the same, has the row by now */
        Py_XDECREF(found);
        Py_XDECREF(name);
        PyErr_Clear();
        return rows[at].op == op ? &rows[at] : NULL;
    }
    if (found == NULL || name == NULL || !PyBytes_CheckExact(found) ||
        PyBytes_GET_SIZE(found) != TYPES) {
        Py_XDECREF(found);
        Py_XDECREF(name);
        PyErr_Clear();
        return NULL;
    }
    memcpy(rows[at].most, PyBytes_AS_STRING(found), TYPES);
    rows[at].name = name;
    rows[at].op = Py_NewRef(op);
    Py_DECREF(found);
    return &rows[at];
}

/* ------------------------------------------------------------------------------------- operands */

static int look_at_all(PyObject *const *objects, int count, There *there)
{
    for (int at = 0; at < count; at++) {
        if (!values_look(objects[at], &there[at], 1)) {
            while (at-- > 0) {
                Py_DECREF(there[at].value);
            }
            return 0;
        }
    }
    return 1;
}

static void let_go(There *there, int count)
{
    for (int at = 0; at < count; at++) {
        Py_DECREF(there[at].value);
    }
}

/* ------------------------------------------------------------------------------------ decisions */

/* The result that an operation will have. */
typedef struct {
    int nd, small; /* `small`: as are all operands */
    npy_intp dims[AXES], size;
} Result;

/* The shape to which operands are broadcast; 0: Python does it. */
static int broadcast_values(const There *there, int count, Result *to)
{
    to->nd = 0;
    to->size = 1;
    for (int at = 0; at < count; at++) {
        PyArrayObject *a = (PyArrayObject *)there[at].value;
        if (there[at].array &&
            !broadcast(&to->nd, to->dims, AXES, PyArray_NDIM(a), PyArray_DIMS(a))) {
            return 0;
        }
    }
    for (int axis = 0; axis < to->nd; axis++) {
        to->size *= to->dims[axis];
    }
    return 1;
}

/* Whether such operations run at once: the options decide, unless a device must be asked. */
static int is_wanted(void)
{
    PyObject *device = OPTION(device);
    return OPTION(exported_at_once) == Py_True && device != NULL && PyUnicode_CheckExact(device) &&
           (PyUnicode_GET_LENGTH(device) == 0 ||
            PyUnicode_CompareWithASCIIString(device, "cpu") == 0 ||
            PyUnicode_CompareWithASCIIString(device, "auto") == 0);
}

/* As eager_policy.spares_copy, for concrete values. */
static int spares_copy(const Row *row, const There *there, int count, npy_intp size)
{
    npy_intp limit = eager_below();
    int copied = 0;
    if (!hooks.plain || !is_wanted()) {
        return 0;
    }
    for (int at = 0; at < count; at++) {
        PyArrayObject *a = (PyArrayObject *)there[at].value;
        if (there[at].array) {
            int type = plain_type(a);
            int most = type < 0 ? 0 : row->most[type];
            if (most == 0 || (limit < NPY_MAX_INTP / most && size > most * limit)) {
                return 0;
            }
            copied |= there[at].visible && PyArray_SIZE(a) >= limit;
        }
    }
    return copied;
}

/* Whether a block is of middling size: NumPy updates it at once where nothing else reads it. */
static int is_middling(PyObject *storage)
{
    PyObject *flat = STORAGE(storage, flat);
    npy_intp limit = eager_below();
    return flat != NULL && IS_REAL(flat) && limit <= NPY_MAX_INTP / MIDDLING &&
           PyArray_SIZE((PyArrayObject *)flat) <= MIDDLING * limit;
}

/* How many operands are arrays; 0 where an operation is not exact for one, or one is larger than
   `most` elements. */
static int exact_arrays(const Row *row, const There *there, int count, npy_intp most)
{
    int arrays = 0;
    for (int at = 0; at < count; at++) {
        PyArrayObject *a = (PyArrayObject *)there[at].value;
        int type = there[at].array ? plain_type(a) : 0;
        if (there[at].array && (type < 0 || row->most[type] == 0 || PyArray_SIZE(a) > most)) {
            return 0;
        }
        arrays += there[at].array;
    }
    return arrays;
}

/* Whether all operands are arrays for which an operation is exact. */
static int are_exact(PyObject *op, const There *there, int count)
{
    Row *row = row_of(op);
    return row != NULL && exact_arrays(row, there, count, NPY_MAX_INTP) == count;
}

/* As eager_policy.for_update: whether two operands are parts of one block of middling size, by an
   exact operation whose result is no larger. */
static int is_for_update(PyObject *op, PyObject *const *args, const There *there, int count,
                         npy_intp size)
{
    PyObject *storage = count == 2 && IS_ARRAY(args[0]) && IS_ARRAY(args[1])
        ? ((Core *)args[0])->storage : NULL;
    return storage != NULL && ((Core *)args[1])->storage == storage &&
           (PyObject *)Py_TYPE(storage) == hooks.storage && hooks.plain && is_middling(storage) &&
           PyArray_SIZE((PyArrayObject *)STORAGE(storage, flat)) >= size &&
           are_exact(op, there, count);
}

/* Whether an operation with such a result is exact and its arrays of middling size. */
static int is_exact_and_middling(const Row *row, const There *there, int count, npy_intp size)
{
    npy_intp limit = eager_below();
    return hooks.plain && limit > 1 && limit <= NPY_MAX_INTP / MIDDLING && is_wanted() &&
           size >= limit && size <= MIDDLING * limit &&
           exact_arrays(row, there, count, MIDDLING * limit) > 0;
}

/* 1: all operands are below the eager threshold, 2: it spares a copy, 3: what it gives is probably
   for an update of the block of both, 4: it may be NumPy's where what it gives is looked at alone,
   0: none of these. */
static int decision(PyObject *op, PyObject *const *args, const There *there, int count,
                    Result *result)
{
    npy_intp limit = eager_below();
    int arrays = 0;
    result->small = 1;
    for (int at = 0; at < count; at++) {
        arrays += there[at].array;
        result->small &= !there[at].array || PyArray_SIZE((PyArrayObject *)there[at].value) < limit;
    }
    if (arrays == 0 || !broadcast_values(there, count, result)) {
        return 0;
    }
    if (result->small) {
        return result->size < limit ? 1 : is_for_update(op, args, there, count, result->size) * 3;
    }
    Row *row = row_of(op);
    return row == NULL ? 0
        : spares_copy(row, there, count, result->size) ? 2
        : is_exact_and_middling(row, there, count, result->size) * 4;
}

/* Memory for a result that was used before (new), since new pages cost more than the arithmetic;
   NULL without an exception: NumPy is to make it. */
static PyObject *room_for(const Loops *loops, const There *there, int count, Result *result)
{
    int type = -1;
    for (int at = 0; at < count; at++) {
        PyArrayObject *a = (PyArrayObject *)there[at].value;
        if (!there[at].array) {
            continue;
        }
        int own = plain_type(a);
        if (own < 0 || (type >= 0 && own != type) ||
            !falls(PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), 1)) {
            return NULL;
        }
        type = own;
    }
    for (int at = 0; at < count; at++) {
        PyObject *number = there[at].value;
        int fits = PyLong_CheckExact(number) ? type > NPY_BOOL
                                             : PyFloat_CheckExact(number) && type >= NPY_FLOAT;
        if (!there[at].array && !fits) {
            return NULL;
        }
    }
    if (loops == NULL || type < 0 || loops->index[type] < 0) {
        return NULL;
    }
    PyArray_Descr *descr = PyArray_DescrFromType(loops->out[type]);
    PyObject *room = descr == NULL ? NULL : take_room(result->nd, result->dims, descr);
    Py_XDECREF(descr);
    return room;
}

/* A lazyfuse array around NumPy's result. Steals `value`. */
static PyObject *finished(PyObject *value, int pooled)
{
    int is_large = value != NULL && IS_REAL(value) && !is_small_array((PyArrayObject *)value);
    return pooled && is_large ? array_over(value) : wrapped(value);
}

/* --------------------------------------------------------------------------------- entry points */

PyObject *out_alone(void)
{
    static PyObject *names;
    if (names == NULL) {
        names = PyTuple_Pack(1, name_out);
    }
    return names;
}

/* NumPy's call on values, as an array of ours. `loops`: the result may take used memory. */
static PyObject *call_on(PyObject *call, const Loops *loops, const There *there, int count,
                         Result *result)
{
    PyObject *given[3] = {NULL}, *names = NULL, *found = NULL;
    for (int at = 0; at < count; at++) {
        given[at] = there[at].value;
    }
    PyObject *room = given[count] = room_for(loops, there, count, result);
    if (room != NULL) { /* by name: `maximum` warns of a third operand */
        names = out_alone();
    }
    if (!PyErr_Occurred()) {
        found = PyObject_Vectorcall(call, given, count, names);
    }
    found = finished(found, room != NULL);
    Py_XDECREF(room);
    return found;
}

PyObject *exported_call(PyObject *op, const Loops *loops, PyObject *call, PyObject *const *args,
                        int count)
{
    There there[2] = {{NULL}};
    Result result;
    PyObject *found = NULL;
    if (!IS_BOUND || !look_at_all(args, count, there)) {
        return NULL;
    }
    int way = decision(op, args, there, count, &result);
    Alone *place = way == 4 ? alone_here(op, result.size) : NULL;
    if (way != 0 && (way != 4 || place != NULL)) {
        double began = place == NULL ? 0 : seconds_now();
        found = call_on(call, way > 1 ? loops : NULL, there, count, &result);
        if ((way == 2 || place != NULL) && found != NULL) {
            count_run(row_of(op)->name);
        }
        if (place != NULL) {
            alone_took(place, seconds_now() - began);
        }
    }
    let_go(there, count);
    return found;
}

/* The numpy array over memory that `x` shares with exporters, for a write at once (borrowed);
   NULL without an exception: Python does it. As `Storage.writable`, where recorded work needs
   none of the old values. */
static PyObject *for_writing(Core *x)
{
    PyObject *real = IS_ARRAY(x) ? real_of(x) : NULL;
    int fits = real != NULL && !is_held_beyond(STORAGE(x->storage, node), 1);
    return fits && is_shared(x->storage) ? real : NULL;
}

/* The numpy array over a part of a block of middling size, if nothing else reads it (borrowed); a
   part that was followed has none yet. NULL, perhaps with an exception: an interrupt. */
static PyObject *middling_for_writing(Core *x)
{
    if (!is_evaluated(x->storage) || !is_middling(x->storage) || !is_private(x)) {
        return NULL;
    }
    PyObject *real = real_of(x);
    if (real == NULL && x->view != NULL) {
        PyObject *made = PyObject_CallOneArg(hooks.real_view, (PyObject *)x);
        Py_XDECREF(made);
        real = made != NULL && is_evaluated(x->storage) && is_private(x) ? real_of(x) : NULL;
    }
    return real != NULL && PyArray_ISWRITEABLE((PyArrayObject *)real) &&
                   is_middling(x->storage)
        ? real : NULL;
}

/* As eager_policy.middling_update, for values of arrays that are there, by an exact operation. */
static int is_middling_update(PyObject *op, const There *there, int count, Result *result)
{
    return are_exact(op, there, count) && broadcast_values(there, count, result);
}

int exported_into(PyObject *op, PyObject *call, PyObject *const *args, int count, Core *out)
{
    There there[3];
    Result result;
    PyObject *given[3], *real = !IS_BOUND ? NULL : for_writing(out);
    int done = 0, middling = real == NULL;
    if (IS_BOUND && middling) {
        real = middling_for_writing(out);
    }
    if (real == NULL || !hooks.plain) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_INCREF(real); /* Python code may run from here on, and with it other threads */
    if (!look_at_all(args, count, there)) {
        Py_DECREF(real);
        return 0;
    }
    there[count].value = real;
    there[count].array = there[count].visible = 1;
    int way = middling ? is_middling_update(op, there, count + 1, &result)
                       : decision(op, args, there, count + 1, &result) % 4;
    int lock = way == 0 ? 0 : lock_part(middling ? PyArray_SIZE((PyArrayObject *)real) : 0);
    if (lock > 0 && (middling ? middling_for_writing(out) : for_writing(out)) != real) {
        way = 0; /* another thread was here */
        done = PyErr_Occurred() ? -1 : 0;
    }
    if (way != 0 && lock > 0) {
        for (int at = 0; at <= count; at++) {
            given[at] = there[at].value;
        }
        PyObject *names = out_alone();
        PyObject *found = names == NULL ? NULL : PyObject_Vectorcall(call, given, count, names);
        done = found == NULL ? -1 : 1;
        Py_XDECREF(found);
        if (done > 0 && way == 2) {
            count_run(row_of(op)->name);
        }
    }
    let_go(there, count + 1);
    return lock < 0 ? -1 : unlock_part(lock, done);
}

/* Whether `value` is what `self[key]` has just given: the last step of `self[key] += other`. */
static int is_itself(Core *self, PyObject *real, PyObject *key, PyObject *value)
{
    PyArrayObject *whole = (PyArrayObject *)real;
    Geometry g;
    return narrow(PyArray_NDIM(whole), PyArray_DIMS(whole), PyArray_STRIDES(whole), key, &g) &&
           is_same_part(self, whole, &g, value);
}

int exported_write(Core *self, PyObject *key, PyObject *value)
{
    There there;
    PyObject *real = !IS_BOUND ? NULL : for_writing(self);
    if (real == NULL || !PyArray_ISWRITEABLE((PyArrayObject *)real)) {
        return 0;
    }
    if (is_itself(self, real, key, value)) {
        return 1;
    }
    Py_INCREF(real); /* looking at the value may run Python code, and with it other threads */
    int done = 0;
    if (values_look(value, &there, 1)) {
        if (for_writing(self) == real) {
            done = PyObject_SetItem(real, key, there.value) < 0 ? -1 : 1;
        }
        Py_DECREF(there.value);
    }
    Py_DECREF(real);
    return done;
}

PyObject *exported_reduction(int which, PyObject *theirs, PyObject *x)
{
    There there;
    if (!IS_BOUND || !IS_ARRAY(x) || EAGER(x) != Py_None || !values_look(x, &there, 0)) {
        return NULL;
    }
    npy_intp size = PyArray_SIZE((PyArrayObject *)there.value);
    if (size > 0 && PyArray_NDIM((PyArrayObject *)there.value) > 0) {
        if (size < eager_below()) {
            return there.value;
        }
        Row *row = which < PyTuple_GET_SIZE(hooks.reduce_rows)
            ? row_of(PyTuple_GET_ITEM(hooks.reduce_rows, which)) : NULL;
        if (row != NULL && spares_copy(row, &there, 1, size)) {
            PyObject *name = PyObject_GetAttrString(theirs, "__name__");
            if (name != NULL) {
                count_run(name);
            }
            Py_XDECREF(name);
            PyErr_Clear();
            return there.value;
        }
    }
    Py_DECREF(there.value);
    return NULL;
}
