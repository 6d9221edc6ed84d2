/* Pending nodes by NumPy's own loops, without a plan: a structure that is fresh, and was run so
   before (runtime/scheduling/fresh.py), or the first of a process. What only one operation reads is
   never stored: the operations go block by block, as expressions do. */

#include "expressions.h"

#include <math.h>

enum { NODES = 64 };

/* The position of a node in the order. */
static Py_ssize_t place_of(const Table *table, PyObject *node)
{
    return table->entries[entry_place(table, node)].index;
}

/* NumPy's loops of an op definition (borrowed); NULL without an exception: it has none. */
static Loops *loops_of_op(PyObject *op)
{
    static PyObject *known; /* by op: those that were asked for, in capsules */
    if (known == NULL && (known = PyDict_New()) == NULL) {
        return NULL;
    }
    PyObject *key = PyLong_FromVoidPtr(op); /* rows of the op table stay */
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(known, key);
    if (found == NULL && key != NULL && !PyErr_Occurred()) {
        PyObject *ufunc = PyObject_GetAttr(op, name_ufunc);
        Loops *loops = ufunc == NULL || ufunc == Py_None ? NULL : loops_new(ufunc);
        PyObject *made = PyErr_Occurred() ? NULL
            : loops == NULL ? Py_NewRef(Py_None) : PyCapsule_New(loops, NULL, NULL);
        if (made != NULL && PyDict_SetItem(known, key, made) == 0) {
            found = made; /* the table has it */
        }
        Py_XDECREF(made);
        Py_XDECREF(ufunc);
    }
    Py_XDECREF(key);
    return found == NULL || found == Py_None ? NULL : PyCapsule_GetPointer(found, NULL);
}

/* An array of no axes as the number that operations take (new). Steals it, which may be NULL. */
static PyObject *number_of(PyObject *value)
{
    PyArrayObject *array = (PyArrayObject *)value;
    PyObject *number = value == NULL ? NULL
        : PyArray_Scalar(PyArray_DATA(array), PyArray_DESCR(array), value);
    Py_XDECREF(value);
    return number;
}

/* A node that has its values, as an operand (new); NULL without an exception: not so plain. */
static PyObject *value_of(PyObject *node)
{
    PyArrayObject *value = (PyArrayObject *)NODE(node, value);
    if (NODE(node, resident) != Py_None || !IS_REAL(value) || plain_type(value) < 0) {
        return NULL;
    }
    return PyArray_NDIM(value) == 0 ? number_of(Py_NewRef(value)) : Py_NewRef(value);
}

/* A part of a value that lies in C order (new); NULL as above. */
static PyObject *view_of(PyObject *layout, PyObject *of)
{
    if (!IS_REAL(of) || !IS_LAYOUT(layout) || !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)of)) {
        return NULL;
    }
    PyArrayObject *whole = (PyArrayObject *)of;
    PyObject *shape = PyTuple_GET_ITEM(layout, LAYOUT_SHAPE);
    PyObject *strides = PyTuple_GET_ITEM(layout, LAYOUT_STRIDES);
    npy_intp dims[RANK], steps[RANK], item = PyArray_ITEMSIZE(whole);
    Py_ssize_t nd = PyTuple_GET_SIZE(shape);
    for (Py_ssize_t axis = 0; axis < nd && nd <= RANK; axis++) {
        dims[axis] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis));
        steps[axis] = item * PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, axis));
    }
    npy_intp offset = PyLong_AsSsize_t(PyTuple_GET_ITEM(layout, LAYOUT_OFFSET));
    if (PyErr_Occurred() || nd > RANK) {
        return NULL;
    }
    PyObject *part = make_view(whole, (int)nd, dims, steps, PyArray_BYTES(whole) + offset * item);
    return nd == 0 ? number_of(part) : part;
}

/* The operation of a node on its operands: an expression (new); NULL as above. */
static PyObject *operation_of(PyObject *node, PyObject *const *given, Py_ssize_t count)
{
    Loops *loops = count == 1 || count == 2 ? loops_of_op(NODE(node, op)) : NULL;
    PyObject *dtype = NODE(node, dtype), *made = NULL;
    if (loops != NULL && PyArray_DescrCheck(dtype)) {
        made = expression_of(loops, given[0], count == 2 ? given[1] : NULL);
    }
    if (made != NULL && expression_type(made) != ((PyArray_Descr *)dtype)->type_num) {
        Py_CLEAR(made);
    }
    return made;
}

/* The array of an expression in its place; 0: NumPy has something to say of it, -1: an error. */
static int settle(PyObject **value)
{
    int flags = 0;
    if (IS_SUBEXPRESSION(*value)) {
        Py_SETREF(*value, expression_array(*value, &flags));
    }
    return *value == NULL ? -1 : !are_minded(flags);
}

/* Whether a node of one operand reduces it by a loop of two: `reduction_of` may do it. */
static int reduces(PyObject *node)
{
    PyObject *arg = NODE(node, arg);
    Loops *loops = !PyTuple_Check(arg) || PyTuple_GET_SIZE(arg) != REDUCED_FIELDS
        ? NULL : loops_of_op(NODE(node, op));
    return loops != NULL && loops->ufunc->nin == 2;
}

/* The reduction of a node along one axis or all (new); NULL as above. */
static PyObject *reduction_of(PyObject *node, PyObject *value)
{
    if (!IS_REAL(value)) {
        return NULL;
    }
    PyArrayObject *of = (PyArrayObject *)value;
    Loops *loops = loops_of_op(NODE(node, op));
    PyObject *arg = NODE(node, arg);
    PyObject *axes = PyTuple_GET_ITEM(arg, REDUCED_AXES), *dtype = (PyObject *)PyArray_DESCR(of);
    int is_whole = PyTuple_GET_SIZE(axes) == PyArray_NDIM(of);
    int keeps = PyTuple_GET_ITEM(arg, REDUCED_KEEPS) == Py_True;
    if (is_whole && !keeps && PyArray_TYPE(of) == NPY_BOOL &&
        NODE(node, dtype) == (PyObject *)descriptors[NPY_LONG] &&
        loops->reduces == SUMS) {
        PyArrayObject *number = new_array(NPY_LONG, 0, NULL, 0);
        if (number != NULL) {
            *(npy_long *)PyArray_DATA(number) = (npy_long)PyArray_CountNonzero(of);
        }
        return (PyObject *)number;
    }
    if (NODE(node, dtype) != dtype || PyTuple_GET_ITEM(arg, REDUCED_DTYPE) != dtype ||
        (!is_whole && PyTuple_GET_SIZE(axes) != 1)) {
        return NULL;
    }
    int along = is_whole ? -1 : (int)PyLong_AsLong(PyTuple_GET_ITEM(axes, 0));
    return (PyObject *)loops_reduced(loops, of, along, keeps);
}

/* Any other node by NumPy (new): as `fresh.one`; NULL as above. */
static PyObject *by_numpy(PyObject *node, const Table *table, PyObject **values)
{
    PyObject *src = NODE(node, src), *given = PyList_New(0), *found = NULL;
    int fine = given == NULL ? -1 : 1;
    for (Py_ssize_t k = 0; fine > 0 && k < PyTuple_GET_SIZE(src); k++) {
        PyObject *source = PyTuple_GET_ITEM(src, k);
        PyObject **value = &values[place_of(table, source)];
        fine = settle(value);
        PyObject *array = fine <= 0 ? NULL
            : NODE(source, value) != Py_None ? Py_NewRef(NODE(source, value))
            : PyArray_CheckAnyScalarExact(*value) ? PyArray_FromScalar(*value, NULL)
            : Py_NewRef(*value);
        if (fine > 0 && (array == NULL || PyList_Append(given, array) < 0)) {
            fine = -1;
        }
        Py_XDECREF(array);
    }
    if (fine > 0) {
        found = PyObject_CallFunctionObjArgs(hooks.plain_node, node, given, NULL);
    }
    Py_XDECREF(given);
    if (found != NULL && !IS_REAL(found)) {
        Py_CLEAR(found);
    }
    return found;
}

/* What a view reads gets a value. */
static void keep_below(PyObject *view, const Table *table, char *stored)
{
    PyObject *node = view;
    while (NODE(node, op) == hooks.view_op && NODE(node, value) == Py_None) {
        node = PyTuple_GET_ITEM(NODE(node, src), 0);
    }
    stored[place_of(table, node)] |= NODE(node, value) == Py_None;
}

/* The work of the operations in additions, apart from those that `fresh.one` is asked for; -1: an
   error. */
static double work_of(PyObject *order)
{
    double work = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(order); at++) {
        PyObject *node = PyList_GET_ITEM(order, at), *shape = NODE(node, shape);
        if (NODE(node, value) != Py_None || NODE(node, op) == hooks.view_op) {
            continue;
        }
        PyObject *cost = PyObject_GetAttr(NODE(node, op), name_cost);
        double size = cost == NULL ? -1 : PyFloat_AsDouble(cost);
        Py_XDECREF(cost);
        for (Py_ssize_t axis = 0; axis < PyTuple_GET_SIZE(shape); axis++) {
            size *= (double)PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis));
        }
        work += size;
    }
    return PyErr_Occurred() ? -1 : work;
}

/* What nodes are, in their order; `stored`: those that get a value. 1: all of them, 0: NumPy does
   it in another way, -1: an error. */
static int evaluate_all(PyObject *order, const Table *table, PyObject **values, char *stored)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(order); at++) {
        PyObject *node = PyList_GET_ITEM(order, at), *src = NODE(node, src), *given[2];
        const Entry *entry = &table->entries[entry_place(table, node)];
        if (NODE(node, value) != Py_None) {
            if ((values[at] = value_of(node)) == NULL) {
                return PyErr_Occurred() ? -1 : 0;
            }
            continue;
        }
        Py_ssize_t count = PyTuple_CheckExact(src) ? PyTuple_GET_SIZE(src) : 0;
        int is_view = NODE(node, op) == hooks.view_op, is_turned = NODE(node, perm) != Py_None;
        if (count < 1 || NODE(node, resident) != Py_None ||
            (is_view && is_turned && entry->root)) {
            return 0;
        }
        for (Py_ssize_t k = 0; k < count && count <= 2; k++) {
            PyObject *source = PyTuple_GET_ITEM(src, k);
            given[k] = values[place_of(table, source)];
        }
        int is_held = entry->root || is_held_beyond(node, entry->edges + 1);
        if (is_view) {
            PyObject **of = &values[place_of(table, PyTuple_GET_ITEM(src, 0))];
            values[at] = settle(of) > 0 ? view_of(NODE(node, arg), *of) : NULL;
            if (entry->root && values[at] != NULL) { /* its memory is its own */
                Py_SETREF(values[at], IS_REAL(values[at])
                    ? copy_of((PyArrayObject *)values[at]) : NULL);
            }
            if (is_held && !entry->root) { /* it stays pending, on a value that is there */
                keep_below(node, table, stored);
                is_held = 0;
            }
        }
        else {
            values[at] = is_turned ? NULL : operation_of(node, given, count);
            if (values[at] == NULL && !PyErr_Occurred() && !is_turned && count == 1 &&
                reduces(node)) {
                PyObject **of = &values[place_of(table, PyTuple_GET_ITEM(src, 0))];
                int fine = settle(of); /* once: an array that is there tells of no flag again */
                if (fine <= 0) {
                    return fine;
                }
                values[at] = reduction_of(node, *of);
            }
            if (values[at] == NULL && !PyErr_Occurred()) {
                values[at] = by_numpy(node, table, values);
            }
        }
        if (values[at] == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        int ends = is_held || entry->edges > 1 ||
            (IS_SUBEXPRESSION(values[at]) && expression_length(values[at]) >= MOST);
        int fine = ends ? settle(&values[at]) : 1;
        if (fine <= 0) {
            return fine;
        }
        stored[at] = (char)is_held;
    }
    return 1;
}

int plain_run(PyObject *roots, double most)
{
    Table table;
    Stack stack = {NULL, 0, 0};
    PyObject *values[NODES] = {NULL};
    char stored[NODES] = {0};
    PyObject *order = PyList_Check(roots) ? PyList_New(0) : NULL, *none = PyTuple_New(0);
    table_begin(&table);
    double work = order == NULL || none == NULL || order_nodes(roots, order, &table, &stack) < 0
        ? -1 : most == HUGE_VAL ? 0 : work_of(order);
    int done = work < 0 ? -1 : PyList_GET_SIZE(order) <= NODES && work < most;
    PyMem_Free(stack.items);
    if (done > 0) {
        done = evaluate_all(order, &table, values, stored);
    }
    table_end(&table);
    for (Py_ssize_t at = 0; done > 0 && at < PyList_GET_SIZE(order); at++) {
        PyObject *node = PyList_GET_ITEM(order, at);
        if (stored[at]) {
            Py_SETREF(NODE(node, value), Py_NewRef(values[at]));
            Py_SETREF(NODE(node, src), Py_NewRef(none));
        }
    }
    for (int at = 0; at < NODES; at++) {
        Py_XDECREF(values[at]);
    }
    Py_XDECREF(order);
    Py_XDECREF(none);
    return done;
}
