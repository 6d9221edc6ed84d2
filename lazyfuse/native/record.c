/* Records operations of one and two operands, and views, that were met before: on arrays that own
   their values and on parts of blocks. operators.py, recording.py and ufunc.py do the same, step
   for step. A function that finds an operand of another kind leaves everything as it was and
   returns NULL (or 0) without an exception: the Python function does it. */

#include "native.h"

#include "record.h"

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

/* The same, if the block is not exported. */
static PyObject *block_node(Core *x)
{
    PyObject *node = any_node(x);
    return node != NULL && STORAGE(x->storage, exports) == Py_None ? node : NULL;
}

PyObject *storage_node(Core *x)
{
    PyObject *node = block_node(x);
    return node != NULL && (PyObject *)PyArray_DESCR((PyArrayObject *)x->view) == NODE(node, dtype)
        ? node : NULL;
}

int is_fresh(PyObject *storage, PyObject *node)
{
    if (NODE(node, value) == Py_None || NODE(node, value) == STORAGE(storage, value)) {
        return 0;
    }
    PyObject *none = PyLong_FromLong(0); /* elements read since: Python always has small ints */
    if (none != NULL) {
        Py_XSETREF(STORAGE(storage, picks), none);
    }
    return none != NULL;
}

/* NumPy's numbers choose a loop by their dtype. */
static int look_at_numpys(PyObject *object, Given *given)
{
    PyObject *dtype = hooks.strong == NULL || hooks.scalar_node == NULL || PyArray_Check(object)
        ? NULL : PyDict_GetItemWithError(hooks.strong, (PyObject *)Py_TYPE(object));
    given->kind = NUMBER;
    given->ready = 1;
    given->dtype = dtype;
    given->g.nd = 0;
    return dtype != NULL;
}

int look_at(PyObject *object, Given *given)
{
    given->object = object;
    if (PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyComplex_CheckExact(object)) {
        given->kind = NUMBER;
        given->ready = 1;
        given->dtype = (PyObject *)Py_TYPE(object);
        given->g.nd = 0;
        return 1;
    }
    int scalar = (PyObject *)Py_TYPE(object) == hooks.scalar;
    if (!IS_ARRAY(object) && !scalar) {
        return look_at_numpys(object, given);
    }
    Core *x = (Core *)object;
    PyObject *node = x->node;
    if (EAGER(x) != Py_None || node == NULL) {
        return 0;
    }
    if (node != Py_None) {
        if (!IS_NODE(node) || NODE(node, perm) != Py_None || NODE(node, value) == NULL) {
            return 0;
        }
        PyObject *value = NODE(node, value), *dtype = NODE(node, dtype);
        given->kind = ALONE;
        given->dtype = dtype;
        given->ready = value != Py_None &&
            (scalar || !PyArray_Check(value) ||
             PyArray_SIZE((PyArrayObject *)value) < eager_below());
        return PyArray_DescrCheck(dtype) &&
               packed_geometry(NODE(node, shape), PyDataType_ELSIZE((PyArray_Descr *)dtype),
                               &given->g);
    }
    node = block_node(x);
    if (node == NULL || !view_geometry((PyArrayObject *)x->view, &given->g)) {
        return 0;
    }
    given->dtype = (PyObject *)PyArray_DESCR((PyArrayObject *)x->view);
    given->kind = PART;
    if (given->dtype != NODE(node, dtype)) {
        return 0; /* parts of complex numbers */
    }
    given->ready = NODE(node, value) != Py_None && size_of(&given->g) < eager_below();
    return 1;
}

PyObject *read_storage(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node);
    if (NODE(node, op) != hooks.leaf_op && !is_pending(node) && !is_held_beyond(node, 1)) {
        return PyObject_CallMethodNoArgs(storage, name_read); /* which counts its references */
    }
    return Py_NewRef(node);
}

/* As ndarray.node_of, for a part of a block; NULL without an exception: Python does it. */
static PyObject *part_node(Core *x, const Geometry *g)
{
    PyObject *block = block_node(x);
    if (block == NULL) { /* it may have changed since the first look */
        return NULL;
    }
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)NODE(block, dtype));
    PyObject *node = read_storage(x->storage);
    if (node == NULL) {
        return NULL;
    }
    int whole = is_whole(g, NODE(node, shape), itemsize);
    if (NODE(node, perm) != Py_None ? whole != 0 : whole > 0) {
        if (NODE(node, perm) != Py_None) {
            Py_CLEAR(node);
        }
        return node;
    }
    PyObject *layout = x->layout, *view = NULL;
    if (!copies_in_c_order(g, PyArray_ITEMSIZE((PyArrayObject *)x->view))) {
        Py_DECREF(node);
        return NULL;
    }
    if (layout == NULL || !IS_LAYOUT(layout)) {
        layout = make_layout(g, itemsize);
        if (layout != NULL) {
            Py_XSETREF(x->layout, Py_NewRef(layout));
        }
    }
    else {
        Py_INCREF(layout);
    }
    if (layout != NULL) {
        view = make_node(hooks.view_op, PyTuple_Pack(1, node), layout, PyTuple_GET_ITEM(layout, 1),
                       NODE(node, dtype), Py_None, Py_None);
        Py_DECREF(layout);
    }
    Py_DECREF(node);
    return view;
}

int broadcast_operands(const Given *given, int count, Geometry *shape)
{
    shape->nd = 0;
    for (int at = 0; at < count; at++) {
        if (!broadcast(&shape->nd, shape->dims, RANK, given[at].g.nd, given[at].g.dims)) {
            return 0;
        }
    }
    return 1;
}

PyObject *known_loop(PyObject *loops, const Given *given, int count)
{
    if (count == 1) {
        return PyDict_GetItemWithError(loops, given->dtype);
    }
    PyObject *key = PyTuple_Pack(2, given[0].dtype, given[1].dtype);
    PyObject *loop = key == NULL ? NULL : PyDict_GetItemWithError(loops, key);
    Py_XDECREF(key);
    return loop;
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

PyObject *node_of(Given *given, PyObject *loop, int at)
{
    Core *x = (Core *)given->object;
    if (given->kind == ALONE) {
        return Py_XNewRef(x->node == Py_None ? NULL : x->node);
    }
    if (given->kind == PART) {
        return part_node(x, &given->g);
    }
    if (PyArray_DescrCheck(given->dtype)) {
        return PyObject_CallFunctionObjArgs(hooks.scalar_node, given->object, given->dtype, NULL);
    }
    PyObject *ins = PyObject_GetAttr(loop, name_ins);
    PyObject *dtype = ins == NULL ? NULL : PySequence_GetItem(ins, at);
    Py_XDECREF(ins);
    if (dtype == NULL) {
        return NULL;
    }
    PyObject *node = number_node(given->object, dtype);
    Py_DECREF(dtype);
    if (node == NULL && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear(); /* too large for the dtype: another function raises */
    }
    return node;
}

/* The sources of an operation of `count` operands (new), in their order; NULL without an
   exception: Python does it. */
static PyObject *make_sources(Given *given, int count, PyObject *loop)
{
    PyObject *src = PyTuple_New(count);
    for (int at = 0; src != NULL && at < count; at++) {
        PyObject *node = node_of(&given[at], loop, at);
        if (node == NULL) {
            Py_CLEAR(src);
            break;
        }
        PyTuple_SET_ITEM(src, at, node);
    }
    return src;
}

/* The operation of a known loop on operands that fit, as a node (new); NULL without an
   exception: Python does it. */
static PyObject *build_node(PyObject *op, PyObject *loop, Given *given, int count, Geometry *shape)
{
    PyObject *dims, *node = NULL;
    for (int at = 0; at < count; at++) {
        if (given[at].kind >= PART && shape->nd > 1 && !gives_c_order(&given[at].g)) {
            return NULL;
        }
    }
    Py_INCREF(loop);
    PyObject *src = make_sources(given, count, loop);
    if (src != NULL) {
        PyObject *first = PyTuple_GET_ITEM(src, 0);
        dims = same_dims(&given[0].g, shape) ? Py_NewRef(NODE(first, shape))
                                             : shape_tuple(shape->nd, shape->dims);
        if (dims != NULL) {
            node = record_node(op, Py_NewRef(src), loop, dims, Py_None);
            Py_DECREF(dims);
        }
        Py_DECREF(src);
    }
    Py_DECREF(loop);
    return node;
}

PyObject *record_operation(PyObject *op, PyObject *loops, Given *given, int count, Geometry *shape)
{
    if (!may_record() || (count == 2 ? given[0].ready && given[1].ready : given[0].ready)) {
        return NULL;
    }
    if (!broadcast_operands(given, count, shape)) {
        return NULL;
    }
    PyObject *loop = shape->nd == 0 ? NULL : known_loop(loops, given, count);
    return loop == NULL ? NULL : build_node(op, loop, given, count, shape);
}

PyObject *recorded_binary(PyObject *op, PyObject *loops, Core *self, PyObject *other, int swapped,
                          int is_operator)
{
    Given given[2];
    Geometry shape;
    if (!look_at((PyObject *)self, &given[swapped]) || !look_at(other, &given[!swapped])) {
        return NULL;
    }
    /* a row and a column may give much; operators are Python's: eager_policy.is_for_update */
    if (!is_operator && given[0].ready && given[1].ready &&
        broadcast_operands(given, 2, &shape) && size_of(&shape) >= eager_below()) {
        given[0].ready = 0;
    }
    return from_node(record_operation(op, loops, given, 2, &shape));
}

PyObject *recorded_unary(PyObject *op, PyObject *loops, Core *self)
{
    Given given;
    Geometry shape;
    if (!look_at((PyObject *)self, &given)) {
        return NULL;
    }
    return from_node(record_operation(op, loops, &given, 1, &shape));
}

/* --------------------------------------------------------------------------------------- views */
/* Parts of blocks: views that a basic key names. The same in Python: indexing.py, step for step. */

enum { VISITS = 16 }; /* eager_policy.VISIT_LIMIT */
enum { COUNTS = 1 << 8 };
#define PLACES ((uint64_t)1 << 48)

/* The instruction of the user's that uses an array with these values now, as a number; 0: a function
   of lazyfuse's does. */
static uint64_t asking_place(PyObject *node)
{
    PyFrameObject *frame = PyEval_GetFrame(); /* borrowed */
    if (frame == NULL || is_inside(frame)) {
        return 0;
    }
    PyCodeObject *code = PyFrame_GetCode(frame);
    uint64_t place = 31 * ((uint64_t)(uintptr_t)code >> 4)
        + 17 * ((uint64_t)(uintptr_t)node >> 4) + (uint64_t)PyFrame_GetLasti(frame);
    Py_DECREF(code);
    return place % PLACES;
}

/* As eager_policy.is_often_visited: notes one more small part of a pending block. */
static int is_often_visited(PyObject *storage)
{
    Py_ssize_t visits = PyLong_AsSsize_t(STORAGE(storage, visits));
    Py_ssize_t first = (Py_ssize_t)asking_place(STORAGE(storage, node)) * COUNTS;
    if (first > 0 && visits > 0 && visits - visits % COUNTS == first) {
        return 1;
    }
    visits = visits > 0 ? visits + 1 : first + 1;
    PyObject *now = PyLong_FromSsize_t(visits);
    if (now != NULL) {
        Py_SETREF(STORAGE(storage, visits), now);
    }
    PyErr_Clear();
    return visits % COUNTS > VISITS;
}

/* An array on the block of `self`, over a part of its memory (a meta array). Steals `view`, which
   may be NULL after an error. */
static PyObject *make_part(Core *self, PyObject *view)
{
    Core *x = view == NULL ? NULL : new_part(self, Py_None);
    if (x == NULL) {
        Py_XDECREF(view);
        return NULL;
    }
    x->view = view;
    return (PyObject *)x;
}

PyObject *recorded_view(Core *self, PyObject *key)
{
    PyObject *node = self->node == Py_None ? any_node(self) : NULL;
    Geometry whole, g;
    if (node != NULL && STORAGE(self->storage, exports) != Py_None
            ? NODE(node, value) == Py_None || NODE(node, value) != STORAGE(self->storage, value)
            : storage_node(self) == NULL) {
        return NULL; /* exported memory has its values */
    }
    if (node == NULL || !view_geometry((PyArrayObject *)self->view, &whole)) {
        return NULL;
    }
    if (!narrow_part(&whole, key, &g)) {
        return NULL;
    }
    PyObject *storage = self->storage;
    int there = NODE(node, value) != Py_None;
    if (there && size_of(&g) >= eager_below() && is_fresh(storage, node)) {
        there = 0; /* just computed, and recorded work will read this part */
    }
    if (there) {
        PyArrayObject *real = (PyArrayObject *)real_of(self);
        if (real == NULL) {
            return NULL;
        }
        char *first = PyArray_BYTES(real) - whole.offset + g.offset;
        return part_over(self, make_view(real, g.nd, g.dims, g.strides, first));
    }
    if (NODE(node, value) == Py_None && size_of(&g) < eager_below() && is_often_visited(storage)) {
        return NULL; /* Python evaluates it */
    }
    return make_part(self, make_view((PyArrayObject *)self->view, g.nd, g.dims, g.strides,
                                     (char *)hooks.origin + g.offset));
}

/* --------------------------------------------------------------------------------------- writes */

/* As `Storage.replace`, or a new node for an array that owns its values; steals `node`. -1: an
   error. */
int become(Core *x, PyObject *node)
{
    if (node == NULL) {
        return -1;
    }
    if (x->node != Py_None) {
        Py_SETREF(x->node, Py_NewRef(node));
    }
    else {
        PyObject *storage = x->storage, *reals = STORAGE(storage, reals);
        Py_SETREF(STORAGE(storage, node), Py_NewRef(node));
        Py_SETREF(STORAGE(storage, value), Py_NewRef(Py_None));
        Py_SETREF(STORAGE(storage, flat), Py_NewRef(Py_None));
        if (!is_empty(reals)) {
            PyObject *fresh = reals_new();
            if (fresh == NULL) {
                Py_DECREF(node);
                return -1;
            }
            Py_INCREF(reals);
            Py_SETREF(STORAGE(storage, reals), fresh);
            reals_clear(reals); /* arrays that hold the old table find it empty */
            Py_DECREF(reals);
        }
    }
    PyObject *done = PyObject_CallOneArg(hooks.note, node);
    Py_DECREF(node);
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

/* Writes refer to the values before them: one thread at a time, as in ndarray.write_region. 1:
   this thread has the lock, 0: Python does it, -1: an error. */
int lock_writes(void)
{
    PyObject *listeners = hooks.acquire == NULL || hooks.release == NULL || hooks.tracing == NULL
        ? NULL : PyDict_GetItemWithError(hooks.tracing, name_listeners);
    if (!may_record() || listeners == NULL || !PyTuple_CheckExact(listeners) ||
        PyTuple_GET_SIZE(listeners) != 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *done = drop_threads() < 0 ? NULL : PyObject_CallNoArgs(hooks.acquire);
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

int unlock_writes(int result)
{
    PyObject *kind, *error, *trace, *done;
    PyErr_Fetch(&kind, &error, &trace);
    done = PyObject_CallNoArgs(hooks.release);
    if (done == NULL) {
        result = -1;
        Py_XDECREF(kind);
        Py_XDECREF(error);
        Py_XDECREF(trace);
    }
    else {
        Py_DECREF(done);
        PyErr_Restore(kind, error, trace);
    }
    return result;
}
