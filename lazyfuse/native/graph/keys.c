/* The key of a pending graph, as linearize.py writes it, and what no other pending node reads. */

#include "graph.h"

static PyObject *zero, *one, *minus_one;

typedef struct {
    PyObject *sizes, *shapes, *layouts, *memories;
} Numbers;

/* `numbers.setdefault(key, len(numbers))`; a new reference. */
static PyObject *number_of(PyObject *numbers, PyObject *key)
{
    PyObject *found = PyDict_GetItemWithError(numbers, key);
    if (found != NULL) {
        return Py_NewRef(found);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    found = PyLong_FromSsize_t(PyDict_GET_SIZE(numbers));
    if (found != NULL && PyDict_SetItem(numbers, key, found) < 0) {
        Py_CLEAR(found);
    }
    return found;
}

/* The numbers of the sizes of a shape; a new reference. */
static PyObject *ids_of(Numbers *numbers, PyObject *shape)
{
    PyObject *found = PyDict_GetItemWithError(numbers->shapes, shape);
    if (found != NULL) {
        return Py_NewRef(found);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyTuple_Check(shape)) {
        PyErr_SetString(PyExc_TypeError, "linearize: expected a tuple as shape");
        return NULL;
    }
    found = PyTuple_New(PyTuple_GET_SIZE(shape));
    if (found == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++) {
        PyObject *number = number_of(numbers->sizes, PyTuple_GET_ITEM(shape, i));
        if (number == NULL) {
            Py_DECREF(found);
            return NULL;
        }
        PyTuple_SET_ITEM(found, i, number);
    }
    if (PyDict_SetItem(numbers->shapes, shape, found) < 0) {
        Py_CLEAR(found);
    }
    return found;
}

/* A tuple of items whose references it takes over; any of them may be NULL after an error. */
static PyObject *pack(Py_ssize_t count, PyObject **items)
{
    PyObject *made = NULL;
    int whole = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        whole = whole && items[i] != NULL;
    }
    if (whole) {
        made = PyTuple_New(count);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (made != NULL) {
            PyTuple_SET_ITEM(made, i, items[i]);
        }
        else {
            Py_XDECREF(items[i]);
        }
    }
    return made;
}

static PyObject *evaluated_key(Numbers *numbers, PyObject *node, PyObject *ids)
{
    PyObject *character = PyObject_GetAttr(NODE(node, dtype), name_char);
    if (NODE(node, op) == hooks.scalar_op) {
        PyObject *items[2] = {Py_NewRef(zero), character};
        return pack(2, items);
    }
    PyObject *arg = NODE(node, arg), *place = NULL;
    int is_memory = PyObject_TypeCheck(arg, (PyTypeObject *)hooks.memory);
    PyObject *identity = PyLong_FromVoidPtr(is_memory ? arg : node);
    if (identity != NULL) {
        place = number_of(numbers->memories, identity);
        Py_DECREF(identity);
    }
    PyObject *items[5] = {
        Py_NewRef(one), character, Py_NewRef(ids), Py_NewRef(NODE(node, perm)), place,
    };
    return pack(5, items);
}

/* As `_arrangement`, which is asked once per layout, shape and order; a new reference. */
static PyObject *arrangement_of(PyObject *node, PyObject *layout)
{
    PyObject *src = NODE(node, src), *key, *found;
    if (PyTuple_GET_SIZE(src) == 0 || !IS_NODE(PyTuple_GET_ITEM(src, 0))) {
        return PyObject_CallOneArg(hooks.arrangement, node);
    }
    PyObject *base = PyTuple_GET_ITEM(src, 0);
    key = PyTuple_Pack(4, NODE(node, op), layout, NODE(base, shape), NODE(base, perm));
    found = key ? PyDict_GetItemWithError(hooks.arranged, key) : NULL;
    if (found != NULL) {
        Py_INCREF(found);
    }
    else if (!PyErr_Occurred() && (found = PyObject_CallOneArg(hooks.arrangement, node)) != NULL) {
        if (PyObject_SetItem(hooks.arranged, key, found) < 0) {
            Py_CLEAR(found);
        }
    }
    Py_XDECREF(key);
    return found;
}

/* The part of a pending node's argument that the key has; a new reference. */
static PyObject *argument_key(Numbers *numbers, PyObject *node)
{
    PyObject *arg = NODE(node, arg);
    if ((PyObject *)Py_TYPE(arg) == hooks.host_call) {
        return PyObject_GetAttr(arg, name_name);
    }
    if ((PyObject *)Py_TYPE(arg) == hooks.moves) {
        return PyObject_GetAttr(arg, name_structure);
    }
    if (!IS_LAYOUT(arg)) {
        return Py_NewRef(arg);
    }
    PyObject *shape = PyObject_GetAttr(arg, name_shape), *items[3];
    items[0] = shape ? number_of(numbers->layouts, arg) : NULL;
    items[1] = items[0] ? ids_of(numbers, shape) : NULL;
    items[2] = items[1] ? arrangement_of(node, arg) : NULL;
    Py_XDECREF(shape);
    return pack(3, items);
}

static PyObject *pending_key(Numbers *numbers, Table *table, PyObject *node, PyObject *ids,
                             int keep)
{
    /* held: the collector may run code that evaluates the node and releases its sources */
    PyObject *sources = Py_NewRef(NODE(node, src));
    PyObject *src = PyTuple_New(PyTuple_GET_SIZE(sources));
    for (Py_ssize_t i = 0; src != NULL && i < PyTuple_GET_SIZE(sources); i++) {
        size_t at = entry_place(table, PyTuple_GET_ITEM(sources, i));
        PyObject *number = PyLong_FromSsize_t(table->entries[at].index);
        if (number == NULL) {
            Py_CLEAR(src);
        }
        else {
            PyTuple_SET_ITEM(src, i, number);
        }
    }
    Py_DECREF(sources);
    if (src == NULL) {
        return NULL;
    }
    PyObject *items[7] = {
        PyObject_GetAttr(NODE(node, op), name_number),
        src,
        Py_NewRef(ids),
        PyObject_GetAttr(NODE(node, dtype), name_char),
        argument_key(numbers, node),
        Py_NewRef(NODE(node, perm)),
        PyBool_FromLong(keep),
    };
    return pack(7, items);
}

/* Fills key and held; both have the length of the order. */
static int make_key(PyObject *order, Table *table, Numbers *numbers, PyObject *key, PyObject *held)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(order); i++) {
        PyObject *node = PyList_GET_ITEM(order, i), *ids = ids_of(numbers, NODE(node, shape));
        PyObject *part;
        int keep = 0;
        if (ids == NULL) {
            return -1;
        }
        if (!is_pending(node)) {
            part = evaluated_key(numbers, node, ids);
        }
        else {
            const Entry *entry = &table->entries[entry_place(table, node)];
            /* the list of nodes holds one reference */
            keep = entry->root || (is_held_beyond(node, 1 + entry->edges) && !is_full(node));
            part = pending_key(numbers, table, node, ids, keep);
        }
        Py_DECREF(ids);
        if (part == NULL) {
            return -1;
        }
        PyTuple_SET_ITEM(key, i, part);
        PyList_SET_ITEM(held, i, PyBool_FromLong(keep));
    }
    return 0;
}

static PyObject *count_edges(PyObject *order, Table *table)
{
    PyObject *edges = PyDict_New();
    for (Py_ssize_t i = 0; edges != NULL && i < PyList_GET_SIZE(order); i++) {
        PyObject *node = PyList_GET_ITEM(order, i);
        Py_ssize_t count = table->entries[entry_place(table, node)].edges;
        if (!count) {
            continue;
        }
        PyObject *identity = PyLong_FromVoidPtr(node), *number = PyLong_FromSsize_t(count);
        if (!identity || !number || PyDict_SetItem(edges, identity, number) < 0) {
            Py_CLEAR(edges);
        }
        Py_XDECREF(identity);
        Py_XDECREF(number);
    }
    return edges;
}

static int begin_numbers(Numbers *numbers)
{
    numbers->sizes = PyDict_New();
    numbers->shapes = PyDict_New();
    numbers->layouts = PyDict_New();
    numbers->memories = PyDict_New();
    return numbers->sizes && numbers->shapes && numbers->layouts && numbers->memories
            && PyDict_SetItem(numbers->sizes, zero, minus_one) == 0
            && PyDict_SetItem(numbers->sizes, one, zero) == 0
        ? 0
        : -1;
}

PyObject *walk_roots(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (hooks.node == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "walk: bind comes first");
        return NULL;
    }
    PyObject *items[5] = {NULL}; /* nodes, key, held, edges, sizes */
    PyObject *roots = PySequence_Fast(given, "linearize: expected a sequence of nodes");
    Numbers numbers = {NULL};
    Stack stack = {NULL};
    Table table;
    if (roots == NULL) {
        return NULL;
    }
    table_begin(&table);
    items[0] = PyList_New(0);
    int done = items[0] != NULL && order_nodes(roots, items[0], &table, &stack) == 0;
    PyMem_Free(stack.items);
    if (done && begin_numbers(&numbers) == 0) {
        items[1] = PyTuple_New(PyList_GET_SIZE(items[0]));
        items[2] = PyList_New(PyList_GET_SIZE(items[0]));
        if (items[1] && items[2]
            && make_key(items[0], &table, &numbers, items[1], items[2]) == 0) {
            items[3] = count_edges(items[0], &table);
            items[4] = PyDict_Keys(numbers.sizes);
        }
    }
    table_end(&table);
    Py_DECREF(roots);
    Py_XDECREF(numbers.sizes);
    Py_XDECREF(numbers.shapes);
    Py_XDECREF(numbers.layouts);
    Py_XDECREF(numbers.memories);
    return pack(5, items);
}

/* ------------------------------------------------------------------------------------- frontier */

/* The pending nodes behind weak references, in their order, except `newest`; a new list. */
static PyObject *alive_of(PyObject *references, PyObject *newest)
{
    PyObject *alive = PyList_New(0);
    if (alive == NULL || !PyList_Check(references)) {
        if (alive != NULL) {
            PyErr_SetString(PyExc_TypeError, "frontier: expected a list of references");
        }
        Py_XDECREF(alive);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(references); i++) {
        PyObject *each = PyList_GET_ITEM(references, i);
        PyObject *node = PyWeakref_Check(each) ? PyWeakref_GetObject(each) : NULL;
        if (node == NULL) {
            PyErr_SetString(PyExc_TypeError, "frontier: expected references to nodes");
            Py_DECREF(alive);
            return NULL;
        }
        if (node == Py_None || node == newest || !IS_NODE(node) || !is_pending(node)) {
            continue;
        }
        if (PyList_Append(alive, node) < 0) {
            Py_DECREF(alive);
            return NULL;
        }
    }
    return alive;
}

/* Counts for each node how often pending ones below `alive` read it. */
static int count_reads(PyObject *alive, Table *table, Stack *stack)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(alive); i++) {
        PyObject *node = PyList_GET_ITEM(alive, i);
        Entry *entry = entry_of(table, node);
        if (entry == NULL || push(stack, node) < 0) {
            return -1;
        }
        entry->index = 0;
    }
    for (Py_ssize_t i = 0; i < stack->size; i++) {
        PyObject *src = NODE(stack->items[i], src);
        for (Py_ssize_t k = 0; PyTuple_Check(src) && k < PyTuple_GET_SIZE(src); k++) {
            PyObject *source = PyTuple_GET_ITEM(src, k);
            Entry *entry = IS_NODE(source) ? entry_of(table, source) : NULL;
            if (entry == NULL) {
                if (!PyErr_Occurred()) {
                    PyErr_SetString(PyExc_TypeError, "frontier: expected nodes");
                }
                return -1;
            }
            entry->edges++;
            /* an operation in place makes a node that was not noted: look through it */
            if (entry->index < 0 && is_pending(source)) {
                entry->index = 0;
                if (push(stack, source) < 0) {
                    return -1;
                }
            }
        }
    }
    return 0;
}

/* frontier(references, newest): as `flush.Pending.frontier`, parameters included. */
PyObject *walk_frontier(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *references, *newest, *found = NULL;
    if (!PyArg_ParseTuple(args, "OO", &references, &newest)) {
        return NULL;
    }
    if (hooks.node == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "frontier: bind comes first");
        return NULL;
    }
    PyObject *alive = alive_of(references, newest);
    Stack stack = {NULL};
    Table table;
    if (alive == NULL) {
        return NULL;
    }
    table_begin(&table);
    if (count_reads(alive, &table, &stack) == 0 && (found = PyList_New(0)) != NULL) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(alive); i++) {
            PyObject *node = PyList_GET_ITEM(alive, i);
            if (table.entries[entry_place(&table, node)].edges == 0
                && PyList_Append(found, node) < 0) {
                Py_CLEAR(found);
                break;
            }
        }
    }
    PyMem_Free(stack.items);
    table_end(&table);
    Py_DECREF(alive);
    return found;
}

int walk_ready(void)
{
    zero = PyLong_FromLong(0);
    one = PyLong_FromLong(1);
    minus_one = PyLong_FromLong(-1);
    return zero && one && minus_one ? 0 : -1;
}
