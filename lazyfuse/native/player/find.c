/* The key of an evaluation: its structure, sizes, strides, layouts, and which operands die or may be
   overwritten. So one look-up stands for the walk's key, the plan, and `bind`
   (runtime/capture/evaluations.py). */

#include "replay.h"

enum { MOST_NODES = 256, SMALL = 64, EXPORTED = 2 };
enum { OPERAND = 1, NUMBER_THERE, OPERATION, LAYOUT, CALLED, KEPT };

typedef struct {
    Key key;
    Table table;
    PyObject *order;
    int updates; /* whether it writes into existing arrays, or has maps of indices */
    char met[MOST_NODES]; /* pending nodes that an evaluation has left out: it is done once */
} Graph;

/* The position of the first node with the same memory: of an operand. */
static Py_ssize_t memory_of(const Graph *graph, Py_ssize_t at)
{
    PyObject *node = PyList_GET_ITEM(graph->order, at), *arg = NODE(node, arg);
    int shares = PyObject_TypeCheck(arg, (PyTypeObject *)hooks.memory);
    for (Py_ssize_t i = 0; shares && i < at; i++) {
        PyObject *other = PyList_GET_ITEM(graph->order, i);
        if (!is_pending(other) && NODE(other, arg) == arg) {
            return i;
        }
    }
    return at;
}

/* The position of the first node with an equal layout. */
static Py_ssize_t layout_of(const Graph *graph, Py_ssize_t at)
{
    PyObject *layout = NODE(PyList_GET_ITEM(graph->order, at), arg);
    for (Py_ssize_t i = 0; i < at; i++) {
        PyObject *node = PyList_GET_ITEM(graph->order, i), *arg = NODE(node, arg);
        if (is_pending(node) && IS_LAYOUT(arg)
            && (arg == layout || PyObject_RichCompareBool(arg, layout, Py_EQ) == 1)) {
            return i;
        }
    }
    return at;
}

static int put_perm(Key *key, PyObject *perm)
{
    if (perm == Py_None) {
        return put(key, -1);
    }
    return put(key, PyTuple_GET_SIZE(perm)) < 0 ? -1 : put_all(key, perm);
}

/* 1; 0: Python looks at it; -1: an error. */
static int put_evaluated(Graph *graph, Py_ssize_t at)
{
    Key *key = &graph->key;
    PyObject *node = PyList_GET_ITEM(graph->order, at), *value = NODE(node, value);
    if (NODE(node, resident) != Py_None || !IS_REAL(value)) {
        return 0;
    }
    PyArrayObject *array = (PyArrayObject *)value;
    int type = ((PyArray_Descr *)NODE(node, dtype))->type, rank = PyArray_NDIM(array);
    if (NODE(node, op) == hooks.scalar_op) {
        return put(key, NUMBER_THERE) < 0 || put(key, type) < 0 ? -1 : 1;
    }
    const Edges edges = {NULL, &graph->table};
    Py_ssize_t held = edges_to(&edges, node);
    int dies = !is_held_beyond(node, (held < 0 ? 0 : held) + 1);
    int is_written = graph->updates ? is_free(node, &edges) : 0;
    if (is_written < 0 || put(key, OPERAND) < 0 || put(key, type + 256 * rank) < 0
        || put(key, dies + 2 * is_written + 4 * (PyArray_ISWRITEABLE(array) != 0)) < 0
        || put(key, memory_of(graph, at)) < 0 || put_perm(key, NODE(node, perm)) < 0) {
        return -1;
    }
    for (int axis = 0; axis < rank; axis++) {
        if (put(key, PyArray_DIMS(array)[axis]) < 0 || put(key, PyArray_STRIDES(array)[axis]) < 0) {
            return -1;
        }
    }
    return 1;
}

/* As `moves.of_view`: whether each axis of a view is a step along one axis of what it shows, and
   stays inside. Which axes these are does not depend on its offset then, for in memory order an
   element has one index. -1: an error. */
static int is_piece(PyObject *layout, PyObject *base)
{
    PyObject *shape = PyTuple_GET_ITEM(layout, LAYOUT_SHAPE), *perm = NODE(base, perm);
    PyObject *strides = PyTuple_GET_ITEM(layout, LAYOUT_STRIDES);
    int64_t sizes[NPY_MAXDIMS], steps[NPY_MAXDIMS], starts[NPY_MAXDIMS], step = 1;
    int64_t left = PyLong_AsLongLong(PyTuple_GET_ITEM(layout, LAYOUT_OFFSET));
    Py_ssize_t rank = PyTuple_GET_SIZE(NODE(base, shape));
    if (rank > NPY_MAXDIMS) {
        return 0;
    }
    for (Py_ssize_t i = rank - 1; i >= 0; i--) {
        Py_ssize_t axis = perm == Py_None ? i : PyLong_AsSsize_t(PyTuple_GET_ITEM(perm, i));
        sizes[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(NODE(base, shape), axis));
        steps[i] = step;
        step *= sizes[i] > 0 ? sizes[i] : 1;
    }
    for (Py_ssize_t i = 0; i < rank; i++) {
        starts[i] = left / steps[i];
        left %= steps[i];
        if (starts[i] >= sizes[i]) {
            return PyErr_Occurred() ? -1 : 0;
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++) {
        int64_t length = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
        int64_t stride = PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
        int found = length == 1 || stride == 0;
        for (Py_ssize_t axis = 0; !found && axis < rank; axis++) {
            int64_t end = starts[axis] + stride / steps[axis] * (length - 1);
            found = starts[axis] >= 0 && stride % steps[axis] == 0 && 0 <= end && end < sizes[axis];
            starts[axis] = found ? -1 : starts[axis]; /* no other axis of the view steps there */
        }
        if (!found || length == 0) {
            return PyErr_Occurred() ? -1 : 0;
        }
    }
    return PyErr_Occurred() ? -1 : 1;
}

static int put_argument(Graph *graph, Py_ssize_t at, PyObject *arg)
{
    Key *key = &graph->key;
    if (!IS_LAYOUT(arg)) {
        int called = (PyObject *)Py_TYPE(arg) == hooks.host_call;
        PyObject *name = called ? PyObject_GetAttr(arg, name_name) : NULL;
        if (called && name == NULL) {
            return -1;
        }
        int failed = put(key, called ? CALLED : KEPT) < 0
            || put(key, (int64_t)(intptr_t)(called ? name : arg)) < 0;
        Py_XDECREF(name);
        return failed ? -1 : 1;
    }
    int64_t offset = PyLong_AsLongLong(PyTuple_GET_ITEM(arg, LAYOUT_OFFSET));
    if (offset == -1 && PyErr_Occurred()) {
        return -1;
    }
    /* where nothing is written, a part may lie anywhere in its block */
    if (!graph->updates) {
        PyObject *src = NODE(PyList_GET_ITEM(graph->order, at), src);
        PyObject *base = PyTuple_GET_SIZE(src) == 1 ? PyTuple_GET_ITEM(src, 0) : NULL;
        int is_one = base == NULL || !IS_NODE(base) || !is_pending(base) || is_piece(arg, base);
        if (PyErr_Occurred()) {
            return -1;
        }
        offset = is_one ? -1 - (offset == 0) : offset;
    }
    if (put(key, LAYOUT) < 0 || put(key, layout_of(graph, at)) < 0 || put(key, offset) < 0
        || put(key, PyTuple_GET_SIZE(PyTuple_GET_ITEM(arg, LAYOUT_SHAPE))) < 0
        || put_all(key, PyTuple_GET_ITEM(arg, LAYOUT_SHAPE)) < 0
        || put_all(key, PyTuple_GET_ITEM(arg, LAYOUT_STRIDES)) < 0) {
        return -1;
    }
    return 1;
}

static int put_pending(Graph *graph, Py_ssize_t at)
{
    Key *key = &graph->key;
    PyObject *node = PyList_GET_ITEM(graph->order, at), *src = NODE(node, src);
    PyObject *shape = NODE(node, shape);
    const Entry *entry = &graph->table.entries[entry_place(&graph->table, node)];
    int keep = entry->root || (is_held_beyond(node, 1 + entry->edges) && !is_full(node));
    if (!PyTuple_Check(shape)) {
        return 0;
    }
    int type = ((PyArray_Descr *)NODE(node, dtype))->type;
    if (put(key, OPERATION) < 0 || put(key, (int64_t)(intptr_t)NODE(node, op)) < 0
        || put(key, type + 256 * PyTuple_GET_SIZE(shape)) < 0
        || put(key, keep + 2 * graph->met[at] + 4 * PyTuple_GET_SIZE(src)) < 0
        || put_all(key, shape) < 0
        || put_perm(key, NODE(node, perm)) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(src); i++) {
        PyObject *source = PyTuple_GET_ITEM(src, i);
        if (put(key, graph->table.entries[entry_place(&graph->table, source)].index) < 0) {
            return -1;
        }
    }
    return put_argument(graph, at, NODE(node, arg));
}

enum { LOOKED_FOR = 1, MET = 2 };

/* Whether a table of watched objects (elision.py), by address, has this one: it may have had another
   there. MET: as one that was left out once; LOOKED_FOR: Python notes that it is read; -1: error. */
static int is_watched(PyObject *watched, PyObject *object)
{
    PyObject *key = PyLong_FromVoidPtr(object);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(watched, key);
    Py_XDECREF(key);
    if (found == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!PyTuple_Check(found) || !PyWeakref_Check(PyTuple_GET_ITEM(found, 0))) {
        return LOOKED_FOR;
    }
    return PyWeakref_GetObject(PyTuple_GET_ITEM(found, 0)) != object ? 0
        : PyTuple_GET_ITEM(found, 1) == ASKED(CHEAP) && IS_NODE(object) ? MET : LOOKED_FOR;
}

/* Whether a pending node may be co-evaluated: as co_evaluation.small_outputs, whose candidates are
   reductions and small results. */
static int may_join(PyObject *node)
{
    PyObject *shape = NODE(node, shape), *kind = PyObject_GetAttr(NODE(node, op), name_kind);
    int reduces = kind == NULL || PyUnicode_CompareWithASCIIString(kind, "reduce") == 0;
    Py_ssize_t size = 1;
    Py_XDECREF(kind);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape) && size <= SMALL; i++) {
        size *= PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));
    }
    PyErr_Clear();
    return reduces || size <= SMALL;
}

enum { AMONG = 2, HOLDERS = 16 };

/* 1 if the evaluation is all that there is to do and nothing has to be looked at: no recorded node
   beside it may be computed with it, and it reads no value of `watched`. AMONG: others may be; 0:
   Python looks; -1: an error. */
static int is_all(Graph *graph, PyObject *recorded, PyObject *watched, long mode)
{
    for (Py_ssize_t i = 0; recorded != Py_None && i < PyList_GET_SIZE(recorded); i++) {
        PyObject *node = PyWeakref_GetObject(PyList_GET_ITEM(recorded, i));
        if (node != NULL && node != Py_None && IS_NODE(node) && is_pending(node)
            && graph->table.entries[entry_place(&graph->table, node)].key == NULL
            && ((mode & EXPORTED) || may_join(node))) {
            return AMONG;
        }
    }
    for (Py_ssize_t i = 0; PyDict_GET_SIZE(watched) && i < PyList_GET_SIZE(graph->order); i++) {
        PyObject *node = PyList_GET_ITEM(graph->order, i);
        int found = is_watched(watched, node);
        if (found == 0 && NODE(node, value) != Py_None) {
            found = is_watched(watched, NODE(node, value));
        }
        if (found == MET && is_pending(node)) {
            graph->met[i] = 1;
        }
        else if (found) {
            return found < 0 ? -1 : 0;
        }
    }
    return 1;
}

/* What a key has by address, in a tuple (new): it lives as long as the key is kept. */
static PyObject *pins_of(Graph *graph)
{
    PyObject *pins = PyList_New(0);
    for (Py_ssize_t i = 0; pins != NULL && i < PyList_GET_SIZE(graph->order); i++) {
        PyObject *node = PyList_GET_ITEM(graph->order, i), *arg = NODE(node, arg);
        if (!is_pending(node)) {
            continue;
        }
        arg = (PyObject *)Py_TYPE(arg) == hooks.host_call ? PyObject_GetAttr(arg, name_name)
                                                          : Py_NewRef(arg);
        if (arg == NULL || PyList_Append(pins, arg) < 0
            || PyList_Append(pins, NODE(node, op)) < 0) {
            Py_CLEAR(pins);
        }
        Py_XDECREF(arg);
    }
    return pins;
}

/* A key as tables have it (new). */
static PyObject *key_bytes(const Graph *graph)
{
    return PyBytes_FromStringAndSize((char *)graph->key.numbers,
                                     graph->key.count * sizeof(int64_t));
}

/* What was left out once is written now: nothing watches it any more. -1: an error. */
static int forget_met(const Graph *graph, PyObject *watched)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(graph->order); i++) {
        PyObject *key = graph->met[i] ? PyLong_FromVoidPtr(PyList_GET_ITEM(graph->order, i)) : NULL;
        if (key != NULL && PyDict_DelItem(watched, key) < 0) {
            PyErr_Clear();
        }
        Py_XDECREF(key);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* What `table` keeps for the evaluation: see replay_find. */
static PyObject *look_up(Graph *graph, PyObject *table, PyObject *watched)
{
    PyObject *bytes = key_bytes(graph);
    PyObject *kept = bytes == NULL ? NULL : PyDict_GetItemWithError(table, bytes);
    if (kept == NULL) {
        PyObject *pins = PyErr_Occurred() ? NULL : pins_of(graph);
        PyObject *missed = pins == NULL ? NULL : PyTuple_Pack(2, bytes, pins);
        Py_XDECREF(bytes);
        Py_XDECREF(pins);
        return missed;
    }
    Py_DECREF(bytes);
    if (!PyTuple_Check(kept) || PyTuple_GET_SIZE(kept) < 3) {
        PyErr_SetString(PyExc_TypeError, "find: expected what `keep` has stored");
        return NULL;
    }
    PyObject *env = values_for(PyTuple_GET_ITEM(kept, 1), PyTuple_GET_ITEM(kept, 2), graph->order);
    PyObject *given[2] = {PyTuple_GET_ITEM(kept, 0), env};
    PyObject *begun = env == NULL ? NULL : replay_begin(NULL, given, 2);
    PyObject *found = begun == NULL || forget_met(graph, watched) < 0 ? NULL
        : begun == Py_None ? Py_NewRef(Py_None) : PyTuple_Pack(4, kept, graph->order, env, begun);
    Py_XDECREF(begun);
    Py_XDECREF(env);
    return found;
}

/* Whether a pending node makes the places of parts in their blocks matter: it writes, or is a map
   of indices. */
static int is_bound(PyObject *node)
{
    return NODE(node, op) == hooks.update_op || NODE(node, op) == hooks.index_op;
}

/* Puts what roots read in order. 1; 0: too much of it; -1: an error. `graph_end` in any case. */
static int graph_begin(Graph *graph, PyObject *roots)
{
    Stack stack = {NULL};
    *graph = (Graph){.key = {.count = 0, .room = 128}, .order = PyList_New(0)};
    graph->key.numbers = graph->key.few;
    table_begin(&graph->table);
    int done = graph->order == NULL ? -1
        : order_nodes(roots, graph->order, &graph->table, &stack) < 0 ? -1
        : PyList_GET_SIZE(graph->order) <= MOST_NODES;
    PyMem_Free(stack.items);
    for (Py_ssize_t i = 0; done > 0 && i < PyList_GET_SIZE(graph->order); i++) {
        PyObject *node = PyList_GET_ITEM(graph->order, i);
        graph->updates |= is_pending(node) && is_bound(node);
    }
    return done;
}

static void graph_end(Graph *graph)
{
    table_end(&graph->table);
    if (graph->key.numbers != graph->key.few) {
        PyMem_Free(graph->key.numbers);
    }
    Py_XDECREF(graph->order);
}

/* Adds all nodes to the key. 1; 0: Python looks at it; -1: an error. */
static int put_nodes(Graph *graph)
{
    int fits = 1;
    for (Py_ssize_t i = 0; fits > 0 && i < PyList_GET_SIZE(graph->order); i++) {
        int pending = is_pending(PyList_GET_ITEM(graph->order, i));
        fits = pending ? put_pending(graph, i) : put_evaluated(graph, i);
    }
    return fits;
}

PyObject *replay_find(PyObject *roots, PyObject *table, PyObject *recorded, PyObject *watched,
                      long mode, int *among)
{
    long errors = ignored_errors();
    *among = 0;
    if (errors < 0) { /* exceptions are handled in a way that decides what runs together */
        Py_RETURN_NONE;
    }
    Graph graph;
    int fits = graph_begin(&graph, roots);
    if (fits > 0) {
        fits = is_all(&graph, recorded, watched, mode);
        *among = fits == AMONG;
    }
    if (fits == 1) {
        fits = put(&graph.key, errors) < 0 || put(&graph.key, mode) < 0 ? -1 : put_nodes(&graph);
    }
    PyObject *found = fits == 1 ? look_up(&graph, table, watched)
        : fits < 0 ? NULL : Py_NewRef(Py_None);
    graph_end(&graph);
    return found;
}

PyObject *nodes_at(PyObject *positions, PyObject *nodes)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t at = 0; found != NULL && at < PyTuple_GET_SIZE(positions); at++) {
        PyObject *node = PyList_GetItem(
            nodes, PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, at)));
        if (node == NULL || PyList_Append(found, node) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

/* What roots and the other pending operations read is one graph, and its key decides which of the
   others are computed along. */
static PyObject *choice_in(Graph *graph, PyObject *roots, PyObject *all, PyObject *choices,
                           long mode)
{
    Key *key = &graph->key;
    Py_ssize_t count = PyList_GET_SIZE(roots);
    int fits = put(key, ignored_errors()) < 0 || put(key, mode) < 0 || put(key, count) < 0 ? -1 : 1;
    for (Py_ssize_t i = 0; fits > 0 && i < PyList_GET_SIZE(all); i++) {
        PyObject *node = PyList_GET_ITEM(all, i);
        Py_ssize_t index = graph->table.entries[entry_place(&graph->table, node)].index;
        int holders = 0; /* whether an exported value has readers depends on who holds it */
        while (i < count && holders < HOLDERS && is_held_beyond(node, holders)) {
            holders++;
        }
        fits = put(key, index) < 0 || put(key, holders) < 0 ? -1 : 1;
    }
    fits = fits < 0 ? -1 : put_nodes(graph);
    if (fits <= 0) {
        return fits < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *bytes = key_bytes(graph);
    PyObject *choice = bytes == NULL ? NULL : PyDict_GetItemWithError(choices, bytes), *found = NULL;
    if (choice == NULL) {
        PyObject *pins = PyErr_Occurred() ? NULL : pins_of(graph);
        found = pins == NULL ? NULL : PyTuple_Pack(3, bytes, pins, graph->order);
        Py_XDECREF(pins);
        Py_XDECREF(bytes);
        return found;
    }
    PyObject *more = nodes_at(PyTuple_GET_ITEM(choice, 1), graph->order);
    found = more == NULL ? NULL : PyTuple_Pack(2, PyTuple_GET_ITEM(choice, 0), more);
    Py_XDECREF(more);
    Py_DECREF(bytes);
    return found;
}

PyObject *replay_along(PyObject *roots, PyObject *recorded, PyObject *choices, long mode)
{
    PyObject *all = PyList_GetSlice(roots, 0, PyList_GET_SIZE(roots)), *found = NULL;
    for (Py_ssize_t i = 0; all != NULL && i < PyList_GET_SIZE(recorded); i++) {
        PyObject *node = PyWeakref_GetObject(PyList_GET_ITEM(recorded, i));
        if (node != NULL && node != Py_None && IS_NODE(node) && is_pending(node) &&
            PyList_Append(all, node) < 0) {
            Py_CLEAR(all);
        }
    }
    if (all == NULL || PyErr_Occurred()) {
        Py_XDECREF(all);
        return NULL;
    }
    Graph graph;
    int fits = graph_begin(&graph, all);
    found = fits > 0 ? choice_in(&graph, roots, all, choices, mode)
        : fits < 0 ? NULL : Py_NewRef(Py_None);
    graph_end(&graph);
    Py_DECREF(all);
    return found;
}
