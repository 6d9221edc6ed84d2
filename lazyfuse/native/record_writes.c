/* Recorded writes: in place, with `out`, to parts, by masks. The same in Python: operators.py,
   ufunc.py and indexing.py, step for step. */

#include "record.h"

#include <string.h>

enum { ROUNDS = 16 }; /* eager_policy.WRITE_LIMIT */

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

enum { ANYWAY = 2 }; /* the written value is large, which decides without more checks */

/* Whether a write to `x` is recorded: it is pending, or a part of a pending block. `large`: or
   of a block whose values have just been computed and were not read yet. */
static int takes_writes(Core *x, const Given *given, int large)
{
    if (given->kind == ALONE) {
        return x->node != NULL && IS_NODE(x->node) && is_pending(x->node) && IS_ARRAY(x);
    }
    PyObject *node = given->kind == PART ? storage_node(x) : NULL;
    if (node == NULL || !PyArray_ISWRITEABLE((PyArrayObject *)x->view)) {
        return 0;
    }
    if (is_pending(node)) {
        return 1;
    }
    return (large && is_fresh(x->storage, node)) || large == ANYWAY;
}

/* The part of `x` becomes `value` (stolen, may be NULL). 1: done, 0: Python does it, -1: an
   error. */
static int write_part(Core *x, const Geometry *g, PyObject *value, PyObject *layout)
{
    PyObject *old, *made = NULL, *where = NULL;
    if (value == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    old = x->node != Py_None ? Py_NewRef(x->node)
        : storage_node(x) ? read_storage(x->storage) : NULL;
    if (old == NULL) {
        Py_DECREF(value);
        return PyErr_Occurred() ? -1 : 0;
    }
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)NODE(old, dtype));
    made = layout != NULL ? Py_NewRef(layout) : make_layout(g, itemsize);
    if (made != NULL && (where = find_caller()) != NULL) {
        Py_SETREF(made, make_node(hooks.update_op, PyTuple_Pack(2, old, value), made,
                                  NODE(old, shape), NODE(old, dtype), NODE(old, perm), where));
        Py_DECREF(where);
    }
    else {
        Py_CLEAR(made);
    }
    Py_DECREF(old);
    Py_DECREF(value);
    return become(x, made);
}

/* All of `x` becomes `value` (stolen, may be NULL), of its shape and dtype and in C order. */
static int write_all(Core *x, const Given *given, PyObject *value)
{
    if (value == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *old = x->node != Py_None ? x->node : storage_node(x);
    if (old == NULL || (given->kind == ALONE) != (x->node != Py_None)) {
        Py_DECREF(value);
        return 0;
    }
    if (given->kind == ALONE) {
        return become(x, value);
    }
    npy_intp itemsize = PyArray_ITEMSIZE((PyArrayObject *)x->view);
    int whole = is_whole(&given->g, NODE(old, shape), itemsize);
    if (whole > 0 && NODE(old, perm) == Py_None) {
        return become(x, value);
    }
    if (whole != 0 && NODE(old, perm) != Py_None) {
        Py_DECREF(value);
        return 0;
    }
    PyObject *layout = x->layout;
    int known = layout != NULL && IS_LAYOUT(layout);
    return write_part(x, &given->g, value, known ? layout : NULL);
}

/* Whether what a loop gives can be written to an array of `dtype` as it is. */
static int loop_gives(PyObject *loops, const Given *given, int count, PyObject *dtype)
{
    PyObject *loop = known_loop(loops, given, count);
    PyObject *out = loop == NULL ? NULL : PyObject_GetAttr(loop, name_out);
    Py_XDECREF(out);
    return out != NULL && out == dtype;
}

/* Whether an operand keeps NumPy from doing an operation at once: a number, or it is pending. */
static int waits(const Given *given)
{
    Core *x = (Core *)given->object;
    PyObject *node = given->kind == ALONE ? x->node : given->kind == PART ? storage_node(x) : NULL;
    return given->kind == NUMBER || (node != NULL && IS_NODE(node) && is_pending(node));
}

static int update_in_place(PyObject *op, PyObject *loops, Core *self, PyObject *other)
{
    Given given[2];
    Geometry shape;
    if (!look_at((PyObject *)self, &given[0]) || !look_at(other, &given[1])) {
        return 0;
    }
    int large = !given[0].ready && (given[0].kind == ALONE || waits(&given[1]));
    int alone = given[0].kind == ALONE && large && self->node != Py_None;
    if (!(alone || takes_writes(self, &given[0], large)) ||
        !loop_gives(loops, given, 2, given[0].dtype) || !broadcast_operands(given, 2, &shape) ||
        !same_dims(&shape, &given[0].g)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (given[0].kind == PART &&
        !keeps_c_order(&given[0].g, PyArray_ITEMSIZE((PyArrayObject *)self->view))) {
        return 0;
    }
    return write_all(self, &given[0], record_operation(op, loops, given, 2, &shape));
}

int recorded_inplace(PyObject *op, PyObject *loops, Core *self, PyObject *other)
{
    int lock = IS_ARRAY(self) ? lock_writes() : 0;
    return lock <= 0 ? lock : unlock_writes(update_in_place(op, loops, self, other));
}

static int compute_into(PyObject *op, PyObject *loops, PyObject *const *args, int count, Core *out)
{
    Given given[2], target;
    Geometry shape;
    for (int at = 0; at < count; at++) {
        if (!look_at(args[at], &given[at])) {
            return 0;
        }
    }
    if (!look_at((PyObject *)out, &target) || !takes_writes(out, &target, 0) ||
        !loop_gives(loops, given, count, target.dtype)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!broadcast_operands(given, count, &shape) || !same_dims(&shape, &target.g)) {
        return 0;
    }
    return write_all(out, &target, record_operation(op, loops, given, count, &shape));
}

int recorded_into(PyObject *op, PyObject *loops, PyObject *const *args, int count, Core *out)
{
    int lock = IS_ARRAY(out) ? lock_writes() : 0;
    return lock <= 0 ? lock : unlock_writes(compute_into(op, loops, args, count, out));
}

/* As eager_policy._is_write_loop: whether the last writes to a pending block were many and
   small. */
static int is_loop(PyObject *node)
{
    for (int round = 0; round < ROUNDS; round++) {
        PyObject *layout = NODE(node, arg), *src = NODE(node, src);
        Geometry g;
        if (NODE(node, op) != hooks.update_op || !IS_LAYOUT(layout) ||
            !packed_geometry(PyTuple_GET_ITEM(layout, 1), 1, &g) || size_of(&g) >= eager_below()) {
            return 0;
        }
        if (!is_pending(node)) {
            return 1;
        }
        if (!PyTuple_Check(src) || PyTuple_GET_SIZE(src) == 0) {
            return 1; /* just evaluated */
        }
        node = PyTuple_GET_ITEM(src, 0);
    }
    return 1;
}

/* Whether `value` is exactly the part `g` of the memory that `self` views. */
static int is_itself(Core *self, const Geometry *g, Core *value)
{
    PyArrayObject *view = (PyArrayObject *)self->view;
    if (value->storage != self->storage || EAGER(value) != Py_None) {
        return 0;
    }
    PyArrayObject *other = part_geometry(value);
    PyErr_Clear();
    return other != NULL && PyArray_ISWRITEABLE(view) &&
           PyArray_DESCR(other) == PyArray_DESCR(view) && PyArray_NDIM(other) == g->nd &&
           PyArray_BYTES(other) == (char *)hooks.origin + g->offset &&
           memcmp(PyArray_DIMS(other), g->dims, g->nd * sizeof(npy_intp)) == 0 &&
           memcmp(PyArray_STRIDES(other), g->strides, g->nd * sizeof(npy_intp)) == 0;
}

/* Where a write to `self[key]` goes. */
static int find_written(Core *self, const Given *given, PyObject *key, Geometry *g)
{
    return narrow_part(&given->g, key, g);
}

/* Whether a real node has one complex operand: it may be a view in NumPy, its parts. */
static int is_of_complex(PyObject *node)
{
    PyObject *src = NODE(node, src);
    if (!PyTuple_Check(src) || PyTuple_GET_SIZE(src) != 1 ||
        ((PyArray_Descr *)NODE(node, dtype))->kind == 'c') {
        return 0;
    }
    return ((PyArray_Descr *)NODE(PyTuple_GET_ITEM(src, 0), dtype))->kind == 'c';
}

/* As nodes.updated, where all of a block becomes a value that was computed for no other memory. */
static int write_whole(Core *self, PyObject *old, Given *from, const Geometry *g)
{
    PyObject *node = from->kind == ALONE && same_dims(g, &from->g) ? node_of(from, NULL, 0) : NULL;
    if (node == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (NODE(old, perm) != Py_None || NODE(node, perm) != Py_None || !is_pending(node) ||
        NODE(node, op) == hooks.view_op || is_of_complex(node)) {
        Py_DECREF(node);
        return 0;
    }
    return become(self, node);
}

static int write_given(Core *self, PyObject *key, PyObject *value)
{
    Given given, from;
    Geometry g, shape;
    if (!look_at((PyObject *)self, &given) || !find_written(self, &given, key, &g) ||
        !takes_writes(self, &given, size_of(&g) >= eager_below() ? ANYWAY : 0) ||
        !look_at(value, &from) || from.dtype != given.dtype || (shape = g, 0) ||
        !broadcast(&shape.nd, shape.dims, RANK, from.g.nd, from.g.dims) || !same_dims(&g, &shape)) {
        return 0;
    }
    if (self->storage != NULL && ((Core *)value)->storage == self->storage && g.nd == 1 &&
        from.g.nd == 1 && g.strides[0] != from.g.strides[0]) {
        return 0; /* Python looks whether they meet: recording.steps_over */
    }
    PyObject *old = given.kind == PART ? storage_node(self) : self->node;
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)given.dtype);
    int whole = is_whole(&g, NODE(old, shape), itemsize);
    if (whole != 0) {
        return whole > 0 ? write_whole(self, old, &from, &g) : 0;
    }
    if (from.ready && size_of(&g) < eager_below() &&
        (NODE(old, op) == hooks.full_op || is_loop(old))) {
        return 0; /* NumPy does it at once */
    }
    return write_part(self, &g, node_of(&from, NULL, 0), NULL);
}

int recorded_write(Core *self, PyObject *key, PyObject *value)
{
    Given given;
    Geometry g;
    if (!IS_ARRAY(self) || !IS_ARRAY(value) || !look_at((PyObject *)self, &given) ||
        !find_written(self, &given, key, &g)) {
        return 0;
    }
    if (given.kind == PART && is_itself(self, &g, (Core *)value)) {
        return 1; /* the last step of `self[key] += other` */
    }
    int large = size_of(&g) >= eager_below() ? ANYWAY : 0;
    int lock = takes_writes(self, &given, large) ? lock_writes() : 0;
    return lock <= 0 ? lock : unlock_writes(write_given(self, key, value));
}
