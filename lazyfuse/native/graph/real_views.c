/* NumPy's arrays over parts of blocks, in the table of a block or in the arrays that they belong to;
   ndarray.py says what they are for. */

#include "graph.h"

/* ------------------------------------------------------------------------------------ the table */

/* A table of real views: by ticket those that Python has made, in a list those of `Core.real`. */
typedef struct {
    PyDictObject table;
    Core *first;
} Reals;

PyTypeObject RealsType;

static void unlink_part(Core *x)
{
    if (x->before != NULL) {
        x->before->after = x->after;
    }
    else {
        ((Reals *)x->reals)->first = x->after;
    }
    if (x->after != NULL) {
        x->after->before = x->before;
    }
    x->before = x->after = NULL;
}

/* Steals `real`. */
static void link_part(Core *x, PyObject *real)
{
    Reals *table = (Reals *)x->reals;
    x->real = real;
    x->after = table->first;
    if (x->after != NULL) {
        x->after->before = x;
    }
    table->first = x;
}

void part_forget(Core *x)
{
    if (x->real != NULL) {
        PyObject *real = x->real;
        unlink_part(x);
        x->real = NULL;
        Py_DECREF(real);
    }
}

PyArrayObject *part_geometry(Core *x)
{
    if (x->view == NULL && x->real != NULL && hooks.meta != NULL) {
        PyArrayObject *real = (PyArrayObject *)x->real;
        x->view = make_view_on(hooks.meta, real, PyArray_NDIM(real), PyArray_DIMS(real),
                               PyArray_STRIDES(real), (char *)hooks.origin + x->offset);
    }
    return x->view != NULL && IS_REAL(x->view) ? (PyArrayObject *)x->view : NULL;
}

int is_empty(PyObject *reals)
{
    return Py_IS_TYPE(reals, &RealsType) && ((Reals *)reals)->first == NULL &&
           PyDict_GET_SIZE(reals) == 0;
}

void reals_clear(PyObject *reals)
{
    while (Py_IS_TYPE(reals, &RealsType) && ((Reals *)reals)->first != NULL) {
        Core *x = ((Reals *)reals)->first;
        if (part_geometry(x) == NULL) {
            PyErr_Clear(); /* no memory: the part keeps the old one, to know where it lies */
            unlink_part(x);
            continue;
        }
        part_forget(x);
    }
    PyDict_Clear(reals);
}

static PyObject *reals_clear_method(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    reals_clear(self);
    Py_RETURN_NONE;
}

static PyMethodDef reals_methods[] = {
    {"clear", reals_clear_method, METH_NOARGS, "Drop all real views."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject RealsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Reals",
    .tp_doc = "The numpy arrays of lazyfuse's arrays over the memory of a block.",
    .tp_basicsize = sizeof(Reals),
    .tp_flags = Py_TPFLAGS_DEFAULT, /* the collector's part comes from dict */
    .tp_methods = reals_methods,
};

int reals_ready(void)
{
    RealsType.tp_base = &PyDict_Type;
    return PyType_Ready(&RealsType);
}

PyObject *reals_new(void)
{
    return PyObject_CallNoArgs((PyObject *)&RealsType);
}

/* ----------------------------------------------------------------------------------- real views */

static int is_there(Core *x)
{
    PyObject *storage = x->storage;
    if (storage == NULL || (PyObject *)Py_TYPE(storage) != hooks.storage || in_storage.node < 0 ||
        STORAGE(storage, always_eager) != Py_False || STORAGE(storage, reals) != x->reals) {
        return 0;
    }
    PyObject *node = STORAGE(storage, node);
    return node != NULL && IS_NODE(node) && NODE(node, value) != NULL &&
           NODE(node, value) != Py_None && NODE(node, value) == STORAGE(storage, value) &&
           NODE(node, resident) == Py_None;
}

PyObject *real_of(Core *x)
{
    if (EAGER(x) != Py_None || (x->real == NULL && x->ticket == NULL) || !is_there(x)) {
        return NULL;
    }
    if (x->real == NULL && x->ticket != NULL && Py_IS_TYPE(x->reals, &RealsType)) {
        PyObject *found = PyDict_GetItemWithError(x->reals, x->ticket);
        if (found != NULL && IS_REAL(found)) {
            link_part(x, Py_NewRef(found));
        }
    }
    return x->real;
}

/* Where the memory of `x` begins in its block, in bytes; 0 where that is not known. */
static int find_offset(Core *x, npy_intp *offset)
{
    if (x->view == NULL) {
        *offset = x->offset;
        return x->real != NULL;
    }
    *offset = PyArray_BYTES((PyArrayObject *)x->view) - (char *)hooks.origin;
    return IS_REAL(x->view);
}

Core *new_part(Core *self, PyObject *reals)
{
    Py_INCREF(reals); /* an allocation collects: a finaliser may write to the block */
    Core *x = array_made();
    if (x != NULL) {
        PyObject_GC_Track((PyObject *)x);
        x->eager = Py_NewRef(Py_None);
        x->node = Py_NewRef(Py_None);
        x->storage = Py_NewRef(self->storage);
        x->layout = Py_NewRef(Py_None);
        x->base = Py_NewRef(base_of(self));
        x->reals = Py_NewRef(reals);
    }
    Py_DECREF(reals);
    return x;
}

PyObject *part_over(Core *self, PyObject *real)
{
    npy_intp offset;
    if (real == NULL || self->real == NULL || !find_offset(self, &offset)) {
        Py_XDECREF(real);
        return NULL;
    }
    offset += PyArray_BYTES((PyArrayObject *)real) - PyArray_BYTES((PyArrayObject *)self->real);
    PyObject *storage = self->storage; /* compared alone */
    Core *x = new_part(self, self->reals);
    if (x == NULL || self->storage != storage || !Py_IS_TYPE(x->reals, &RealsType)) {
        Py_XDECREF(x);
        Py_DECREF(real);
        return NULL;
    }
    x->may_grow = Py_NewRef(may_grow((PyArrayObject *)real) ? Py_True : Py_False);
    x->offset = offset;
    link_part(x, real);
    return (PyObject *)x;
}

PyObject *small_part(Core *x)
{
    PyObject *real = real_of(x);
    return real != NULL && PyArray_SIZE((PyArrayObject *)real) < eager_below() ? real : NULL;
}

/* --------------------------------------------------------------------------------------- blocks */

/* As `Storage(node)` (new). */
static PyObject *storage_over(PyObject *node)
{
    PyTypeObject *type = (PyTypeObject *)hooks.storage;
    PyObject *storage = type->tp_alloc(type, 0), *reals = reals_new();
    PyObject *nothing = PyLong_FromLong(-1), *none = PyLong_FromLong(0);
    if (storage == NULL || reals == NULL || nothing == NULL || none == NULL) {
        Py_XDECREF(reals);
        Py_XDECREF(nothing);
        Py_XDECREF(none);
        Py_XDECREF(storage);
        return NULL;
    }
    STORAGE(storage, node) = Py_NewRef(node);
    STORAGE(storage, value) = Py_NewRef(Py_None);
    STORAGE(storage, flat) = Py_NewRef(Py_None);
    STORAGE(storage, exports) = Py_NewRef(Py_None);
    STORAGE(storage, always_eager) = Py_NewRef(Py_False);
    STORAGE(storage, origin) = nothing;
    STORAGE(storage, picks) = none;
    STORAGE(storage, visits) = Py_NewRef(none);
    STORAGE(storage, reals) = reals;
    return storage;
}

/* Gives an array that owns its values, in C order, a block of memory; -1: an error, 0: Python. */
static int begin_block(Core *x)
{
    PyObject *node = x->node;
    npy_intp dims[RANK];
    PyObject *shape = !IS_NODE(node) || NODE(node, perm) != Py_None || hooks.meta == NULL
        ? NULL : NODE(node, shape);
    Py_ssize_t nd = shape == NULL || !PyTuple_CheckExact(shape) ? -1 : PyTuple_GET_SIZE(shape);
    if (nd < 0 || nd > RANK || x->view != NULL || !PyArray_DescrCheck(NODE(node, dtype))) {
        return 0;
    }
    for (Py_ssize_t axis = 0; axis < nd; axis++) {
        dims[axis] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis));
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    Py_INCREF(NODE(node, dtype));
    PyObject *view = PyArray_NewFromDescr(
        &PyArray_Type, (PyArray_Descr *)NODE(node, dtype), (int)nd, dims, NULL, hooks.origin,
        NPY_ARRAY_CARRAY, NULL);
    PyObject *storage = view == NULL ? NULL : storage_over(node);
    if (storage == NULL ||
        PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(hooks.meta)) < 0) {
        Py_XDECREF(view);
        Py_XDECREF(storage);
        return -1;
    }
    x->view = view;
    Py_XSETREF(x->layout, Py_NewRef(Py_None));
    Py_XSETREF(x->reals, Py_NewRef(Py_None));
    Py_XSETREF(x->storage, storage);
    Py_SETREF(x->node, Py_NewRef(Py_None));
    return 1;
}

/* `locks`: whether the lock of writes is to be taken. */
static int storage_now(Core *x, int locks)
{
    if (x->storage != NULL && x->storage != Py_None) {
        return 1;
    }
    int fits = IS_ARRAY(x) && x->node != NULL && EAGER(x) == Py_None && hooks.storage != NULL;
    int lock = !fits ? 0 : locks ? lock_writes() : 1, done = lock;
    if (lock > 0) {
        done = locks ? unlock_writes(begin_block(x)) : begin_block(x);
    }
    if (done == 0) {
        PyObject *found = PyObject_CallOneArg(hooks.storage_of, (PyObject *)x);
        Py_XDECREF(found);
        done = found == NULL ? -1 : x->storage != NULL && x->storage != Py_None;
    }
    return done;
}

int storage_for(Core *x)
{
    return storage_now(x, 1);
}

int storage_locked(Core *x)
{
    return storage_now(x, 0);
}

/* ---------------------------------------------------------------------------------------- reads */

PyObject *block_of(Core *x, char **first)
{
    PyObject *node = x->node == Py_None && EAGER(x) == Py_None ? any_node(x) : NULL;
    PyArrayObject *view = node == NULL || NODE(node, perm) != Py_None ? NULL : part_geometry(x);
    PyArrayObject *value = view == NULL ? NULL : (PyArrayObject *)NODE(node, value);
    if (value == NULL || !IS_REAL(value) || !PyArray_IS_C_CONTIGUOUS(value) ||
        plain_type(view) < 0) {
        return NULL;
    }
    *first = PyArray_BYTES(value) + (PyArray_BYTES(view) - (char *)hooks.origin);
    return (PyObject *)value;
}

PyObject *view_of_block(Core *x)
{
    char *first;
    PyObject *value = block_of(x, &first);
    PyArrayObject *view = (PyArrayObject *)x->view;
    return value == NULL ? NULL
        : make_view_on(value, view, PyArray_NDIM(view), PyArray_DIMS(view), PyArray_STRIDES(view),
                       first);
}

PyArrayObject *present_values(Core *x)
{
    PyObject *node = x->node, *value;
    if (node == NULL || node == Py_None) {
        return (PyArrayObject *)real_of(x);
    }
    if (EAGER(x) != Py_None || !IS_NODE(node) || !IS_ARRAY(x) || NODE(node, resident) != Py_None) {
        return NULL;
    }
    value = NODE(node, value);
    return value != NULL && IS_REAL(value) ? (PyArrayObject *)value : NULL;
}
