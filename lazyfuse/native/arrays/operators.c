/* Python's operators on arrays: in NumPy's own loops where all operands are eager, else by the
   Python function that eager_operators.py has bound, which is followed when it comes round (tape/). */

#include "arrays.h"

#include <string.h>

typedef struct {
    const char *name;
    Loops *loops;
    PyObject *call, *op, *spec, *slow, *slow_inplace;
} Operator;

/* The operators, a row each: as the op table names it, Python's function for NumPy's arrays, and the
   slots of the array. */
#define BOTH_WAYS(_)                                                                               \
    _(add, PyNumber_Add, nb_add, nb_inplace_add)                                                   \
    _(subtract, PyNumber_Subtract, nb_subtract, nb_inplace_subtract)                               \
    _(multiply, PyNumber_Multiply, nb_multiply, nb_inplace_multiply)                               \
    _(divide, PyNumber_TrueDivide, nb_true_divide, nb_inplace_true_divide)                         \
    _(floor_divide, PyNumber_FloorDivide, nb_floor_divide, nb_inplace_floor_divide)                \
    _(remainder, PyNumber_Remainder, nb_remainder, nb_inplace_remainder)                           \
    _(bitwise_and, PyNumber_And, nb_and, nb_inplace_and)                                           \
    _(bitwise_or, PyNumber_Or, nb_or, nb_inplace_or)                                               \
    _(bitwise_xor, PyNumber_Xor, nb_xor, nb_inplace_xor)                                           \
    _(left_shift, PyNumber_Lshift, nb_lshift, nb_inplace_lshift)                                   \
    _(right_shift, PyNumber_Rshift, nb_rshift, nb_inplace_rshift)
#define COMPARISONS(_)                                                                             \
    _(less, Py_LT) _(less_equal, Py_LE) _(equal, Py_EQ) _(not_equal, Py_NE) _(greater, Py_GT)      \
    _(greater_equal, Py_GE)
#define OF_ONE(_)                                                                                  \
    _(negative, PyNumber_Negative, nb_negative) _(positive, PyNumber_Positive, nb_positive)        \
    _(absolute, PyNumber_Absolute, nb_absolute) _(invert, PyNumber_Invert, nb_invert)

#define CODE(name, ...) OP_##name,
enum {
    BOTH_WAYS(CODE) COMPARISONS(CODE) OF_ONE(CODE) POWER, SQUARE, OPERATORS,
    NEGATIVE = OP_negative, /* the first of one operand */
};
#undef CODE

static PyObject *matmul; /* NumPy's */

#define NAMED(name, ...) {#name},
static Operator operators[OPERATORS] = {
    BOTH_WAYS(NAMED) COMPARISONS(NAMED) OF_ONE(NAMED) {"power"}, {"square"},
};

#undef NAMED

#define COMPARE(name, how)                                                                         \
    static PyObject *name(PyObject *a, PyObject *b)                                                \
    {                                                                                              \
        return PyObject_RichCompare(a, b, how);                                                    \
    }
COMPARISONS(COMPARE)
#undef COMPARE

/* Python's operator on two numpy arrays, or one and a number; on one array. */
#define FUNCTION(name, function, ...) function,
#define COMPARISON(name, how) name,
static const binaryfunc BOTH[] = {BOTH_WAYS(FUNCTION) COMPARISONS(COMPARISON)};
static const unaryfunc ONE[] = {OF_ONE(FUNCTION)};

#undef FUNCTION
#undef COMPARISON

static PyObject *slow_binary(Operator *o, Core *self, PyObject *other, int swapped)
{
    PyObject *args[] = {o->spec, (PyObject *)self, other, swapped ? Py_True : Py_False};
    if (o->slow == NULL) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return step_call(o->slow, args, 4, NULL, 1);
}

static PyObject *at_once(Operator *o, Core *self, PyObject *other, int swapped)
{
    PyObject *args[] = {swapped ? other : (PyObject *)self, swapped ? (PyObject *)self : other};
    return o->op == NULL ? NULL : exported_call(o->op, o->loops, o->call, args, 2);
}

static PyObject *binary(int which, Core *self, PyObject *other, int swapped)
{
    Operator *o = &operators[which];
    PyObject *small = values_of((PyObject *)self), *right = other;
    int ours = IS_ARRAY(other), thin;
    if (small != NULL && ours) {
        right = values_of(other);
    }
    if (small == NULL || right == NULL) {
        int recorded = EAGER(self) == Py_None || (ours && EAGER(other) == Py_None);
        PyObject *found = recorded ? at_once(o, self, other, swapped) : NULL;
        return found != NULL || PyErr_Occurred() ? found : slow_binary(o, self, other, swapped);
    }
    thin = MAY_GROW(self);
    if (ours) {
        thin |= MAY_GROW(other);
    }
    else if (IS_REAL(other) && plain_type((PyArrayObject *)other) >= 0 &&
             is_small_array((PyArrayObject *)other)) {
        thin |= may_grow((PyArrayObject *)other);
    }
    else if (!is_number(other)) {
        return slow_binary(o, self, other, swapped);
    }
    Py_ssize_t limit = thin ? limit_of(small, right) : PY_SSIZE_T_MAX;
    if (limit == 0) {
        return slow_binary(o, self, other, swapped);
    }
    Py_INCREF(small); /* while Python's lock is released, another thread may exchange them */
    Py_INCREF(right);
    PyObject *first = swapped ? right : small, *second = swapped ? small : right;
    PyObject *result = loops_binary(o->loops, first, second, limit);
    if (result != NULL) {
        result = thin ? wrapped(result) : placed(result);
    }
    else if (!PyErr_Occurred() && ours && thin && EAGER(self) == Py_None) {
        result = at_once(o, self, other, swapped);
    }
    if (result == NULL && !PyErr_Occurred()) {
        result = limit != PY_SSIZE_T_MAX ? slow_binary(o, self, other, swapped)
            : thin ? wrapped(BOTH[which](first, second)) : placed(BOTH[which](first, second));
    }
    Py_DECREF(small);
    Py_DECREF(right);
    return result;
}

static PyObject *inplace(int which, PyObject *x, PyObject *other)
{
    Operator *o = &operators[which];
    Core *self = (Core *)x;
    int is_part = !IS_DIRECT(self);
    PyObject *small = is_part ? part_for_writing(self) : EAGER(self), *right = other;
    if (IS_ARRAY(other)) {
        right = values_of(other);
    }
    else if (!is_number(other)) {
        right = NULL;
    }
    if (small != NULL && right != NULL) {
        Py_INCREF(small);
        Py_INCREF(right);
        int lock = is_part ? lock_part(PyArray_SIZE((PyArrayObject *)small)) : 1, done = lock < 0;
        if (lock == 2 && part_for_writing(self) != small) {
            lock = unlock_part(lock, 0); /* another thread had the lock */
        }
        if (lock > 0) {
            done = loops_into(o->loops, small, right, (PyArrayObject *)small);
            if (done == 0) {
                PyObject *args[] = {small, right, small};
                PyObject *result = PyObject_Vectorcall(o->call, args, 3, NULL);
                done = result == NULL ? -1 : 1;
                Py_XDECREF(result);
            }
            done = unlock_part(lock, done);
        }
        Py_DECREF(small);
        Py_DECREF(right);
        if (lock != 0) {
            return done < 0 || lock < 0 ? NULL : Py_NewRef(x);
        }
    }
    if (is_part && EAGER(self) == Py_None && o->op != NULL) {
        PyObject *args[] = {x, other};
        int done = exported_into(o->op, o->call, args, 2, self);
        if (done != 0) {
            return done < 0 ? NULL : Py_NewRef(x);
        }
    }
    if (o->slow_inplace == NULL) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *args[] = {o->spec, x, other};
    return step_call(o->slow_inplace, args, 3, NULL, 1);
}

static PyObject *unary(int which, PyObject *x)
{
    Operator *o = &operators[which];
    Core *self = (Core *)x;
    PyObject *small = values_of(x);
    if (small != NULL) {
        int thin = MAY_GROW(self);
        PyObject *result = NULL;
        Py_INCREF(small);
        if (!thin || is_small_array((PyArrayObject *)small)) {
            result = loops_unary(o->loops, small);
            if (result == NULL && !thin && !PyErr_Occurred()) {
                result = ONE[which - NEGATIVE](small);
            }
            result = thin ? wrapped(result) : placed(result);
        }
        Py_DECREF(small);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    else if (EAGER(self) == Py_None && o->op != NULL) {
        PyObject *found = exported_call(o->op, o->loops, o->call, &x, 1);
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
    }
    PyObject *args[] = {o->spec, x};
    return step_call(o->slow, args, 2, NULL, 1);
}

#define IS_OURS(x) PyObject_TypeCheck(x, &CoreType)

/* NumPy's number for a lazy one that has its value, anything else as it is (new). */
static PyObject *number_there(PyObject *x)
{
    PyObject *node = (PyObject *)Py_TYPE(x) == hooks.scalar ? ((Core *)x)->node : NULL;
    if (node == NULL || !IS_NODE(node) || NODE(node, resident) != Py_None ||
        !IS_REAL(NODE(node, value))) {
        return Py_NewRef(x);
    }
    PyArrayObject *value = (PyArrayObject *)NODE(node, value);
    return PyArray_Scalar(PyArray_DATA(value), PyArray_DESCR(value), (PyObject *)value);
}

static PyObject *operate(int which, PyObject *left, PyObject *right);

/* The operator on lazy numbers: those that have their values are NumPy's. */
static PyObject *operate_numbers(int which, PyObject *left, PyObject *right)
{
    PyObject *first = number_there(left), *result = NULL;
    PyObject *second = first == NULL ? NULL : number_there(right);
    if (second != NULL && (first != left || second != right)) {
        int ours = PyObject_TypeCheck(first, &CoreType) || PyObject_TypeCheck(second, &CoreType);
        result = ours ? operate(which, first, second)
            : BOTH[which](first, second);
    }
    Py_XDECREF(first);
    Py_XDECREF(second);
    return result;
}

#define IS_LAZY_NUMBER(x) ((PyObject *)Py_TYPE(x) == hooks.scalar)

/* An operator of two operands, one of which is ours. */
static PyObject *operate(int which, PyObject *left, PyObject *right)
{
    if (IS_LAZY_NUMBER(left) || IS_LAZY_NUMBER(right)) {
        PyObject *result = operate_numbers(which, left, right);
        if (result != NULL || PyErr_Occurred()) {
            return LEAVE(result);
        }
    }
    PyObject *result = IS_OURS(left) ? binary(which, (Core *)left, right, 0)
                                     : binary(which, (Core *)right, left, 1);
    return LEAVE(result);
}

static PyObject *operate_on_one(int which, PyObject *self)
{
    PyObject *result = unary(which, self);
    return LEAVE(result);
}

#define SLOTS_OF_TWO(name, function, slot, in_place)                                               \
    static PyObject *array_##slot(PyObject *left, PyObject *right)                                 \
    {                                                                                              \
        RETURN_TIMED(operate(OP_##name, left, right));                                             \
    }                                                                                              \
    static PyObject *array_##in_place(PyObject *self, PyObject *other)                             \
    {                                                                                              \
        RETURN_TIMED(inplace(OP_##name, self, other));                                             \
    }
#define SLOT_OF_ONE(name, function, slot)                                                          \
    static PyObject *array_##slot(PyObject *self)                                                  \
    {                                                                                              \
        RETURN_TIMED(operate_on_one(OP_##name, self));                                             \
    }
BOTH_WAYS(SLOTS_OF_TWO)
OF_ONE(SLOT_OF_ONE)

PyObject *array_compare(PyObject *self, PyObject *other, int op)
{
#define COMPARISON(name, how) [how] = OP_##name,
    static const int which[] = {COMPARISONS(COMPARISON)};
#undef COMPARISON
    RETURN_TIMED(operate(which[op], self, other));
}

static int is_two(PyObject *x)
{
    int overflow = 0;
    return PyLong_CheckExact(x) && PyLong_AsLongAndOverflow(x, &overflow) == 2;
}

/* Whether NumPy raises an array to this power by `power`, and no loop that is quicker. */
static int is_power(PyArrayObject *array, PyObject *x)
{
    if (PyFloat_CheckExact(x)) {
        return PyFloat_AS_DOUBLE(x) != 0.5;
    }
    int overflow = 0;
    long whole = PyLong_CheckExact(x) ? PyLong_AsLongAndOverflow(x, &overflow) : 0;
    return PyArray_ISFLOAT(array) && !overflow && (whole > 2 || whole < -1);
}

static PyObject *power(PyObject *left, PyObject *right, PyObject *modulo)
{
    int swapped = !IS_OURS(left);
    PyObject *self = swapped ? right : left, *other = swapped ? left : right;
    if (!IS_OURS(self)) {
        Py_RETURN_NOTIMPLEMENTED; /* lazyfuse's operand is the modulo */
    }
    PyObject *small = !swapped && modulo == Py_None ? values_of(self) : NULL;
    if (small != NULL && !MAY_GROW(self) && is_number(other)) {
        PyObject *result = NULL;
        Py_INCREF(small);
        if (is_two(other) && plain_type((PyArrayObject *)small) != NPY_BOOL) {
            /* versions of NumPy differ there */
            result = loops_unary(operators[SQUARE].loops, small);
        }
        else if (is_power((PyArrayObject *)small, other)) {
            result = loops_binary(operators[POWER].loops, small, other, PY_SSIZE_T_MAX);
        }
        if (result == NULL && !PyErr_Occurred()) {
            result = PyNumber_Power(small, other, Py_None);
        }
        Py_DECREF(small);
        return placed(result);
    }
    PyObject *args[] = {self, other, modulo, swapped ? Py_True : Py_False};
    return step_call(hooks.power, args, 4, NULL, 0);
}

static PyObject *operate_power(PyObject *left, PyObject *right, PyObject *modulo)
{
    PyObject *result = power(left, right, modulo);
    return LEAVE(result);
}

static PyObject *array_power(PyObject *left, PyObject *right, PyObject *modulo)
{
    RETURN_TIMED(operate_power(left, right, modulo));
}

/* The values of an operand of a product, where they exist (borrowed); `small`: whether NumPy works
   on them at once, whatever the other operand is. */
static PyObject *factor(PyObject *x, int *small)
{
    PyObject *found = IS_REAL(x) ? x : NULL;
    *small = found != NULL && PyArray_SIZE((PyArrayObject *)found) < eager_below();
    if (IS_ARRAY(x)) {
        found = values_of(x);
        *small = found != NULL;
        found = *small ? found : (PyObject *)present_values((Core *)x);
    }
    return found != NULL && plain_type((PyArrayObject *)found) > NPY_BOOL ? found : NULL;
}

/* Whether a product has a vector as an operand and a small result: then it is NumPy's at once, as
   products._at_once says. */
static int gives_little(PyArrayObject *first, PyArrayObject *second)
{
    int m = PyArray_NDIM(first), n = PyArray_NDIM(second);
    npy_intp size = 1;
    if (m == 0 || n == 0 || (m > 1 && n > 1)) {
        return 0;
    }
    for (int axis = 0; axis < m - 1; axis++) {
        size *= PyArray_DIM(first, axis);
    }
    for (int axis = 0; axis < n; axis++) {
        size *= n > 1 && axis != n - 2 ? PyArray_DIM(second, axis) : 1;
    }
    return size < eager_below();
}

static PyObject *multiply_matrices(PyObject *left, PyObject *right)
{
    int swapped = !IS_OURS(left);
    PyObject *self = swapped ? right : left, *other = swapped ? left : right;
    int is_first_small, is_second_small;
    PyObject *first = factor(left, &is_first_small);
    PyObject *second = first == NULL ? NULL : factor(right, &is_second_small);
    if (second != NULL && ((is_first_small && is_second_small) ||
                           gives_little((PyArrayObject *)first, (PyArrayObject *)second))) {
        Py_INCREF(first);
        Py_INCREF(second);
        PyObject *result = PyNumber_MatrixMultiply(first, second);
        Py_DECREF(first);
        Py_DECREF(second);
        return wrapped(result);
    }
    PyObject *args[] = {self, other, swapped ? Py_True : Py_False};
    return swapped ? step_call(hooks.matmul, args, 3, NULL, 0)
                   : step_function(hooks.matmul, hooks.numpys_matmul, args, 2, NULL, 0);
}

static PyObject *array_matmul(PyObject *left, PyObject *right)
{
    RETURN_TIMED(multiply_matrices(left, right));
}

/* `__array_ufunc__`: a ufunc of NumPy's that is an operator here, called with a number or an array
   of NumPy's and one of ours, as `numpy.float64(2) * x` does. All else is Python's. */
static PyObject *called_by_ufunc(PyObject *x, PyObject *const *args, Py_ssize_t count,
                                 PyObject *names)
{
    const char *method = count == 4 && names == NULL && PyUnicode_CheckExact(args[1])
        ? PyUnicode_AsUTF8(args[1]) : NULL;
    if (method != NULL && strcmp(method, "__call__") == 0 &&
        (IS_ARRAY(args[2]) || IS_ARRAY(args[3]))) {
        PyObject *other = args[IS_ARRAY(args[2]) ? 3 : 2];
        int known = is_number(other) || IS_ARRAY(other) || IS_REAL(other);
        if (known && args[0] == matmul) {
            return multiply_matrices(args[2], args[3]);
        }
        for (int at = 0; known && at < NEGATIVE; at++) {
            if (operators[at].call == args[0]) {
                return operate(at, args[2], args[3]);
            }
        }
    }
    PyErr_Clear();
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    PyObject **given = PyMem_New(PyObject *, all + 1);
    if (given == NULL) {
        return PyErr_NoMemory();
    }
    given[0] = x;
    memcpy(given + 1, args, (size_t)all * sizeof(PyObject *));
    PyObject *result = PyObject_Vectorcall(hooks.array_ufunc, given, (size_t)count + 1, names);
    PyMem_Free(given);
    return result;
}

static PyMethodDef override = {
    "__array_ufunc__", (PyCFunction)(void (*)(void))called_by_ufunc,
    METH_FASTCALL | METH_KEYWORDS,
    "__array_ufunc__($self, ufunc, method, /, *inputs, **kwargs)\n--\n\n"
    "Runs our ufunc for NumPy's, which was called with an array of ours (NEP 13).",
};

PyObject *array_override(PyObject *Py_UNUSED(module), PyObject *type)
{
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &CoreType)) {
        PyErr_SetString(PyExc_TypeError, "override: expected a class on Core");
        return NULL;
    }
    return PyDescr_NewMethod(&PyBaseObject_Type, &override); /* of NumPy's arrays as well */
}

#define SLOT(name, function, slot) .slot = array_##slot,
#define SLOTS(name, function, slot, in_place) .slot = array_##slot, .in_place = array_##in_place,
PyNumberMethods array_number = {
    BOTH_WAYS(SLOTS) OF_ONE(SLOT) .nb_power = array_power, .nb_matrix_multiply = array_matmul,
};

#undef SLOTS
#undef SLOT

PyObject *array_operator(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *name;
    PyObject *call, *spec, *op, *slow, *slow_inplace;
    if (!PyArg_ParseTuple(args, "sOOOOO", &name, &call, &spec, &op, &slow, &slow_inplace)) {
        return NULL;
    }
    for (int at = 0; at < OPERATORS; at++) {
        Operator *o = &operators[at];
        if (strcmp(o->name, name) == 0 && at != POWER && at != SQUARE) {
            o->spec = Py_NewRef(spec);
            o->op = Py_NewRef(op);
            o->slow = Py_NewRef(slow);
            o->slow_inplace = Py_NewRef(slow_inplace);
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

int operators_find_loops(void)
{
    for (int at = 0; at < OPERATORS; at++) {
        loops_free(operators[at].loops);
        operators[at].loops = loops_new(operators[at].call);
        if (operators[at].loops == NULL) {
            return -1;
        }
    }
    return 0;
}

int operators_ready(void)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    matmul = numpy == NULL ? NULL : PyObject_GetAttrString(numpy, "matmul");
    if (matmul == NULL) {
        Py_CLEAR(numpy);
    }
    for (int at = 0; numpy != NULL && at < OPERATORS; at++) {
        Operator *o = &operators[at];
        o->call = PyObject_GetAttrString(numpy, o->name);
        if (o->call == NULL) {
            Py_CLEAR(numpy);
        }
    }
    int failed = numpy == NULL;
    Py_XDECREF(numpy);
    return failed ? -1 : 0;
}
