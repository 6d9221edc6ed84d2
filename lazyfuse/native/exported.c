/* Exported memory, which exporters also see. Operations that NumPy does at once on concrete
   values: on small parts of blocks, and exact ones on such memory, which recorded work would have
   to copy. The same in Python: exported_memory.py, eager_policy.py, and the functions of
   operators.py, ufunc.py and indexing.py that ask it. What needs a closer look returns NULL (or
   0) without an exception, and they decide. */

#include "record.h"

#include <string.h>

enum { AXES = 32 };

/* exported_memory.py binds it last. */
#define IS_BOUND (hooks.run_counts != NULL)

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

/* An operand with concrete values. */
typedef struct {
    PyObject *value; /* new: while NumPy works, another thread may exchange the slots */
    int array, visible; /* `visible`: exporters see it, too */
} There;

/* As `Storage.shared`; 0, too, where an export is to be forgotten. */
static int is_shared(PyObject *storage)
{
    PyObject *roots = STORAGE(storage, exports);
    if (roots == NULL || !PyList_CheckExact(roots)) {
        return 0;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(roots); at++) {
        PyObject *root = PyList_GET_ITEM(roots, at);
        if ((PyObject *)Py_TYPE(root) != hooks.root || ROOT(root, array) == NULL ||
            ROOT(root, own) == NULL) {
            continue;
        }
        Py_ssize_t own = PyLong_AsSsize_t(ROOT(root, own));
        if (own < 0 || is_held_beyond(ROOT(root, array), own)) {
            PyErr_Clear();
            return 1;
        }
    }
    return 0;
}

int has_exports(PyObject *storage)
{
    PyObject *roots = STORAGE(storage, exports);
    if (roots == Py_None) {
        return 0;
    }
    if (!IS_BOUND || !PyList_CheckExact(roots) || is_shared(storage)) {
        return 1;
    }
    Py_SETREF(STORAGE(storage, exports), Py_NewRef(Py_None));
    return 0;
}

/* Whether the host has the values of a block, perhaps without an array over it yet. */
static int is_evaluated(PyObject *storage)
{
    if (storage == NULL || (PyObject *)Py_TYPE(storage) != hooks.storage ||
        hooks.real_view == NULL || STORAGE(storage, always_eager) != Py_False) {
        return 0;
    }
    PyObject *node = STORAGE(storage, node);
    return node != NULL && IS_NODE(node) && NODE(node, value) != NULL &&
           NODE(node, value) != Py_None && NODE(node, resident) == Py_None;
}

/* `reads`: what comes of the values is no view of them. */
static int look(PyObject *object, There *there, int reads)
{
    there->array = 1;
    there->visible = 0;
    if (IS_REAL(object)) {
        there->visible = 1;
        there->value = plain_type((PyArrayObject *)object) < 0 ? NULL : Py_NewRef(object);
        return there->value != NULL;
    }
    if (!IS_ARRAY(object)) {
        there->array = 0;
        there->value = is_number(object) ? Py_NewRef(object) : NULL;
        return there->value != NULL;
    }
    Core *x = (Core *)object;
    PyObject *value = EAGER(x), *node = x->node;
    if (value == NULL || node == NULL || !IS_BOUND) {
        return 0;
    }
    if (value == Py_None && node != Py_None) {
        if (!IS_NODE(node) || NODE(node, resident) != Py_None) {
            return 0;
        }
        value = NODE(node, value);
        /* a small one becomes eager now: ndarray.materialise */
        if (value == NULL || !IS_REAL(value) ||
            PyArray_SIZE((PyArrayObject *)value) < eager_below()) {
            return 0;
        }
    }
    else if (value == Py_None) {
        value = real_of(x);
        if (value == NULL && is_evaluated(x->storage)) {
            there->value = reads ? view_of_block(x) : NULL;
            if (there->value == NULL && !PyErr_Occurred()) {
                there->value = PyObject_CallOneArg(hooks.real_view, object);
            }
            there->visible = there->value != NULL && has_exports(x->storage);
            PyErr_Clear();
            return there->value != NULL && IS_REAL(there->value);
        }
        there->visible = value != NULL && has_exports(x->storage);
    }
    if (value == NULL || !IS_REAL(value)) {
        return 0;
    }
    there->value = Py_NewRef(value);
    return 1;
}

PyObject *value_there(PyObject *x)
{
    There there;
    return look(x, &there, 0) ? there.value : NULL;
}

static int look_at_all(PyObject *const *objects, int count, There *there)
{
    for (int at = 0; at < count; at++) {
        if (!look(objects[at], &there[at], 1)) {
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

/* 1: all operands are below the eager threshold, 2: it spares a copy, 0: neither. */
static int decision(PyObject *op, const There *there, int count, Result *result)
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
        return result->size < limit;
    }
    Row *row = row_of(op);
    return row != NULL && spares_copy(row, there, count, result->size) ? 2 : 0;
}

/* As fallback.count: counts that NumPy ran an operation of the user's line. Never fails. */
void count_run(PyObject *name)
{
    PyObject *where = find_caller(), *key = NULL, *number = NULL, *more = NULL;
    if (where != NULL && PyTuple_CheckExact(where) && PyTuple_GET_SIZE(where) == 2) {
        key = PyTuple_Pack(3, name, PyTuple_GET_ITEM(where, 0), PyTuple_GET_ITEM(where, 1));
        number = key == NULL ? NULL : PyDict_GetItemWithError(hooks.run_counts, key);
        more = PyLong_FromSsize_t(1 + (number == NULL ? 0 : PyLong_AsSsize_t(number)));
        if (key != NULL && more != NULL) {
            PyDict_SetItem(hooks.run_counts, key, more);
        }
    }
    Py_XDECREF(where);
    Py_XDECREF(key);
    Py_XDECREF(more);
    PyErr_Clear();
}

/* -------------------------------------------------------------------------------------- results */

/* Memory of the CPU's pool. */
static PyObject *take_room(int nd, npy_intp *dims, PyArray_Descr *descr)
{
    static PyObject *pool;
    if (pool == NULL && (pool = PyObject_CallNoArgs(hooks.room)) == NULL) {
        return NULL;
    }
    return pool_array(pool, nd, dims, descr);
}

PyObject *large_room(int nd, npy_intp *dims, int type)
{
    PyArray_Descr *descr = PyArray_DescrFromType(type);
    PyObject *room = descr == NULL ? NULL : take_room(nd, dims, descr);
    Py_XDECREF(descr);
    return room;
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
            !falls(PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), 0)) {
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

/* A recorded array whose values are new memory of the pool. Steals `value`. */
PyObject *array_over(PyObject *value)
{
    PyObject *node = leaf_of((PyArrayObject *)value);
    PyObject *x = node == NULL ? NULL : array_alone(NULL, node);
    Py_XDECREF(node);
    Py_DECREF(value);
    return x;
}

/* A lazyfuse array around NumPy's result. Steals `value`. */
static PyObject *finished(PyObject *value, int pooled)
{
    if (value == NULL || !IS_REAL(value)) {
        return value;
    }
    npy_intp size = PyArray_SIZE((PyArrayObject *)value), limit = eager_below();
    if (size < limit || size == 0) {
        return placed_as_is(value);
    }
    if (PyArray_ITEMSIZE((PyArrayObject *)value) == 1 && size / 8 <= limit && size <= 8 * limit &&
        limit > 1) {
        return direct_over(value, Py_None, 1); /* eager_rules.small_array */
    }
    return pooled ? array_over(value) : wrapped(value);
}

/* --------------------------------------------------------------------------------- entry points */

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
        names = PyTuple_Pack(1, name_out);
    }
    if (!PyErr_Occurred()) {
        found = PyObject_Vectorcall(call, given, count, names);
    }
    Py_XDECREF(names);
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
    int way = decision(op, there, count, &result);
    if (way != 0) {
        found = call_on(call, way == 2 ? loops : NULL, there, count, &result);
        if (way == 2 && found != NULL) {
            count_run(row_of(op)->name);
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

/* The numpy array over a part of a block of middling size, if nothing else reads it (borrowed). */
static PyObject *middling_for_writing(Core *x)
{
    PyObject *real = real_of(x);
    npy_intp limit = eager_below();
    if (real == NULL || !is_private(x) || !PyArray_ISWRITEABLE((PyArrayObject *)real)) {
        return NULL;
    }
    PyObject *flat = STORAGE(x->storage, flat);
    int fits = flat != NULL && IS_REAL(flat) && limit <= NPY_MAX_INTP / MIDDLING &&
               PyArray_SIZE((PyArrayObject *)flat) <= MIDDLING * limit;
    return fits ? real : NULL;
}

/* As eager_policy.middling_update, for values of arrays that are there, by an exact operation. */
static int is_middling_update(PyObject *op, const There *there, int count, Result *result)
{
    Row *row = row_of(op);
    if (row == NULL || !broadcast_values(there, count, result)) {
        return 0;
    }
    for (int at = 0; at < count; at++) {
        int type = there[at].array ? plain_type((PyArrayObject *)there[at].value) : -1;
        if (type < 0 || row->most[type] == 0) {
            return 0;
        }
    }
    return 1;
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
        return 0;
    }
    Py_INCREF(real); /* Python code may run from here on, and with it other threads */
    if (!look_at_all(args, count, there)) {
        Py_DECREF(real);
        return 0;
    }
    there[count].value = real;
    there[count].array = there[count].visible = 1;
    int way = middling ? is_middling_update(op, there, count + 1, &result)
                       : decision(op, there, count + 1, &result);
    int lock = way == 0 ? 0 : lock_part(middling ? PyArray_SIZE((PyArrayObject *)real) : 0);
    if (lock > 0 && (middling ? middling_for_writing(out) : for_writing(out)) != real) {
        way = 0; /* another thread was here */
    }
    if (way != 0 && lock > 0) {
        for (int at = 0; at <= count; at++) {
            given[at] = there[at].value;
        }
        PyObject *names = PyTuple_Pack(1, name_out);
        PyObject *found = names == NULL ? NULL : PyObject_Vectorcall(call, given, count, names);
        done = found == NULL ? -1 : 1;
        Py_XDECREF(found);
        Py_XDECREF(names);
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
    if (look(value, &there, 1)) {
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
    if (!IS_BOUND || !IS_ARRAY(x) || EAGER(x) != Py_None || !look(x, &there, 0)) {
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

/* -------------------------------------------------------------------------------------- lending */

/* Exports memory to NumPy arrays and ends their chain of bases, as meta_arrays.Holder. */
typedef struct {
    PyObject_HEAD
    PyObject *keep, *owner;
    char *start;
    Py_ssize_t length;
} Holder;

static PyObject *holder_over(char *start, Py_ssize_t length, PyObject *keep, PyObject *owner)
{
    Holder *made = (Holder *)HolderType.tp_alloc(&HolderType, 0);
    if (made != NULL) {
        made->start = start;
        made->length = length;
        made->keep = Py_XNewRef(keep);
        made->owner = Py_XNewRef(owner);
    }
    return (PyObject *)made;
}

/* Holder(start, length) */
static PyObject *holder_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *named)
{
    PyObject *start;
    Py_ssize_t length;
    if (named != NULL || !PyArg_ParseTuple(args, "On:Holder", &start, &length)) {
        return named == NULL ? NULL
            : PyErr_Format(PyExc_TypeError, "Holder: expected an address and a length");
    }
    char *first = PyLong_AsVoidPtr(start);
    return PyErr_Occurred() ? NULL : holder_over(first, length, NULL, NULL);
}

static void holder_dealloc(PyObject *x)
{
    Py_XDECREF(((Holder *)x)->keep);
    Py_XDECREF(((Holder *)x)->owner);
    Py_TYPE(x)->tp_free(x);
}

static int holder_buffer(PyObject *x, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, x, ((Holder *)x)->start, ((Holder *)x)->length, 0, flags);
}

static PyBufferProcs holder_as_buffer = {.bf_getbuffer = holder_buffer};

static PyMemberDef holder_members[] = {
    {"keep", T_OBJECT, offsetof(Holder, keep), 0, "What lives as long as the memory is exported."},
    {"owner", T_OBJECT, offsetof(Holder, owner), 0, "A reference to the storage that lends it."},
    {NULL},
};

PyTypeObject HolderType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Holder",
    .tp_basicsize = sizeof(Holder),
    .tp_dealloc = holder_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_as_buffer = &holder_as_buffer,
    .tp_members = holder_members,
    .tp_new = holder_new,
    .tp_doc = "Exports memory, from an address on so many bytes, to NumPy arrays.",
};

/* A flat array over the memory of `value`, whose base keeps `keep` alive (new). */
static PyObject *flat_over(PyArrayObject *value, PyObject *keep, PyObject *owner)
{
    npy_intp size = PyArray_SIZE(value);
    char *start = PyArray_BYTES(value);
    PyObject *base = holder_over(start, PyArray_NBYTES(value), keep, owner);
    Py_INCREF(PyArray_DESCR(value));
    PyObject *flat = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(value), 1, &size, NULL,
                                          start, NPY_ARRAY_CARRAY, NULL);
    if (base == NULL || flat == NULL ||
        PyArray_SetBaseObject((PyArrayObject *)flat, Py_NewRef(base)) < 0) {
        Py_CLEAR(flat);
    }
    Py_XDECREF(base);
    return flat;
}

/* As `Export(array, 1)` in a list (new). */
static PyObject *exports_of(PyObject *array)
{
    PyTypeObject *type = (PyTypeObject *)hooks.root;
    PyObject *root = type->tp_alloc(type, 0), *exports = root == NULL ? NULL : PyList_New(1);
    if (exports == NULL) {
        Py_XDECREF(root);
        return NULL;
    }
    ROOT(root, array) = Py_NewRef(array);
    ROOT(root, own) = PyLong_FromLong(1);
    PyList_SET_ITEM(exports, 0, root);
    return exports;
}

/* As `Storage.detach`, where nothing has looked at the block yet: it gets a copy of values that it
   shares, with a node of its own. -1: an error. */
static int take_copy(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node);
    PyArrayObject *value = IS_NODE(node) ? (PyArrayObject *)NODE(node, value) : NULL;
    if (value == NULL || !is_held_beyond(node, 1) || NODE(node, resident) != Py_None ||
        NODE(node, perm) != Py_None || STORAGE(storage, value) != Py_None ||
        STORAGE(storage, exports) != Py_None || !IS_REAL(value) || plain_type(value) < 0 ||
        !PyArray_ISCARRAY_RO(value)) {
        return 0;
    }
    PyObject *room = large_room(PyArray_NDIM(value), PyArray_DIMS(value), plain_type(value));
    PyObject *own = room == NULL ? NULL : leaf_of((PyArrayObject *)room);
    if (own != NULL) {
        char *to = PyArray_BYTES((PyArrayObject *)room), *from = PyArray_BYTES(value);
        size_t bytes = (size_t)PyArray_NBYTES(value);
        Py_INCREF(value);
        Py_BEGIN_ALLOW_THREADS
        memcpy(to, from, bytes);
        Py_END_ALLOW_THREADS
        Py_DECREF(value);
        Py_XSETREF(STORAGE(storage, node), own);
    }
    Py_XDECREF(room);
    return own == NULL ? -1 : 0;
}

/* As `Storage.lend`, at first: the array that other code gets (new); NULL without an exception: not
   so plain. */
static PyObject *lend_first(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node);
    if (!IS_NODE(node) || NODE(node, resident) != Py_None || NODE(node, perm) != Py_None ||
        is_held_beyond(node, 1) || STORAGE(storage, value) != Py_None ||
        STORAGE(storage, exports) != Py_None) {
        return NULL;
    }
    PyArrayObject *value = (PyArrayObject *)NODE(node, value);
    if (!IS_REAL(value) || is_held_beyond((PyObject *)value, 1) || !PyArray_ISCARRAY(value) ||
        (PyArray_BASE(value) != NULL && Py_IS_TYPE(PyArray_BASE(value), &HolderType))) {
        return NULL;
    }
    PyObject *owner = PyWeakref_NewRef(storage, NULL), *none = PyLong_FromLong(0);
    PyObject *inner = owner == NULL ? NULL : flat_over(value, (PyObject *)value, NULL);
    PyObject *outer = inner == NULL ? NULL : flat_over(value, inner, owner);
    PyObject *exports = outer == NULL ? NULL : exports_of(outer);
    PyObject *origin = PyLong_FromVoidPtr(PyArray_DATA(value));
    if (exports != NULL && origin != NULL && none != NULL) {
        Py_XSETREF(STORAGE(storage, flat), Py_NewRef(inner));
        Py_XSETREF(STORAGE(storage, origin), Py_NewRef(origin));
        Py_XSETREF(STORAGE(storage, picks), Py_NewRef(none));
        Py_XSETREF(STORAGE(storage, visits), Py_NewRef(none));
        Py_XSETREF(STORAGE(storage, exports), Py_NewRef(exports));
        Py_XSETREF(STORAGE(storage, value), Py_NewRef(value));
    }
    else {
        Py_CLEAR(outer);
    }
    Py_XDECREF(owner);
    Py_XDECREF(none);
    Py_XDECREF(inner);
    Py_XDECREF(exports);
    Py_XDECREF(origin);
    return outer;
}

/* The same of a block whose memory is known, and may have been lent before. */
static PyObject *lend_known(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node), *exports = STORAGE(storage, exports);
    PyArrayObject *flat = (PyArrayObject *)STORAGE(storage, flat);
    PyObject *value = STORAGE(storage, value);
    if (!IS_NODE(node) || NODE(node, resident) != Py_None || value == NULL || value == Py_None ||
        NODE(node, value) != value || flat == NULL || !IS_REAL(flat) ||
        !PyArray_ISCARRAY(flat) || is_held_beyond(node, 1)) {
        return NULL; /* readers get copies first */
    }
    if (exports != Py_None) {
        PyObject *root = PyList_CheckExact(exports) && PyList_GET_SIZE(exports) == 1
            ? PyList_GET_ITEM(exports, 0) : NULL;
        PyArrayObject *lent = root != NULL && (PyObject *)Py_TYPE(root) == hooks.root
            ? (PyArrayObject *)ROOT(root, array) : NULL;
        int same = lent != NULL && IS_REAL(lent) && PyArray_BASE(lent) != NULL &&
            Py_IS_TYPE(PyArray_BASE(lent), &HolderType) && PyArray_ISCARRAY(lent) &&
            PyArray_NDIM(lent) == 1 && PyArray_DATA(lent) == PyArray_DATA(flat) &&
            PyArray_SIZE(lent) == PyArray_SIZE(flat);
        return same ? Py_NewRef((PyObject *)lent) : NULL;
    }
    if (is_held_beyond(value, 3)) { /* by the node, the storage, and what keeps `flat` */
        return NULL;
    }
    PyObject *owner = PyWeakref_NewRef(storage, NULL);
    PyObject *outer = owner == NULL ? NULL : flat_over(flat, (PyObject *)flat, owner);
    PyObject *made = outer == NULL ? NULL : exports_of(outer);
    if (made == NULL) {
        Py_CLEAR(outer);
    }
    else {
        Py_XSETREF(STORAGE(storage, exports), made);
    }
    Py_XDECREF(owner);
    return outer;
}

/* Whether a node is of a dtype that the format of a buffer can tell. */
static int is_told(PyObject *node)
{
    PyArray_Descr *descr = (PyArray_Descr *)NODE(node, dtype), *plain;
    if (!PyArray_DescrCheck(descr) ||
        !(PyTypeNum_ISNUMBER(descr->type_num) || descr->type_num == NPY_BOOL)) {
        return 0;
    }
    plain = PyArray_DescrFromType(descr->type_num);
    Py_XDECREF(plain);
    return plain == descr;
}

/* NumPy may lose the exception that is set, if one is: exported_memory.py has it from now on. */
static void note_lost(Core *x)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    if (kind != NULL) {
        PyErr_NormalizeException(&kind, &error, &trace);
    }
    PyObject *lost = kind == NULL ? Py_NewRef(Py_None) : PyTuple_Pack(2, (PyObject *)x, error);
    if (lost == NULL || PyObject_SetAttr(hooks.lost, name_found, lost) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(lost);
    PyErr_Restore(kind, error, trace);
}

/* Evaluates the block of an array, which gets one if it has none, and lends it; under the lock. */
static PyObject *lend_block(Core *x)
{
    if (storage_for(x) <= 0) {
        return NULL;
    }
    PyObject *storage = Py_NewRef(x->storage);
    int there = NODE(STORAGE(storage, node), value) != Py_None;
    if (!there) {
        PyObject *nodes = PyList_New(1), *done = NULL;
        if (nodes != NULL) {
            PyList_SET_ITEM(nodes, 0, Py_NewRef(STORAGE(storage, node)));
            PyObject *const given[] = {nodes, hooks.export_rule};
            done = evaluate_nodes(NULL, given, 2);
        }
        there = done != NULL;
        Py_XDECREF(done);
        Py_XDECREF(nodes);
    }
    note_lost(x);
    PyObject *outer = there ? lend_known(storage) : NULL;
    if (outer == NULL && there && !PyErr_Occurred() && take_copy(storage) == 0) {
        outer = lend_first(storage);
    }
    Py_DECREF(storage);
    return outer;
}

PyObject *lend_result(Core *x)
{
    if (!IS_BOUND || hooks.storage == NULL || EAGER(x) != Py_None || x->node == NULL) {
        return NULL;
    }
    PyObject *node = x->node != Py_None ? x->node : any_node(x);
    if (node == NULL || !IS_NODE(node) || NODE(node, resident) != Py_None || !is_told(node) ||
        !is_default_state()) {
        return NULL;
    }
    int lock = is_alone() ? lock_writes() : PyErr_Occurred() ? -1 : 0;
    PyObject *outer = lock <= 0 ? NULL : lend_block(x), *found = NULL;
    if (lock > 0 && unlock_writes(outer != NULL) < 0) {
        Py_CLEAR(outer);
    }
    PyArrayObject *view = outer == NULL ? NULL : part_geometry(x);
    if (view != NULL) {
        char *first = PyArray_BYTES((PyArrayObject *)outer) +
            (PyArray_BYTES(view) - (char *)hooks.origin);
        found = make_view_on(outer, view, PyArray_NDIM(view), PyArray_DIMS(view),
                             PyArray_STRIDES(view), first);
    }
    Py_XDECREF(outer);
    return found;
}
