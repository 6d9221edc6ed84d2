/* The array's base: its slots, how it is made and freed, and its operators and indexing where the
   array is direct; recorded.c has those of recorded ones. Everything else is the Python function's that
   operators.py, indexing.py and methods.py put in. The same in Python: base.py, base.py. */

#include "native.h"

#include <stddef.h>
#include <string.h>

PyTypeObject *array_type = NULL;
Bindings SLOW = {.plain = 1};

static Py_ssize_t limit_offset = -1; /* of `eager_below` in the options */

Py_ssize_t eager_below(void)
{
    PyObject *found = *(PyObject **)((char *)SLOW.options + limit_offset);
    Py_ssize_t limit = PyLong_AsSsize_t(found);
    if (limit < 0) {
        PyErr_Clear();
        return PY_SSIZE_T_MAX;
    }
    return limit;
}

/* ------------------------------------------------------------------------------ making, freeing */

#define KEPT 256
static Core *kept[KEPT];
static int kept_count = 0;

static Core *made(void)
{
    if (kept_count > 0) {
        Core *x = kept[--kept_count];
        (void)PyObject_Init((PyObject *)x, array_type);
        return x;
    }
    Core *x = PyObject_GC_New(Core, array_type);
    if (x != NULL) {
        memset((char *)x + sizeof(PyObject), 0, sizeof(Core) - sizeof(PyObject));
    }
    return x;
}

static void array_dealloc(PyObject *self);

/* Whether an instance's reference to its class is counted here. Python's own way to free instances of
   classes counts it where the first base with another way is no heap type. */
static int owns_class(PyTypeObject *type)
{
    while (type->tp_dealloc != array_dealloc) {
        type = type->tp_base;
    }
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
}

static void array_dealloc(PyObject *self)
{
    Core *x = (Core *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (x->weak != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_CLEAR(x->small);
    Py_CLEAR(x->node);
    Py_CLEAR(x->storage);
    Py_CLEAR(x->base);
    Py_CLEAR(x->thin);
    Py_CLEAR(x->view);
    Py_CLEAR(x->layout);
    Py_CLEAR(x->reals);
    Py_CLEAR(x->ticket);
    Py_CLEAR(x->picks);
    Py_CLEAR(x->deferred);
    if (type == array_type && kept_count < KEPT) {
        kept[kept_count++] = x;
    }
    else {
        type->tp_free(self);
    }
    if (owns_class(type)) {
        Py_DECREF(type);
    }
}

static int array_traverse(PyObject *self, visitproc visit, void *arg)
{
    Core *x = (Core *)self;
    if (owns_class(Py_TYPE(self))) {
        Py_VISIT(Py_TYPE(self));
    }
    Py_VISIT(x->small);
    Py_VISIT(x->node);
    Py_VISIT(x->storage);
    Py_VISIT(x->base);
    Py_VISIT(x->view);
    Py_VISIT(x->layout);
    Py_VISIT(x->reals);
    Py_VISIT(x->deferred);
    return 0;
}

static int array_clear(PyObject *self)
{
    Core *x = (Core *)self;
    Py_CLEAR(x->small);
    Py_CLEAR(x->node);
    Py_CLEAR(x->storage);
    Py_CLEAR(x->base);
    Py_CLEAR(x->view);
    Py_CLEAR(x->layout);
    Py_CLEAR(x->reals);
    Py_CLEAR(x->deferred);
    return 0;
}

/* Not tracked by the collector: a numpy array, which it does not look into either, and a base. */
static PyObject *direct_stealing(PyObject *value, PyObject *base, int thin)
{
    Core *x = made();
    if (x == NULL) {
        Py_DECREF(value);
        return NULL;
    }
    x->small = value;
    x->node = Py_NewRef(Py_None);
    x->storage = Py_NewRef(Py_None);
    x->base = Py_NewRef(base);
    x->thin = Py_NewRef(thin ? Py_True : Py_False);
    return (PyObject *)x;
}

PyObject *direct_over(PyObject *value, PyObject *base, int thin)
{
    return direct_stealing(Py_NewRef(value), base, thin);
}

PyObject *placed(PyObject *value)
{
    return value != NULL && IS_REAL(value) ? direct_stealing(value, Py_None, 0) : value;
}

int is_thin(PyArrayObject *value)
{
    npy_intp size = PyArray_SIZE(value);
    if (size >= eager_below()) {
        return 1;
    }
    int nd = PyArray_NDIM(value);
    if (nd > 1 && size > 1) {
        for (int axis = 0; axis < nd; axis++) {
            if (PyArray_DIM(value, axis) == 1) {
                return 1;
            }
        }
    }
    return 0;
}

PyObject *placed_as_is(PyObject *value)
{
    if (value == NULL || !IS_REAL(value)) {
        return value;
    }
    return direct_stealing(value, Py_None, is_thin((PyArrayObject *)value));
}

PyObject *wrapped(PyObject *value)
{
    if (value == NULL || !IS_REAL(value)) {
        return value;
    }
    if (PyArray_SIZE((PyArrayObject *)value) < eager_below()) {
        return placed_as_is(value);
    }
    PyObject *x = PyObject_CallOneArg(SLOW.wrap, value);
    Py_DECREF(value);
    return x;
}

/* An array that is alone; steals `node`. */
static PyObject *alone(PyObject *node)
{
    Core *x = made();
    if (x == NULL) {
        Py_DECREF(node);
        return NULL;
    }
    x->small = Py_NewRef(Py_None);
    x->node = node;
    x->storage = Py_NewRef(Py_None);
    x->base = Py_NewRef(Py_None);
    PyObject_GC_Track((PyObject *)x);
    return (PyObject *)x;
}

/* ----------------------------------------------------------------------------------- operators */

typedef struct {
    const char *name;
    Loops *loops;
    PyObject *call, *op, *spec, *known, *slow, *slow_inplace;
} Operator;

enum {
    ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, BITWISE_AND, BITWISE_OR, BITWISE_XOR,
    LEFT_SHIFT, RIGHT_SHIFT, LESS, LESS_EQUAL, EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, NEGATIVE,
    POSITIVE, ABSOLUTE, INVERT, POWER, SQUARE, SQRT, OPERATORS
};

static Operator operators[OPERATORS] = {
    {"add"}, {"subtract"}, {"multiply"}, {"divide"}, {"floor_divide"}, {"remainder"},
    {"bitwise_and"}, {"bitwise_or"}, {"bitwise_xor"}, {"left_shift"}, {"right_shift"}, {"less"},
    {"less_equal"}, {"equal"}, {"not_equal"}, {"greater"}, {"greater_equal"}, {"negative"},
    {"positive"}, {"absolute"}, {"invert"}, {"power"}, {"square"}, {"sqrt"},
};

static PyObject *less(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_LT); }
static PyObject *less_equal(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_LE); }
static PyObject *equal(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_EQ); }
static PyObject *not_equal(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_NE); }
static PyObject *greater(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_GT); }
static PyObject *greater_equal(PyObject *a, PyObject *b)
{
    return PyObject_RichCompare(a, b, Py_GE);
}

/* Python's operator on two numpy arrays, or one and a number. */
static const binaryfunc BOTH[] = {
    PyNumber_Add, PyNumber_Subtract, PyNumber_Multiply, PyNumber_TrueDivide, PyNumber_FloorDivide,
    PyNumber_Remainder, PyNumber_And, PyNumber_Or, PyNumber_Xor, PyNumber_Lshift, PyNumber_Rshift,
    less, less_equal, equal, not_equal, greater, greater_equal,
};
static const unaryfunc ONE[] = {
    PyNumber_Negative, PyNumber_Positive, PyNumber_Absolute, PyNumber_Invert,
};

static PyObject *slow_binary(Operator *o, Core *self, PyObject *other, int swapped)
{
    PyObject *args[] = {o->spec, (PyObject *)self, other, swapped ? Py_True : Py_False};
    if (o->slow == NULL) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyObject_Vectorcall(o->slow, args, 4, NULL);
}

static PyObject *at_once(Operator *o, Core *self, PyObject *other, int swapped)
{
    PyObject *args[] = {(PyObject *)self, other}, *turned[] = {other, (PyObject *)self};
    return o->op == NULL ? NULL : lent_call(o->op, o->loops, o->call, swapped ? turned : args, 2);
}

static PyObject *binary(int which, Core *self, PyObject *other, int swapped)
{
    Operator *o = &operators[which];
    if (!IS_DIRECT(self)) {
        if (SMALL(self) == Py_None && o->known != NULL) {
            PyObject *found = recorded_binary(o->op, o->known, self, other, swapped, o->name);
            if (found == NULL && !PyErr_Occurred()) {
                found = at_once(o, self, other, swapped);
            }
            if (found != NULL || PyErr_Occurred()) {
                return found;
            }
        }
        return slow_binary(o, self, other, swapped);
    }
    PyObject *small = SMALL(self), *right = other;
    int thin = IS_THIN(self);
    if (IS_ARRAY(other)) {
        if (!IS_DIRECT(other)) {
            PyObject *found = SMALL(other) == Py_None ? at_once(o, self, other, swapped) : NULL;
            return found != NULL || PyErr_Occurred() ? found : slow_binary(o, self, other, swapped);
        }
        right = SMALL(other);
        thin |= IS_THIN(other);
    }
    else if (!is_number(other)) {
        return slow_binary(o, self, other, swapped);
    }
    Py_ssize_t limit = PY_SSIZE_T_MAX;
    if (thin) {
        limit = eager_below();
        if (PyArray_SIZE((PyArrayObject *)small) >= limit ||
            (right != other && PyArray_SIZE((PyArrayObject *)right) >= limit)) {
            return slow_binary(o, self, other, swapped);
        }
    }
    Py_INCREF(small); /* while Python's lock is let go, another thread may exchange them */
    Py_INCREF(right);
    PyObject *first = swapped ? right : small, *second = swapped ? small : right;
    PyObject *result = loops_binary(o->loops, first, second, limit);
    if (result != NULL) {
        result = thin ? placed_as_is(result) : placed(result);
    }
    else if (!PyErr_Occurred()) {
        result = thin ? slow_binary(o, self, other, swapped) : placed(BOTH[which](first, second));
    }
    Py_DECREF(small);
    Py_DECREF(right);
    return result;
}

static PyObject *inplace(int which, PyObject *x, PyObject *other)
{
    Operator *o = &operators[which];
    Core *self = (Core *)x;
    if (IS_DIRECT(self)) {
        PyObject *small = SMALL(self), *right = other;
        if (IS_ARRAY(other) && IS_DIRECT(other)) {
            right = SMALL(other);
        }
        else if (!is_number(other)) {
            right = NULL;
        }
        if (right != NULL) {
            Py_INCREF(small);
            Py_INCREF(right);
            int done = loops_into(o->loops, small, right, (PyArrayObject *)small);
            if (done == 0) {
                PyObject *args[] = {small, right, small};
                PyObject *result = PyObject_Vectorcall(o->call, args, 3, NULL);
                done = result == NULL ? -1 : 1;
                Py_XDECREF(result);
            }
            Py_DECREF(small);
            Py_DECREF(right);
            return done < 0 ? NULL : Py_NewRef(x);
        }
    }
    else if (SMALL(self) == Py_None && o->known != NULL) {
        int done = recorded_inplace(o->op, o->known, self, other);
        PyObject *args[] = {x, other};
        done = done != 0 ? done : lent_into(o->op, o->call, args, 2, self);
        if (done != 0) {
            return done < 0 ? NULL : Py_NewRef(x);
        }
    }
    if (o->slow_inplace == NULL) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *args[] = {o->spec, x, other};
    return PyObject_Vectorcall(o->slow_inplace, args, 3, NULL);
}

static PyObject *unary(int which, PyObject *x)
{
    Operator *o = &operators[which];
    Core *self = (Core *)x;
    if (IS_DIRECT(self)) {
        PyObject *small = Py_NewRef(SMALL(self));
        int thin = IS_THIN(self);
        PyObject *result = NULL;
        if (!thin || PyArray_SIZE((PyArrayObject *)small) < eager_below()) {
            result = loops_unary(o->loops, small);
            if (result == NULL && !thin && !PyErr_Occurred()) {
                result = ONE[which - NEGATIVE](small);
            }
            result = thin ? placed_as_is(result) : placed(result);
        }
        Py_DECREF(small);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    else if (SMALL(self) == Py_None && o->op != NULL) {
        PyObject *found = recorded_operator(o->op, self);
        if (found == NULL && !PyErr_Occurred()) {
            found = lent_call(o->op, o->loops, o->call, &x, 1);
        }
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
    }
    PyObject *args[] = {o->spec, x};
    return PyObject_Vectorcall(o->slow, args, 2, NULL);
}

#define IS_OURS(x) PyObject_TypeCheck(x, &CoreType)

#define BINARY(function, which)                                  \
    static PyObject *function(PyObject *left, PyObject *right)   \
    {                                                            \
        if (IS_OURS(left)) {                                     \
            return binary(which, (Core *)left, right, 0);        \
        }                                                        \
        return binary(which, (Core *)right, left, 1);            \
    }
#define BOTH_WAYS(function, in_place, which)                     \
    BINARY(function, which)                                      \
    static PyObject *in_place(PyObject *self, PyObject *other)   \
    {                                                            \
        return inplace(which, self, other);                      \
    }
#define UNARY(function, which)                                   \
    static PyObject *function(PyObject *self)                    \
    {                                                            \
        return unary(which, self);                               \
    }

BOTH_WAYS(array_add, array_iadd, ADD)
BOTH_WAYS(array_subtract, array_isubtract, SUBTRACT)
BOTH_WAYS(array_multiply, array_imultiply, MULTIPLY)
BOTH_WAYS(array_divide, array_idivide, DIVIDE)
BOTH_WAYS(array_floor_divide, array_ifloor_divide, FLOOR_DIVIDE)
BOTH_WAYS(array_remainder, array_iremainder, REMAINDER)
BOTH_WAYS(array_and, array_iand, BITWISE_AND)
BOTH_WAYS(array_or, array_ior, BITWISE_OR)
BOTH_WAYS(array_xor, array_ixor, BITWISE_XOR)
BOTH_WAYS(array_lshift, array_ilshift, LEFT_SHIFT)
BOTH_WAYS(array_rshift, array_irshift, RIGHT_SHIFT)
UNARY(array_negative, NEGATIVE)
UNARY(array_positive, POSITIVE)
UNARY(array_absolute, ABSOLUTE)
UNARY(array_invert, INVERT)

static PyObject *array_compare(PyObject *self, PyObject *other, int op)
{
    static const int which[] = {
        [Py_LT] = LESS, [Py_LE] = LESS_EQUAL, [Py_EQ] = EQUAL,
        [Py_NE] = NOT_EQUAL, [Py_GT] = GREATER, [Py_GE] = GREATER_EQUAL,
    };
    return binary(which[op], (Core *)self, other, 0);
}

static PyObject *array_power(PyObject *left, PyObject *right, PyObject *modulo)
{
    int swapped = !IS_OURS(left);
    PyObject *self = swapped ? right : left, *other = swapped ? left : right;
    if (!IS_OURS(self)) {
        Py_RETURN_NOTIMPLEMENTED; /* ours is the modulo */
    }
    if (!swapped && modulo == Py_None && IS_DIRECT(self) && !IS_THIN(self) && is_number(other)) {
        PyObject *small = Py_NewRef(SMALL(self)), *result = NULL;
        int overflow = 0;
        if (PyLong_CheckExact(other) && PyLong_AsLongAndOverflow(other, &overflow) == 2 &&
            plain_type((PyArrayObject *)small) != NPY_BOOL) { /* NumPys differ about booleans */
            result = loops_unary(operators[SQUARE].loops, small);
        }
        else if (PyFloat_CheckExact(other) && PyFloat_AS_DOUBLE(other) != 0.5) {
            result = loops_binary(operators[POWER].loops, small, other, PY_SSIZE_T_MAX);
        }
        if (result == NULL && !PyErr_Occurred()) {
            result = PyNumber_Power(small, other, Py_None);
        }
        Py_DECREF(small);
        return placed(result);
    }
    int large = 0;
    if (!swapped && modulo == Py_None && IS_ARRAY(self) && SMALL(self) == Py_None &&
        PyLong_CheckExact(other) && PyLong_AsLongAndOverflow(other, &large) == 2) {
        PyObject *found = recorded_operator(SLOW.square_op, (Core *)self);
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
    }
    PyObject *args[] = {self, other, modulo, swapped ? Py_True : Py_False};
    return PyObject_Vectorcall(SLOW.power, args, 4, NULL);
}

static PyObject *array_matmul(PyObject *left, PyObject *right)
{
    int swapped = !IS_OURS(left);
    PyObject *self = swapped ? right : left, *other = swapped ? left : right;
    if (!swapped && IS_DIRECT(self) && IS_ARRAY(other) && IS_DIRECT(other) &&
        plain_type((PyArrayObject *)SMALL(self)) > NPY_BOOL &&
        plain_type((PyArrayObject *)SMALL(other)) > NPY_BOOL) {
        PyObject *first = Py_NewRef(SMALL(self)), *second = Py_NewRef(SMALL(other));
        PyObject *result = PyNumber_MatrixMultiply(first, second);
        Py_DECREF(first);
        Py_DECREF(second);
        return wrapped(result);
    }
    PyObject *args[] = {self, other, swapped ? Py_True : Py_False};
    return PyObject_Vectorcall(SLOW.matmul, args, 3, NULL);
}

/* ------------------------------------------------------------------------------------ indexing */

static int is_basic_part(PyObject *key)
{
    return PyLong_CheckExact(key) || PySlice_Check(key) || key == Py_Ellipsis || key == Py_None;
}

/* Whether a key gives a view or an element. */
static int is_basic(PyObject *key)
{
    if (!PyTuple_CheckExact(key)) {
        return is_basic_part(key);
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(key); at++) {
        if (!is_basic_part(PyTuple_GET_ITEM(key, at))) {
            return 0;
        }
    }
    return 1;
}

static PyObject *view_of(PyArrayObject *a, int nd, npy_intp *dims, npy_intp *strides, char *data)
{
    PyArray_Descr *descr = PyArray_DESCR(a);
    Py_INCREF(descr);
    PyObject *view = PyArray_NewFromDescr(
        &PyArray_Type, descr, nd, dims, strides, data, PyArray_FLAGS(a), NULL);
    if (view != NULL && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(a)) < 0) {
        Py_CLEAR(view);
    }
    return view;
}

/* The view for slices and integers, one for each of the first axes; NULL without an exception for
   any other key, and for elements. */
static PyObject *quick_view(PyArrayObject *a, PyObject *key)
{
    int tuple = PyTuple_CheckExact(key), nd = PyArray_NDIM(a), to = 0;
    Py_ssize_t count = tuple ? PyTuple_GET_SIZE(key) : 1;
    if (count > nd || nd > 8 || plain_type(a) < 0) {
        return NULL;
    }
    npy_intp dims[8], strides[8];
    char *data = PyArray_BYTES(a);
    for (int axis = 0; axis < nd; axis++) {
        npy_intp length = PyArray_DIM(a, axis), step = PyArray_STRIDE(a, axis);
        PyObject *part = axis >= count ? NULL : tuple ? PyTuple_GET_ITEM(key, axis) : key;
        if (part != NULL && PyLong_CheckExact(part)) {
            Py_ssize_t at = PyLong_AsSsize_t(part);
            if (at == -1 && PyErr_Occurred()) {
                PyErr_Clear();
                return NULL;
            }
            at += at < 0 ? length : 0;
            if (at < 0 || at >= length) {
                return NULL; /* an IndexError in NumPy's words */
            }
            data += at * step;
            continue;
        }
        dims[to] = length;
        strides[to] = step;
        if (part != NULL) {
            Py_ssize_t start, stop, every;
            if (!is_plain_slice(part)) {
                return NULL;
            }
            if (PySlice_Unpack(part, &start, &stop, &every) < 0) {
                PyErr_Clear();
                return NULL;
            }
            dims[to] = PySlice_AdjustIndices(length, &start, &stop, every);
            if (dims[to] == 0) {
                return NULL; /* where NumPy lets it point */
            }
            data += start * step;
            strides[to] = every * step;
        }
        to++;
    }
    return to > 0 ? view_of(a, to, dims, strides, data) : NULL;
}

static PyObject *array_get(PyObject *x, PyObject *key)
{
    Core *self = (Core *)x;
    if (IS_DIRECT(self)) {
        PyArrayObject *small = (PyArrayObject *)SMALL(self);
        int thin = IS_THIN(self);
        if (is_basic(key)) {
            if (!thin || plain_type(small) >= 0) {
                Py_INCREF(small);
                PyObject *value = quick_view(small, key);
                if (value == NULL) {
                    value = PyErr_Occurred() ? NULL : PyObject_GetItem((PyObject *)small, key);
                }
                Py_DECREF(small);
                if (value == NULL || !IS_REAL(value)) {
                    return value;
                }
                int nd = PyArray_NDIM((PyArrayObject *)value), slim = 0;
                for (int axis = 0; nd > 1 && !thin && axis < nd; axis++) {
                    slim |= PyArray_DIM((PyArrayObject *)value, axis) == 1;
                }
                PyObject *base = self->base == NULL || self->base == Py_None ? x : self->base;
                return direct_stealing(value, base, thin ? is_thin((PyArrayObject *)value) : slim);
            }
        }
        else if (IS_ARRAY(key) && IS_DIRECT(key) && plain_type(small) >= 0) {
            PyArrayObject *where = (PyArrayObject *)SMALL(key);
            if (PyArray_NDIM(where) != 0 && PyArray_SIZE(where) < eager_below()) {
                Py_INCREF(small);
                Py_INCREF(where);
                PyObject *value = PyObject_GetItem((PyObject *)small, (PyObject *)where);
                Py_DECREF(small);
                Py_DECREF(where);
                return wrapped(value);
            }
        }
    }
    else if (SMALL(self) == Py_None) {
        PyObject *part = recorded_view(self, key);
        if (part != NULL || PyErr_Occurred()) {
            return part;
        }
    }
    PyObject *args[] = {x, key};
    return PyObject_Vectorcall(SLOW.get_item, args, 2, NULL);
}

static int array_set(PyObject *x, PyObject *key, PyObject *value)
{
    PyObject *args[] = {x, key, value}, *done;
    if (value == NULL) {
        done = PyObject_Vectorcall(SLOW.del_item, args, 2, NULL);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    if (IS_DIRECT(x)) {
        PyObject *small = SMALL(x), *right = NULL, *where = key;
        int plain = plain_type((PyArrayObject *)small) >= 0;
        if (is_number(value)) {
            right = value;
        }
        else if (IS_ARRAY(value) && IS_DIRECT(value) && plain) {
            right = SMALL(value);
        }
        if (IS_ARRAY(key) && IS_DIRECT(key) && plain) {
            where = SMALL(key); /* places, or a mask */
            if (plain_type((PyArrayObject *)where) < 0 || PyArray_NDIM((PyArrayObject *)where) == 0) {
                where = NULL;
            }
        }
        else if (!is_basic(key)) {
            where = NULL;
        }
        if (right != NULL && where != NULL) {
            Py_INCREF(small);
            Py_INCREF(right);
            Py_INCREF(where);
            int result = PyObject_SetItem(small, where, right);
            Py_DECREF(small);
            Py_DECREF(right);
            Py_DECREF(where);
            return result;
        }
    }
    else if (SMALL(x) == Py_None) {
        int recorded = recorded_write((Core *)x, key, value);
        recorded = recorded == 0 && is_basic(key) ? lent_write((Core *)x, key, value) : recorded;
        if (recorded != 0) {
            return recorded < 0 ? -1 : 0;
        }
    }
    done = PyObject_Vectorcall(SLOW.set_item, args, 3, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static Py_ssize_t array_length(PyObject *x)
{
    if (IS_DIRECT(x)) {
        return PyObject_Size(SMALL(x));
    }
    PyObject *found = PyObject_CallOneArg(SLOW.length, x);
    if (found == NULL) {
        return -1;
    }
    Py_ssize_t length = PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return length;
}

static PyObject *array_item(PyObject *x, Py_ssize_t at)
{
    PyObject *key = PyLong_FromSsize_t(at);
    if (key == NULL) {
        return NULL;
    }
    PyObject *value = array_get(x, key);
    Py_DECREF(key);
    return value;
}

static int array_set_item(PyObject *x, Py_ssize_t at, PyObject *value)
{
    PyObject *key = PyLong_FromSsize_t(at);
    if (key == NULL) {
        return -1;
    }
    int done = array_set(x, key, value);
    Py_DECREF(key);
    return done;
}

/* ---------------------------------------------------------------------------------- geometry */

static PyObject *array_export(PyObject *x, PyObject *unused)
{
    if (IS_DIRECT(x)) {
        PyArrayObject *a = (PyArrayObject *)SMALL(x);
        return view_of(a, PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), PyArray_BYTES(a));
    }
    return PyObject_CallOneArg(SLOW.export, x);
}

static PyObject *numbers_of(int count, npy_intp *values)
{
    PyObject *tuple = PyTuple_New(count);
    for (int at = 0; tuple != NULL && at < count; at++) {
        PyObject *each = PyLong_FromSsize_t(values[at]);
        if (each == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, at, each);
    }
    return tuple;
}

static int check(PyObject *x)
{
    if (PyObject_TypeCheck(x, &CoreType)) {
        return 1;
    }
    PyErr_SetString(PyExc_TypeError, "expected an array of lazyfuse");
    return 0;
}

PyObject *geometry_shape(PyObject *module, PyObject *x)
{
    if (!check(x)) {
        return NULL;
    }
    if (IS_DIRECT(x)) {
        PyArrayObject *a = (PyArrayObject *)SMALL(x);
        return numbers_of(PyArray_NDIM(a), PyArray_DIMS(a));
    }
    PyObject *found = node_slot(((Core *)x)->node, 1);
    if (found != NULL) {
        return Py_NewRef(found);
    }
    return PyObject_CallOneArg(SLOW.shape, x);
}

PyObject *geometry_ndim(PyObject *module, PyObject *x)
{
    if (check(x) && IS_DIRECT(x)) {
        return PyLong_FromLong(PyArray_NDIM((PyArrayObject *)SMALL(x)));
    }
    PyObject *shape = PyErr_Occurred() ? NULL : geometry_shape(module, x);
    if (shape == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyObject_Size(shape);
    Py_DECREF(shape);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

PyObject *geometry_dtype(PyObject *module, PyObject *x)
{
    if (!check(x)) {
        return NULL;
    }
    if (IS_DIRECT(x)) {
        return Py_NewRef(PyArray_DESCR((PyArrayObject *)SMALL(x)));
    }
    PyObject *found = node_slot(((Core *)x)->node, 0);
    if (found != NULL) {
        return Py_NewRef(found);
    }
    return PyObject_CallOneArg(SLOW.dtype, x);
}

PyObject *geometry_size(PyObject *module, PyObject *x)
{
    if (!check(x)) {
        return NULL;
    }
    if (IS_DIRECT(x)) {
        return PyLong_FromSsize_t(PyArray_SIZE((PyArrayObject *)SMALL(x)));
    }
    PyObject *geometry = PyObject_CallOneArg(SLOW.geometry, x);
    if (geometry == NULL) {
        return NULL;
    }
    PyObject *size = PyObject_GetAttrString(geometry, "size");
    Py_DECREF(geometry);
    return size;
}

PyObject *geometry_transposed(PyObject *module, PyObject *x)
{
    if (!check(x)) {
        return NULL;
    }
    if (!IS_DIRECT(x)) {
        return PyObject_CallOneArg(SLOW.transposed, x);
    }
    Core *self = (Core *)x;
    PyObject *value = PyArray_Transpose((PyArrayObject *)SMALL(x), NULL);
    if (value == NULL) {
        return NULL;
    }
    PyObject *base = self->base == NULL || self->base == Py_None ? x : self->base;
    return direct_stealing(value, base, IS_THIN(x));
}

PyObject *geometry_real(PyObject *module, PyObject *x)
{
    PyObject *found = IS_ARRAY(x) ? recorded_piece((Core *)x, "real") : NULL;
    return found != NULL || PyErr_Occurred() ? found : PyObject_CallOneArg(SLOW.real, x);
}

PyObject *geometry_imag(PyObject *module, PyObject *x)
{
    PyObject *found = IS_ARRAY(x) ? recorded_piece((Core *)x, "imag") : NULL;
    return found != NULL || PyErr_Occurred() ? found : PyObject_CallOneArg(SLOW.imag, x);
}

static PyMethodDef array_methods[] = {
    {"to_numpy", array_export, METH_NOARGS,
     "The values as a `numpy.ndarray`, evaluated. Shares memory with the array, as a view does."},
    {NULL, NULL, 0, NULL},
};

#define SLOT(name, field) {name, T_OBJECT_EX, offsetof(Core, field), 0, NULL}

static PyMemberDef array_members[] = {
    SLOT("_small", small), SLOT("_node", node), SLOT("_storage", storage), SLOT("_base", base),
    SLOT("_thin", thin), SLOT("_view", view), SLOT("_layout", layout), SLOT("_reals", reals),
    SLOT("_ticket", ticket), SLOT("_picks", picks), SLOT("_deferred", deferred), {NULL},
};

static PyNumberMethods array_number = {
    .nb_add = array_add, .nb_inplace_add = array_iadd,
    .nb_subtract = array_subtract, .nb_inplace_subtract = array_isubtract,
    .nb_multiply = array_multiply, .nb_inplace_multiply = array_imultiply,
    .nb_true_divide = array_divide, .nb_inplace_true_divide = array_idivide,
    .nb_floor_divide = array_floor_divide, .nb_inplace_floor_divide = array_ifloor_divide,
    .nb_remainder = array_remainder, .nb_inplace_remainder = array_iremainder,
    .nb_and = array_and, .nb_inplace_and = array_iand,
    .nb_or = array_or, .nb_inplace_or = array_ior,
    .nb_xor = array_xor, .nb_inplace_xor = array_ixor,
    .nb_lshift = array_lshift, .nb_inplace_lshift = array_ilshift,
    .nb_rshift = array_rshift, .nb_inplace_rshift = array_irshift,
    .nb_negative = array_negative, .nb_positive = array_positive,
    .nb_absolute = array_absolute, .nb_invert = array_invert,
    .nb_power = array_power, .nb_matrix_multiply = array_matmul,
};

static PyMappingMethods array_mapping = {
    .mp_length = array_length, .mp_subscript = array_get, .mp_ass_subscript = array_set,
};

static PySequenceMethods array_sequence = {
    .sq_length = array_length, .sq_item = array_item, .sq_ass_item = array_set_item,
};

PyTypeObject CoreType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Core",
    .tp_doc = "The slots of an array (ndarray.py says what they hold) and its quick methods.",
    .tp_basicsize = sizeof(Core),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = array_dealloc,
    .tp_traverse = array_traverse,
    .tp_clear = array_clear,
    .tp_free = PyObject_GC_Del,
    .tp_weaklistoffset = offsetof(Core, weak),
    .tp_members = array_members,
    .tp_methods = array_methods,
    .tp_as_number = &array_number,
    .tp_as_mapping = &array_mapping,
    .tp_as_sequence = &array_sequence,
    .tp_richcompare = array_compare,
    .tp_hash = PyObject_HashNotImplemented,
};

static PyNumberMethods *const core_number = &array_number;

static void copy_slots(void *to, const void *from, size_t bytes)
{
    void **mine = to;
    void *const *given = from;
    for (size_t at = 0; at < bytes / sizeof(void *); at++) {
        if (given[at] != NULL) {
            mine[at] = given[at];
        }
    }
}

PyObject *array_adopt(PyObject *module, PyObject *given)
{
    PyTypeObject *type = (PyTypeObject *)given;
    if (!PyType_Check(given) || !PyType_IsSubtype(type, &CoreType) ||
        type->tp_basicsize != CoreType.tp_basicsize || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_TypeError, "adopt: expected a class on Core without slots of its own");
        return NULL;
    }
    /* what Python puts into the slots of a class looks its methods up, or frees more than is there */
    copy_slots(type->tp_as_number, core_number, sizeof(PyNumberMethods));
    copy_slots(type->tp_as_mapping, &array_mapping, sizeof(PyMappingMethods));
    copy_slots(type->tp_as_sequence, &array_sequence, sizeof(PySequenceMethods));
    type->tp_richcompare = array_compare;
    type->tp_dealloc = array_dealloc;
    type->tp_traverse = array_traverse;
    type->tp_clear = array_clear;
    PyType_Modified(type);
    array_type = (PyTypeObject *)Py_NewRef(given);
    Py_RETURN_NONE;
}

PyObject *array_operator(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *call, *spec, *op, *known, *slow, *slow_inplace;
    if (!PyArg_ParseTuple(
            args, "sOOOOOO", &name, &call, &spec, &op, &known, &slow, &slow_inplace)) {
        return NULL;
    }
    for (int at = 0; at < OPERATORS; at++) {
        Operator *o = &operators[at];
        if (strcmp(o->name, name) == 0 && at != POWER && at != SQUARE && at != SQRT) {
            o->spec = Py_NewRef(spec);
            o->op = Py_NewRef(op);
            o->known = PyDict_Check(known) ? Py_NewRef(known) : NULL;
            o->slow = Py_NewRef(slow);
            o->slow_inplace = Py_NewRef(slow_inplace);
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

PyObject *array_new(PyObject *module, PyObject *type)
{
    if (type == (PyObject *)array_type) {
        Core *x = made();
        if (x != NULL) {
            PyObject_GC_Track((PyObject *)x);
        }
        return (PyObject *)x;
    }
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &CoreType)) {
        PyErr_SetString(PyExc_TypeError, "new: expected a class on Core");
        return NULL;
    }
    return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
}

PyObject *array_alone(PyObject *module, PyObject *node)
{
    return alone(Py_NewRef(node));
}

PyObject *array_direct(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count < 1 || count > 2 || !PyArray_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "direct: expected a numpy array and perhaps its base");
        return NULL;
    }
    PyObject *base = count == 2 ? args[1] : Py_None;
    return direct_over(args[0], base, is_thin((PyArrayObject *)args[0]));
}

PyObject *array_is_thin(PyObject *module, PyObject *value)
{
    if (!PyArray_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "is_thin: expected a numpy array");
        return NULL;
    }
    return PyBool_FromLong(is_thin((PyArrayObject *)value));
}

/* ------------------------------------------------------------------------------------ bindings */

static const struct {
    const char *name;
    PyObject **place;
} PLACES[] = {
    {"get_item", &SLOW.get_item}, {"set_item", &SLOW.set_item}, {"del_item", &SLOW.del_item},
    {"length", &SLOW.length}, {"matmul", &SLOW.matmul}, {"power", &SLOW.power},
    {"dtype", &SLOW.dtype}, {"geometry", &SLOW.geometry}, {"shape", &SLOW.shape},
    {"transposed", &SLOW.transposed}, {"wrap", &SLOW.wrap}, {"from_numpy", &SLOW.from_numpy},
    {"export", &SLOW.export}, {"options", &SLOW.options}, {"plain_numbers", &SLOW.plain_numbers},
    {"node", &SLOW.node}, {"note", &SLOW.note}, {"caller", &SLOW.caller},
    {"constant", &SLOW.constant}, {"inside", &SLOW.inside}, {"simple", &SLOW.simple},
    {"adopted", &SLOW.adopted}, {"storage", &SLOW.storage}, {"layout", &SLOW.layout},
    {"tickets", &SLOW.tickets}, {"scalar", &SLOW.scalar}, {"leaf_op", &SLOW.leaf_op},
    {"full_op", &SLOW.full_op}, {"view_op", &SLOW.view_op}, {"update_op", &SLOW.update_op},
    {"acquire", &SLOW.acquire}, {"release", &SLOW.release}, {"tracing", &SLOW.tracing},
    {"constants", &SLOW.constants}, {"where_op", &SLOW.where_op},
    {"value_node", &SLOW.value_node}, {"loops", &SLOW.loops}, {"pieces", &SLOW.pieces},
    {"real", &SLOW.real}, {"place", &SLOW.place}, {"square_op", &SLOW.square_op}, {"copy_op", &SLOW.copy_op},
    {"reductions", &SLOW.reductions}, {"reduced", &SLOW.reduced}, {"imag", &SLOW.imag}, {"state", &SLOW.state}, {"usual_state", &SLOW.usual_state},
};

Py_ssize_t slot_offset(PyObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString(type, name);
    Py_ssize_t offset = -1;
    if (found != NULL && Py_TYPE(found) == &PyMemberDescr_Type &&
        ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX) {
        offset = ((PyMemberDescrObject *)found)->d_member->offset;
    }
    Py_XDECREF(found);
    PyErr_Clear();
    return offset;
}

PyObject *array_bind(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "sO", &name, &value)) {
        return NULL;
    }
    if (strcmp(name, "plain") == 0) {
        SLOW.plain = PyObject_IsTrue(value);
        Py_RETURN_NONE;
    }
    if (strcmp(name, "origin") == 0) {
        SLOW.origin = PyLong_AsVoidPtr(value);
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    for (size_t at = 0; at < sizeof(PLACES) / sizeof(*PLACES); at++) {
        if (strcmp(PLACES[at].name, name) == 0) {
            Py_XSETREF(*PLACES[at].place, Py_NewRef(value));
            if (value == SLOW.node) {
                recorded_look_at_nodes();
            }
            if (value == SLOW.storage) {
                recorded_look_at_storages();
            }
            if (value == SLOW.options) {
                limit_offset = slot_offset((PyObject *)Py_TYPE(value), "eager_below");
                if (limit_offset < 0) {
                    PyErr_SetString(PyExc_TypeError, "bind: options without a slot `eager_below`");
                    return NULL;
                }
            }
            Py_RETURN_NONE;
        }
    }
    PyErr_Format(PyExc_KeyError, "bind: %s", name);
    return NULL;
}

int array_ready(PyObject *module)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL || recorded_ready() < 0) {
        return -1;
    }
    for (int at = 0; at < OPERATORS; at++) {
        operators[at].call = PyObject_GetAttrString(numpy, operators[at].name);
        if (operators[at].call == NULL) {
            return -1;
        }
        operators[at].loops = loops_new(operators[at].call);
        if (operators[at].loops == NULL) {
            return -1;
        }
    }
    Py_DECREF(numpy);
    if (PyType_Ready(&CoreType) < 0) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "Core", (PyObject *)&CoreType);
}
