/* What a run begins with: the key under which captured runs are kept, and the operands' values.

   `bind` is given a recording, `find` the roots of an evaluation. The key of `find` holds what
   decides about the whole evaluation: the structure, sizes, strides, layouts, and which operands
   die or may be overwritten. So one look-up stands for the walk's key, the plan, and `bind`
   (runtime/capture/evaluations.py). */

#include "replay.h"

#include <string.h>

#define IS_SET(node, slot) (NODE(node, slot) != NULL && NODE(node, slot) != Py_None)

/* How often a graph refers to its nodes: in a dict of Python's, or as the walk has counted. */
typedef struct {
    PyObject *counts;
    const Table *table;
} Edges;

/* How often the graph refers to a node; -1: not at all. */
static Py_ssize_t edges_to(const Edges *edges, PyObject *node)
{
    if (edges->table != NULL) {
        Py_ssize_t found = edges->table->entries[entry_place(edges->table, node)].edges;
        return found ? found : -1;
    }
    PyObject *key = PyLong_FromVoidPtr(node);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(edges->counts, key);
    Py_XDECREF(key);
    return found == NULL ? -1 : PyLong_AsSsize_t(found);
}

/* Whether an array has exactly this number of references, and only it refers to its memory. */
int is_unseen(PyObject *array, Py_ssize_t owners)
{
    if (!IS_REAL(array) || is_held_beyond(array, owners) ||
        !PyArray_ISWRITEABLE((PyArrayObject *)array)) {
        return 0;
    }
    PyObject *base = PyArray_BASE((PyArrayObject *)array);
    while (base != NULL && PyArray_Check(base)) {
        if (is_held_beyond(base, 1)) {
            return 0;
        }
        base = PyArray_BASE((PyArrayObject *)base);
    }
    return 1;
}

/* As `Memory.has_readers`, with the list of nodes as one more holder of what it holds; -1: an
   error. */
static int is_captured(PyObject *memory, const Edges *edges)
{
    PyObject *alive = PyList_New(0); /* first: the collector may run code that changes the leaves */
    PyObject *leaves = MEMORY(memory, leaves);
    if (leaves == NULL || !PyList_CheckExact(leaves)) {
        Py_XDECREF(alive);
        return alive == NULL ? -1 : 1;
    }
    Py_ssize_t count = PyList_GET_SIZE(leaves), kept = 0;
    int found = 0;
    for (Py_ssize_t at = 0; alive != NULL && at < count; at++) {
        PyObject *leaf = PyList_GET_ITEM(leaves, at);
        Py_ssize_t held = edges_to(edges, leaf);
        int is_held = is_held_beyond(leaf, held + 2);
        found |= is_held;
        if (is_held || held >= 0) {
            kept++;
            if (PyList_Append(alive, leaf) < 0) {
                Py_CLEAR(alive);
            }
        }
    }
    if (alive == NULL || PyErr_Occurred()) {
        Py_XDECREF(alive);
        return -1;
    }
    if (kept < count) {
        MEMORY(memory, leaves) = alive;
        Py_DECREF(leaves);
    }
    else {
        Py_DECREF(alive);
    }
    return found;
}

/* Whether a run may overwrite a leaf's memory: as `RunValues.free`; -1: an error. */
static int is_free(PyObject *node, const Edges *edges)
{
    PyObject *arg = NODE(node, arg), *value = NODE(node, value);
    if (arg != NULL && (PyObject *)Py_TYPE(arg) == hooks.memory) {
        if (NODE(node, op) != hooks.leaf_op || MEMORY(arg, owned) != Py_True) {
            return 0;
        }
        int captured = is_captured(arg, edges);
        return captured < 0 ? -1 : !captured;
    }
    Py_ssize_t held = edges_to(edges, node);
    if (held < 0 && PyErr_Occurred()) {
        return -1;
    }
    return !is_held_beyond(node, (held < 0 ? 0 : held) + 1) && is_unseen(value, 1);
}

typedef struct {
    int64_t *numbers;
    Py_ssize_t count, room;
    int64_t few[128];
} Key;

static int put(Key *key, int64_t number)
{
    if (key->count == key->room) {
        int64_t *more = PyMem_Malloc(2 * key->room * sizeof(int64_t));
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(more, key->numbers, key->count * sizeof(int64_t));
        if (key->numbers != key->few) {
            PyMem_Free(key->numbers);
        }
        key->numbers = more;
        key->room *= 2;
    }
    key->numbers[key->count++] = number;
    return 0;
}

static int put_all(Key *key, PyObject *numbers) /* a list or a tuple */
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(numbers);
    PyObject **items = PySequence_Fast_ITEMS(numbers);
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t number = PyLong_AsLongLong(items[i]);
        if ((number == -1 && PyErr_Occurred()) || put(key, number) < 0) {
            return -1;
        }
    }
    return 0;
}

static int put_layout(Key *key, PyObject *layout, int slides)
{
    PyObject *shape, *strides;
    if (layout != NULL && (PyObject *)Py_TYPE(layout) == hooks.moves) {
        return put(key, (int64_t)(intptr_t)layout); /* the replay keeps it */
    }
    if (layout == NULL || !IS_LAYOUT(layout) || PyTuple_GET_SIZE(layout) != LAYOUT_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "bind: expected layouts");
        return -1;
    }
    shape = PyTuple_GET_ITEM(layout, LAYOUT_SHAPE);
    strides = PyTuple_GET_ITEM(layout, LAYOUT_STRIDES);
    int64_t offset = slides ? 0 : PyLong_AsLongLong(PyTuple_GET_ITEM(layout, LAYOUT_OFFSET));
    if ((offset == -1 && PyErr_Occurred()) || put(key, offset) < 0 || put_all(key, shape) < 0) {
        return -1;
    }
    return put_all(key, strides);
}

/* The node of an operand (origin, index, whether it is an array); NULL: an error. */
static PyObject *node_of(PyObject *operand, PyObject *nodes)
{
    Py_ssize_t origin = PyLong_AsSsize_t(PyTuple_GET_ITEM(operand, 0));
    if (origin < 0 || origin >= PyList_GET_SIZE(nodes)
        || !IS_NODE(PyList_GET_ITEM(nodes, origin))) {
        PyErr_SetString(PyExc_IndexError, "bind: expected places of nodes");
        return NULL;
    }
    return PyList_GET_ITEM(nodes, origin);
}

/* Adds to the key what decides about an operand: 0 where it does not lie in host memory. */
static int put_operand(Key *key, PyObject *operand, PyObject *nodes, const Edges *edges,
                       PyObject *free)
{
    PyObject *node = node_of(operand, nodes);
    if (node == NULL) {
        return -1;
    }
    if (!IS_SET(node, value) || IS_SET(node, resident) || !IS_REAL(NODE(node, value))) {
        return 0;
    }
    if (PyTuple_GET_ITEM(operand, 2) != Py_True) {
        return 1;
    }
    PyArrayObject *array = (PyArrayObject *)NODE(node, value);
    int is_written = 0, rank = PyArray_NDIM(array);
    if (free == Py_True) {
        is_written = is_free(node, edges);
    }
    else if (free != Py_False) {
        is_written = PySet_Contains(free, PyTuple_GET_ITEM(operand, 0));
    }
    Py_ssize_t held = edges_to(edges, node);
    if (is_written < 0 || (held < 0 && PyErr_Occurred())) {
        return -1;
    }
    int dies = !is_held_beyond(node, (held < 0 ? 0 : held) + 1);
    for (int axis = 0; axis < rank; axis++) {
        if (put(key, PyArray_STRIDES(array)[axis]) < 0) {
            return -1;
        }
    }
    return put(key, dies + 2 * is_written + 4 * (PyArray_ISWRITEABLE(array) != 0)) < 0 ? -1 : 1;
}

/* The values of a plan with `size` values: the operands' are there (new). */
static PyObject *values_for(PyObject *size, PyObject *operands, PyObject *nodes)
{
    Py_ssize_t count = PyLong_AsSsize_t(size);
    PyObject *env = count < 0 ? NULL : PyList_New(count);
    for (Py_ssize_t i = 0; env != NULL && i < count; i++) {
        PyList_SET_ITEM(env, i, Py_NewRef(Py_None));
    }
    for (Py_ssize_t i = 0; env != NULL && i < PyTuple_GET_SIZE(operands); i++) {
        PyObject *operand = PyTuple_GET_ITEM(operands, i), *node = node_of(operand, nodes);
        Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(operand, 1));
        if (node == NULL || PyList_SetItem(env, index, Py_NewRef(NODE(node, value))) < 0) {
            Py_CLEAR(env);
        }
    }
    return env;
}

/* bind(count, operands, windows, slides, free, nodes, edges, sizes): the key and the values that
   a run begins with, or None. `free`: the nodes whose memory the run may overwrite; True: look. */
PyObject *replay_bind(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 8 || !PyLong_Check(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])
        || !PyList_Check(args[5]) || !PyDict_Check(args[6]) || !PyList_Check(args[7])) {
        PyErr_SetString(PyExc_TypeError, "bind: expected a plan's operands and a recording");
        return NULL;
    }
    PyObject *operands = args[1], *windows = args[2], *nodes = args[5];
    const Edges edges = {args[6], NULL};
    PyObject *env = NULL;
    Key key = {.count = 0, .room = 128};
    key.numbers = key.few;
    int fits = put_all(&key, args[7]) < 0 ? -1 : 1;
    for (Py_ssize_t i = 0; fits > 0 && i < PyTuple_GET_SIZE(operands); i++) {
        fits = put_operand(&key, PyTuple_GET_ITEM(operands, i), nodes, &edges, args[4]);
    }
    /* the values come last, after the check for other readers of an array */
    if (fits > 0 && (env = values_for(args[0], operands, nodes)) == NULL) {
        fits = -1;
    }
    for (Py_ssize_t i = 0; fits > 0 && i < PyTuple_GET_SIZE(windows); i++) {
        Py_ssize_t origin = PyLong_AsSsize_t(PyTuple_GET_ITEM(windows, i));
        if (origin < 0 || origin >= PyList_GET_SIZE(nodes)) {
            PyErr_SetString(PyExc_IndexError, "bind: expected places of nodes");
            fits = -1;
        }
        else {
            PyObject *layout = NODE(PyList_GET_ITEM(nodes, origin), arg);
            fits = put_layout(&key, layout, args[3] == Py_True) < 0 ? -1 : fits;
        }
    }
    PyObject *result = NULL;
    if (fits > 0) {
        Py_ssize_t size = key.count * sizeof(int64_t);
        PyObject *bytes = PyBytes_FromStringAndSize((char *)key.numbers, size);
        result = bytes == NULL ? NULL : PyTuple_Pack(2, bytes, env);
        Py_XDECREF(bytes);
    }
    else if (fits == 0) {
        result = Py_NewRef(Py_None);
    }
    if (key.numbers != key.few) {
        PyMem_Free(key.numbers);
    }
    Py_XDECREF(env);
    return result;
}

/* ----------------------------------------------------------------------------------------- find */

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
    PyObject *places = PyTuple_GET_ITEM(choice, 1), *more = PyList_New(0);
    for (Py_ssize_t i = 0; more != NULL && i < PyTuple_GET_SIZE(places); i++) {
        PyObject *node = PyList_GetItem(
            graph->order, PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i)));
        if (node == NULL || PyList_Append(more, node) < 0) {
            Py_CLEAR(more);
        }
    }
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
