/* Blocks of recorded arrays: their nodes, what a write makes of them, the values that are there, and
   room for results. */

#include "graph.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- operands */

PyObject *any_node(Core *x)
{
    PyObject *storage = x->storage;
    if (storage == NULL || Py_TYPE(storage) != (PyTypeObject *)hooks.storage ||
        in_storage.node < 0 || STORAGE(storage, always_eager) != Py_False ||
        part_geometry(x) == NULL) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *node = STORAGE(storage, node);
    return node == NULL || !IS_NODE(node) || NODE(node, resident) != Py_None ? NULL : node;
}

PyObject *read_storage(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node);
    if (NODE(node, op) != hooks.leaf_op && !is_pending(node) && !is_held_beyond(node, 1)) {
        return PyObject_CallMethodNoArgs(storage, name_read); /* which counts its references */
    }
    return Py_NewRef(node);
}

/* As nodes.constant, for numbers that were met before (new); NULL without an exception. */
static PyObject *known_constant(PyObject *number, PyObject *dtype)
{
    if (hooks.constants == NULL || PyComplex_CheckExact(number) || PyObject_IsTrue(number) != 1) {
        return NULL; /* zeros with either sign are equal keys */
    }
    PyObject *key = PyTuple_Pack(2, number, dtype);
    PyObject *node = key == NULL ? NULL : PyDict_GetItemWithError(hooks.constants, key);
    Py_XDECREF(key);
    return Py_XNewRef(node);
}

PyObject *number_node(PyObject *number, PyObject *dtype)
{
    PyObject *node = known_constant(number, dtype);
    return node != NULL || PyErr_Occurred() ? node
        : PyObject_CallFunctionObjArgs(hooks.constant, number, dtype, NULL);
}

/* --------------------------------------------------------------------------------------- writes */

int has_node(Core *x, PyObject *node)
{
    return EAGER(x) == Py_None && (x->node == Py_None ? any_node(x) : x->node) == node;
}

int become(Core *x, PyObject *node)
{
    if (x->node != Py_None) {
        Py_SETREF(x->node, Py_NewRef(node));
    }
    else {
        PyObject *storage = Py_NewRef(x->storage), *reals = Py_NewRef(STORAGE(storage, reals));
        PyObject *fresh = is_empty(reals) ? Py_NewRef(reals) : reals_new();
        if (fresh == NULL) {
            Py_DECREF(storage);
            Py_DECREF(reals);
            return -1;
        }
        Py_SETREF(STORAGE(storage, node), Py_NewRef(node));
        Py_SETREF(STORAGE(storage, value), Py_NewRef(Py_None));
        Py_SETREF(STORAGE(storage, flat), Py_NewRef(Py_None));
        if (fresh != reals) {
            Py_SETREF(STORAGE(storage, reals), Py_NewRef(fresh));
            reals_clear(reals); /* arrays that hold the old table find it empty */
        }
        Py_DECREF(fresh);
        Py_DECREF(reals);
        Py_DECREF(storage);
    }
    return 0;
}

/* Writes refer to the values before them: one thread at a time, as in ndarray.write_region. 1:
   this thread has the lock, 0: Python does it, -1: an error. */
int lock_writes(void)
{
    PyObject *listeners = !may_record() || hooks.quiet == NULL || hooks.tracing == NULL
        ? NULL : PyDict_GetItemWithError(hooks.tracing, name_listeners);
    if (listeners == NULL || !PyTuple_CheckExact(listeners) ||
        PyTuple_GET_SIZE(listeners) != 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    return section_lock(hooks.quiet) < 0 ? -1 : 1;
}

int unlock_writes(int result)
{
    return section_unlock(hooks.quiet) < 0 ? -1 : result;
}

int has_own_memory(PyObject *array)
{
    while (IS_REAL(array) && !is_held_beyond(array, 1)) {
        PyObject *base = PyArray_BASE((PyArrayObject *)array);
        if (base == NULL) {
            return PyArray_CHKFLAGS((PyArrayObject *)array, NPY_ARRAY_OWNDATA);
        }
        array = base;
    }
    return 0;
}

/* --------------------------------------------------------------------------------------- values */

/* As `Storage.shared`; 0, too, where an export is to be forgotten. */
int is_shared(PyObject *storage)
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

int is_evaluated(PyObject *storage)
{
    if (storage == NULL || (PyObject *)Py_TYPE(storage) != hooks.storage ||
        hooks.real_view == NULL || STORAGE(storage, always_eager) != Py_False) {
        return 0;
    }
    PyObject *node = STORAGE(storage, node);
    return node != NULL && IS_NODE(node) && NODE(node, value) != NULL &&
           NODE(node, value) != Py_None && NODE(node, resident) == Py_None;
}

int values_look(PyObject *object, There *there, int reads)
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
            PyObject *storage = Py_NewRef(x->storage);
            there->value = reads ? view_of_block(x) : NULL;
            if (there->value == NULL && !PyErr_Occurred()) {
                there->value = PyObject_CallOneArg(hooks.real_view, object);
            }
            there->visible = there->value != NULL && has_exports(storage);
            Py_DECREF(storage);
            PyErr_Clear();
            return there->value != NULL && IS_REAL(there->value);
        }
        Py_XINCREF(value); /* an export that goes may have a callback */
        there->visible = value != NULL && has_exports(x->storage);
        there->value = value;
        return value != NULL;
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
    return values_look(x, &there, 0) ? there.value : NULL;
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

PyObject *take_room(int nd, npy_intp *dims, PyArray_Descr *descr)
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

/* A recorded array whose values are new memory of the pool. Steals `value`. */
PyObject *array_over(PyObject *value)
{
    PyObject *node = leaf_of((PyArrayObject *)value);
    PyObject *x = node == NULL ? NULL : array_alone(NULL, node);
    Py_XDECREF(node);
    Py_DECREF(value);
    return x;
}

static PyObject *wrapped_each(PyObject *values)
{
    Py_ssize_t count = PyTuple_GET_SIZE(values);
    PyObject *found = PyTuple_New(count);
    int are_shared = is_held_beyond(values, 1);
    for (Py_ssize_t at = 0; found != NULL && at < count; at++) {
        PyObject *each = PyTuple_GET_ITEM(values, at);
        if (are_shared) {
            Py_INCREF(each);
        }
        else {
            PyTuple_SET_ITEM(values, at, NULL); /* `wrapped` looks who holds it */
        }
        each = wrapped(each);
        if (each == NULL) {
            Py_CLEAR(found);
            break;
        }
        PyTuple_SET_ITEM(found, at, each);
    }
    Py_DECREF(values);
    return found;
}

PyObject *wrapped(PyObject *value)
{
    if (value != NULL && PyTuple_CheckExact(value)) {
        return wrapped_each(value);
    }
    if (value == NULL || !IS_REAL(value)) {
        return value;
    }
    PyArrayObject *a = (PyArrayObject *)value;
    if (is_small_array(a)) {
        return placed_as_is(value);
    }
    if (PyArray_IS_C_CONTIGUOUS(a) && PyArray_NDIM(a) > 0 && plain_type(a) >= 0 &&
        PyArray_ISWRITEABLE(a) && has_own_memory(value)) {
        return array_over(value);
    }
    PyObject *x = PyObject_CallOneArg(hooks.wrap, value);
    Py_DECREF(value);
    return x;
}

PyObject *copied_leaf(PyArrayObject *value)
{
    Py_INCREF(value);
    PyObject *room = large_room(PyArray_NDIM(value), PyArray_DIMS(value), plain_type(value));
    PyObject *leaf = room == NULL ? NULL : leaf_of((PyArrayObject *)room);
    if (leaf != NULL) {
        char *to = PyArray_BYTES((PyArrayObject *)room), *from = PyArray_BYTES(value);
        size_t bytes = (size_t)PyArray_NBYTES(value);
        Py_BEGIN_ALLOW_THREADS
        memcpy(to, from, bytes);
        Py_END_ALLOW_THREADS
    }
    Py_DECREF(value);
    Py_XDECREF(room);
    return leaf;
}

PyObject *snapshot_of(PyArrayObject *value)
{
    int is_plain = plain_type(value) >= 0 && PyArray_ISCARRAY_RO(value) && !spans_on &&
                   PyArray_NDIM(value) > 0 && PyArray_SIZE(value) > 0 && is_small_array(value);
    return is_plain ? copied_leaf(value)
                    : PyObject_CallOneArg(hooks.snapshot, (PyObject *)value);
}
