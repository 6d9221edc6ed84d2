/* Small parts of large blocks: NumPy works on them at once, as on small arrays, while the block has
   its values. Owns the NumPy arrays of our arrays over a block (`Core.real`), the table that keeps
   them (`Storage.reals`), and how elements and small parts are read and written. The same in
   Python: storage.py, ndarray.py and indexing.py.

   A part holds NumPy's array over its memory. When the values of the block are replaced, its table
   drops these arrays, so that they do not keep old memory alive. The geometry of a part for
   recorded work (`view`) is made when it is asked for. */

#include "arrays.h"

#include <string.h>

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

/* Where the elements of an array lie in its block: those that it owns are in C order. 0: they are in
   another order, or it has too many axes. */
static int place_in_block(Core *x, PyObject *node, Geometry *g)
{
    PyArrayObject *view = x->node == Py_None ? part_geometry(x) : NULL;
    PyObject *shape = NODE(node, shape);
    g->nd = view != NULL ? PyArray_NDIM(view) : (int)PyTuple_GET_SIZE(shape);
    if (g->nd > RANK || (view == NULL && NODE(node, perm) != Py_None)) {
        return 0;
    }
    npy_intp step = PyDataType_ELSIZE((PyArray_Descr *)NODE(node, dtype));
    for (int axis = g->nd - 1; axis >= 0; axis--) {
        g->dims[axis] = view != NULL ? PyArray_DIM(view, axis)
                                     : PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis));
        g->strides[axis] = view != NULL ? PyArray_STRIDE(view, axis) : step;
        step *= g->dims[axis];
    }
    return 1;
}

/* The values of a block are there: elements and small parts that were read before do not count. */
static void forget_visits(PyObject *storage)
{
    PyObject *none = PyLong_FromLong(0);
    Py_XSETREF(STORAGE(storage, picks), Py_XNewRef(none));
    Py_XSETREF(STORAGE(storage, visits), none);
}

enum { VISIT_LIMIT = 16, COUNTS = 1 << 8 }; /* as in eager_policy.py */
static const uint64_t PLACES = (uint64_t)1 << 48;

/* As eager_policy.is_often_visited, of a small part; also where it is not the user's code that
   reads it. */
static int is_often_visited(PyObject *storage, PyObject *node)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL || is_inside(frame)) {
        return 1;
    }
    PyCodeObject *code = PyFrame_GetCode(frame);
    uint64_t place = 31 * (uint64_t)((uintptr_t)code >> 4) + 17 * (uint64_t)((uintptr_t)node >> 4) +
                     (uint64_t)PyFrame_GetLasti(frame);
    place = place % PLACES * COUNTS;
    Py_DECREF(code);
    uint64_t visits = (uint64_t)PyLong_AsLongLong(STORAGE(storage, visits));
    if (place != 0 && visits != 0 && visits - visits % COUNTS == place) {
        return 1;
    }
    visits = visits != 0 ? visits + 1 : place + 1;
    PyObject *number = PyLong_FromLongLong((long long)visits);
    if (number == NULL) {
        return 1;
    }
    Py_XSETREF(STORAGE(storage, visits), number);
    return visits % COUNTS > VISIT_LIMIT;
}

PyObject *block_part(Core *self, PyObject *key)
{
    PyObject *node = EAGER(self) != Py_None || self->node == NULL ? NULL
        : self->node != Py_None ? self->node : any_node(self);
    Geometry whole, g;
    if (node == NULL || !IS_ARRAY(self) || !IS_NODE(node) || NODE(node, resident) != Py_None ||
        hooks.meta == NULL || stretch_thread != 0 || !may_record() ||
        !place_in_block(self, node, &whole) ||
        select_part(whole.nd, whole.dims, whole.strides, key, &g) != SOME) {
        return NULL;
    }
    int small = size_of(&g) < eager_below();
    if (small && !is_pending(node)) {
        return NULL;
    }
    if (storage_for(self) <= 0) { /* the block gets its storage now */
        return NULL;
    }
    PyObject *storage = Py_NewRef(self->storage);
    node = any_node(self); /* from here on, what allocates may run a finaliser */
    int waits = node != NULL && is_pending(node);
    if (node != NULL && !waits) {
        forget_visits(storage);
    }
    Core *part = NULL; /* else Python evaluates the block */
    if (node != NULL && (!small || (waits && !is_often_visited(storage, node)))) {
        part = new_part(self, Py_None);
    }
    PyArrayObject *all = part == NULL ? NULL : part_geometry(self);
    int same = all != NULL && self->storage == storage && part->storage == storage &&
        PyArray_NDIM(all) == whole.nd;
    for (int axis = 0; same && axis < whole.nd; axis++) {
        same = PyArray_DIM(all, axis) == whole.dims[axis] &&
               PyArray_STRIDE(all, axis) == whole.strides[axis];
    }
    if (same) {
        part->view = make_view_on(hooks.meta, all, g.nd, g.dims, g.strides,
                                  PyArray_BYTES(all) + g.offset);
    }
    if (part != NULL && part->view == NULL) {
        Py_CLEAR(part);
    }
    Py_DECREF(storage);
    return (PyObject *)part;
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

/* The values of an array that are there (borrowed), or what is no array; NULL: it waits. */
static PyObject *values_here(PyObject *x)
{
    PyObject *found = IS_ARRAY(x) ? values_of(x) : x;
    return found == NULL && EAGER(x) == Py_None ? (PyObject *)present_values((Core *)x) : found;
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
    PyObject *found = values_here(part);
    if (found != NULL && IS_REAL(found)) {
        PyArrayObject *where = (PyArrayObject *)found;
        int is_mask = PyArray_TYPE(where) == NPY_BOOL;
        if (!is_plain_index(where) ||
            (is_mask && IS_ARRAY(part) && EAGER(part) == Py_None)) { /* large: Python's loops */
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
    if (whole == NULL || plain_type(whole) < 0) {
        return NULL;
    }
    Py_INCREF(whole);
    PyObject *found = NULL;
    if (read_fancy(key, whole, eager_below(), &fancy)) {
        found = placed_as_is(read_items(whole, fancy.key));
        Py_DECREF(fancy.key);
    }
    Py_DECREF(whole);
    return found;
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
    if (node == Py_None && (PyObject *)Py_TYPE(x->storage) != hooks.storage) {
        return 0; /* it is small by now */
    }
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
    int fits = real != NULL && is_private(x) && real_of(x) == real;
    return fits && is_writeable((PyArrayObject *)real) ? real : NULL;
}

int lock_part(npy_intp size)
{
    if (size <= BRIEF) {
        return 1;
    }
    return hooks.quiet == NULL ? 0 : section_lock(hooks.quiet) < 0 ? -1 : 2;
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

/* NumPy's object for a value that is written: a number, or values that are there (borrowed); NULL:
   Python does it, also where NumPy warns of imaginary parts that are lost. */
static PyObject *written_value(PyObject *value, PyArrayObject *to)
{
    PyObject *found = values_here(value);
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
    npy_intp limit = eager_below(), size = PyArray_SIZE(whole);
    limit *= limit < NPY_MAX_INTP / MIDDLING ? MIDDLING : 1;
    if (right == NULL) {
        return 0;
    }
    Py_INCREF(right);
    Py_INCREF(whole);
    int fits = read_fancy(key, whole, limit, &fancy), done = 0;
    Py_DECREF(whole);
    if (fits) {
        if (!is_private(self) && size <= limit && own_values(self) < 0) {
            done = -1;
        }
        whole = present_values(self); /* which a finaliser or another thread may have written */
        if (done == 0 && whole != NULL && plain_type(whole) >= 0 && is_writeable(whole) &&
            is_private(self)) {
            done = set_items(self, whole, fancy.key, right, fancy.most);
        }
        Py_DECREF(fancy.key);
    }
    Py_DECREF(right);
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
    if (kind == SOME && is_same_part(self, whole, &g, value)) {
        return 1;
    }
    if (kind == SOME && size_of(&g) >= eager_below()) {
        return 0;
    }
    PyObject *right = written_value(value, whole);
    if (right == NULL || !is_private(self) || present_values(self) != whole) {
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
