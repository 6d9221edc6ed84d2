/* Calls of NumPy's functions and methods at once: on eager arrays, plain values, and lists of
   both. eager_functions.py says which objects are plain; without C, NumPy's functions are called by
   what Python has for all arguments. */

#include "quick.h"

#include <string.h>

#define LONGEST 64   /* items of a list of arrays that C looks at one by one */
#define NUMBERS 1024 /* the same of numbers and lists */
#define PATIENCE 512  /* calls without a program after which a function is asked seldom */
#define BRIEF (1 << 17)  /* elements of a reduction for which Python's lock is kept */

/* Whether an argument is plain: a value, a dtype, or a tuple of numbers and None. */
static int is_simple(PyObject *value)
{
    if (PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyBool_Check(value) ||
        value == Py_None || PyUnicode_CheckExact(value)) {
        return 1;
    }
    if (PyTuple_CheckExact(value)) {
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(value); at++) {
            PyObject *item = PyTuple_GET_ITEM(value, at);
            if (!PyLong_CheckExact(item) && !PyFloat_CheckExact(item) && item != Py_None) {
                return 0;
            }
        }
        return 1;
    }
    return is_of(hooks.simple, value);
}

/* Whether the call was refused for its arguments, not by Python code that it had begun to run. The
   exception is gone then. */
static int is_refused(void)
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
        return 0;
    }
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    if (trace != NULL) {
        PyErr_Restore(kind, value, trace);
        return 0;
    }
    Py_XDECREF(kind);
    Py_XDECREF(value);
    return 1;
}

/* A result of any kind, wrapped; `reals` are the NumPy arrays of the operands `ours`. */
static PyObject *adopted(PyObject *result, PyObject *reals, PyObject *ours)
{
    PyObject *found = NULL;
    if (result != NULL && reals != NULL && ours != NULL) {
        found = PyObject_CallFunctionObjArgs(hooks.adopted, result, reals, ours, NULL);
    }
    Py_XDECREF(result);
    Py_XDECREF(reals);
    Py_XDECREF(ours);
    return found;
}

/* Whether a reduction is given no more than an axis (none: all) and keepdims, plain ones. */
static int is_plain(PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **axis,
                    PyObject **keepdims)
{
    *axis = count > 1 ? args[1] : Py_None;
    *keepdims = Py_False;
    if (count > 2) {
        return 0;
    }
    for (Py_ssize_t at = 0; names != NULL && at < PyTuple_GET_SIZE(names); at++) {
        PyObject *name = PyTuple_GET_ITEM(names, at), *value = args[count + at];
        if (name == name_axis && count == 1) {
            *axis = value;
        }
        else if (name == name_keepdims) {
            *keepdims = value;
        }
        else {
            return 0;
        }
    }
    return PyBool_Check(*keepdims) && (*axis == Py_None || PyLong_CheckExact(*axis));
}

/* A reduction that does not go through NumPy's call. */
static PyObject *reduced(
    Quick *self, PyArrayObject *small, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *axis, *keepdims;
    if (!is_plain(args, count, names, &axis, &keepdims)) {
        return NULL;
    }
    int along = -1;
    if (axis != Py_None) {
        long found = PyLong_AsLong(axis);
        if (found == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return NULL;
        }
        int nd = PyArray_NDIM(small);
        found += found < 0 ? nd : 0;
        if (found < 0 || found >= nd) {
            return NULL;
        }
        along = (int)found;
    }
    return loops_reduce(self->reduction, small, along, keepdims == Py_True);
}

/* The reduction of concrete values, in NumPy at once; NULL without an exception: Python
   does it. */
static PyObject *reduced_now(
    Quick *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject *given[MOST_ARGUMENTS + 1], *result = NULL;
    if (self->reduction < 0 || count < 1 || count > 2 || count + named > 3 || !IS_ARRAY(args[0]) ||
        EAGER(args[0]) != Py_None) {
        return NULL;
    }
    for (Py_ssize_t at = 1; at < count + named; at++) {
        PyObject *name = at < count ? name_axis : PyTuple_GET_ITEM(names, at - count);
        if ((name != name_axis && name != name_keepdims) || !is_simple(args[at])) {
            PyErr_Clear();
            return NULL;
        }
    }
    PyObject *value = exported_reduction(self->reduction, self->theirs, args[0]);
    if (value == NULL) {
        return NULL;
    }
    if (PyArray_SIZE((PyArrayObject *)value) < BRIEF) {
        result = reduced(self, (PyArrayObject *)value, args, count, names);
    }
    if (result == NULL && !PyErr_Occurred()) {
        given[0] = value;
        memcpy(given + 1, args + 1, (size_t)(count + named - 1) * sizeof(PyObject *));
        result = PyObject_Vectorcall(self->theirs, given, (size_t)count, names);
    }
    Py_DECREF(value);
    if (result == NULL) {
        (void)is_refused(); /* the user gets NumPy's words */
        return NULL;
    }
    return IS_REAL(result) ? wrapped(result) : result;
}

/* Whether a view that NumPy made of a part has the elements of that part. */
static int is_of_part(PyObject *view, PyObject *part)
{
    return PyArray_DESCR((PyArrayObject *)view) == PyArray_DESCR((PyArrayObject *)part) &&
           PyArray_SIZE((PyArrayObject *)view) <= PyArray_SIZE((PyArrayObject *)part);
}

/* NumPy's view of the values `small` of an array, as a view of that array (new); NULL without an
   exception: Python does it. */
static PyObject *view_of_one(PyObject *x, PyObject *small, PyObject *result)
{
    if (!IS_ARRAY(x) || !IS_REAL(result) || result == small || values_of(x) != small) {
        return NULL;
    }
    PyObject *base = PyArray_BASE((PyArrayObject *)result);
    if (base != small && base != PyArray_BASE((PyArrayObject *)small)) {
        return NULL;
    }
    if (IS_DIRECT(x)) {
        return direct_over(Py_NewRef(result), base_of((Core *)x),
                           may_grow((PyArrayObject *)result));
    }
    return is_of_part(result, small) ? part_over((Core *)x, Py_NewRef(result)) : NULL;
}

/* Whether NumPy may have given views of its arguments: what it gave are no new arrays alone. */
static int has_views(PyObject *result)
{
    if (IS_REAL(result)) {
        return !has_own_memory(result);
    }
    if (!PyTuple_CheckExact(result)) {
        return !is_number(result) && result != Py_None;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(result); at++) {
        if (has_views(PyTuple_GET_ITEM(result, at))) {
            return 1;
        }
    }
    return 0;
}

/* One argument as NumPy takes it (new); NULL without an exception: it is not plain. */
static PyObject *plain_value(PyObject *value, int *counts)
{
    if (!IS_ARRAY(value)) {
        return is_simple(value) ? Py_NewRef(value) : NULL;
    }
    *counts |= EAGER(value) == Py_None;
    return value_there(value);
}

/* A call on small arrays by its program (new); NULL without an exception: NumPy does it. A function
   whose calls get none is asked seldom: views, for example. */
static PyObject *by_program(Quick *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    enum { SELDOM = 16, REFUSED = 8 };
    if (self->writes || (self->declined > PATIENCE && ++self->declined % SELDOM != 0)) {
        return NULL;
    }
    int has_none = 0;
    PyObject *found = step_small(self->ours, self->theirs, args, count, names, &has_none);
    self->declined = found != NULL ? 0
        : self->declined > PATIENCE ? PATIENCE + 1 : self->declined + (has_none ? REFUSED : 1);
    return found;
}

/* Of a method, or a function of one array that a method serves. */
static PyObject *of_first(
    Quick *self, PyObject *const *args, Py_ssize_t count, PyObject *names, size_t flags)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count < 1 || count + named > MOST_ARGUMENTS ||
        (self->kind == FIRST && count > self->most) ||
        !IS_ARRAY(args[0]) || values_of(args[0]) == NULL) {
        PyObject *found = reduced_now(self, args, count, names);
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
        goto ours;
    }
    for (Py_ssize_t at = 0; at < named && self->kind == FIRST; at++) {
        int known = PySet_Contains(self->keywords, PyTuple_GET_ITEM(names, at));
        if (known <= 0) {
            PyErr_Clear();
            goto ours;
        }
    }
    for (Py_ssize_t at = 1; at < count + named; at++) {
        if (!is_simple(args[at])) {
            goto ours;
        }
    }
    PyObject *small = values_of(args[0]), *result = NULL;
    if (small == NULL || (self->writes && !IS_DIRECT(args[0]))) {
        goto ours;
    }
    Py_INCREF(small);
    if (self->reduction >= 0) {
        result = reduced(self, (PyArrayObject *)small, args, count, names);
    }
    else if (self->is_copy && count == 1 && named == 0) {
        result = copy_of((PyArrayObject *)small);
    }
    if (result == NULL && !PyErr_Occurred()) {
        PyObject *done = by_program(self, args, count, names);
        if (done != NULL || PyErr_Occurred()) {
            Py_DECREF(small);
            return done;
        }
    }
    if (result == NULL && !PyErr_Occurred()) {
        PyObject *given[MOST_ARGUMENTS + 1];
        given[0] = small;
        memcpy(given + 1, args + 1, (size_t)(count + named - 1) * sizeof(PyObject *));
        result = PyObject_Vectorcall(self->theirs, given, (size_t)count, names);
    }
    if (result == NULL) {
        Py_DECREF(small);
        if (is_refused()) {
            goto ours; /* the user gets NumPy's words */
        }
        return NULL;
    }
    if (IS_REAL(result)) {
        PyObject *base = PyArray_BASE((PyArrayObject *)result), *found;
        if (base == NULL && result != small) {
            Py_DECREF(small);
            return wrapped(result);
        }
        if (result != small && (base == small || base == PyArray_BASE((PyArrayObject *)small))) {
            found = view_of_one(args[0], small, result);
            Py_DECREF(result);
        }
        else {
            found = adopted(result, Py_BuildValue("[O]", small), Py_BuildValue("[O]", args[0]));
        }
        Py_DECREF(small);
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
        goto ours;
    }
    Py_DECREF(small);
    if (!PyTuple_CheckExact(result)) {
        return result;
    }
    if (IS_DIRECT(args[0]) || !has_views(result)) {
        return wrapped(result);
    }
    Py_DECREF(result);
ours:
    return step_function(self->ours, self->theirs, args, flags, names, 0);
}

/* The NumPy array of a lazyfuse operand; NULL without an exception: Python does it. */
static PyObject *operand_of(Quick *self, PyObject *x)
{
    if ((self->spreads && MAY_GROW(x)) || (self->writes && !IS_DIRECT(x))) {
        return NULL;
    }
    return values_of(x);
}

/* A list with NumPy arrays in place of lazyfuse's; NULL if it holds other objects. */
static PyObject *items_of(Quick *self, PyObject *values, int *arrays, int *parts)
{
    int is_list = PyList_CheckExact(values);
    Py_ssize_t count = PySequence_Fast_GET_SIZE(values);
    PyObject *found = count > LONGEST ? NULL : is_list ? PyList_New(count) : PyTuple_New(count);
    for (Py_ssize_t at = 0; found != NULL && at < count; at++) {
        if (PySequence_Fast_GET_SIZE(values) != count) { /* the collector ran the user's code */
            Py_CLEAR(found);
            break;
        }
        PyObject *value = PySequence_Fast_GET_ITEM(values, at);
        if (IS_ARRAY(value)) {
            *parts += !IS_DIRECT(value);
            value = operand_of(self, value);
            ++*arrays;
        }
        else if (PyTuple_CheckExact(value) || !is_simple(value)) {
            value = NULL;
        }
        if (value == NULL) {
            Py_CLEAR(found);
            break;
        }
        if (is_list) {
            PyList_SET_ITEM(found, at, Py_NewRef(value));
        }
        else {
            PyTuple_SET_ITEM(found, at, Py_NewRef(value));
        }
    }
    return found;
}

/* The arrays among the arguments: lazyfuse's, or the NumPy arrays behind them. */
static PyObject *arrays_of(PyObject *const *args, Py_ssize_t count, int real)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t at = 0; list != NULL && at < count; at++) {
        PyObject *each = args[at];
        int many = PyList_CheckExact(each) || PyTuple_CheckExact(each);
        Py_ssize_t length = many ? PySequence_Fast_GET_SIZE(each) : 1;
        for (Py_ssize_t to = 0; list != NULL && to < length; to++) {
            PyObject *x = many ? PySequence_Fast_GET_ITEM(each, to) : each;
            if (IS_ARRAY(x) && IS_DIRECT(x) && PyList_Append(list, real ? EAGER(x) : x) < 0) {
                Py_CLEAR(list);
            }
        }
    }
    return list;
}

/* Whether a device is named: lazyfuse's arrays may lie on devices that NumPy lacks. */
static int names_device(PyObject *names)
{
    for (Py_ssize_t at = 0; names != NULL && at < PyTuple_GET_SIZE(names); at++) {
        PyObject *name = PyTuple_GET_ITEM(names, at);
        if (name == name_device || PyUnicode_Compare(name, name_device) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Of any number of arrays, and of lists of them. */
static PyObject *of_any(
    Quick *self, PyObject *const *args, Py_ssize_t count, PyObject *names, size_t flags)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names), made = 0;
    PyObject *given[MOST_ARGUMENTS], *result = NULL;
    int arrays = 0, parts = 0, is_view = 0;
    int quick = count <= self->most && count + named <= MOST_ARGUMENTS && !names_device(names);
    for (Py_ssize_t at = 0; quick && at < count + named; at++) {
        PyObject *value = args[at], *real = NULL;
        if (at < count && IS_ARRAY(value)) {
            real = Py_XNewRef(operand_of(self, value));
            parts += !IS_DIRECT(value);
            arrays++;
        }
        else if (at < count && (PyList_CheckExact(value) || PyTuple_CheckExact(value))) {
            real = items_of(self, value, &arrays, &parts);
        }
        else if (is_simple(value)) {
            real = Py_NewRef(value);
        }
        quick = real != NULL;
        if (quick) {
            given[made++] = real;
        }
    }
    if (quick && arrays > 0) {
        if (parts == 0 && (result = by_program(self, args, count, names)) != NULL) {
            while (made > 0) {
                Py_DECREF(given[--made]);
            }
            return result;
        }
        if (result == NULL && !PyErr_Occurred()) {
            result = PyObject_Vectorcall(self->theirs, given, (size_t)count, names);
        }
        quick = result != NULL || !is_refused();
        if (result != NULL && has_views(result) && (parts > 0 || self->views)) {
            PyObject *view = arrays == 1 ? view_of_one(args[0], given[0], result) : NULL;
            if (view != NULL || PyErr_Occurred()) {
                Py_SETREF(result, view);
                while (made > 0) {
                    Py_DECREF(given[--made]);
                }
                return result;
            }
            if (parts > 0) {
                Py_CLEAR(result);
                quick = 0;
            }
            else {
                is_view = 1;
            }
        }
    }
    else {
        quick = 0;
    }
    while (made > 0) {
        Py_DECREF(given[--made]);
    }
    if (!quick) {
        if (PyErr_Occurred()) {
            PyErr_Clear();
        }
        return step_function(self->ours, self->theirs, args, flags, names, 0);
    }
    if (is_view) {
        return adopted(result, arrays_of(args, count, 1), arrays_of(args, count, 0));
    }
    if (result == NULL || IS_REAL(result) || PyTuple_CheckExact(result)) {
        return wrapped(result);
    }
    if (is_number(result) || result == Py_None) {
        return result;
    }
    return adopted(result, arrays_of(args, count, 1), arrays_of(args, count, 0));
}

/* call_plainly(function, name, args, kwargs): what NumPy's function gives for arrays whose values
   exist and plain values, as fallback.run: (result, whether it is wrapped). None: not called, since
   an argument is something else. */
PyObject *call_plainly(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    PyObject *given[MOST_ARGUMENTS], *found = NULL, *names = NULL;
    if (count != 4 || !PyTuple_CheckExact(args[2]) || !PyDict_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError, "call_plainly: expected a function, name, args, kwargs");
        return NULL;
    }
    Py_ssize_t first = PyTuple_GET_SIZE(args[2]), named = PyDict_GET_SIZE(args[3]), made = 0, at = 0;
    int counts = 0, plain = first + named <= MOST_ARGUMENTS;
    PyObject *key, *value;
    for (; plain && made < first; made += plain) {
        given[made] = plain_value(PyTuple_GET_ITEM(args[2], made), &counts);
        plain = given[made] != NULL;
    }
    if (plain && named > 0 && (names = PyTuple_New(named)) == NULL) {
        plain = 0;
    }
    for (Py_ssize_t to = 0; plain && PyDict_Next(args[3], &at, &key, &value); to += plain) {
        int written = IS_ARRAY(value) || PyUnicode_CompareWithASCIIString(key, "like") == 0;
        given[made] = written ? NULL : plain_value(value, &counts);
        plain = given[made] != NULL;
        if (plain) {
            PyTuple_SET_ITEM(names, to, Py_NewRef(key));
            made++;
        }
    }
    if (plain) {
        PyObject *result = PyObject_Vectorcall(args[0], given, (size_t)first, names);
        if (result != NULL && counts) {
            count_run(args[1]);
        }
        int wraps = result != NULL && (!PyTuple_Check(result) || PyTuple_CheckExact(result))
            && !has_views(result);
        result = wraps ? wrapped(result) : result;
        found = result == NULL ? NULL : PyTuple_Pack(2, result, wraps ? Py_True : Py_False);
        Py_XDECREF(result);
    }
    while (made > 0) {
        Py_DECREF(given[--made]);
    }
    Py_XDECREF(names);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* Elements of an array of a plain shape; -1: Python does it. */
static Py_ssize_t elements(PyObject *shape)
{
    int tuple = PyTuple_CheckExact(shape);
    Py_ssize_t count = tuple ? PyTuple_GET_SIZE(shape) : 1, size = 1, limit = eager_below();
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *part = tuple ? PyTuple_GET_ITEM(shape, at) : shape;
        Py_ssize_t length = PyLong_CheckExact(part) ? PyLong_AsSsize_t(part) : -1;
        if (length < 0 || (length > 0 && size > limit / length)) {
            PyErr_Clear();
            return -1;
        }
        size *= length;
    }
    return size;
}

/* Of a shape, and perhaps a number and a dtype: a small array at once. */
static PyObject *of_shape(
    Quick *self, PyObject *const *args, Py_ssize_t count, PyObject *names, size_t flags)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    Py_ssize_t size = count < 1 ? -1 : elements(args[0]);
    int quick = size >= 0 && size < eager_below();
    for (Py_ssize_t at = 1; quick && at < count + named; at++) {
        PyObject *name = at < count ? NULL : PyTuple_GET_ITEM(names, at - count);
        quick = (name == NULL || name == name_dtype || name == name_order) && is_simple(args[at]);
    }
    if (quick) {
        PyObject *result = PyObject_Vectorcall(self->theirs, args, (size_t)count, names);
        if (result != NULL || !is_refused()) {
            return wrapped(result);
        }
    }
    PyErr_Clear();
    return PyObject_Vectorcall(self->ours, args, flags, names);
}

/* Whether a list holds few plain numbers, or lists of them. */
static int holds_numbers(PyObject *list, int depth, Py_ssize_t *left)
{
    *left -= PyList_GET_SIZE(list);
    int plain = *left > 0;
    for (Py_ssize_t at = 0; plain && at < PyList_GET_SIZE(list); at++) {
        PyObject *item = PyList_GET_ITEM(list, at);
        plain = PyList_CheckExact(item) && depth > 0 ? holds_numbers(item, depth - 1, left)
                                                     : is_number(item);
    }
    return plain;
}

/* Of one short list of plain numbers, or one eager array: `array`. */
static PyObject *of_list(
    Quick *self, PyObject *const *args, Py_ssize_t count, PyObject *names, size_t flags)
{
    int is_lone = count == 1 && (names == NULL || PyTuple_GET_SIZE(names) == 0);
    PyObject *given = is_lone ? args[0] : NULL;
    PyObject *values = given != NULL && IS_ARRAY(given) ? values_of(given) : NULL;
    if (values != NULL) {
        Py_INCREF(values); /* NumPy may let other threads run */
        PyObject *copy = PyArray_NewCopy((PyArrayObject *)values, NPY_KEEPORDER);
        Py_DECREF(values);
        return wrapped(copy);
    }
    Py_ssize_t left = Py_MIN(NUMBERS, eager_below());
    int quick = given != NULL && PyList_CheckExact(given) && holds_numbers(given, 3, &left);
    return quick ? placed_as_is(PyObject_CallOneArg(self->theirs, given))
                 : PyObject_Vectorcall(self->ours, args, flags, names);
}

static PyObject *answer(Quick *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (self->kind == FOLLOWED) {
        int small = count > 0 && IS_ARRAY(args[0]) && IS_DIRECT(args[0]);
        PyObject *found = small ? by_program(self, args, count, names) : NULL;
        return found != NULL || PyErr_Occurred() ? found : step_function(self->ours, self->theirs, args, (size_t)count, names, 0);
    }
    if (self->kind == ANY) {
        return of_any(self, args, count, names, (size_t)count);
    }
    if (self->kind == LISTED) {
        return of_list(self, args, count, names, (size_t)count);
    }
    if (self->kind == CREATED) {
        return of_shape(self, args, count, names, (size_t)count);
    }
    return of_first(self, args, count, names, (size_t)count);
}

PyObject *quick_call(PyObject *x, PyObject *const *args, size_t flags, PyObject *names)
{
    Span span = span_open();
    PyObject *result = answer((Quick *)x, args, PyVectorcall_NARGS(flags), names);
    span_result(span, result, SPAN_FUNCTIONS);
    return LEAVE(result);
}
