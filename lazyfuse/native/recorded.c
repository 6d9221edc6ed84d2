/* Operations on recorded arrays that were met before: on arrays that are alone and on parts of blocks.
   What is done here is what operators.py, indexing.py and ufunc.py do, step for step, where every
   operand is of a kind that needs no questions; a function that finds another one leaves everything
   as it was and returns NULL (or 0) without an exception, and the Python function decides. */

#include "native.h"

#include <stddef.h>
#include <string.h>

/* ---------------------------------------------------------------------------- nodes and storages */

/* Offsets of a node's slots; all -1 where they are others than those known here. */
static struct {
    Py_ssize_t op, src, arg, shape, dtype, perm, where, value, resident;
    int whole; /* whether a node has no others */
} in_node = {.op = -1};

#define NODE(node, name) (*(PyObject **)((char *)(node) + in_node.name))
#define IS_NODE(x) (Py_TYPE(x) == (PyTypeObject *)SLOW.node && in_node.op >= 0)

/* Offsets of a storage's slots. */
static struct {
    Py_ssize_t node, value, flat, pinned, roots, reals, part, picks;
} in_storage = {.node = -1};

#define STORAGE(storage, name) (*(PyObject **)((char *)(storage) + in_storage.name))

static PyObject *name_package, *name_out, *name_ins, *name_read, *name_listeners, *name_name;

enum { RANK = 8 };      /* axes of what is looked at here */
enum { LISTED = 16 };   /* index_keys.LONGEST */
enum { ROUNDS = 16 };   /* indexing.WRITE_LIMIT */
enum { REALS = 256 };   /* storage.REALS_LIMIT */

/* As errstate.is_usual: whether this thread's error state is the one that NumPy starts with. */
static int is_usual(void)
{
    PyObject *state = NULL;
    if (SLOW.state == NULL || PyContextVar_Get(SLOW.state, NULL, &state) < 0) {
        PyErr_Clear();
        return 0;
    }
    Py_XDECREF(state); /* the context holds it */
    return state == SLOW.usual_state;
}

/* As errstate.is_default. */
static int is_default(void)
{
    return SLOW.plain && is_usual();
}

/* As nodes.caller: the first frame outside lazyfuse. */
static PyObject *found_caller(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL || !is_usual()) {
        return PyObject_CallNoArgs(SLOW.caller);
    }
    Py_INCREF(frame);
    for (;;) {
        PyObject *globals = PyFrame_GetGlobals(frame);
        PyObject *package = PyDict_GetItemWithError(globals, name_package);
        int inside = package == NULL ? 0 : PySet_Contains(SLOW.inside, package);
        Py_DECREF(globals);
        if (inside <= 0) {
            PyErr_Clear(); /* a package that is not hashable is none of ours */
            break;
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        if (back == NULL) {
            break;
        }
        Py_SETREF(frame, back);
    }
    PyObject *where = PyTuple_New(2);
    PyObject *offset = PyLong_FromLong(PyFrame_GetLasti(frame));
    if (where == NULL || offset == NULL) {
        Py_XDECREF(where);
        Py_XDECREF(offset);
        Py_DECREF(frame);
        return NULL;
    }
    PyTuple_SET_ITEM(where, 0, (PyObject *)PyFrame_GetCode(frame));
    PyTuple_SET_ITEM(where, 1, offset);
    Py_DECREF(frame);
    return where;
}

PyObject *recorded_line(void)
{
    return found_caller();
}

/* A node; steals `src`, which may be NULL after an error. */
static PyObject *node_at(PyObject *op, PyObject *src, PyObject *arg, PyObject *shape, PyObject *dtype,
                         PyObject *perm, PyObject *where)
{
    PyObject *node = NULL;
    PyTypeObject *type = (PyTypeObject *)SLOW.node;
    if (src == NULL) {
        return NULL;
    }
    if (!in_node.whole) {
        node = PyObject_CallFunctionObjArgs(
            SLOW.node, op, src, arg, shape, dtype, perm, where, NULL);
    }
    else if ((node = type->tp_alloc(type, 0)) != NULL) {
        NODE(node, op) = Py_NewRef(op);
        NODE(node, src) = Py_NewRef(src);
        NODE(node, arg) = Py_NewRef(arg);
        NODE(node, shape) = Py_NewRef(shape);
        NODE(node, dtype) = Py_NewRef(dtype);
        NODE(node, perm) = Py_NewRef(perm);
        NODE(node, where) = Py_NewRef(where);
        NODE(node, value) = Py_NewRef(Py_None);
        NODE(node, resident) = Py_NewRef(Py_None);
    }
    Py_DECREF(src);
    return node;
}

/* A node of the loop's result, recorded at the user's line; steals `src`. */
static PyObject *new_node(PyObject *op, PyObject *src, PyObject *loop, PyObject *shape, PyObject *perm)
{
    PyObject *where = NULL, *out = NULL, *node = NULL;
    if (src != NULL && (where = found_caller()) != NULL &&
        (out = PyObject_GetAttr(loop, name_out)) != NULL) {
        node = node_at(op, Py_NewRef(src), loop, shape, out, perm, where);
    }
    Py_XDECREF(src);
    Py_XDECREF(where);
    Py_XDECREF(out);
    return node;
}

/* As scalars.make_scalar. */
static PyObject *scalar_of(PyObject *node)
{
    Core *x = SLOW.scalar == NULL ? NULL : (Core *)array_new(NULL, SLOW.scalar);
    if (x != NULL) {
        x->small = Py_NewRef(Py_None);
        x->node = Py_NewRef(node);
        x->storage = Py_NewRef(Py_None);
        x->base = Py_NewRef(Py_None);
    }
    return (PyObject *)x;
}

/* As ndarray.from_node: what a user gets for a node; steals it. */
static PyObject *noted(PyObject *node)
{
    if (node == NULL) {
        return NULL;
    }
    PyObject *shape = NODE(node, shape);
    int number = PyTuple_CheckExact(shape) && PyTuple_GET_SIZE(shape) == 0;
    PyObject *x = number ? scalar_of(node) : array_alone(NULL, node);
    if (x != NULL) {
        PyObject *done = PyObject_CallOneArg(SLOW.note, node);
        if (done == NULL) {
            Py_CLEAR(x);
        }
        Py_XDECREF(done);
    }
    Py_DECREF(node);
    return x;
}

static PyObject *shape_tuple(int nd, const npy_intp *dims)
{
    PyObject *tuple = PyTuple_New(nd);
    for (int at = 0; tuple != NULL && at < nd; at++) {
        PyObject *each = PyLong_FromSsize_t(dims[at]);
        if (each == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, at, each);
    }
    return tuple;
}

/* ------------------------------------------------------------------------------------- geometry */

/* Where the elements of an array lie in its block. */
typedef struct {
    int nd;
    npy_intp dims[RANK], strides[RANK], offset; /* of both in bytes */
} Geometry;

static npy_intp size_of(const Geometry *g)
{
    npy_intp size = 1;
    for (int axis = 0; axis < g->nd; axis++) {
        size *= g->dims[axis];
    }
    return size;
}

/* The geometry of a packed array in C order; 0: not for this way. */
static int packed(PyObject *shape, npy_intp itemsize, Geometry *g)
{
    if (!PyTuple_CheckExact(shape) || PyTuple_GET_SIZE(shape) > RANK) {
        return 0;
    }
    g->nd = (int)PyTuple_GET_SIZE(shape);
    g->offset = 0;
    for (int axis = g->nd - 1; axis >= 0; axis--) {
        PyObject *length = PyTuple_GET_ITEM(shape, axis);
        g->dims[axis] = PyLong_CheckExact(length) ? PyLong_AsSsize_t(length) : 0;
        if (g->dims[axis] <= 0) {
            PyErr_Clear();
            return 0;
        }
        g->strides[axis] = itemsize;
        itemsize *= g->dims[axis];
    }
    return 1;
}

/* The geometry of a ghost; 0: not for this way. */
static int of_view(PyArrayObject *view, Geometry *g)
{
    g->nd = PyArray_NDIM(view);
    if (g->nd > RANK || PyArray_SIZE(view) == 0) {
        return 0;
    }
    for (int axis = 0; axis < g->nd; axis++) {
        g->dims[axis] = PyArray_DIM(view, axis);
        g->strides[axis] = PyArray_STRIDE(view, axis);
    }
    g->offset = PyArray_BYTES(view) - (char *)SLOW.origin;
    return 1;
}

/* The geometry that a basic key leaves; 0 where it leaves an element or nothing, or is wrong. */
static int narrowed(const Geometry *from, PyObject *key, Geometry *g)
{
    int tuple = PyTuple_CheckExact(key), axis = 0, open = 0;
    Py_ssize_t count = tuple ? PyTuple_GET_SIZE(key) : 1, axes = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *part = tuple ? PyTuple_GET_ITEM(key, at) : key;
        axes += PyLong_CheckExact(part) || PySlice_Check(part);
        open += part == Py_Ellipsis;
    }
    if (axes > from->nd || open > 1 || count - axes > RANK) {
        return 0;
    }
    g->nd = 0;
    g->offset = from->offset;
    for (Py_ssize_t at = 0; at <= count; at++) {
        PyObject *part = at == count ? Py_Ellipsis : tuple ? PyTuple_GET_ITEM(key, at) : key;
        if (part == Py_Ellipsis) { /* once in the key, or at its end */
            Py_ssize_t rest = at == count && open ? 0 : from->nd - axes;
            for (; rest > 0; rest--, axis++) {
                if (g->nd == RANK) {
                    return 0;
                }
                g->dims[g->nd] = from->dims[axis];
                g->strides[g->nd++] = from->strides[axis];
            }
            continue;
        }
        if (PyLong_CheckExact(part)) {
            Py_ssize_t place = PyLong_AsSsize_t(part), length = from->dims[axis];
            if (place == -1 && PyErr_Occurred()) {
                PyErr_Clear();
                return 0;
            }
            place += place < 0 ? length : 0;
            if (place < 0 || place >= length) {
                return 0; /* an IndexError in NumPy's words */
            }
            g->offset += place * from->strides[axis++];
            continue;
        }
        if (g->nd == RANK) {
            return 0;
        }
        if (part == Py_None) {
            g->dims[g->nd] = 1;
            g->strides[g->nd++] = 0;
            continue;
        }
        Py_ssize_t start, stop, step;
        if (!is_plain_slice(part)) {
            return 0;
        }
        if (PySlice_Unpack(part, &start, &stop, &step) < 0) {
            PyErr_Clear();
            return 0;
        }
        Py_ssize_t length = PySlice_AdjustIndices(from->dims[axis], &start, &stop, step);
        if (length == 0) {
            return 0; /* where NumPy lets it point */
        }
        g->dims[g->nd] = length;
        g->offset += start * from->strides[axis];
        g->strides[g->nd++] = step * from->strides[axis++];
    }
    return g->nd > 0;
}

/* As index_keys._progression: a list of places of an axis as a slice (new); NULL without an exception:
   it is none. */
static PyObject *progression(PyObject *list, npy_intp length)
{
    Py_ssize_t count = PyList_GET_SIZE(list), first = 0, step = 1;
    if (count == 0 || count > LISTED) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *each = PyList_GET_ITEM(list, at);
        Py_ssize_t place = PyLong_CheckExact(each) ? PyLong_AsSsize_t(each) : length;
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return NULL;
        }
        if (place < -length || place >= length) {
            return NULL;
        }
        place += place < 0 ? length : 0;
        first = at == 0 ? place : first;
        step = at == 1 ? place - first : step;
        if (step == 0 || place != first + at * step) {
            return NULL;
        }
    }
    Py_ssize_t last = first + count * step;
    PyObject *start = PyLong_FromSsize_t(first), *by = PyLong_FromSsize_t(step), *found = NULL;
    PyObject *stop = last < 0 ? Py_NewRef(Py_None) : PyLong_FromSsize_t(last);
    if (start != NULL && stop != NULL && by != NULL) {
        found = PySlice_New(start, stop, by);
    }
    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(by);
    return found;
}

/* As index_keys.region: the geometry that a key with one list leaves, where that list is a progression,
   and the axis that stands for it; 0 for other keys. */
static int listed(const Geometry *from, PyObject *key, Geometry *g, int *place)
{
    PyObject *one[1] = {key}, **parts = PyTuple_CheckExact(key) ? &PyTuple_GET_ITEM(key, 0) : one;
    Py_ssize_t count = parts == one ? 1 : PyTuple_GET_SIZE(key), list = -1, open = -1, low, high;
    Py_ssize_t numbers = 0, none = 0, kept = 0, axis = 0;
    low = high = -1;
    for (Py_ssize_t at = 0; at < count; at++) {
        int number = PyLong_CheckExact(parts[at]);
        if (PyList_CheckExact(parts[at])) {
            if (list >= 0) {
                return 0;
            }
            list = at;
        }
        else if (parts[at] == Py_Ellipsis) {
            if (open >= 0) {
                return 0;
            }
            open = at;
        }
        else if (!number && parts[at] != Py_None && !PySlice_Check(parts[at])) {
            return 0;
        }
        numbers += number;
        none += parts[at] == Py_None;
        if (number || list == at) {
            low = low < 0 ? at : low;
            high = at;
        }
        if (list < 0) {
            kept += !number;
            axis += parts[at] != Py_None && parts[at] != Py_Ellipsis;
        }
    }
    Py_ssize_t axes = count - none - (open >= 0);
    if (list < 0 || axes > from->nd || (numbers && (open >= 0 || none))) {
        return 0;
    }
    if (open >= 0 && open < list) {
        kept += from->nd - axes - 1;
        axis += from->nd - axes;
    }
    PyObject *slice = progression(parts[list], from->dims[axis]), *basic;
    if (slice == NULL || (basic = PyTuple_New(count)) == NULL) {
        Py_XDECREF(slice);
        PyErr_Clear();
        return 0;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        PyTuple_SET_ITEM(basic, at, at == list ? slice : Py_NewRef(parts[at]));
    }
    int fits = narrowed(from, basic, g);
    Py_DECREF(basic);
    *place = (int)kept;
    if (fits && numbers && high - low != numbers) { /* numbers elsewhere: NumPy's axis is the first */
        npy_intp length = g->dims[kept], stride = g->strides[kept];
        memmove(g->dims + 1, g->dims, kept * sizeof(npy_intp));
        memmove(g->strides + 1, g->strides, kept * sizeof(npy_intp));
        g->dims[0] = length;
        g->strides[0] = stride;
        *place = 0;
    }
    return fits;
}

/* As meta_arrays.falls: C order, whatever the gaps. `long_ones`: for axes that have a say. */
static int falls(const Geometry *g, int long_ones)
{
    npy_intp last = NPY_MAX_INTP;
    for (int axis = 0; axis < g->nd; axis++) {
        npy_intp stride = g->strides[axis];
        if (long_ones && (g->dims[axis] == 1 || stride == 0)) {
            continue;
        }
        if (stride > last || stride < 0) {
            return 0;
        }
        last = stride;
    }
    return 1;
}

/* Whether results take C order from an operand that lies so. */
static int in_order(const Geometry *g)
{
    return g->nd < 2 || falls(g, 0) || falls(g, 1);
}

/* As meta_arrays.keep_order, where that is not C order for its gaps alone (new). */
static PyObject *kept_order(const Geometry *g, npy_intp itemsize)
{
    int order[RANK], c = 1, f = 1, nd = g->nd;
    npy_intp size = itemsize;
    for (int axis = nd - 1; axis >= 0; size *= g->dims[axis--]) {
        c &= g->dims[axis] == 1 || g->strides[axis] == size;
    }
    size = itemsize;
    for (int axis = 0; axis < nd; size *= g->dims[axis++]) {
        f &= g->dims[axis] == 1 || g->strides[axis] == size;
    }
    if (falls(g, 0) || c) {
        Py_RETURN_NONE;
    }
    for (int axis = 0; axis < nd; axis++) { /* by falling stride, ties as they are */
        int at = axis;
        npy_intp stride = g->strides[axis] < 0 ? -g->strides[axis] : g->strides[axis];
        for (; at > 0 && !f; at--) {
            npy_intp before = g->strides[order[at - 1]];
            if ((before < 0 ? -before : before) >= stride) {
                break;
            }
            order[at] = order[at - 1];
        }
        order[at] = axis;
    }
    int moved = 0;
    PyObject *perm = PyTuple_New(nd);
    for (int at = 0; perm != NULL && at < nd; at++) {
        int axis = f ? nd - 1 - at : order[at];
        moved |= axis != at;
        PyTuple_SET_ITEM(perm, at, PyLong_FromLong(axis)); /* small numbers are always there */
    }
    if (perm != NULL && !moved) {
        Py_SETREF(perm, Py_NewRef(Py_None));
    }
    return perm;
}

/* Whether meta_arrays.keep_order finds C order. */
static int keeps_order(const Geometry *g, npy_intp itemsize)
{
    int contiguous = 1;
    for (int axis = g->nd - 1; axis >= 0; axis--) {
        contiguous &= g->dims[axis] == 1 || g->strides[axis] == itemsize;
        itemsize *= g->dims[axis];
    }
    return contiguous || falls(g, 0);
}

/* Whether a part is a node in C order, as ndarray.node_of finds it. */
static int copies_in_order(const Geometry *g, npy_intp itemsize)
{
    for (int axis = 0; axis < g->nd; axis++) {
        if (g->strides[axis] == 0) {
            return in_order(g);
        }
    }
    return keeps_order(g, itemsize);
}

/* Whether a geometry is all of a block in C order, of whose node the shape is; -1: the same places,
   otherwise arranged. */
static int is_whole(const Geometry *g, PyObject *shape, npy_intp itemsize)
{
    int packed = 1;
    if (g->offset != 0 || !PyTuple_CheckExact(shape) || PyTuple_GET_SIZE(shape) != g->nd) {
        return 0;
    }
    for (int axis = g->nd - 1; axis >= 0; axis--) {
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis)) != g->dims[axis]) {
            PyErr_Clear();
            return 0;
        }
        packed &= g->dims[axis] == 1 || g->strides[axis] == itemsize;
        itemsize *= g->dims[axis];
    }
    return packed ? 1 : -1;
}

static PyObject *layout_of(const Geometry *g, npy_intp itemsize)
{
    npy_intp steps[RANK];
    for (int axis = 0; axis < g->nd; axis++) {
        if (g->strides[axis] % itemsize) {
            return NULL;
        }
        steps[axis] = g->strides[axis] / itemsize;
    }
    PyObject *layout = NULL, *args = NULL, *parts = PyTuple_New(3);
    if (parts != NULL) {
        PyTuple_SET_ITEM(parts, 0, PyLong_FromSsize_t(g->offset / itemsize));
        PyTuple_SET_ITEM(parts, 1, shape_tuple(g->nd, g->dims));
        PyTuple_SET_ITEM(parts, 2, shape_tuple(g->nd, steps));
        if (!PyErr_Occurred() && (args = PyTuple_Pack(1, parts)) != NULL) {
            /* as a named tuple makes itself */
            layout = PyTuple_Type.tp_new((PyTypeObject *)SLOW.layout, args, NULL);
        }
    }
    Py_XDECREF(args);
    Py_XDECREF(parts);
    return layout;
}

static PyObject *view_at(PyArrayObject *parent, const Geometry *g, char *origin)
{
    PyArray_Descr *descr = PyArray_DESCR(parent);
    Py_INCREF(descr);
    PyObject *view = PyArray_NewFromDescr(
        &PyArray_Type, descr, g->nd, (npy_intp *)g->dims, (npy_intp *)g->strides,
        origin + g->offset, PyArray_FLAGS(parent), NULL);
    if (view != NULL && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(parent)) < 0) {
        Py_CLEAR(view);
    }
    return view;
}

/* ------------------------------------------------------------------------------------- operands */

enum { NUMBER, ALONE, PART, PIECE }; /* a piece: parts of the complex numbers in a block */

/* An operand as a recorded operation takes it. Nothing in it is held: Python code may exchange it. */
typedef struct {
    int kind, ready; /* `ready`: NumPy might do it at once (ndarray.ready) */
    PyObject *object, *dtype; /* what chooses the loop: a dtype, or the type of a number */
    Geometry g; /* of a number: no axes */
} Given;

/* The node of the block of `x`, if it is not pinned. */
static PyObject *any_node(Core *x)
{
    PyObject *storage = x->storage;
    if (storage == NULL || Py_TYPE(storage) != (PyTypeObject *)SLOW.storage ||
        in_storage.node < 0 || STORAGE(storage, pinned) != Py_False ||
        x->view == NULL || !IS_REAL(x->view)) {
        return NULL;
    }
    PyObject *node = STORAGE(storage, node);
    return node == NULL || !IS_NODE(node) || NODE(node, resident) != Py_None ? NULL : node;
}

/* The same, if nobody outside sees the block. */
static PyObject *block_node(Core *x)
{
    PyObject *node = any_node(x);
    return node != NULL && STORAGE(x->storage, roots) == Py_None ? node : NULL;
}

/* The same, for what may be recorded on: the parts of complex numbers have another dtype. */
static PyObject *storage_node(Core *x)
{
    PyObject *node = block_node(x);
    return node != NULL && (PyObject *)PyArray_DESCR((PyArrayObject *)x->view) == NODE(node, dtype)
        ? node : NULL;
}

/* Whether `g` is of imaginary parts, whose items have that size. */
static int is_second(const Geometry *g, npy_intp itemsize)
{
    return (g->offset & itemsize) != 0;
}

/* The row and the loop that give the parts of complex numbers (borrowed), met before; NULL without
   an exception: not for this way. */
static PyObject *known_piece(Core *x, PyObject *node, const Geometry *g)
{
    npy_intp itemsize = PyArray_ITEMSIZE((PyArrayObject *)x->view);
    if (SLOW.pieces == NULL || PyArray_TYPE((PyArrayObject *)x->view) == NPY_OBJECT ||
        PyDataType_ELSIZE((PyArray_Descr *)NODE(node, dtype)) != 2 * itemsize) {
        return NULL;
    }
    PyObject *key = PyTuple_Pack(2, NODE(node, dtype), is_second(g, itemsize) ? Py_True : Py_False);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(SLOW.pieces, key), *out;
    Py_XDECREF(key);
    if (found == NULL || !PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 2 ||
        (out = PyObject_GetAttr(PyTuple_GET_ITEM(found, 1), name_out)) == NULL) {
        PyErr_Clear();
        return NULL;
    }
    Py_DECREF(out);
    return out == (PyObject *)PyArray_DESCR((PyArrayObject *)x->view) ? found : NULL;
}

/* Whether the values of a block have just been computed: nobody has asked `Storage.memory` yet. */
static int is_fresh(PyObject *storage, PyObject *node)
{
    if (NODE(node, value) == Py_None || NODE(node, value) == STORAGE(storage, value)) {
        return 0;
    }
    PyObject *none = PyLong_FromLong(0); /* elements read since: a small number, always there */
    if (none != NULL) {
        Py_XSETREF(STORAGE(storage, picks), none);
    }
    return none != NULL;
}

static int is_pending(PyObject *node)
{
    return NODE(node, value) == Py_None && NODE(node, resident) == Py_None;
}

/* Whether an operand is one that is looked at here. */
static int look_at(PyObject *object, Given *given)
{
    given->object = object;
    if (PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyComplex_CheckExact(object)) {
        given->kind = NUMBER;
        given->ready = 1;
        given->dtype = (PyObject *)Py_TYPE(object);
        given->g.nd = 0;
        return 1;
    }
    int scalar = (PyObject *)Py_TYPE(object) == SLOW.scalar;
    if (!IS_ARRAY(object) && !scalar) {
        return 0;
    }
    Core *x = (Core *)object;
    PyObject *node = x->node;
    if (SMALL(x) != Py_None || node == NULL) {
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
               packed(NODE(node, shape), PyDataType_ELSIZE((PyArray_Descr *)dtype), &given->g);
    }
    node = block_node(x);
    if (node == NULL || !of_view((PyArrayObject *)x->view, &given->g)) {
        return 0;
    }
    given->dtype = (PyObject *)PyArray_DESCR((PyArrayObject *)x->view);
    given->kind = given->dtype == NODE(node, dtype) ? PART : PIECE;
    if (given->kind == PIECE && known_piece(x, node, &given->g) == NULL) {
        return 0;
    }
    given->ready = NODE(node, value) != Py_None && size_of(&given->g) < eager_below();
    return 1;
}

/* As `Storage.read`; new. */
static PyObject *present(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node);
    if (NODE(node, op) != SLOW.leaf_op && !is_pending(node) && Py_REFCNT(node) == 1) {
        return PyObject_CallMethodNoArgs(storage, name_read); /* which counts who holds it */
    }
    return Py_NewRef(node);
}

/* As ndarray.node_of, for a part of a block; NULL without an exception: not for this way. */
static PyObject *part_node(Core *x, const Geometry *g)
{
    PyObject *block = block_node(x);
    if (block == NULL) { /* what may have changed since it was looked at */
        return NULL;
    }
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)NODE(block, dtype));
    PyObject *node = present(x->storage);
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
    if (!copies_in_order(g, PyArray_ITEMSIZE((PyArrayObject *)x->view))) {
        Py_DECREF(node);
        return NULL;
    }
    if (layout == NULL || (PyObject *)Py_TYPE(layout) != SLOW.layout) {
        layout = layout_of(g, itemsize);
        if (layout != NULL) {
            Py_XSETREF(x->layout, Py_NewRef(layout));
        }
    }
    else {
        Py_INCREF(layout);
    }
    if (layout != NULL) {
        view = node_at(SLOW.view_op, PyTuple_Pack(1, node), layout, PyTuple_GET_ITEM(layout, 1),
                       NODE(node, dtype), Py_None, Py_None);
        Py_DECREF(layout);
    }
    Py_DECREF(node);
    return view;
}

/* As ndarray.part_of: the parts that `x` looks at of complex numbers; NULL as above. */
static PyObject *piece_node(Core *x, const Geometry *g)
{
    Geometry numbers = *g;
    PyObject *block = block_node(x), *known = block == NULL ? NULL : known_piece(x, block, g);
    if (known == NULL) {
        return NULL;
    }
    npy_intp itemsize = PyArray_ITEMSIZE((PyArrayObject *)x->view);
    numbers.offset -= is_second(g, itemsize) ? itemsize : 0;
    Py_INCREF(known);
    PyObject *node = part_node(x, &numbers), *made = NULL;
    if (node != NULL) {
        made = new_node(PyTuple_GET_ITEM(known, 0), PyTuple_Pack(1, node),
                        PyTuple_GET_ITEM(known, 1), NODE(node, shape), Py_None);
        Py_DECREF(node);
    }
    Py_DECREF(known);
    return made;
}

/* The loop known for two keys, borrowed; NULL without an exception where there is none. */
static PyObject *known_loop(PyObject *loops, PyObject *first, PyObject *second)
{
    PyObject *key = PyTuple_Pack(2, first, second);
    if (key == NULL) {
        return NULL;
    }
    PyObject *loop = PyDict_GetItemWithError(loops, key);
    Py_DECREF(key);
    return loop;
}

/* As nodes.constant, for numbers that were met before (new); NULL without an exception. */
static PyObject *known_constant(PyObject *number, PyObject *dtype)
{
    if (SLOW.constants == NULL || PyComplex_CheckExact(number) || PyObject_IsTrue(number) != 1) {
        return NULL; /* zeros with either sign are equal keys */
    }
    PyObject *key = PyTuple_Pack(2, number, dtype);
    PyObject *node = key == NULL ? NULL : PyDict_GetItemWithError(SLOW.constants, key);
    Py_XDECREF(key);
    return Py_XNewRef(node);
}

/* An operand as a node (new); NULL without an exception: not for this way. */
static PyObject *node_of(Given *given, PyObject *loop, int at)
{
    Core *x = (Core *)given->object;
    if (given->kind == ALONE) {
        return Py_XNewRef(x->node == Py_None ? NULL : x->node);
    }
    if (given->kind == PART) {
        return part_node(x, &given->g);
    }
    if (given->kind == PIECE) {
        return piece_node(x, &given->g);
    }
    PyObject *ins = PyObject_GetAttr(loop, name_ins);
    PyObject *dtype = ins == NULL ? NULL : PySequence_GetItem(ins, at);
    Py_XDECREF(ins);
    if (dtype == NULL) {
        return NULL;
    }
    PyObject *node = known_constant(given->object, dtype);
    if (node == NULL && !PyErr_Occurred()) {
        node = PyObject_CallFunctionObjArgs(SLOW.constant, given->object, dtype, NULL);
    }
    Py_DECREF(dtype);
    if (node == NULL && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear(); /* too large for the dtype: said elsewhere */
    }
    return node;
}

/* The shape to which two operands are broadcast; 0: they do not fit. */
static int broadcast(const Geometry *first, const Geometry *second, Geometry *to)
{
    const Geometry *wide = first->nd >= second->nd ? first : second;
    const Geometry *other = wide == first ? second : first;
    int extra = wide->nd - other->nd;
    to->nd = wide->nd;
    for (int axis = 0; axis < wide->nd; axis++) {
        npy_intp length = wide->dims[axis], beside = axis < extra ? 1 : other->dims[axis - extra];
        if (length != beside && length != 1 && beside != 1) {
            return 0;
        }
        to->dims[axis] = length == 1 ? beside : length;
    }
    return 1;
}

static int same_dims(const Geometry *first, const Geometry *second)
{
    return first->nd == second->nd &&
           memcmp(first->dims, second->dims, first->nd * sizeof(npy_intp)) == 0;
}

/* The sources of an operation of `count` operands (new), in their order; NULL: not for this way. */
static PyObject *sources(Given *given, int count, PyObject *loop)
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

/* The operation of a known loop on operands that fit, as a node (new); NULL: not for this way. */
static PyObject *built(PyObject *op, PyObject *loop, Given *given, int count, Geometry *shape)
{
    PyObject *dims, *node = NULL;
    for (int at = 0; at < count; at++) {
        if (given[at].kind >= PART && shape->nd > 1 && !in_order(&given[at].g)) {
            return NULL;
        }
    }
    Py_INCREF(loop);
    PyObject *src = sources(given, count, loop);
    if (src != NULL) {
        PyObject *first = PyTuple_GET_ITEM(src, 0);
        dims = same_dims(&given[0].g, shape) ? Py_NewRef(NODE(first, shape))
                                             : shape_tuple(shape->nd, shape->dims);
        if (dims != NULL) {
            node = new_node(op, Py_NewRef(src), loop, dims, Py_None);
            Py_DECREF(dims);
        }
        Py_DECREF(src);
    }
    Py_DECREF(loop);
    return node;
}

/* Whether none of the operands is an array. */
static int are_scalars(const Given *given, int count)
{
    for (int at = 0; at < count; at++) {
        if (given[at].kind != NUMBER && (PyObject *)Py_TYPE(given[at].object) != SLOW.scalar) {
            return 0;
        }
    }
    return 1;
}

/* The operation on operands that fit, as a node (new); NULL: not for this way, or an error. */
static PyObject *operation(PyObject *op, PyObject *loops, Given *given, int count, Geometry *shape)
{
    PyObject *loop;
    if (!is_default() || (count == 2 ? given[0].ready && given[1].ready : given[0].ready)) {
        return NULL;
    }
    if (count == 1) {
        *shape = given[0].g;
        loop = PyDict_GetItemWithError(loops, given[0].dtype);
    }
    else if (broadcast(&given[0].g, &given[1].g, shape)) {
        loop = known_loop(loops, given[0].dtype, given[1].dtype);
    }
    else {
        return NULL;
    }
    if (loop == NULL || (shape->nd == 0 && !are_scalars(given, count))) {
        return NULL;
    }
    return built(op, loop, given, count, shape);
}

/* Whether NumPy's integers tell of overflow in an operator of that name. */
static int overflows(const char *name)
{
    return strcmp(name, "add") == 0 || strcmp(name, "subtract") == 0 ||
           strcmp(name, "multiply") == 0;
}

/* As scalar_ops.scalar_node: lets the place of a node of two scalars say so; steals the node, NULL
   without an exception: not for this way. */
static PyObject *named_scalar(PyObject *node, const char *name)
{
    PyObject *where = NODE(node, where), *place, *text;
    int kind = ((PyArray_Descr *)NODE(node, dtype))->kind;
    if (SLOW.place == NULL || !PyTuple_CheckExact(where) || /* a place that says more already */
        ((kind == 'i' || kind == 'u') && overflows(name))) {
        Py_DECREF(node);
        return NULL;
    }
    place = PyObject_CallOneArg(SLOW.place, where);
    text = PyUnicode_FromFormat("scalar %s", name);
    if (place == NULL || text == NULL || PyObject_SetAttr(place, name_name, text) < 0) {
        Py_CLEAR(node);
    }
    else {
        Py_SETREF(NODE(node, where), Py_NewRef(place));
    }
    Py_XDECREF(place);
    Py_XDECREF(text);
    return node;
}

/* The loop that operators.record_unary found for a row (borrowed). */
static PyObject *loop_of_one(PyObject *op, PyObject *dtype)
{
    PyObject *keys = PyTuple_Pack(1, dtype);
    PyObject *key = keys == NULL ? NULL : PyTuple_Pack(2, op, keys);
    PyObject *loop = key == NULL ? NULL : PyDict_GetItemWithError(SLOW.loops, key);
    Py_XDECREF(keys);
    Py_XDECREF(key);
    return loop == Py_None ? NULL : loop;
}

/* The loop that recording.find_loop or a masked write found for three keys (borrowed). */
static PyObject *loop_of_three(PyObject *op, PyObject *first, PyObject *second, PyObject *third)
{
    PyObject *keys = PyTuple_Pack(3, first, second, third);
    PyObject *key = keys == NULL ? NULL : PyTuple_Pack(2, op, keys);
    PyObject *loop = key == NULL ? NULL : PyDict_GetItemWithError(SLOW.loops, key);
    Py_XDECREF(keys);
    Py_XDECREF(key);
    return loop == Py_None ? NULL : loop;
}

PyObject *recorded_where(PyObject *const *args)
{
    Given given[3];
    Geometry pair, shape;
    int ready = 1;
    if (SLOW.where_op == NULL || SLOW.loops == NULL || !is_default()) {
        return NULL;
    }
    for (int at = 0; at < 3; at++) {
        if (!look_at(args[at], &given[at])) {
            return NULL;
        }
        ready &= given[at].ready;
    }
    if (ready || !broadcast(&given[0].g, &given[1].g, &pair) ||
        !broadcast(&pair, &given[2].g, &shape) || shape.nd == 0) {
        return NULL;
    }
    PyObject *loop = loop_of_three(SLOW.where_op, given[0].dtype, given[1].dtype, given[2].dtype);
    return loop == NULL ? NULL : noted(built(SLOW.where_op, loop, given, 3, &shape));
}

PyObject *recorded_binary(PyObject *op, PyObject *loops, Core *self, PyObject *other, int swapped,
                          const char *name)
{
    Given given[2];
    Geometry shape;
    if (!look_at((PyObject *)self, &given[swapped]) || !look_at(other, &given[!swapped])) {
        return NULL;
    }
    PyObject *node = operation(op, loops, given, 2, &shape);
    if (node != NULL && shape.nd == 0 && name != NULL) {
        node = named_scalar(node, name);
    }
    return noted(node);
}

PyObject *recorded_unary(PyObject *op, PyObject *loops, Core *self)
{
    Given given;
    Geometry shape;
    if (!look_at((PyObject *)self, &given)) {
        return NULL;
    }
    return noted(operation(op, loops, &given, 1, &shape));
}

/* As scalar_ops.overflows_alone: a lazy integer may, in an operator of one operand, and NumPy tells. */
static int overflows_alone(const Given *given)
{
    int kind = ((PyArray_Descr *)given->dtype)->kind;
    return kind == 'i' || kind == 'u';
}

PyObject *recorded_operator(PyObject *op, Core *self)
{
    Given given;
    if (op == NULL || SLOW.loops == NULL || !is_default() || !look_at((PyObject *)self, &given) ||
        given.ready || given.kind == NUMBER) {
        return NULL;
    }
    if (op == SLOW.square_op && ((PyArray_Descr *)given.dtype)->type_num == NPY_BOOL) {
        return NULL; /* as a power: NumPys differ about booleans */
    }
    PyObject *loop = loop_of_one(op, given.dtype);
    if (loop == NULL || (given.g.nd == 0 && (!are_scalars(&given, 1) || overflows_alone(&given)))) {
        return NULL;
    }
    return noted(built(op, loop, &given, 1, &given.g));
}

PyObject *recorded_reduction(PyObject *row, Core *self, PyObject *axis, PyObject *keepdims)
{
    Given given;
    if (SLOW.reduced == NULL || !is_default() || !IS_ARRAY(self) ||
        !look_at((PyObject *)self, &given) || given.ready || given.g.nd == 0) {
        return NULL;
    }
    PyObject *shape = given.kind == ALONE ? Py_NewRef(NODE(self->node, shape))
                                          : shape_tuple(given.g.nd, given.g.dims);
    PyObject *key = shape == NULL ? NULL
        : PyTuple_Pack(6, PyTuple_GET_ITEM(row, 0), PyTuple_GET_ITEM(row, 1), given.dtype, shape,
                       axis, keepdims);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(SLOW.reduced, key);
    PyObject *where = NULL, *source = NULL, *node = NULL;
    Py_XDECREF(shape);
    Py_XDECREF(key);
    if (found == NULL || !PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 3) {
        return NULL;
    }
    Py_INCREF(found);
    if ((source = node_of(&given, NULL, 0)) != NULL && (where = found_caller()) != NULL) {
        node = node_at(PyTuple_GET_ITEM(row, 0), PyTuple_Pack(1, source),
                       PyTuple_GET_ITEM(found, 0), PyTuple_GET_ITEM(found, 1),
                       PyTuple_GET_ITEM(found, 2), Py_None, where);
    }
    Py_DECREF(found);
    Py_XDECREF(source);
    Py_XDECREF(where);
    return noted(node);
}

/* ---------------------------------------------------------------------------------------- writes */

/* As `Storage.replace`, or a new node for an array that is alone; steals `node`. -1: an error. */
static int become(Core *x, PyObject *node)
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
        if (!PyDict_CheckExact(reals) || PyDict_GET_SIZE(reals)) {
            PyObject *fresh = PyDict_New();
            if (fresh == NULL) {
                Py_DECREF(node);
                return -1;
            }
            Py_INCREF(reals);
            Py_SETREF(STORAGE(storage, reals), fresh);
            PyDict_Clear(reals); /* whoever holds the old table finds it empty */
            Py_DECREF(reals);
        }
    }
    PyObject *done = PyObject_CallOneArg(SLOW.note, node);
    Py_DECREF(node);
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

/* Writes refer to the values before them: one thread at a time, as in ndarray.write_region. 1: the
   lock is ours, 0: not for this way, -1: an error. */
static int locked(void)
{
    PyObject *listeners = SLOW.acquire == NULL || SLOW.release == NULL || SLOW.tracing == NULL
        ? NULL : PyDict_GetItemWithError(SLOW.tracing, name_listeners);
    if (!is_default() || listeners == NULL || !PyTuple_CheckExact(listeners) ||
        PyTuple_GET_SIZE(listeners) != 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *done = PyObject_CallNoArgs(SLOW.acquire);
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

static int unlocked(int result)
{
    PyObject *kind, *error, *trace, *done;
    PyErr_Fetch(&kind, &error, &trace);
    done = PyObject_CallNoArgs(SLOW.release);
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

enum { ANYWAY = 2 }; /* what is written is large, and nothing but that counts */

/* Whether a write to `x` is recorded: it is alone and pending, or a part of a block that is. `large`:
   or of one whose values have just been computed, which nobody has looked at. */
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

/* The part of `x` becomes `value` (stolen, may be NULL). 1: done, 0: not this way, -1: an error. */
static int write_part(Core *x, const Geometry *g, PyObject *value, PyObject *layout)
{
    PyObject *old, *made = NULL, *where = NULL;
    if (value == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    old = x->node != Py_None ? Py_NewRef(x->node) : storage_node(x) ? present(x->storage) : NULL;
    if (old == NULL) {
        Py_DECREF(value);
        return PyErr_Occurred() ? -1 : 0;
    }
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)NODE(old, dtype));
    made = layout != NULL ? Py_NewRef(layout) : layout_of(g, itemsize);
    if (made != NULL && (where = found_caller()) != NULL) {
        Py_SETREF(made, node_at(SLOW.update_op, PyTuple_Pack(2, old, value), made, NODE(old, shape),
                                NODE(old, dtype), NODE(old, perm), where));
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
    int known = layout != NULL && (PyObject *)Py_TYPE(layout) == SLOW.layout;
    return write_part(x, &given->g, value, known ? layout : NULL);
}

/* Whether what a loop gives can be written to an array of `dtype` as it is. */
static int gives(PyObject *loops, const Given *given, int count, PyObject *dtype)
{
    PyObject *loop = count == 1 ? PyDict_GetItemWithError(loops, given[0].dtype)
                                : known_loop(loops, given[0].dtype, given[1].dtype);
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

static int change(PyObject *op, PyObject *loops, Core *self, PyObject *other)
{
    Given given[2];
    Geometry shape;
    if (!look_at((PyObject *)self, &given[0]) || !look_at(other, &given[1])) {
        return 0;
    }
    int large = !given[0].ready && (given[0].kind == ALONE || waits(&given[1]));
    int alone = given[0].kind == ALONE && large && self->node != Py_None;
    if (!(alone || takes_writes(self, &given[0], large)) ||
        !gives(loops, given, 2, given[0].dtype) || !broadcast(&given[0].g, &given[1].g, &shape) || !same_dims(&shape, &given[0].g)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (given[0].kind == PART &&
        !keeps_order(&given[0].g, PyArray_ITEMSIZE((PyArrayObject *)self->view))) {
        return 0;
    }
    return write_all(self, &given[0], operation(op, loops, given, 2, &shape));
}

int recorded_inplace(PyObject *op, PyObject *loops, Core *self, PyObject *other)
{
    int lock = IS_ARRAY(self) ? locked() : 0;
    return lock <= 0 ? lock : unlocked(change(op, loops, self, other));
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
        !gives(loops, given, count, target.dtype)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (count == 2 ? !broadcast(&given[0].g, &given[1].g, &shape) : (shape = given[0].g, 0)) {
        return 0;
    }
    if (!same_dims(&shape, &target.g)) {
        return 0;
    }
    return write_all(out, &target, operation(op, loops, given, count, &shape));
}

int recorded_into(PyObject *op, PyObject *loops, PyObject *const *args, int count, Core *out)
{
    int lock = IS_ARRAY(out) ? locked() : 0;
    return lock <= 0 ? lock : unlocked(compute_into(op, loops, args, count, out));
}

/* -------------------------------------------------------------------------------------- indexing */

/* As index_keys.read: a copy of what a key with a list picks of a pending block; NULL as above. */
static PyObject *listed_copy(Core *self, PyObject *key, const Geometry *whole)
{
    PyObject *node = storage_node(self), *view = NULL, *perm = NULL, *made = NULL, *layout, *loop;
    Geometry g;
    int first;
    if (node == NULL || SLOW.copy_op == NULL || SLOW.loops == NULL || !is_pending(node) ||
        !falls(whole, 0) || !listed(whole, key, &g, &first)) {
        return NULL;
    }
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)NODE(node, dtype));
    for (int axis = 0; axis < g.nd; axis++) {
        if (g.strides[axis] == 0) {
            return NULL;
        }
    }
    loop = loop_of_one(SLOW.copy_op, NODE(node, dtype));
    if (loop == NULL || is_whole(&g, NODE(node, shape), itemsize) != 0) {
        return NULL;
    }
    Py_INCREF(loop);
    layout = layout_of(&g, itemsize);
    perm = layout == NULL ? NULL : kept_order(&g, itemsize);
    if (perm != NULL) {
        view = node_at(SLOW.view_op, PyTuple_Pack(1, node), layout, PyTuple_GET_ITEM(layout, 1),
                       NODE(node, dtype), perm, Py_None);
    }
    Py_XDECREF(perm);
    perm = first == 0 ? Py_NewRef(Py_None) : PyTuple_New(g.nd);
    for (int axis = 0; perm != NULL && first > 0 && axis < g.nd; axis++) {
        int to = axis == first ? 0 : axis < first ? axis + 1 : axis;
        PyTuple_SET_ITEM(perm, to, PyLong_FromLong(axis));
    }
    if (view != NULL && perm != NULL) {
        made = new_node(SLOW.copy_op, PyTuple_Pack(1, view), loop, NODE(view, shape), perm);
    }
    Py_DECREF(loop);
    Py_XDECREF(layout);
    Py_XDECREF(view);
    Py_XDECREF(perm);
    return noted(made);
}

/* The part of a block that a basic key names; NULL without an exception: not for this way. */
PyObject *recorded_view(Core *self, PyObject *key)
{
    PyObject *node = self->node == Py_None ? any_node(self) : NULL, *view, *real = NULL;
    Geometry whole, g;
    if (node != NULL && STORAGE(self->storage, roots) != Py_None
            ? NODE(node, value) == Py_None || NODE(node, value) != STORAGE(self->storage, value)
            : storage_node(self) == NULL) {
        return NULL; /* of what somebody outside sees the values are there */
    }
    if (node == NULL || !of_view((PyArrayObject *)self->view, &whole)) {
        return NULL;
    }
    if (!narrowed(&whole, key, &g)) {
        return listed_copy(self, key, &whole);
    }
    PyObject *storage = self->storage, *reals = NULL, *ticket = NULL;
    int there = NODE(node, value) != Py_None;
    if (there && size_of(&g) >= eager_below() && is_fresh(storage, node)) {
        there = 0; /* computed just now, and this part is going to be read by recorded work */
    }
    if (there) {
        reals = STORAGE(storage, reals);
        if (NODE(node, value) != STORAGE(storage, value) || !PyDict_CheckExact(reals) ||
            PyDict_GET_SIZE(reals) >= REALS || self->reals != reals || self->ticket == NULL) {
            return NULL;
        }
        real = PyDict_GetItemWithError(reals, self->ticket);
        if (real == NULL || !IS_REAL(real)) {
            return NULL;
        }
        char *origin = PyArray_BYTES((PyArrayObject *)real) - whole.offset;
        real = view_at((PyArrayObject *)real, &g, origin);
        ticket = real == NULL ? NULL : PyIter_Next(SLOW.tickets);
        if (ticket == NULL || PyDict_SetItem(reals, ticket, real) < 0) {
            Py_XDECREF(real);
            Py_XDECREF(ticket);
            return NULL;
        }
        Py_DECREF(real);
        Py_INCREF(reals);
    }
    view = view_at((PyArrayObject *)self->view, &g, (char *)SLOW.origin);
    Core *x = view == NULL ? NULL : (Core *)array_new(NULL, (PyObject *)array_type);
    if (x == NULL) {
        Py_XDECREF(view);
        Py_XDECREF(reals);
        Py_XDECREF(ticket);
        return NULL;
    }
    if (there) {
        PyObject *part = PyTuple_Pack(3, key, self->view, view);
        if (part == NULL) {
            PyErr_Clear();
        }
        else {
            Py_XSETREF(STORAGE(storage, part), part);
        }
    }
    PyObject *base = self->base == NULL || self->base == Py_None ? (PyObject *)self : self->base;
    x->small = Py_NewRef(Py_None);
    x->node = Py_NewRef(Py_None);
    x->storage = Py_NewRef(storage);
    x->view = view;
    x->layout = Py_NewRef(Py_None);
    x->base = Py_NewRef(base);
    x->reals = reals == NULL ? Py_NewRef(Py_None) : reals;
    x->ticket = ticket;
    return (PyObject *)x;
}

PyObject *recorded_piece(Core *self, const char *name)
{
    PyObject *node = SMALL(self) == Py_None && self->node == Py_None ? storage_node(self) : NULL;
    if (node == NULL || !PyArray_ISCOMPLEX((PyArrayObject *)self->view)) {
        return NULL;
    }
    PyArrayObject *whole = (PyArrayObject *)self->view;
    for (int axis = 0; axis < PyArray_NDIM(whole); axis++) {
        if (PyArray_DIM(whole, axis) > 1 && PyArray_STRIDE(whole, axis) % PyArray_ITEMSIZE(whole)) {
            return NULL;
        }
    }
    PyObject *view = PyObject_GetAttrString(self->view, name);
    Core *x = view == NULL ? NULL : (Core *)array_new(NULL, (PyObject *)array_type);
    if (x == NULL) {
        Py_XDECREF(view);
        return NULL;
    }
    PyObject *base = self->base == NULL || self->base == Py_None ? (PyObject *)self : self->base;
    x->small = Py_NewRef(Py_None);
    x->node = Py_NewRef(Py_None);
    x->storage = Py_NewRef(self->storage);
    x->view = view;
    x->layout = Py_NewRef(Py_None);
    x->base = Py_NewRef(base);
    x->reals = Py_NewRef(Py_None);
    return (PyObject *)x;
}

/* As indexing._is_loop: whether the last writes to a pending block were many and small. */
static int is_loop(PyObject *node)
{
    for (int round = 0; round < ROUNDS; round++) {
        PyObject *layout = NODE(node, arg), *src = NODE(node, src);
        Geometry g;
        if (NODE(node, op) != SLOW.update_op || (PyObject *)Py_TYPE(layout) != SLOW.layout ||
            !packed(PyTuple_GET_ITEM(layout, 1), 1, &g) || size_of(&g) >= eager_below()) {
            return 0;
        }
        if (!is_pending(node)) {
            return 1;
        }
        if (!PyTuple_Check(src) || PyTuple_GET_SIZE(src) == 0) {
            return 1; /* evaluated just now */
        }
        node = PyTuple_GET_ITEM(src, 0);
    }
    return 1;
}

/* Whether `value` is the very part that `g` names of what `self` looks at. */
static int is_itself(Core *self, const Geometry *g, Core *value)
{
    PyArrayObject *view = (PyArrayObject *)self->view, *other = (PyArrayObject *)value->view;
    return value->storage == self->storage && SMALL(value) == Py_None && other != NULL &&
           IS_REAL(other) && PyArray_ISWRITEABLE(view) && PyArray_DESCR(other) == PyArray_DESCR(view) &&
           PyArray_NDIM(other) == g->nd && PyArray_BYTES(other) == (char *)SLOW.origin + g->offset &&
           memcmp(PyArray_DIMS(other), g->dims, g->nd * sizeof(npy_intp)) == 0 &&
           memcmp(PyArray_STRIDES(other), g->strides, g->nd * sizeof(npy_intp)) == 0;
}

/* Where a write to `self[key]` goes. */
static int written(Core *self, const Given *given, PyObject *key, Geometry *g)
{
    int place;
    if (narrowed(&given->g, key, g)) {
        return 1;
    }
    PyObject *node = given->kind == PART ? storage_node(self) : NULL;
    return node != NULL && is_pending(node) && falls(&given->g, 0) &&
           listed(&given->g, key, g, &place);
}

static int write_given(Core *self, PyObject *key, PyObject *value)
{
    Given given, from;
    Geometry g, shape;
    if (!look_at((PyObject *)self, &given) || !written(self, &given, key, &g) ||
        !takes_writes(self, &given, size_of(&g) >= eager_below() ? ANYWAY : 0) ||
        !look_at(value, &from) || from.dtype != given.dtype ||
        from.g.nd > g.nd || !broadcast(&g, &from.g, &shape) || !same_dims(&g, &shape)) {
        return 0;
    }
    if (self->storage != NULL && ((Core *)value)->storage == self->storage && g.nd == 1 &&
        from.g.nd == 1 && g.strides[0] != from.g.strides[0]) {
        return 0; /* Python looks whether they meet: recording.steps_over */
    }
    PyObject *old = given.kind == PART ? storage_node(self) : self->node;
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)given.dtype);
    if (is_whole(&g, NODE(old, shape), itemsize) != 0) {
        return 0;
    }
    if (from.ready && size_of(&g) < eager_below() &&
        (NODE(old, op) == SLOW.full_op || is_loop(old))) {
        return 0; /* NumPy does it at once */
    }
    return write_part(self, &g, node_of(&from, NULL, 0), NULL);
}

/* Whether `self[key]` is a masked write that is recorded: see indexing._write_mask. */
static int takes_mask(Core *self, PyObject *key, Given *given, Given *mask)
{
    return IS_ARRAY(self) && look_at((PyObject *)self, given) && look_at(key, mask) &&
           !mask->ready && PyArray_DescrCheck(mask->dtype) && given->g.nd > 0 &&
           ((PyArray_Descr *)mask->dtype)->type_num == NPY_BOOL && same_dims(&given->g, &mask->g) &&
           (given->kind == ALONE
                ? !given->ready || takes_writes(self, given, 0)
                : takes_writes(self, given, size_of(&given->g) >= eager_below()) &&
                  keeps_order(&given->g, PyArray_ITEMSIZE((PyArrayObject *)self->view)));
}

/* As indexing._write_mask, for a number. */
static int write_masked(Core *self, PyObject *key, PyObject *value)
{
    Given given, mask;
    if (!takes_mask(self, key, &given, &mask)) {
        return 0;
    }
    PyObject *loop = loop_of_three(SLOW.where_op, mask.dtype, given.dtype, given.dtype);
    if (loop == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_INCREF(loop);
    PyObject *none = PyTuple_New(0), *node = NULL, *chosen, *first, *old = NULL;
    chosen = none == NULL
        ? NULL : PyObject_CallFunctionObjArgs(SLOW.value_node, value, given.dtype, none, NULL);
    Py_XDECREF(none);
    if (chosen == NULL || !IS_NODE(chosen)) {
        Py_XDECREF(chosen);
        Py_DECREF(loop);
        return PyErr_Occurred() ? -1 : 0;
    }
    first = node_of(&mask, NULL, 0);
    old = first == NULL ? NULL : node_of(&given, NULL, 0);
    if (old != NULL) {
        node = new_node(SLOW.where_op, PyTuple_Pack(3, first, chosen, old), loop, NODE(old, shape),
                        Py_None);
    }
    Py_DECREF(loop);
    Py_DECREF(chosen);
    Py_XDECREF(first);
    Py_XDECREF(old);
    return write_all(self, &given, node);
}

int recorded_write(Core *self, PyObject *key, PyObject *value)
{
    Given given;
    Geometry g;
    if (IS_ARRAY(key) && (PyFloat_CheckExact(value) || PyLong_CheckExact(value)) &&
        SLOW.where_op != NULL && SLOW.value_node != NULL && SLOW.loops != NULL) {
        Given mask;
        int lock = takes_mask(self, key, &given, &mask) ? locked() : 0;
        return lock <= 0 ? lock : unlocked(write_masked(self, key, value));
    }
    if (!IS_ARRAY(self) || !IS_ARRAY(value) || !look_at((PyObject *)self, &given) ||
        !written(self, &given, key, &g)) {
        return 0;
    }
    if (given.kind == PART && is_itself(self, &g, (Core *)value)) {
        return 1; /* the last step of `self[key] += other` */
    }
    int large = size_of(&g) >= eager_below() ? ANYWAY : 0;
    int lock = takes_writes(self, &given, large) ? locked() : 0;
    return lock <= 0 ? lock : unlocked(write_given(self, key, value));
}

/* --------------------------------------------------------------------------------------- binding */

/* The slots of a class, at `places`; 0 where one of them is missing. */
static int look_up(PyObject *type, const char *const *names, Py_ssize_t *const *places, int count)
{
    for (int at = 0; at < count; at++) {
        *places[at] = PyType_Check(type) ? slot_offset(type, names[at]) : -1;
        if (*places[at] < 0) {
            return 0;
        }
    }
    return 1;
}

void recorded_look_at_nodes(void)
{
    static const char *const names[] = {
        "op", "src", "arg", "shape", "dtype", "perm", "where", "value", "resident",
    };
    Py_ssize_t *const places[] = {
        &in_node.op, &in_node.src, &in_node.arg, &in_node.shape, &in_node.dtype, &in_node.perm,
        &in_node.where, &in_node.value, &in_node.resident,
    };
    int count = sizeof(names) / sizeof(*names);
    if (!look_up(SLOW.node, names, places, count)) {
        in_node.op = -1;
        return;
    }
    PyObject *slots = PyObject_GetAttrString(SLOW.node, "__slots__"); /* and `__weakref__` */
    in_node.whole = slots != NULL && PySequence_Size(slots) == count + 1 &&
                    ((PyTypeObject *)SLOW.node)->tp_base == &PyBaseObject_Type;
    Py_XDECREF(slots);
    PyErr_Clear();
}

void recorded_look_at_storages(void)
{
    static const char *const names[] = {
        "node", "value", "flat", "pinned", "roots", "reals", "part", "picks",
    };
    Py_ssize_t *const places[] = {
        &in_storage.node, &in_storage.value, &in_storage.flat, &in_storage.pinned,
        &in_storage.roots, &in_storage.reals, &in_storage.part, &in_storage.picks,
    };
    if (!look_up(SLOW.storage, names, places, sizeof(names) / sizeof(*names))) {
        in_storage.node = -1;
    }
}

PyObject *node_slot(PyObject *node, int shape)
{
    if (node == NULL || !IS_NODE(node)) {
        return NULL;
    }
    return shape ? NODE(node, shape) : NODE(node, dtype);
}

int recorded_ready(void)
{
    name_package = PyUnicode_InternFromString("__package__");
    name_out = PyUnicode_InternFromString("out");
    name_ins = PyUnicode_InternFromString("ins");
    name_read = PyUnicode_InternFromString("read");
    name_listeners = PyUnicode_InternFromString("listeners");
    name_name = PyUnicode_InternFromString("name");
    return name_package && name_out && name_ins && name_read && name_listeners && name_name ? 0 : -1;
}
