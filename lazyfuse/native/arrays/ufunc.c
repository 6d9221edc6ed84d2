/* Calls of ufuncs: at once on eager arrays and numbers, and as met before on recorded arrays.
   The base of `ufunc` (ufunc.py), which does the rest. The same in Python: eager_ufunc.py. */

#include "arrays.h"

#include <string.h>

#include <stddef.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *beside, *call, *compute, *reduction, *rows, *nin, *nout;
    Loops *loops;
} UfuncCore;

static Loops *loops_of(UfuncCore *self)
{
    if (self->loops == NULL && self->call != NULL) {
        self->loops = loops_new(self->call);
    }
    return self->loops;
}

/* A method of the class, on a ufunc and these arguments. */
static PyObject *called_generally(PyObject *self, PyObject *method, PyObject *const *args,
                                  Py_ssize_t count, PyObject *names)
{
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    PyObject *function = PyObject_GetAttr((PyObject *)Py_TYPE(self), method);
    PyObject **given = PyMem_New(PyObject *, all + 1), *result = NULL;
    if (given == NULL) {
        PyErr_NoMemory();
    }
    else if (function != NULL) {
        given[0] = self;
        memcpy(given + 1, args, (size_t)all * sizeof(PyObject *));
        result = step_call(function, given, (size_t)count + 1, names, 1);
    }
    PyMem_Free(given);
    Py_XDECREF(function);
    return result;
}

static PyObject *general(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return called_generally(self, name_general, args, count, names);
}

/* The values of an array that is small (borrowed); NULL: it is not. */
static PyObject *small_values(PyObject *x)
{
    PyObject *found = values_of(x);
    return found != NULL && (!MAY_GROW(x) || PyArray_SIZE((PyArrayObject *)found) < eager_below())
        ? found : NULL;
}

/* The same for the operation itself, which NumPy does at once on single bytes as well: except an
   inexact one, as eager_policy.has_bits_of_its_own says. */
static PyObject *values_for(const Loops *loops, PyObject *x)
{
    PyArrayObject *found = (PyArrayObject *)values_of(x);
    if (found == NULL || !MAY_GROW(x) || PyArray_SIZE(found) < eager_below()) {
        return (PyObject *)found;
    }
    int type = plain_type(found), is_exact = type >= 0 && loops != NULL && loops->exact[type];
    return is_exact && is_small_array(found) ? (PyObject *)found : NULL;
}

/* The op definition of a ufunc that runs as NumPy does (borrowed); NULL: several, or none. */
static PyObject *only_op(UfuncCore *self)
{
    int plain = self->compute == self->call && self->rows != NULL &&
                PyTuple_CheckExact(self->rows) && PyTuple_GET_SIZE(self->rows) == 1;
    return plain ? PyTuple_GET_ITEM(self->rows, 0) : NULL;
}

/* On concrete values, by NumPy at once; NULL without an exception: Python does it. */
static PyObject *at_once(UfuncCore *self, PyObject *const *args, int count)
{
    PyObject *op = only_op(self);
    return op == NULL ? NULL : exported_call(op, loops_of(self), self->call, args, count);
}

static PyObject *of_one(UfuncCore *self, PyObject *x)
{
    if (IS_ARRAY(x) || (PyObject *)Py_TYPE(x) == hooks.scalar) {
        Loops *loops = loops_of(self); /* first: Python may make them */
        if (loops == NULL && PyErr_Occurred()) {
            return NULL;
        }
        PyObject *small = values_for(loops, x), *result = NULL;
        if (small == NULL && EAGER(x) == Py_None) {
            return at_once(self, &x, 1);
        }
        if (small == NULL) {
            return NULL;
        }
        Py_INCREF(small);
        if (loops != NULL && (self->compute == self->call ||
                              !PyTypeNum_ISCOMPLEX(PyArray_TYPE((PyArrayObject *)small)))) {
            result = loops_unary(loops, small);
        }
        if (result == NULL && !PyErr_Occurred()) {
            result = PyObject_CallOneArg(self->compute, small);
        }
        Py_DECREF(small);
        return wrapped(result);
    }
    return is_number(x) ? PyObject_CallOneArg(self->compute, x) : NULL;
}

static PyObject *of_two(UfuncCore *self, PyObject *left, PyObject *right)
{
    PyObject *given[2] = {left, right}, *const args[2] = {left, right};
    Loops *loops = loops_of(self); /* first: Python may make them */
    int arrays = 0, thin = 0;
    if (loops == NULL && PyErr_Occurred()) {
        return NULL;
    }
    for (int k = 0; k < 2; k++) {
        if (IS_ARRAY(args[k]) || (PyObject *)Py_TYPE(args[k]) == hooks.scalar) {
            given[k] = values_for(loops, args[k]);
            if (given[k] == NULL) {
                return at_once(self, args, 2);
            }
            arrays++;
            thin |= MAY_GROW(args[k]);
        }
        else if (!is_number(given[k])) {
            return NULL;
        }
    }
    Py_ssize_t limit = thin ? limit_of(given[0], given[1]) : PY_SSIZE_T_MAX;
    PyObject *result = NULL;
    if (limit == 0) {
        return NULL;
    }
    Py_INCREF(given[0]);
    Py_INCREF(given[1]);
    if (loops != NULL && (arrays == 2 || (arrays == 1 && self->beside == Py_True))) {
        result = loops_binary(loops, given[0], given[1], limit);
    }
    if (result == NULL && limit == PY_SSIZE_T_MAX && !PyErr_Occurred()) {
        result = PyObject_Vectorcall(self->call, given, 2, NULL);
    }
    Py_DECREF(given[0]);
    Py_DECREF(given[1]);
    return wrapped(result);
}

/* Whether the call was written to `out`; -1 with an exception. */
static int into(UfuncCore *self, PyObject *left, PyObject *right, PyObject *out, PyObject *memory)
{
    PyObject *given[3] = {left, right, memory};
    int count = right == NULL ? 1 : 2, is_part = !IS_DIRECT(out);
    for (int k = 0; k < count; k++) {
        if (IS_ARRAY(given[k])) {
            given[k] = values_of(given[k]);
            if (given[k] == NULL) {
                return 0;
            }
        }
        else if (!is_number(given[k])) {
            return 0;
        }
    }
    Loops *loops = loops_of(self);
    if (count == 1) {
        given[1] = given[2];
    }
    for (int k = 0; k <= count; k++) {
        Py_INCREF(given[k]);
    }
    int done = 0, lock = is_part ? lock_part(PyArray_SIZE((PyArrayObject *)memory)) : 1;
    if (lock == 2 && part_for_writing((Core *)out) != memory) {
        lock = unlock_part(lock, 0); /* another thread had the lock */
    }
    int whole = self->compute == self->call ||
                !PyTypeNum_ISCOMPLEX(PyArray_TYPE((PyArrayObject *)given[count]));
    int first = IS_REAL(given[0]), second = count == 2 && IS_REAL(given[1]);
    /* numbers without arrays choose their dtype, not `out` */
    if (lock > 0 && loops != NULL && whole && (first || second) &&
        (first + second == count || self->beside == Py_True)) {
        done = loops_into(
            loops, given[0], count == 1 ? NULL : given[1], (PyArrayObject *)given[count]);
    }
    if (lock > 0 && done == 0) { /* by name: `maximum` warns of a third operand */
        PyObject *names = out_alone(), *function = count == 1 ? self->compute : self->call;
        PyObject *result = names == NULL ? NULL
            : PyObject_Vectorcall(function, given, count, names);
        done = result == NULL ? -1 : 1;
        Py_XDECREF(result);
    }
    for (int k = 0; k <= count; k++) {
        Py_DECREF(given[k]);
    }
    return lock < 0 ? -1 : unlock_part(lock, done);
}

/* Whether a mask changes so often that to compute and select all elements takes less time than
   NumPy's way, which calls the loop for each stretch of the mask: by its beginning. */
static int changes_often(PyArrayObject *mask)
{
    const char *kept = PyArray_BYTES(mask);
    npy_intp count = Py_MIN(PyArray_SIZE(mask), 2048), changes = 0;
    for (npy_intp at = 1; at + 8 <= count; at += 8) {
        npy_uint64 these, before;
        memcpy(&these, kept + at, 8);
        memcpy(&before, kept + at - 1, 8);
        changes += (npy_intp)(((these ^ before) * 0x0101010101010101u) >> 56); /* sum of bytes */
    }
    return changes > count / 8;
}

/* A call with `where` and `out`, by a loop over all elements, and a selection: 1; 0: NumPy's call
   does it, as where a flag is raised; -1 with an exception. */
static int selected(Loops *loops, PyObject *left, PyObject *right, PyArrayObject *mask,
                    PyArrayObject *out)
{
    int type = plain_type(out);
    if (loops == NULL || type < 0 || loops->index[type] < 0 || !loops->exact[type] ||
        loops->out[type] != type || !PyArray_ISCARRAY(out) ||
        (PyArray_FLAGS(out) & WARN_ON_WRITE) || plain_type(mask) != NPY_BOOL ||
        !PyArray_IS_C_CONTIGUOUS(mask) || !same_shape(mask, out) || !changes_often(mask)) {
        return 0;
    }
    PyObject *made = right != NULL ? loops_binary(loops, left, right, PY_SSIZE_T_MAX)
        : IS_REAL(left) ? loops_unary(loops, left) : NULL;
    if (made == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyArrayObject *whole = (PyArrayObject *)made;
    int fits = plain_type(whole) == type && same_shape(whole, out) && PyArray_ISCARRAY(whole);
    if (fits) {
        npy_intp item = PyArray_ITEMSIZE(out), steps[] = {1, item, item, item};
        char *data[] = {PyArray_BYTES(mask), PyArray_BYTES(whole), PyArray_BYTES(out),
                        PyArray_BYTES(out)};
        select_row(item, data, steps, PyArray_SIZE(out));
    }
    Py_DECREF(made);
    return fits;
}

/* A call with `where`, and perhaps `out`, on small arrays and numbers: NumPy's, at once. NULL without
   an exception: Python does it. */
static PyObject *where_called(UfuncCore *self, PyObject *const *args, Py_ssize_t count,
                              PyObject *names)
{
    enum { MOST = 4 };
    PyObject *given[MOST], *out = NULL, *memory = NULL, *mask = NULL, *result = NULL;
    Py_ssize_t all = count + PyTuple_GET_SIZE(names);
    int arrays = 0, thin = 0, done = 0;
    if (all > MOST || self->compute != self->call) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < all; at++) {
        PyObject *x = args[at], *name = at < count ? NULL : PyTuple_GET_ITEM(names, at - count);
        int is_out = name != NULL && PyUnicode_Compare(name, name_out) == 0;
        if (name != NULL && !is_out && PyUnicode_CompareWithASCIIString(name, "where") != 0) {
            return NULL;
        }
        if (IS_ARRAY(x)) {
            given[at] = is_out && !IS_DIRECT(x) ? NULL : small_values(x);
            out = is_out ? x : out;
            thin |= MAY_GROW(x);
            arrays++;
        }
        else {
            given[at] = !is_out && is_number(x) ? x : NULL;
        }
        if (given[at] == NULL) {
            return NULL;
        }
        if (is_out) {
            memory = given[at];
        }
        else if (name != NULL) {
            mask = given[at];
        }
    }
    if (arrays == 0 || (thin && out == NULL)) { /* the result may be large */
        return NULL;
    }
    for (Py_ssize_t at = 0; at < all; at++) {
        Py_INCREF(given[at]);
    }
    if (out != NULL && mask != NULL && IS_REAL(mask) &&
        (self->beside == Py_True || (IS_REAL(given[0]) && IS_REAL(given[count - 1])))) {
        done = selected(loops_of(self), given[0], count == 2 ? given[1] : NULL,
                        (PyArrayObject *)mask, (PyArrayObject *)memory);
    }
    if (done == 0 && !PyErr_Occurred()) {
        result = PyObject_Vectorcall(self->call, given, (size_t)count, names);
    }
    else if (done > 0) {
        result = Py_NewRef(out);
    }
    for (Py_ssize_t at = 0; at < all; at++) {
        Py_DECREF(given[at]);
    }
    if (result != NULL && out != NULL) {
        Py_SETREF(result, Py_NewRef(out));
    }
    return out != NULL ? result : wrapped(result);
}

/* Whether NumPy warns where `out` is given by its place: it may have been meant as an operand. */
static int warns_of_places(UfuncCore *self)
{
    Loops *loops = loops_of(self);
    return loops == NULL || strcmp(loops->ufunc->name, "maximum") == 0 ||
           strcmp(loops->ufunc->name, "minimum") == 0;
}

static PyObject *answer(PyObject *x, PyObject *const *args, size_t flags, PyObject *names)
{
    UfuncCore *self = (UfuncCore *)x;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (array_type == NULL || self->call == NULL || self->compute == NULL || self->nin == NULL ||
        !PyLong_CheckExact(self->nin)) {
        return general(x, args, count, names);
    }
    long nin = PyLong_AsLong(self->nin);
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject *result = NULL;
    if (named == 0 && count <= nin) {
        if (count == nin && nin == 2) {
            result = of_two(self, args[0], args[1]);
        }
        else if (count == nin && nin == 1) {
            result = of_one(self, args[0]);
        }
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    else if (
        count + named == nin + 1 && (nin == 1 || nin == 2) && IS_ARRAY(args[nin]) &&
        self->nout != NULL && PyLong_Check(self->nout) && PyLong_AsLong(self->nout) == 1 &&
        (named ? PyUnicode_Compare(PyTuple_GET_ITEM(names, 0), name_out) == 0
               : !warns_of_places(self))) {
        PyObject *out = args[nin];
        int done = 0;
        if (loops_of(self) == NULL && PyErr_Occurred()) { /* Python may make them: first */
            return NULL;
        }
        PyObject *memory = IS_DIRECT(out) ? EAGER(out) : part_for_writing((Core *)out);
        if (memory != NULL) {
            done = into(self, args[0], nin == 1 ? NULL : args[1], out, memory);
        }
        PyObject *op = done == 0 && EAGER(out) == Py_None ? only_op(self) : NULL;
        if (op != NULL) {
            done = exported_into(op, self->call, args, (int)nin, (Core *)out);
        }
        if (done != 0) {
            return done < 0 ? NULL : Py_NewRef(out);
        }
    }
    result = named > 0 && count == nin ? where_called(self, args, count, names) : NULL;
    return result != NULL || PyErr_Occurred() ? result : general(x, args, count, names);
}

static PyObject *called(PyObject *x, PyObject *const *args, size_t flags, PyObject *names)
{
    Span span = span_open();
    PyObject *result = span_result(span, answer(x, args, flags, names), SPAN_OPERATIONS);
    return LEAVE(result);
}

/* --------------------------------------------------------------------------------------- methods */

enum { ARGUMENTS = 4 };

/* The outer operation on arrays of plain dtypes by an exact loop; NULL without an exception. */
static PyObject *outer_by_loop(UfuncCore *self, PyArrayObject *left, PyArrayObject *right)
{
    int nd = PyArray_NDIM(left), beside = PyArray_NDIM(right);
    Loops *loops = loops_of(self);
    if (loops == NULL || nd + beside > MOST_AXES || plain_type(left) < 0) {
        return NULL;
    }
    npy_intp dims[MOST_AXES], strides[MOST_AXES];
    for (int axis = 0; axis < nd + beside; axis++) {
        dims[axis] = axis < nd ? PyArray_DIM(left, axis) : 1;
        strides[axis] = axis < nd ? PyArray_STRIDE(left, axis) : 0;
    }
    Py_INCREF(PyArray_DESCR(left));
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(left), nd + beside, dims,
                                          strides, PyArray_DATA(left), 0, NULL);
    PyObject *result = view == NULL ? NULL
        : loops_binary(loops, view, (PyObject *)right, PY_SSIZE_T_MAX);
    Py_XDECREF(view); /* it has no base: `left` outlives it */
    return result;
}

/* A method of NumPy's ufunc where all arguments are small arrays and plain values; NULL without an
   exception: Python does it. */
static PyObject *small_method(UfuncCore *self, PyObject *name, PyObject *const *args,
                              Py_ssize_t count, PyObject *names)
{
    PyObject *given[ARGUMENTS + 1] = {self->call};
    npy_intp size = 1;
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    int arrays = 0;
    if (count < 1 || all > ARGUMENTS || self->call == NULL || self->compute != self->call ||
        self->nout == NULL || !PyLong_Check(self->nout) || PyLong_AsLong(self->nout) != 1) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < all; at++) {
        given[at + 1] = args[at];
        if (IS_ARRAY(args[at]) && at < count) { /* a part of a block may not be written so */
            given[at + 1] = IS_DIRECT(args[at]) || name != name_at ? small_values(args[at]) : NULL;
            if (given[at + 1] == NULL) {
                return NULL;
            }
            size *= PyArray_SIZE((PyArrayObject *)given[at + 1]);
            arrays++;
        }
        else if (at == 0 || !is_of(hooks.simple, args[at])) {
            return NULL;
        }
    }
    if (name == name_outer && (count != 2 || size >= eager_below())) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at <= all; at++) {
        Py_INCREF(given[at]);
    }
    PyObject *result = name == name_outer && arrays == 2 && all == count
        ? outer_by_loop(self, (PyArrayObject *)given[1], (PyArrayObject *)given[2]) : NULL;
    if (result == NULL && !PyErr_Occurred()) {
        result = PyObject_VectorcallMethod(name, given, (size_t)count + 1, names);
    }
    for (Py_ssize_t at = 0; at <= all; at++) {
        Py_DECREF(given[at]);
    }
    return wrapped(result);
}

static PyObject *method(PyObject *x, PyObject *name, PyObject *fallback, PyObject *const *args,
                        Py_ssize_t count, PyObject *names)
{
    PyObject *result = hooks.simple == NULL ? NULL
        : small_method((UfuncCore *)x, name, args, count, names);
    if (result != NULL || PyErr_Occurred()) {
        return result;
    }
    return called_generally(x, fallback, args, count, names);
}

#define METHOD(which)                                                                              \
    static PyObject *ufunc_##which(PyObject *x, PyObject *const *args, Py_ssize_t count,           \
                                   PyObject *names)                                                \
    {                                                                                              \
        return method(x, name_##which, name_general_##which, args, count, names);                  \
    }
METHOD(accumulate)
METHOD(at)
METHOD(outer)
METHOD(reduceat)

#define METHOD_ROW(which)                                                                          \
    {#which, (PyCFunction)(void (*)(void))ufunc_##which, METH_FASTCALL | METH_KEYWORDS,            \
     #which "($self, /, *args, **kwargs)\n--\n\nAs `numpy.ufunc." #which "`."}

static PyMethodDef ufunc_methods[] = {
    METHOD_ROW(accumulate), METHOD_ROW(at), METHOD_ROW(outer), METHOD_ROW(reduceat),
    {NULL, NULL, 0, NULL},
};

static PyObject *ufunc_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                           PyObject *Py_UNUSED(kwargs))
{
    UfuncCore *self = (UfuncCore *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = called;
    }
    return (PyObject *)self;
}

static int ufunc_traverse(PyObject *x, visitproc visit, void *arg)
{
    UfuncCore *self = (UfuncCore *)x;
    Py_VISIT(self->call);
    Py_VISIT(self->compute);
    Py_VISIT(self->reduction);
    Py_VISIT(self->rows);
    if (self->loops != NULL) {
        Py_VISIT(self->loops->ufunc); /* numpy.frompyfunc holds its function */
    }
    return 0;
}

static int ufunc_clear(PyObject *x)
{
    UfuncCore *self = (UfuncCore *)x;
    Py_CLEAR(self->call);
    Py_CLEAR(self->compute);
    Py_CLEAR(self->reduction);
    Py_CLEAR(self->rows);
    return 0;
}

static void ufunc_dealloc(PyObject *x)
{
    UfuncCore *self = (UfuncCore *)x;
    PyObject_GC_UnTrack(x);
    ufunc_clear(x);
    Py_CLEAR(self->beside);
    Py_CLEAR(self->nin);
    Py_CLEAR(self->nout);
    loops_free(self->loops);
    Py_TYPE(x)->tp_free(x);
}

#define SLOT(name, field) {name, T_OBJECT_EX, offsetof(UfuncCore, field), 0, NULL}

static PyMemberDef ufunc_members[] = {
    SLOT("_takes_weak", beside), SLOT("_call", call), SLOT("_compute", compute),
    SLOT("_reduction", reduction), SLOT("_rows", rows), SLOT("nin", nin), SLOT("nout", nout),
    {NULL},
};

PyTypeObject UfuncCoreType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.UfuncCore",
    .tp_doc = "A ufunc: what it calls, and the calls that are quick.",
    .tp_basicsize = sizeof(UfuncCore),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(UfuncCore, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = ufunc_new,
    .tp_dealloc = ufunc_dealloc,
    .tp_traverse = ufunc_traverse,
    .tp_clear = ufunc_clear,
    .tp_free = PyObject_GC_Del,
    .tp_members = ufunc_members,
    .tp_methods = ufunc_methods,
};

PyObject *ufunc_adopt(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyTypeObject *type = (PyTypeObject *)given;
    if (!PyType_Check(given) || !PyType_IsSubtype(type, &UfuncCoreType)) {
        PyErr_SetString(PyExc_TypeError, "adopt_ufunc: expected a class on UfuncCore");
        return NULL;
    }
    /* Python 3.11 does not let classes inherit this */
    type->tp_vectorcall_offset = offsetof(UfuncCore, vectorcall);
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    type->tp_call = PyVectorcall_Call;
    PyType_Modified(type);
    Py_RETURN_NONE;
}
