/* The walk of codegen/graph/linearize.py, and of flush.py: the frontier of a flush, and the notes
   of recorded nodes, as Pending.note takes them where there is nothing to decide.

   `walk` orders a pending graph and makes its structural key, with the same objects as
   `linearize.walk`, which runs where lazyfuse was installed without a C compiler. No Python
   code runs while the graph is ordered. The count of references leaves out those of the list
   of nodes and of the graph's own edges. */

#include "native.h"

#include <limits.h>
#include <string.h>

#ifdef Py_GIL_DISABLED
#error "references are counted: the Python text runs in free-threaded builds"
#endif

static PyObject *zero, *one, *minus_one;

/* ------------------------------------------------------------------------------------ the table */

size_t entry_place(const Table *table, const PyObject *key)
{
    size_t at = ((size_t)key >> 4) * (size_t)0x9E3779B97F4A7C15ull;
    at = (at >> 20) & table->mask;
    while (table->entries[at].key != NULL && table->entries[at].key != key) {
        at = (at + 1) & table->mask;
    }
    return at;
}

void table_begin(Table *table)
{
    table->entries = table->first;
    table->mask = 63;
    table->used = 0;
    memset(table->first, 0, sizeof table->first);
}

void table_end(Table *table)
{
    if (table->entries != table->first) {
        PyMem_Free(table->entries);
    }
}

static int table_grow(Table *table)
{
    size_t before = table->mask + 1;
    Entry *old = table->entries, *made = PyMem_Calloc(4 * before, sizeof(Entry));
    if (made == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    table->entries = made;
    table->mask = 4 * before - 1;
    for (size_t at = 0; at < before; at++) {
        if (old[at].key != NULL) {
            made[entry_place(table, old[at].key)] = old[at];
        }
    }
    if (old != table->first) {
        PyMem_Free(old);
    }
    return 0;
}

/* The entry of a node, made if missing; valid until the next entry is made. */
static Entry *entry_of(Table *table, PyObject *key)
{
    size_t at = entry_place(table, key);
    if (table->entries[at].key == NULL) {
        if (2 * ++table->used > table->mask) {
            if (table_grow(table) < 0) {
                return NULL;
            }
            at = entry_place(table, key);
        }
        table->entries[at].key = key;
        table->entries[at].index = -1;
    }
    return &table->entries[at];
}

/* ------------------------------------------------------------------------------------ the order */

static int push(Stack *stack, PyObject *node)
{
    if (stack->size == stack->room) {
        Py_ssize_t room = stack->room ? 2 * stack->room : 64;
        PyObject **items = PyMem_Realloc(stack->items, room * sizeof(PyObject *));
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        stack->items = items;
        stack->room = room;
    }
    stack->items[stack->size++] = node;
    return 0;
}

static int append(PyObject *order, Table *table, PyObject *node)
{
    Entry *entry = entry_of(table, node);
    if (entry == NULL) {
        return -1;
    }
    entry->index = PyList_GET_SIZE(order);
    return PyList_Append(order, node);
}

/* As linearize._order: puts the nodes below the roots in order. */
int order_nodes(PyObject *roots, PyObject *order, Table *table, Stack *stack)
{
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(roots); i++) {
        PyObject *root = PySequence_Fast_GET_ITEM(roots, i);
        if (!IS_NODE(root)) {
            PyErr_SetString(PyExc_TypeError, "linearize: expected nodes");
            return -1;
        }
        Entry *entry = entry_of(table, root);
        if (entry == NULL || push(stack, root) < 0) {
            return -1;
        }
        entry->root = 1;
    }
    while (stack->size) {
        PyObject *node = stack->items[stack->size - 1];
        Entry *entry = entry_of(table, node);
        if (entry == NULL) {
            return -1;
        }
        if (entry->index >= 0) {
            stack->size--;
            continue;
        }
        if (is_pending(node)) {
            PyObject *src = NODE(node, src);
            int waiting = 0;
            if (!PyTuple_Check(src)) {
                PyErr_SetString(PyExc_TypeError, "linearize: expected a tuple of sources");
                return -1;
            }
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(src); i++) {
                PyObject *source = PyTuple_GET_ITEM(src, i);
                if (!IS_NODE(source)) {
                    PyErr_SetString(PyExc_TypeError, "linearize: expected nodes");
                    return -1;
                }
                Entry *found = entry_of(table, source);
                if (found == NULL) {
                    return -1;
                }
                if (found->index >= 0) {
                    continue;
                }
                if (is_pending(source)) {
                    if (push(stack, source) < 0) {
                        return -1;
                    }
                    waiting = 1;
                }
                else if (append(order, table, source) < 0) {
                    return -1;
                }
            }
            if (waiting) {
                continue;
            }
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(src); i++) {
                Entry *found = entry_of(table, PyTuple_GET_ITEM(src, i));
                if (found == NULL) {
                    return -1;
                }
                found->edges++;
            }
        }
        if (append(order, table, node) < 0) {
            return -1;
        }
        stack->size--;
    }
    return 0;
}

/* -------------------------------------------------------------------------------------- the key */

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

/* ---------------------------------------------------------------------------------------- notes */

enum {
    DUE, DUE_FOR, ELEMENTS, ELEMENTS_DUE, FILTERS, FILTERS_FIRST, FILTERS_SIZE, LAST, LINES,
    LOOPING, NODES, NODES_DUE, NODES_PLANNED, OVERDUE, PLAIN, REDUCING, ROOM, ROUNDS, STEADY,
    WAITING, FIELDS
};

static const char *const field_names[FIELDS] = {
    "due", "due_for", "elements", "elements_due", "filters", "filters_first", "filters_size",
    "last", "lines", "looping", "nodes", "nodes_due", "nodes_planned", "overdue", "plain",
    "reducing", "room", "rounds", "steady", "waiting",
};

/* A callable that notes nodes; it calls `flush.Pending.note` where Python decides. */
typedef struct {
    PyObject_HEAD
    PyObject *type, *find; /* `flush.Pending`, and what finds a thread's */
    PyObject *pending; /* the last that it found */
    PyObject *warnings, *compound, *flush; /* names of modules */
    uint64_t thread; /* whose `pending` it is */
    Py_ssize_t fields[FIELDS];
    long most, fewer; /* repeats of a line without a decision; `fewer`: where iterations reduce */
    long together; /* pending nodes from which loop iterations stop being joined */
    long long vast; /* elements from which Python looks whether there is memory */
} Notes;

#define FIELD(which) (AT(pending, self->fields[which]))

static int is_true_name(PyObject *names, PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(names, name);
    return found != NULL && PyObject_IsTrue(found) == 0 ? 0 : 1;
}

/* The line of a node as a number, as `flush.line_of`; -1: Python decides. */
static long long line_of(Notes *self, PyObject *pending, PyObject *node)
{
    PyObject *where = NODE(node, location);
    if (where == NULL || !PyTuple_Check(where) || PyTuple_GET_SIZE(where) != 2
        || (!PyTuple_CheckExact(where) && (PyObject *)Py_TYPE(where) != hooks.source_location)) {
        return -1;
    }
    PyObject *filters = PyDict_GetItemWithError(self->warnings, name_filters);
    if (filters == NULL || filters != FIELD(FILTERS) || !PyList_CheckExact(filters)) {
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(filters);
    if (PyLong_AsSsize_t(FIELD(FILTERS_SIZE)) != count
        || (count && PyList_GET_ITEM(filters, 0) != FIELD(FILTERS_FIRST))) {
        return -1; /* changed, or warnings are errors */
    }
    long offset = PyLong_AsLong(PyTuple_GET_ITEM(where, 1));
    return ((long long)(size_t)PyTuple_GET_ITEM(where, 0) << 16) + offset;
}

/* Elements of a shape; -1: Python decides. */
static long long size_of(PyObject *shape)
{
    long long size = 1;
    if (!PyTuple_CheckExact(shape)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++) {
        long long length = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
        if (length < 0 || (length > 0 && size > LLONG_MAX / length)) {
            return -1;
        }
        size *= length;
    }
    return size;
}

static int set_number(PyObject **place, long long number)
{
    PyObject *made = PyLong_FromLongLong(number);
    if (made == NULL) {
        return -1;
    }
    Py_XSETREF(*place, made);
    return 0;
}

/* Whether a line with this number of repeats may end the loop iteration. */
static int is_due(Notes *self, PyObject *pending, long rounds)
{
    long room = PyLong_AsLong(FIELD(ROOM)); /* above `together`: iterations are not counted */
    return FIELD(PLAIN) != Py_True || self->most <= 0
        || (rounds % self->most == 1 && room <= self->together)
        || PyList_GET_SIZE(FIELD(NODES)) >= room
        || !PyLong_CheckExact(FIELD(WAITING)) || PyLong_AsLong(FIELD(WAITING)) != 0;
}

/* Whether the pending elements pay for a launch: fewer never end an iteration. */
static int is_worth_it(Notes *self, long long elements)
{
    PyObject *least = PyDict_GetItemWithError(self->flush, name_worth);
    return least == NULL || elements >= PyLong_AsLongLong(least);
}

/* Counts one more repeat of a line; 0: done, 1: Python decides, -1: an error. */
static int count_round(Notes *self, PyObject *pending, PyObject *line, long long elements)
{
    PyObject *rounds = FIELD(ROUNDS), *before, *after;
    if (!PyDict_CheckExact(rounds) || !PyAnySet_CheckExact(FIELD(LINES))) {
        return 1;
    }
    before = PyDict_GetItemWithError(rounds, line);
    long count = before == NULL ? 0 : PyLong_AsLong(before);
    if (count < 0) {
        return 1;
    }
    if (count >= (FIELD(REDUCING) == Py_False ? self->most : self->fewer)
        && (!PyAnySet_CheckExact(FIELD(STEADY)) || PySet_GET_SIZE(FIELD(STEADY))
            || (is_worth_it(self, elements) && PySet_Contains(FIELD(LINES), line)
                && is_due(self, pending, count + 1)))) {
        return 1;
    }
    after = PyLong_FromLong(count + 1);
    if (after == NULL) {
        return -1;
    }
    int failed = PyDict_SetItem(rounds, line, after) < 0 || PySet_Add(FIELD(LINES), line) < 0;
    Py_DECREF(after);
    return failed ? -1 : 0;
}

static PyObject *slowly(PyObject *pending, PyObject *node)
{
    return PyObject_CallMethodOneArg(pending, name_note, node);
}

static PyObject *note_down(Notes *self, PyObject *pending, PyObject *node)
{
    PyObject *op = NODE(node, op);
    PyObject *arg = NODE(node, arg), *shape = NODE(node, shape);
    if (op == hooks.update_op) { /* what it writes: the shape of a layout */
        shape = IS_LAYOUT(arg) ? PyTuple_GET_ITEM(arg, LAYOUT_SHAPE) : Py_None;
    }
    long long number = line_of(self, pending, node), size = size_of(shape);
    long long elements = PyLong_AsLongLong(FIELD(ELEMENTS));
    if (number < 0 || size < 0 || size >= self->vast || !PyList_CheckExact(FIELD(NODES))
        || is_true_name(self->compound, name_depth)) {
        PyErr_Clear();
        return slowly(pending, node);
    }
    PyObject *line = PyLong_FromLongLong(number);
    int state = line == NULL ? -1 : count_round(self, pending, line, elements);
    if (state) {
        Py_XDECREF(line);
        return state < 0 ? NULL : slowly(pending, node);
    }
    Py_XSETREF(FIELD(LAST), line);
    PyObject *seen = PyWeakref_NewRef(node, NULL);
    if (seen == NULL) {
        return NULL;
    }
    state = PyList_Append(FIELD(NODES), seen);
    Py_DECREF(seen);
    PyObject *kind = PyObject_GetAttr(op, name_kind);
    if (state < 0 || kind == NULL) {
        return NULL;
    }
    if (kind != name_map && PyUnicode_Compare(kind, name_map) != 0) {
        Py_XSETREF(FIELD(PLAIN), Py_NewRef(Py_False));
        if (PyUnicode_CompareWithASCIIString(kind, "reduce") == 0) {
            Py_XSETREF(FIELD(REDUCING), Py_NewRef(Py_True));
        }
    }
    Py_DECREF(kind);
    elements += size;
    if (set_number(&FIELD(ELEMENTS), elements) < 0) {
        return NULL;
    }
    if (PyList_GET_SIZE(FIELD(NODES)) >= PyLong_AsSsize_t(FIELD(NODES_DUE))
        || elements >= PyLong_AsLongLong(FIELD(ELEMENTS_DUE))) {
        return PyObject_CallMethodOneArg(pending, name_check_limits, node);
    }
    Py_RETURN_NONE;
}

/* What a thread has recorded (new): each thread notes its own nodes. */
static PyObject *pending_here(Notes *self)
{
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
    if (thread == self->thread) {
        return Py_NewRef(self->pending);
    }
    PyObject *found = PyObject_CallNoArgs(self->find), *last = self->pending;
    if (found == NULL || (PyObject *)Py_TYPE(found) != self->type) {
        if (found != NULL) { /* else an interrupt has come */
            PyErr_SetString(PyExc_TypeError, "note: expected what a thread has recorded");
        }
        Py_XDECREF(found);
        return NULL;
    }
    self->thread = thread;
    self->pending = Py_NewRef(found);
    Py_XDECREF(last);
    return found;
}

long notes_made;

static PyObject *notes_call(PyObject *callable, PyObject *const *args, size_t count,
                            PyObject *names)
{
    Notes *self = (Notes *)callable;
    if (PyVectorcall_NARGS(count) != 1 || names != NULL || !IS_NODE(args[0])) {
        PyErr_SetString(PyExc_TypeError, "note: expected a node");
        return NULL;
    }
    if (is_tracing()) {
        Py_RETURN_NONE;
    }
    notes_made++;
    PyObject *pending = pending_here(self);
    PyObject *result = pending == NULL ? NULL : note_down(self, pending, args[0]);
    Py_XDECREF(pending);
    return result;
}

static Notes *the_notes; /* made once */

/* Whether the limits under which Python has set the next check are the options' now. */
static int is_due_for_options(PyObject *due)
{
    PyObject *names[] = {name_flush_nodes, name_flush_bytes};
    int same = PyTuple_CheckExact(due) && PyTuple_GET_SIZE(due) == 2 && hooks.options != NULL;
    for (int at = 0; same && at < 2; at++) {
        PyObject *now = PyObject_GetAttr(hooks.options, names[at]);
        same = now != NULL && PyObject_RichCompareBool(now, PyTuple_GET_ITEM(due, at), Py_EQ) == 1;
        Py_XDECREF(now);
    }
    return same;
}

/* As `Pending.reset`, where nothing is pending any more and nothing is to be counted: 1, 0 where
   Python does it, -1 with an exception. */
static int reset_quickly(Notes *self, PyObject *pending)
{
    PyObject *due = FIELD(DUE), *listeners = PyDict_GetItemWithError(hooks.tracing, name_listeners);
    if (listeners == NULL || PyObject_Size(listeners) != 0 || FIELD(LOOPING) != Py_False ||
        !PyAnySet_CheckExact(FIELD(STEADY)) || PySet_GET_SIZE(FIELD(STEADY)) != 0 ||
        !PyAnySet_CheckExact(FIELD(LINES)) || !PyDict_CheckExact(FIELD(ROUNDS)) ||
        !PyTuple_CheckExact(due) || !is_due_for_options(FIELD(DUE_FOR))) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *left = alive_of(FIELD(NODES), NULL);
    Py_ssize_t count = left == NULL ? -1 : PyList_GET_SIZE(left);
    if (count != 0) {
        Py_XDECREF(left);
        return count < 0 ? -1 : 0;
    }
    Py_SETREF(FIELD(NODES), left);
    Py_SETREF(FIELD(PLAIN), Py_NewRef(Py_True));
    Py_SETREF(FIELD(REDUCING), Py_NewRef(Py_False));
    Py_SETREF(FIELD(OVERDUE), Py_NewRef(Py_False));
    Py_SETREF(FIELD(NODES_PLANNED), Py_NewRef(PyTuple_GET_ITEM(due, 0)));
    Py_SETREF(FIELD(NODES_DUE), Py_NewRef(PyTuple_GET_ITEM(due, 0)));
    Py_SETREF(FIELD(ELEMENTS_DUE), Py_NewRef(PyTuple_GET_ITEM(due, 1)));
    PyDict_Clear(FIELD(ROUNDS));
    return PySet_Clear(FIELD(LINES)) < 0 || set_number(&FIELD(ELEMENTS), 0) < 0 ||
                   set_number(&FIELD(WAITING), 0) < 0 ||
                   set_number(&FIELD(ROOM), self->together) < 0
        ? -1 : 1;
}

int reset_recorded(PyObject *pending)
{
    int done = the_notes != NULL && (PyObject *)Py_TYPE(pending) == the_notes->type
        ? reset_quickly(the_notes, pending) : 0;
    if (done == 0) {
        PyObject *found = PyObject_CallMethodNoArgs(pending, name_reset);
        Py_XDECREF(found);
        done = found == NULL ? -1 : 1;
    }
    return done;
}

static void notes_dealloc(PyObject *object)
{
    Notes *self = (Notes *)object;
    Py_XDECREF(self->find);
    Py_XDECREF(self->type);
    Py_XDECREF(self->pending);
    Py_XDECREF(self->warnings);
    Py_XDECREF(self->compound);
    Py_XDECREF(self->flush);
    Py_TYPE(object)->tp_free(object);
}

/* It lives as long as the process: the collector need not find its cycles. */
typedef struct {
    Notes notes;
    vectorcallfunc call;
} CallableNotes;

PyTypeObject NotesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Notes",
    .tp_basicsize = sizeof(CallableNotes),
    .tp_dealloc = notes_dealloc,
    .tp_vectorcall_offset = offsetof(CallableNotes, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "As `flush.Pending.note`, which it calls where there is something to decide.",
};

PyObject *notes_new(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *find, *warnings, *compound, *flush;
    long most, fewer, together;
    long long vast;
    if (!PyArg_ParseTuple(args, "OOO!O!O!lllL", &type, &find, &PyDict_Type, &warnings,
                          &PyDict_Type, &compound, &PyDict_Type, &flush, &most, &fewer,
                          &together, &vast)) {
        return NULL;
    }
    if (hooks.node == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "notes: bind comes first");
        return NULL;
    }
    Py_ssize_t fields[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        if ((fields[i] = slot_offset(type, field_names[i])) < 0) {
            return NULL;
        }
    }
    Notes *made = (Notes *)NotesType.tp_alloc(&NotesType, 0);
    if (made == NULL) {
        return NULL;
    }
    memcpy(made->fields, fields, sizeof fields);
    made->most = most;
    made->fewer = fewer;
    made->together = together;
    made->flush = Py_NewRef(flush);
    made->vast = vast;
    made->thread = UINT64_MAX; /* of no thread */
    made->type = Py_NewRef(type);
    made->find = Py_NewRef(find);
    made->warnings = Py_NewRef(warnings);
    made->compound = Py_NewRef(compound);
    ((CallableNotes *)made)->call = notes_call;
    the_notes = (Notes *)Py_NewRef(made);
    return (PyObject *)made;
}
