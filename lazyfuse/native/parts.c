/* Small parts of large blocks: NumPy works on them at once, as on small arrays, while the block has
   its values. Owns the NumPy arrays of our arrays over a block (`Core.real`), the table that keeps
   them (`Storage.reals`), and how elements and small parts are read and written. The same in
   Python: storage.py, ndarray.py and indexing.py.

   A part holds NumPy's array over its memory. When the values of the block are replaced, its table
   drops these arrays, so that they do not keep old memory alive. The geometry of a part for
   recorded work (`view`) is made when it is asked for. */

#include "record.h"

#include <string.h>

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

PyObject *kept_real(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyObject_TypeCheck(args[0], &CoreType) || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "kept_real: expected an array and a table of real views");
        return NULL;
    }
    Core *x = (Core *)args[0];
    PyObject *found = x->reals != args[1] ? NULL
        : x->real != NULL ? x->real
        : x->ticket != NULL ? PyDict_GetItemWithError(args[1], x->ticket) : NULL;
    return found == NULL && PyErr_Occurred() ? NULL : Py_NewRef(found == NULL ? Py_None : found);
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
    Core *x = (Core *)array_new(NULL, (PyObject *)array_type);
    if (x != NULL) {
        x->eager = Py_NewRef(Py_None);
        x->node = Py_NewRef(Py_None);
        x->storage = Py_NewRef(self->storage);
        x->layout = Py_NewRef(Py_None);
        x->base = Py_NewRef(base_of(self));
        x->reals = Py_NewRef(reals);
    }
    return x;
}

PyObject *part_over(Core *self, PyObject *real)
{
    npy_intp offset;
    if (real == NULL || self->real == NULL || !find_offset(self, &offset)) {
        Py_XDECREF(real);
        return NULL;
    }
    Core *x = new_part(self, self->reals);
    if (x == NULL) {
        Py_DECREF(real);
        return NULL;
    }
    x->may_grow = Py_NewRef(may_grow((PyArrayObject *)real) ? Py_True : Py_False);
    x->offset = offset + (PyArray_BYTES((PyArrayObject *)real) -
                          PyArray_BYTES((PyArrayObject *)self->real));
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

int storage_for(Core *x)
{
    if (x->storage != NULL && x->storage != Py_None) {
        return 1;
    }
    int lock = IS_ARRAY(x) && x->node != NULL && EAGER(x) == Py_None && hooks.storage != NULL
        ? lock_writes() : 0;
    int done = lock <= 0 ? lock : unlock_writes(begin_block(x));
    if (done == 0) {
        PyObject *found = PyObject_CallOneArg(hooks.storage_of, (PyObject *)x);
        Py_XDECREF(found);
        done = found == NULL ? -1 : x->storage != NULL && x->storage != Py_None;
    }
    return done;
}

/* ---------------------------------------------------------------------------------------- reads */

/* The values of the block of a part (borrowed), in C order, and where the part begins there; NULL:
   not so. */
static PyObject *block_of(Core *x, char **first)
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

/* An element of it, before there is an array over it (new); NULL without an exception: not so. */
static PyObject *element_of_block(Core *x, PyObject *key)
{
    char *first;
    PyObject *value = block_of(x, &first);
    PyArrayObject *view = (PyArrayObject *)x->view;
    Geometry g;
    return value == NULL ||
                   select_part(PyArray_NDIM(view), PyArray_DIMS(view), PyArray_STRIDES(view), key,
                               &g) != ELEMENT
        ? NULL : PyArray_Scalar(first + g.offset, PyArray_DESCR(view), value);
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

PyObject *part_get(Core *self, PyObject *key)
{
    PyArrayObject *whole = present_values(self);
    Geometry g;
    if (whole == NULL || plain_type(whole) < 0) {
        return whole != NULL ? NULL : element_of_block(self, key);
    }
    int kind = select_part(PyArray_NDIM(whole), PyArray_DIMS(whole), PyArray_STRIDES(whole), key,
                           &g);
    if (kind == ELEMENT) {
        return PyArray_Scalar(PyArray_BYTES(whole) + g.offset, PyArray_DESCR(whole),
                              (PyObject *)whole);
    }
    if (kind != SOME || size_of(&g) >= eager_below() || self->node != Py_None) {
        return NULL;
    }
    char *first = PyArray_BYTES(whole) + g.offset;
    return part_over(self, make_view(whole, g.nd, g.dims, g.strides, first));
}

enum { LISTED = 64 }; /* the longest list of indices that is looked at */

int is_plain_index(PyArrayObject *where)
{
    int type = plain_type(where);
    return type >= 0 && (PyTypeNum_ISINTEGER(type) || type == NPY_BOOL) && PyArray_NDIM(where) > 0;
}

PyObject *index_array(PyObject *list)
{
    npy_intp count = PyList_CheckExact(list) ? PyList_GET_SIZE(list) : 0;
    if (count == 0 || count > LISTED) {
        return NULL;
    }
    PyObject *made = PyArray_SimpleNew(1, &count, NPY_INTP);
    for (npy_intp at = 0; made != NULL && at < count; at++) {
        PyObject *each = PyList_GET_ITEM(list, at);
        npy_intp place = PyLong_CheckExact(each) ? PyLong_AsSsize_t(each) : -1;
        if (!PyLong_CheckExact(each) || (place == -1 && PyErr_Occurred())) {
            Py_CLEAR(made);
            break;
        }
        ((npy_intp *)PyArray_DATA((PyArrayObject *)made))[at] = place;
    }
    PyErr_Clear();
    return made;
}

/* What a key with arrays of indices, lists of them and masks means to NumPy. */
typedef struct {
    PyObject *key; /* new */
    int axes; /* of the array that it takes */
    npy_intp most; /* as many elements as it may pick */
} Fancy;

/* Adds a part of a key; `to`: where NumPy's object for it goes. 0: C does not know it. */
static int take_fancy(PyObject *part, PyArrayObject *whole, npy_intp *picked, Fancy *fancy,
                      PyObject **to)
{
    PyObject *found = IS_ARRAY(part) ? values_of(part) : part;
    if (found != NULL && IS_REAL(found)) {
        PyArrayObject *where = (PyArrayObject *)found;
        int is_mask = PyArray_TYPE(where) == NPY_BOOL;
        if (!is_plain_index(where)) {
            return 0;
        }
        npy_intp size = PyArray_SIZE(where);
        if (is_mask && size < eager_below()) {
            size = PyArray_CountNonzero(where);
        }
        *picked = size > *picked ? size : *picked;
        fancy->axes += is_mask ? PyArray_NDIM(where) : 1;
    }
    else if (found != NULL && PyList_CheckExact(found)) {
        if ((*to = index_array(found)) == NULL) {
            return 0;
        }
        *picked = PyList_GET_SIZE(found) > *picked ? PyList_GET_SIZE(found) : *picked;
        return ++fancy->axes <= PyArray_NDIM(whole);
    }
    else if (found != NULL && is_index(found)) {
        fancy->axes++;
    }
    else if (found != NULL && is_plain_slice(found) && fancy->axes < PyArray_NDIM(whole)) {
        fancy->most *= PyArray_DIM(whole, fancy->axes++);
    }
    else {
        return 0;
    }
    *to = Py_NewRef(found);
    return fancy->axes <= PyArray_NDIM(whole);
}

/* The key for NumPy, where it picks fewer elements of `whole` than `limit`; 0: Python does it. */
static int read_fancy(PyObject *key, PyArrayObject *whole, npy_intp limit, Fancy *fancy)
{
    npy_intp picked = -1; /* no array or list: NumPy would give a view */
    int fits = 1;
    *fancy = (Fancy){.key = NULL, .axes = 0, .most = 1};
    if (!PyTuple_CheckExact(key)) {
        fits = take_fancy(key, whole, &picked, fancy, &fancy->key);
    }
    else {
        Py_ssize_t count = PyTuple_GET_SIZE(key);
        fancy->key = count > NPY_MAXDIMS ? NULL : PyTuple_New(count);
        fits = fancy->key != NULL;
        for (Py_ssize_t at = 0; fits && at < count; at++) {
            PyObject *part = NULL;
            fits = take_fancy(PyTuple_GET_ITEM(key, at), whole, &picked, fancy, &part);
            PyTuple_SET_ITEM(fancy->key, at, part);
        }
    }
    for (int axis = fancy->axes; fits && axis < PyArray_NDIM(whole); axis++) {
        fancy->most *= PyArray_DIM(whole, axis); /* no product of lengths overflows */
    }
    fits = fits && picked >= 0 && picked < limit && fancy->most < limit &&
           picked <= limit / (fancy->most + 1);
    fancy->most *= picked;
    if (!fits) {
        PyErr_Clear();
        Py_CLEAR(fancy->key);
    }
    return fits;
}

PyObject *part_pick(Core *self, PyObject *key)
{
    PyArrayObject *whole = IS_DIRECT(self) ? (PyArrayObject *)EAGER(self) : present_values(self);
    Fancy fancy;
    if (whole == NULL || plain_type(whole) < 0 ||
        !read_fancy(key, whole, eager_below(), &fancy)) {
        return NULL;
    }
    Py_INCREF(whole);
    PyObject *found = read_items(whole, fancy.key);
    Py_DECREF(whole);
    Py_DECREF(fancy.key);
    return placed_as_is(found);
}

PyObject *part_transposed(Core *self)
{
    PyObject *real = real_of(self);
    if (real != NULL) {
        return part_over(self, PyArray_Transpose((PyArrayObject *)real, NULL));
    }
    return NULL;
}

PyObject *array_items(PyObject *Py_UNUSED(module), PyObject *x)
{
    return PySeqIter_New(x);
}

/* --------------------------------------------------------------------------------------- writes */

enum { BRIEF = 256 }; /* elements that NumPy copies without giving the lock away */
enum { FEW = 4096 }; /* elements whose copy takes no longer here than NumPy's */

/* Whether nothing else reads the values of an array, nor has its memory. `own`:
   references to values that an array owns which the caller has. */
static int is_private_beside(Core *x, Py_ssize_t own)
{
    PyObject *node = x->node;
    if (node != Py_None) {
        return !is_held_beyond(node, 1) && !is_held_beyond(NODE(node, value), 1 + own);
    }
    node = STORAGE(x->storage, node);
    /* the references of the node, the storage and the holder of the flat memory */
    return !is_held_beyond(node, 1) && !is_held_beyond(NODE(node, value), 3) &&
           !has_exports(x->storage);
}

int is_private(Core *x)
{
    return is_private_beside(x, 0);
}

PyObject *part_for_writing(Core *x)
{
    PyObject *real = small_part(x);
    int fits = real != NULL && is_private(x) && is_writeable((PyArrayObject *)real);
    return fits ? real : NULL;
}

int lock_part(npy_intp size)
{
    if (size <= BRIEF) {
        return 1;
    }
    if (drop_threads() < 0) {
        return -1;
    }
    PyObject *done = hooks.acquire == NULL ? NULL : PyObject_CallNoArgs(hooks.acquire);
    if (done == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_DECREF(done);
    return 2;
}

int unlock_part(int lock, int result)
{
    return lock == 2 ? unlock_writes(result) : result;
}

int is_same_part(Core *self, PyArrayObject *whole, const Geometry *g, PyObject *value)
{
    Core *x = (Core *)value;
    if (!IS_ARRAY(value) || EAGER(x) != Py_None || x->real == NULL || x->reals != self->reals ||
        self->node != Py_None) {
        return 0;
    }
    PyArrayObject *real = (PyArrayObject *)x->real;
    return PyArray_BYTES(real) == PyArray_BYTES(whole) + g->offset && PyArray_NDIM(real) == g->nd &&
           PyArray_DESCR(real) == PyArray_DESCR(whole) &&
           memcmp(PyArray_DIMS(real), g->dims, g->nd * sizeof(npy_intp)) == 0 &&
           memcmp(PyArray_STRIDES(real), g->strides, g->nd * sizeof(npy_intp)) == 0;
}

/* NumPy's object for a value that is written: a number, or the values of a small array (borrowed);
   NULL: Python does it, also where NumPy warns of imaginary parts that are lost. */
static PyObject *written_value(PyObject *value, PyArrayObject *to)
{
    PyObject *found = IS_ARRAY(value) ? values_of(value) : value;
    int is_complex;
    if (found == NULL) {
        return NULL;
    }
    if (IS_REAL(found)) {
        if (plain_type((PyArrayObject *)found) < 0) {
            return NULL;
        }
        is_complex = PyArray_ISCOMPLEX((PyArrayObject *)found);
    }
    else if (is_number(found)) {
        is_complex = PyComplex_Check(found) || PyArray_IsScalar(found, ComplexFloating);
    }
    else {
        return NULL;
    }
    return is_complex && !PyArray_ISCOMPLEX(to) ? NULL : found;
}

void reach(const char *first, int nd, const npy_intp *dims, const npy_intp *strides, npy_intp size,
           const char **low, const char **high)
{
    *low = *high = first;
    for (int axis = 0; axis < nd; axis++) {
        npy_intp far = (dims[axis] - 1) * strides[axis];
        *(far < 0 ? low : high) += far;
    }
    *high += size;
}

int are_apart(const char *first, int nd, const npy_intp *dims, const npy_intp *strides,
              PyArrayObject *other)
{
    const char *low, *high, *from, *to;
    npy_intp size = PyArray_ITEMSIZE(other);
    reach(first, nd, dims, strides, size, &low, &high);
    reach(PyArray_BYTES(other), PyArray_NDIM(other), PyArray_DIMS(other), PyArray_STRIDES(other),
          size, &from, &to);
    return high <= from || to <= low;
}

int write_plainly(PyArrayObject *whole, const Geometry *g, PyObject *right)
{
    static const npy_intp none[RANK];
    npy_clongdouble number; /* room for any, aligned for all */
    int type = plain_type(whole);
    char *first = PyArray_BYTES(whole) + g->offset;
    if (size_of(g) > FEW) {
        return 0;
    }
    if (!IS_REAL(right)) {
        if (!put_number(&number, right, type)) {
            return 0;
        }
        copy_along(first, g->strides, (const char *)&number, none, g->dims, g->nd,
                   PyArray_ITEMSIZE(whole));
        return 1;
    }
    PyArrayObject *other = (PyArrayObject *)right;
    if (plain_type(other) != type || PyArray_NDIM(other) != g->nd ||
        memcmp(PyArray_DIMS(other), g->dims, g->nd * sizeof(npy_intp)) != 0 ||
        !are_apart(first, g->nd, g->dims, g->strides, other)) {
        return 0;
    }
    copy_along(first, g->strides, PyArray_BYTES(other), PyArray_STRIDES(other), g->dims, g->nd,
               PyArray_ITEMSIZE(whole));
    return 1;
}

/* NumPy writes `size` elements of the values `whole`: as `part_set`. */
static int set_items(Core *self, PyArrayObject *whole, PyObject *key, PyObject *right,
                     npy_intp size)
{
    Py_INCREF(whole);
    Py_INCREF(right);
    int done = 0, lock = lock_part(size);
    /* another thread may have had the lock */
    if (lock == 1 || (lock == 2 && present_values(self) == whole && is_private_beside(self, 1))) {
        done = write_items(whole, key, right) < 0 ? -1 : 1;
    }
    Py_DECREF(whole);
    Py_DECREF(right);
    return lock < 0 ? -1 : unlock_part(lock, done);
}

/* Few elements that arrays of indices, lists of them or masks pick: as `part_set`. */
static int set_fancy(Core *self, PyArrayObject *whole, PyObject *key, PyObject *value)
{
    PyObject *right = written_value(value, whole);
    Fancy fancy;
    npy_intp limit = eager_below();
    limit *= limit < NPY_MAX_INTP / MIDDLING ? MIDDLING : 1;
    if (right == NULL || !is_private(self) || !read_fancy(key, whole, limit, &fancy)) {
        return 0;
    }
    int done = set_items(self, whole, fancy.key, right, fancy.most);
    Py_DECREF(fancy.key);
    return done;
}

int part_set(Core *self, PyObject *key, PyObject *value)
{
    PyArrayObject *whole = present_values(self);
    Geometry g;
    if (whole == NULL || plain_type(whole) < 0 || !is_writeable(whole) ||
        eager_below() <= 1) {
        return 0;
    }
    int kind = select_part(PyArray_NDIM(whole), PyArray_DIMS(whole), PyArray_STRIDES(whole), key,
                           &g);
    if (kind == NO_PART) {
        return set_fancy(self, whole, key, value);
    }
    if (kind == SOME && size_of(&g) >= eager_below()) {
        return 0;
    }
    if (kind == SOME && is_same_part(self, whole, &g, value)) {
        return 1;
    }
    PyObject *right = written_value(value, whole);
    if (right == NULL || !is_private(self)) {
        return 0;
    }
    if (kind == ELEMENT) {
        if (right != value) {
            return 0; /* how an element takes an array is NumPy's */
        }
        int done = PyArray_Pack(PyArray_DESCR(whole), PyArray_BYTES(whole) + g.offset, value);
        return done < 0 ? -1 : 1;
    }
    if (write_plainly(whole, &g, right)) {
        return 1;
    }
    return set_items(self, whole, key, right, size_of(&g));
}
