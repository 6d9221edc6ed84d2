/* A call in words: its function, where the elements of its operands lie and what these are, plain
   values. Two calls with the same words are recorded alike. */

#include "tape.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* What a word begins. */
enum {
    OWNED = 1, PART_OF, EAGER_ONE, AGAIN, INTEGER, FLOATING, COMPLEX, ITSELF, SLICE, SEQUENCE, NUMPYS,
    FREE_NUMBER
};

static int put(Call *call, uint64_t word)
{
    if (call->count == MOST_WORDS) {
        return 0;
    }
    call->words[call->count++] = word;
    return 1;
}

static int hold(Call *call, PyObject *object)
{
    if (call->holds == MOST_HELD || !put(call, (uint64_t)(uintptr_t)object)) {
        return 0;
    }
    call->held[call->holds++] = object;
    return 1;
}

/* A tuple of numbers, or None. */
static int put_numbers(Call *call, PyObject *numbers)
{
    if (numbers == Py_None) {
        return put(call, (uint64_t)-1);
    }
    if (!PyTuple_CheckExact(numbers) || !put(call, (uint64_t)PyTuple_GET_SIZE(numbers))) {
        return 0;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(numbers); at++) {
        PyObject *each = PyTuple_GET_ITEM(numbers, at);
        if (!PyLong_CheckExact(each) || !put(call, (uint64_t)PyLong_AsSsize_t(each))) {
            return 0;
        }
    }
    return 1;
}

/* A node, as far as recording looks at it: not who made it, and not its values. */
static int put_node(Call *call, PyObject *node, int small)
{
    if (!IS_NODE(node) || NODE(node, resident) != Py_None) {
        return 0;
    }
    int there = NODE(node, value) != Py_None;
    call->is_settled |= there && !small && IS_REAL(NODE(node, value)) &&
                        PyArray_SIZE((PyArrayObject *)NODE(node, value)) < eager_below();
    PyObject *shape = NODE(node, shape);
    for (Py_ssize_t at = 0; PyTuple_Check(shape) && at < PyTuple_GET_SIZE(shape); at++) {
        if (PyObject_IsTrue(PyTuple_GET_ITEM(shape, at)) != 1) {
            return 0; /* without elements there is nothing to gain */
        }
    }
    if (!PyArray_DescrCheck(NODE(node, dtype)) ||
        ((PyArray_Descr *)NODE(node, dtype))->type_num == NPY_HALF) {
        return 0; /* of numbers that are too large for it NumPy warns each time */
    }
    int source = NODE(node, op) == hooks.leaf_op, full = NODE(node, op) == hooks.full_op;
    return put(call, (uint64_t)(there | source << 1 | full << 2)) &&
           hold(call, NODE(node, dtype)) && put_numbers(call, shape) &&
           put_numbers(call, NODE(node, perm));
}

/* The position of an operand, or of one with its storage; -1: there is none yet. */
static int position(const Call *call, PyObject *x, int by_storage)
{
    for (int at = 0; at < call->operands_count; at++) {
        PyObject *other = call->operands[at];
        if (by_storage ? ((Core *)other)->storage == ((Core *)x)->storage : other == x) {
            return at;
        }
    }
    return -1;
}

/* An eager array, of which recorded work reads a copy. */
static int put_eager(Call *call, PyObject *object)
{
    PyArrayObject *value = (PyArrayObject *)EAGER(object);
    int nd = PyArray_NDIM(value), type = plain_type(value);
    if (type < 0 || type == NPY_HALF || nd == 0 || !PyArray_IS_C_CONTIGUOUS(value) ||
        PyArray_SIZE(value) == 0) {
        return 0;
    }
    call->operands[call->operands_count++] = object;
    int known = put(call, EAGER_ONE) && put(call, (uint64_t)nd) &&
                hold(call, (PyObject *)PyArray_DESCR(value));
    for (int axis = 0; known && axis < nd; axis++) {
        known = put(call, (uint64_t)PyArray_DIM(value, axis));
    }
    return known;
}

static int put_array(Call *call, PyObject *object)
{
    Core *x = (Core *)object;
    int number = (PyObject *)Py_TYPE(object) == hooks.scalar, before = position(call, object, 0);
    if (before >= 0) {
        return put(call, AGAIN) && put(call, (uint64_t)before);
    }
    if (call->operands_count == MOST_OPERANDS || EAGER(x) == NULL || x->node == NULL) {
        return 0;
    }
    if (EAGER(x) != Py_None) {
        return IS_DIRECT(object) && put_eager(call, object);
    }
    if (x->node != Py_None) {
        call->waits |= IS_NODE(x->node) && is_pending(x->node);
        call->operands[call->operands_count++] = object;
        return put(call, OWNED | (uint64_t)number << 8) && put_node(call, x->node, number);
    }
    int exported = any_node(x) != NULL && has_exports(x->storage);
    PyObject *node = any_node(x); /* an export that goes may have a callback */
    if (node == NULL) {
        return 0;
    }
    call->waits |= is_pending(node);
    PyArrayObject *view = (PyArrayObject *)x->view;
    if (PyArray_SIZE(view) == 0) {
        return 0;
    }
    int settled = exported ||
        (NODE(node, value) != Py_None && PyArray_SIZE(view) < eager_below());
    call->is_settled |= settled;
    before = position(call, object, 1);
    call->operands[call->operands_count++] = object;
    int nd = PyArray_NDIM(view), known = put(call, PART_OF) && put(call, (uint64_t)before) &&
        put(call, (uint64_t)nd | (uint64_t)is_writeable(view) << 8) &&
        put(call, settled ? 0 : (uint64_t)(PyArray_BYTES(view) - (char *)hooks.origin)) &&
        hold(call, (PyObject *)PyArray_DESCR(view)) && (before >= 0 || put_node(call, node, 1));
    for (int axis = 0; known && axis < nd; axis++) {
        known = put(call, (uint64_t)PyArray_DIM(view, axis)) &&
                put(call, (uint64_t)PyArray_STRIDE(view, axis));
    }
    return known;
}

static int put_long(Call *call, PyObject *x)
{
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(x, &overflow);
    return !overflow && put(call, INTEGER) && put(call, (uint64_t)value);
}

static int put_float(Call *call, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (isinf(value) || !(fabs(value) > FLT_MAX)) && put(call, bits); /* NumPy may warn of it */
}

/* Whether functions do the same with a number as with others of its sign: 0.5, 1, 2 and other whole
   numbers are powers, axes and counts; what float32 cannot hold may warn. */
static int is_free_number(PyObject *x)
{
    double value = PyFloat_Check(x) ? PyFloat_AS_DOUBLE(x)
        : Py_IS_TYPE(x, &PyFloatArrType_Type) ? (double)PyArrayScalar_VAL(x, Float) : 0.0;
    int plain = PyFloat_CheckExact(x) || Py_IS_TYPE(x, &PyDoubleArrType_Type) ||
                Py_IS_TYPE(x, &PyFloatArrType_Type);
    return plain && fabs(value) >= FLT_MIN && fabs(value) <= FLT_MAX && value != rint(value) &&
           fabs(value) != 0.5;
}

/* A number by its type and sign. */
static int put_free_number(Call *call, PyObject *x, int place)
{
    call->numbers[call->numbers_count++] = place;
    double value = PyFloat_Check(x) ? PyFloat_AS_DOUBLE(x) : (double)PyArrayScalar_VAL(x, Float);
    return put(call, FREE_NUMBER | (uint64_t)(value < 0.0) << 8) &&
           hold(call, (PyObject *)Py_TYPE(x));
}

/* One of NumPy's numbers of a plain dtype: by its bytes. */
static int put_numpys(Call *call, PyObject *x)
{
    PyObject *dtype = hooks.strong == NULL || PyArray_Check(x)
        ? NULL : PyDict_GetItemWithError(hooks.strong, (PyObject *)Py_TYPE(x));
    unsigned char bytes[2 * sizeof(uint64_t)] = {0};
    if (dtype == NULL || PyDataType_ELSIZE((PyArray_Descr *)dtype) > (npy_intp)sizeof(bytes)) {
        return 0;
    }
    PyArray_ScalarAsCtype(x, bytes);
    uint64_t words[2];
    memcpy(words, bytes, sizeof(bytes));
    return put(call, NUMPYS) && hold(call, (PyObject *)Py_TYPE(x)) && put(call, words[0]) &&
           put(call, words[1]);
}

static int put_value(Call *call, PyObject *x, int depth);

static int put_items(Call *call, PyObject *x, int depth)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(x);
    if (depth == 3 || !put(call, SEQUENCE) ||
        !put(call, (uint64_t)count << 1 | PyList_CheckExact(x))) {
        return 0;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        if (at >= PySequence_Fast_GET_SIZE(x) ||
            !put_value(call, PySequence_Fast_GET_ITEM(x, at), depth + 1)) {
            return 0;
        }
    }
    return 1;
}

static int put_value(Call *call, PyObject *x, int depth)
{
    PyTypeObject *type = Py_TYPE(x);
    if (IS_ARRAY(x) || (PyObject *)type == hooks.scalar) {
        return put_array(call, x);
    }
    if (x == Py_None || PyBool_Check(x) || x == Py_Ellipsis || PyUnicode_CheckExact(x) ||
        PyType_Check(x) || PyArray_DescrCheck(x)) {
        return put(call, ITSELF) && hold(call, x);
    }
    if (PyLong_CheckExact(x)) {
        return put_long(call, x);
    }
    if (PyFloat_CheckExact(x)) {
        return put(call, FLOATING) && put_float(call, PyFloat_AS_DOUBLE(x));
    }
    if (PyComplex_CheckExact(x)) {
        Py_complex value = PyComplex_AsCComplex(x);
        return put(call, COMPLEX) && put_float(call, value.real) && put_float(call, value.imag);
    }
    if (PyTuple_CheckExact(x) || PyList_CheckExact(x)) {
        return put_items(call, x, depth);
    }
    if (PySlice_Check(x)) {
        PySliceObject *slice = (PySliceObject *)x;
        return depth < 3 && put(call, SLICE) && put_value(call, slice->start, 3) &&
               put_value(call, slice->stop, 3) && put_value(call, slice->step, 3);
    }
    return put_numpys(call, x);
}

int describe_call(Call *call, PyObject *function, PyObject *const *args, Py_ssize_t count,
                  PyObject *names, Py_ssize_t fixed, int by_value, int small)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    call->count = 0;
    call->holds = call->operands_count = call->waits = call->is_settled = 0;
    call->numbers_count = 0;
    if (!hold(call, function) || !put(call, (uint64_t)(count << 8 | named)) ||
        !put(call, (uint64_t)ignored_errors())) {
        return 0;
    }
    for (Py_ssize_t at = 0; at < count + named; at++) {
        int known = at < fixed ? hold(call, args[at])
            : (at < count || hold(call, PyTuple_GET_ITEM(names, at - count))) &&
              (!by_value && call->numbers_count < MOST_NUMBERS && is_free_number(args[at])
                   ? put_free_number(call, args[at], (int)at) : put_value(call, args[at], 0));
        if (!known) {
            PyErr_Clear(); /* hash of a type, or a number that is too large */
            return 0;
        }
    }
    int recorded = 0; /* eager arrays alone are NumPy's */
    for (int at = 0; at < call->operands_count; at++) {
        recorded |= !IS_DIRECT(call->operands[at]);
    }
    return recorded != small && call->operands_count > 0 && put(call, (uint64_t)call->is_settled | (uint64_t)by_value << 1);
}
