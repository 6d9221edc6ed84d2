/* The warm way of one evaluation in C: the walk of codegen/graph/linearize.py, the short way of
 * flush.Pending.note, and the launches of devices/cpu/bound_launch.py.
 *
 * `walk` orders a pending graph and makes its structural key: object for object what `linearize.walk`
 * gives (tests/runtime/capture/test_native_walk.py), which is what runs where no C compiler was there. Reads the slots of `Node` where their descriptors say
 * that they are. No Python code runs while the graph is ordered; what is counted are the references
 * that anybody but the list of nodes and the graph's own edges holds.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <structmember.h>

#include "native/launching.h"

#ifdef Py_GIL_DISABLED
#error "references are counted: the Python text runs in free-threaded builds"
#endif

enum { ARG, DTYPE, OP, PERM, RESIDENT, SHAPE, SRC, VALUE, SLOTS };

static const char *const slot_names[SLOTS] = {
    "arg", "dtype", "op", "perm", "resident", "shape", "src", "value",
};

static Py_ssize_t offsets[SLOTS];
static PyTypeObject *node_type, *memory_type, *layout_type, *host_call_type;
static PyObject *scalar_op, *full_op, *arrangement, *arranged; /* a function, and what it has given */
static PyObject *text_char, *text_number, *text_name, *text_shape, *zero, *one, *minus_one;
static PyObject *text_filters, *text_depth, *text_kind, *text_map, *text_check_limits;

#define SLOT(node, which) (*(PyObject **)((char *)(node) + offsets[which]))

/* ------------------------------------------------------------------------------------ the table */

typedef struct {
    PyObject *key; /* a node; borrowed */
    Py_ssize_t index; /* its position in the order; -1: not there yet */
    Py_ssize_t edges; /* how often pending nodes refer to it */
    int root;
} Entry;

typedef struct {
    Entry *entries;
    size_t mask, used;
    Entry first[64];
} Table;

static size_t place_of(const Table *table, const PyObject *key)
{
    size_t at = ((size_t)key >> 4) * (size_t)0x9E3779B97F4A7C15ull;
    at = (at >> 20) & table->mask;
    while (table->entries[at].key != NULL && table->entries[at].key != key)
        at = (at + 1) & table->mask;
    return at;
}

static void table_begin(Table *table)
{
    table->entries = table->first;
    table->mask = 63;
    table->used = 0;
    memset(table->first, 0, sizeof table->first);
}

static void table_end(Table *table)
{
    if (table->entries != table->first)
        PyMem_Free(table->entries);
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
    for (size_t at = 0; at < before; at++)
        if (old[at].key != NULL)
            made[place_of(table, old[at].key)] = old[at];
    if (old != table->first)
        PyMem_Free(old);
    return 0;
}

/* The entry of a node, made where there is none; good until the next one is made. */
static Entry *entry_of(Table *table, PyObject *key)
{
    size_t at = place_of(table, key);
    if (table->entries[at].key == NULL) {
        if (2 * ++table->used > table->mask) {
            if (table_grow(table) < 0)
                return NULL;
            at = place_of(table, key);
        }
        table->entries[at].key = key;
        table->entries[at].index = -1;
    }
    return &table->entries[at];
}

/* ------------------------------------------------------------------------------------ the order */

static int is_node(PyObject *object)
{
    return Py_IS_TYPE(object, node_type) || PyType_IsSubtype(Py_TYPE(object), node_type);
}

static int is_pending(PyObject *node)
{
    return SLOT(node, VALUE) == Py_None && SLOT(node, RESIDENT) == Py_None;
}

typedef struct {
    PyObject **items;
    Py_ssize_t size, room;
} Stack;

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
    if (entry == NULL)
        return -1;
    entry->index = PyList_GET_SIZE(order);
    return PyList_Append(order, node);
}

/* As `_order`. */
static int order_nodes(PyObject *roots, PyObject *order, Table *table, Stack *stack)
{
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(roots); i++) {
        PyObject *root = PySequence_Fast_GET_ITEM(roots, i);
        if (!is_node(root)) {
            PyErr_SetString(PyExc_TypeError, "linearize: expected nodes");
            return -1;
        }
        Entry *entry = entry_of(table, root);
        if (entry == NULL || push(stack, root) < 0)
            return -1;
        entry->root = 1;
    }
    while (stack->size) {
        PyObject *node = stack->items[stack->size - 1];
        Entry *entry = entry_of(table, node);
        if (entry == NULL)
            return -1;
        if (entry->index >= 0) {
            stack->size--;
            continue;
        }
        if (is_pending(node)) {
            PyObject *src = SLOT(node, SRC);
            int waiting = 0;
            if (!PyTuple_Check(src)) {
                PyErr_SetString(PyExc_TypeError, "linearize: expected a tuple of sources");
                return -1;
            }
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(src); i++) {
                PyObject *source = PyTuple_GET_ITEM(src, i);
                if (!is_node(source)) {
                    PyErr_SetString(PyExc_TypeError, "linearize: expected nodes");
                    return -1;
                }
                Entry *found = entry_of(table, source);
                if (found == NULL)
                    return -1;
                if (found->index >= 0)
                    continue;
                if (is_pending(source)) {
                    if (push(stack, source) < 0)
                        return -1;
                    waiting = 1;
                }
                else if (append(order, table, source) < 0)
                    return -1;
            }
            if (waiting)
                continue;
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(src); i++) {
                Entry *found = entry_of(table, PyTuple_GET_ITEM(src, i));
                if (found == NULL)
                    return -1;
                found->edges++;
            }
        }
        if (append(order, table, node) < 0)
            return -1;
        stack->size--;
    }
    return 0;
}

/* -------------------------------------------------------------------------------------- the key */

typedef struct {
    PyObject *sizes, *shapes, *layouts, *memories;
} Numbers;

enum { ARRANGED = 4096 }; /* arrangements kept at most: linearize._AXES_LIMIT */

/* `numbers.setdefault(key, len(numbers))`; a new reference. */
static PyObject *number_of(PyObject *numbers, PyObject *key)
{
    PyObject *found = PyDict_GetItemWithError(numbers, key);
    if (found != NULL)
        return Py_NewRef(found);
    if (PyErr_Occurred())
        return NULL;
    found = PyLong_FromSsize_t(PyDict_GET_SIZE(numbers));
    if (found != NULL && PyDict_SetItem(numbers, key, found) < 0)
        Py_CLEAR(found);
    return found;
}

/* The numbers of the sizes of a shape; a new reference. */
static PyObject *ids_of(Numbers *numbers, PyObject *shape)
{
    PyObject *found = PyDict_GetItemWithError(numbers->shapes, shape);
    if (found != NULL)
        return Py_NewRef(found);
    if (PyErr_Occurred())
        return NULL;
    if (!PyTuple_Check(shape)) {
        PyErr_SetString(PyExc_TypeError, "linearize: expected a tuple as shape");
        return NULL;
    }
    found = PyTuple_New(PyTuple_GET_SIZE(shape));
    if (found == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++) {
        PyObject *number = number_of(numbers->sizes, PyTuple_GET_ITEM(shape, i));
        if (number == NULL) {
            Py_DECREF(found);
            return NULL;
        }
        PyTuple_SET_ITEM(found, i, number);
    }
    if (PyDict_SetItem(numbers->shapes, shape, found) < 0)
        Py_CLEAR(found);
    return found;
}

/* A tuple of items whose references it takes over; any of them may be NULL after an error. */
static PyObject *pack(Py_ssize_t count, PyObject **items)
{
    PyObject *made = NULL;
    int whole = 1;
    for (Py_ssize_t i = 0; i < count; i++)
        whole = whole && items[i] != NULL;
    if (whole)
        made = PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (made != NULL)
            PyTuple_SET_ITEM(made, i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    return made;
}

static PyObject *evaluated_key(Numbers *numbers, PyObject *node, PyObject *ids)
{
    PyObject *character = PyObject_GetAttr(SLOT(node, DTYPE), text_char);
    if (SLOT(node, OP) == scalar_op) {
        PyObject *items[2] = {Py_NewRef(zero), character};
        return pack(2, items);
    }
    PyObject *arg = SLOT(node, ARG), *place = NULL;
    int is_memory = PyObject_TypeCheck(arg, memory_type);
    PyObject *identity = PyLong_FromVoidPtr(is_memory ? arg : node);
    if (identity != NULL) {
        place = number_of(numbers->memories, identity);
        Py_DECREF(identity);
    }
    PyObject *items[5] = {
        Py_NewRef(one), character, Py_NewRef(ids), Py_NewRef(SLOT(node, PERM)), place,
    };
    return pack(5, items);
}

/* As `_arrangement`, which is asked once per layout, shape and order; a new reference. */
static PyObject *arrangement_of(PyObject *node, PyObject *layout)
{
    PyObject *src = SLOT(node, SRC), *key, *found;
    if (PyTuple_GET_SIZE(src) == 0 || !is_node(PyTuple_GET_ITEM(src, 0)))
        return PyObject_CallOneArg(arrangement, node);
    PyObject *base = PyTuple_GET_ITEM(src, 0);
    key = PyTuple_Pack(4, SLOT(node, OP), layout, SLOT(base, SHAPE), SLOT(base, PERM));
    found = key ? PyDict_GetItemWithError(arranged, key) : NULL;
    if (found != NULL)
        Py_INCREF(found);
    else if (!PyErr_Occurred() && (found = PyObject_CallOneArg(arrangement, node)) != NULL) {
        if (PyDict_GET_SIZE(arranged) >= ARRANGED)
            PyDict_Clear(arranged);
        if (PyDict_SetItem(arranged, key, found) < 0)
            Py_CLEAR(found);
    }
    Py_XDECREF(key);
    return found;
}

/* What a key has of a pending node's argument; a new reference. */
static PyObject *argument_key(Numbers *numbers, PyObject *node)
{
    PyObject *arg = SLOT(node, ARG);
    if (Py_IS_TYPE(arg, host_call_type))
        return PyObject_GetAttr(arg, text_name);
    if (!Py_IS_TYPE(arg, layout_type))
        return Py_NewRef(arg);
    PyObject *shape = PyObject_GetAttr(arg, text_shape), *items[3];
    items[0] = shape ? number_of(numbers->layouts, arg) : NULL;
    items[1] = items[0] ? ids_of(numbers, shape) : NULL;
    items[2] = items[1] ? arrangement_of(node, arg) : NULL;
    Py_XDECREF(shape);
    return pack(3, items);
}

static PyObject *pending_key(Numbers *numbers, Table *table, PyObject *node, PyObject *ids, int keep)
{
    /* held: the collector may run code that evaluates the node, which lets go of its sources */
    PyObject *sources = Py_NewRef(SLOT(node, SRC));
    PyObject *src = PyTuple_New(PyTuple_GET_SIZE(sources));
    for (Py_ssize_t i = 0; src != NULL && i < PyTuple_GET_SIZE(sources); i++) {
        size_t at = place_of(table, PyTuple_GET_ITEM(sources, i));
        PyObject *number = PyLong_FromSsize_t(table->entries[at].index);
        if (number == NULL)
            Py_CLEAR(src);
        else
            PyTuple_SET_ITEM(src, i, number);
    }
    Py_DECREF(sources);
    if (src == NULL)
        return NULL;
    PyObject *items[7] = {
        PyObject_GetAttr(SLOT(node, OP), text_number),
        src,
        Py_NewRef(ids),
        PyObject_GetAttr(SLOT(node, DTYPE), text_char),
        argument_key(numbers, node),
        Py_NewRef(SLOT(node, PERM)),
        PyBool_FromLong(keep),
    };
    return pack(7, items);
}

/* Fills key and held; both have the length of the order. */
static int make_key(PyObject *order, Table *table, Numbers *numbers, PyObject *key, PyObject *held)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(order); i++) {
        PyObject *node = PyList_GET_ITEM(order, i), *ids = ids_of(numbers, SLOT(node, SHAPE));
        PyObject *part;
        int keep = 0;
        if (ids == NULL)
            return -1;
        if (!is_pending(node))
            part = evaluated_key(numbers, node, ids);
        else {
            const Entry *entry = &table->entries[place_of(table, node)];
            /* the list of nodes holds one reference; a constant array that somebody holds is
               cheaper to make again than to write now */
            keep = entry->root
                || (Py_REFCNT(node) > 1 + entry->edges && SLOT(node, OP) != full_op);
            part = pending_key(numbers, table, node, ids, keep);
        }
        Py_DECREF(ids);
        if (part == NULL)
            return -1;
        PyTuple_SET_ITEM(key, i, part);
        PyList_SET_ITEM(held, i, PyBool_FromLong(keep));
    }
    return 0;
}

static PyObject *edges_of(PyObject *order, Table *table)
{
    PyObject *edges = PyDict_New();
    for (Py_ssize_t i = 0; edges != NULL && i < PyList_GET_SIZE(order); i++) {
        PyObject *node = PyList_GET_ITEM(order, i);
        Py_ssize_t count = table->entries[place_of(table, node)].edges;
        if (!count)
            continue;
        PyObject *identity = PyLong_FromVoidPtr(node), *number = PyLong_FromSsize_t(count);
        if (!identity || !number || PyDict_SetItem(edges, identity, number) < 0)
            Py_CLEAR(edges);
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

static PyObject *walk(PyObject *self, PyObject *given)
{
    if (node_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "walk: setup comes first");
        return NULL;
    }
    PyObject *items[5] = {NULL}; /* nodes, key, held, edges, sizes */
    PyObject *roots = PySequence_Fast(given, "linearize: expected a sequence of nodes");
    Numbers numbers = {NULL};
    Stack stack = {NULL};
    Table table;
    if (roots == NULL)
        return NULL;
    table_begin(&table);
    items[0] = PyList_New(0);
    int done = items[0] != NULL && order_nodes(roots, items[0], &table, &stack) == 0;
    PyMem_Free(stack.items);
    if (done && begin_numbers(&numbers) == 0) {
        items[1] = PyTuple_New(PyList_GET_SIZE(items[0]));
        items[2] = PyList_New(PyList_GET_SIZE(items[0]));
        if (items[1] && items[2]
            && make_key(items[0], &table, &numbers, items[1], items[2]) == 0) {
            items[3] = edges_of(items[0], &table);
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

/* --------------------------------------------------------------------------------------- notes */

enum {
    ELEMENTS, ELEMENTS_DUE, FILTERS, FILTERS_FIRST, FILTERS_SIZE, LAST, LINES, NODES, NODES_DUE,
    PLAIN, REDUCING, ROOM, ROUNDS, STEADY, WAITING, FIELDS
};

static const char *const field_names[FIELDS] = {
    "elements", "elements_due", "filters", "filters_first", "filters_size", "last", "lines", "nodes",
    "nodes_due", "plain", "reducing", "room", "rounds", "steady", "waiting",
};

/* What writes nodes down: `flush.Pending.note`, and its short way here. */
typedef struct {
    PyObject_HEAD
    PyObject *pending, *slow, *update, *warnings, *composite; /* the last two: modules' names */
    Py_ssize_t fields[FIELDS], where;
    long most, fewer; /* rounds that are nothing to look at: of others, of turns that reduce */
    long together; /* pending nodes from which turns are not put together any more */
} Notes;

#define FIELD(self, which) (*(PyObject **)((char *)(self)->pending + (self)->fields[which]))

static int is_true_name(PyObject *names, PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(names, name);
    return found != NULL && PyObject_IsTrue(found) == 0 ? 0 : 1;
}

/* The line of a node as a number, as `flush.line_of`; -1: somebody has to look. */
static long long line_of(Notes *self, PyObject *node)
{
    PyObject *where = *(PyObject **)((char *)node + self->where);
    if (where == NULL || !PyTuple_CheckExact(where) || PyTuple_GET_SIZE(where) != 2)
        return -1;
    PyObject *filters = PyDict_GetItemWithError(self->warnings, text_filters);
    if (filters == NULL || filters != FIELD(self, FILTERS) || !PyList_CheckExact(filters))
        return -1;
    Py_ssize_t count = PyList_GET_SIZE(filters);
    if (PyLong_AsSsize_t(FIELD(self, FILTERS_SIZE)) != count
        || (count && PyList_GET_ITEM(filters, 0) != FIELD(self, FILTERS_FIRST)))
        return -1; /* changed, or warnings are errors */
    long offset = PyLong_AsLong(PyTuple_GET_ITEM(where, 1));
    return ((long long)(size_t)PyTuple_GET_ITEM(where, 0) << 16) + offset;
}

/* Elements of a shape; -1: somebody has to look. */
static long long size_of(PyObject *shape)
{
    long long size = 1;
    if (!PyTuple_CheckExact(shape))
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++) {
        long long length = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
        if (length < 0 || (length > 0 && size > LLONG_MAX / length))
            return -1;
        size *= length;
    }
    return size;
}

static int set_number(PyObject **place, long long number)
{
    PyObject *made = PyLong_FromLongLong(number);
    if (made == NULL)
        return -1;
    Py_XSETREF(*place, made);
    return 0;
}

/* Whether a line that has come round so often may end the turn. */
static int is_due(Notes *self, long rounds)
{
    long room = PyLong_AsLong(FIELD(self, ROOM)); /* above `together`: turns are not counted */
    return FIELD(self, PLAIN) != Py_True || self->most <= 0
        || (rounds % self->most == 1 && room <= self->together)
        || PyList_GET_SIZE(FIELD(self, NODES)) >= room
        || !PyLong_CheckExact(FIELD(self, WAITING)) || PyLong_AsLong(FIELD(self, WAITING)) != 0;
}

/* Counts one more round of a line; 0: done, 1: somebody has to look, -1: an error. */
static int count_round(Notes *self, PyObject *line)
{
    PyObject *rounds = FIELD(self, ROUNDS), *before, *after;
    if (!PyDict_CheckExact(rounds) || !PyAnySet_CheckExact(FIELD(self, LINES)))
        return 1;
    before = PyDict_GetItemWithError(rounds, line);
    long count = before == NULL ? 0 : PyLong_AsLong(before);
    if (count < 0)
        return 1;
    if (count >= (FIELD(self, REDUCING) == Py_False ? self->most : self->fewer)
        && (!PyAnySet_CheckExact(FIELD(self, STEADY)) || PySet_GET_SIZE(FIELD(self, STEADY))
            || (PySet_Contains(FIELD(self, LINES), line) && is_due(self, count + 1))))
        return 1;
    after = PyLong_FromLong(count + 1);
    if (after == NULL)
        return -1;
    int failed = PyDict_SetItem(rounds, line, after) < 0 || PySet_Add(FIELD(self, LINES), line) < 0;
    Py_DECREF(after);
    return failed ? -1 : 0;
}

static PyObject *notes_call(PyObject *callable, PyObject *const *args, size_t count, PyObject *names)
{
    Notes *self = (Notes *)callable;
    if (PyVectorcall_NARGS(count) != 1 || names != NULL || !Py_IS_TYPE(args[0], node_type))
        return PyObject_Vectorcall(self->slow, args, count, names);
    PyObject *node = args[0], *op = SLOT(node, OP);
    PyObject *arg = SLOT(node, ARG), *shape = SLOT(node, SHAPE);
    if (op == self->update) /* what it writes: the shape of a layout */
        shape = Py_IS_TYPE(arg, layout_type) ? PyTuple_GET_ITEM(arg, 1) : Py_None;
    long long number = line_of(self, node), size = size_of(shape);
    long long elements = PyLong_AsLongLong(FIELD(self, ELEMENTS));
    if (number < 0 || size < 0 || !PyList_CheckExact(FIELD(self, NODES))
        || is_true_name(self->composite, text_depth)) {
        PyErr_Clear();
        return PyObject_CallOneArg(self->slow, node);
    }
    PyObject *line = PyLong_FromLongLong(number);
    int state = line == NULL ? -1 : count_round(self, line);
    if (state) {
        Py_XDECREF(line);
        return state < 0 ? NULL : PyObject_CallOneArg(self->slow, node);
    }
    Py_XSETREF(FIELD(self, LAST), line);
    PyObject *seen = PyWeakref_NewRef(node, NULL);
    if (seen == NULL)
        return NULL;
    state = PyList_Append(FIELD(self, NODES), seen);
    Py_DECREF(seen);
    PyObject *kind = PyObject_GetAttr(op, text_kind);
    if (state < 0 || kind == NULL)
        return NULL;
    if (kind != text_map && PyUnicode_Compare(kind, text_map) != 0) {
        Py_XSETREF(FIELD(self, PLAIN), Py_NewRef(Py_False));
        if (PyUnicode_CompareWithASCIIString(kind, "reduce") == 0)
            Py_XSETREF(FIELD(self, REDUCING), Py_NewRef(Py_True));
    }
    Py_DECREF(kind);
    elements += size;
    if (set_number(&FIELD(self, ELEMENTS), elements) < 0)
        return NULL;
    if (PyList_GET_SIZE(FIELD(self, NODES)) >= PyLong_AsSsize_t(FIELD(self, NODES_DUE))
        || elements >= PyLong_AsLongLong(FIELD(self, ELEMENTS_DUE)))
        return PyObject_CallMethodOneArg(self->pending, text_check_limits, node);
    Py_RETURN_NONE;
}

static void notes_dealloc(PyObject *object)
{
    Notes *self = (Notes *)object;
    Py_XDECREF(self->pending);
    Py_XDECREF(self->slow);
    Py_XDECREF(self->update);
    Py_XDECREF(self->warnings);
    Py_XDECREF(self->composite);
    Py_TYPE(object)->tp_free(object);
}

/* It lives as long as the process: no cycle that it is part of has to be found. */
typedef struct {
    Notes notes;
    vectorcallfunc call;
} CallableNotes;

static PyTypeObject notes_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._walk.Notes",
    .tp_basicsize = sizeof(CallableNotes),
    .tp_dealloc = notes_dealloc,
    .tp_vectorcall_offset = offsetof(CallableNotes, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Calls `slow(node)`, or does the same where nothing has to be looked at.",
};

static Py_ssize_t offset_of(PyObject *type, const char *name);

static PyObject *notes(PyObject *self, PyObject *args)
{
    PyObject *pending, *slow, *update, *warnings, *composite;
    long most, fewer, together;
    if (!PyArg_ParseTuple(args, "OOOO!O!lll", &pending, &slow, &update, &PyDict_Type, &warnings,
                          &PyDict_Type, &composite, &most, &fewer, &together))
        return NULL;
    if (node_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "notes: setup comes first");
        return NULL;
    }
    Py_ssize_t fields[FIELDS], where = offset_of((PyObject *)node_type, "where");
    if (where < 0)
        return NULL;
    for (int i = 0; i < FIELDS; i++)
        if ((fields[i] = offset_of((PyObject *)Py_TYPE(pending), field_names[i])) < 0)
            return NULL;
    Notes *made = (Notes *)notes_type.tp_alloc(&notes_type, 0);
    if (made == NULL)
        return NULL;
    memcpy(made->fields, fields, sizeof fields);
    made->where = where;
    made->most = most;
    made->fewer = fewer;
    made->together = together;
    made->pending = Py_NewRef(pending);
    made->slow = Py_NewRef(slow);
    made->update = Py_NewRef(update);
    made->warnings = Py_NewRef(warnings);
    made->composite = Py_NewRef(composite);
    ((CallableNotes *)made)->call = notes_call;
    return (PyObject *)made;
}

/* ------------------------------------------------------------------------------------- frontier */

/* The pending nodes behind weak references, in their order, but for `newest`; a new list. */
static PyObject *alive_of(PyObject *references, PyObject *newest)
{
    PyObject *alive = PyList_New(0);
    if (alive == NULL || !PyList_Check(references)) {
        if (alive != NULL)
            PyErr_SetString(PyExc_TypeError, "frontier: expected a list of references");
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
        if (node == Py_None || node == newest || !is_node(node) || !is_pending(node))
            continue;
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
        if (entry == NULL || push(stack, node) < 0)
            return -1;
        entry->index = 0;
    }
    for (Py_ssize_t i = 0; i < stack->size; i++) {
        PyObject *src = SLOT(stack->items[i], SRC);
        for (Py_ssize_t k = 0; PyTuple_Check(src) && k < PyTuple_GET_SIZE(src); k++) {
            PyObject *source = PyTuple_GET_ITEM(src, k);
            Entry *entry = is_node(source) ? entry_of(table, source) : NULL;
            if (entry == NULL) {
                if (!PyErr_Occurred())
                    PyErr_SetString(PyExc_TypeError, "frontier: expected nodes");
                return -1;
            }
            entry->edges++;
            /* an operation in place is a node more than was noted: look through it */
            if (entry->index < 0 && is_pending(source)) {
                entry->index = 0;
                if (push(stack, source) < 0)
                    return -1;
            }
        }
    }
    return 0;
}

/* frontier(references, newest): as `Pending.frontier`, parameters included. */
static PyObject *frontier(PyObject *self, PyObject *args)
{
    PyObject *references, *newest, *found = NULL;
    if (!PyArg_ParseTuple(args, "OO", &references, &newest))
        return NULL;
    if (node_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "frontier: setup comes first");
        return NULL;
    }
    PyObject *alive = alive_of(references, newest);
    Stack stack = {NULL};
    Table table;
    if (alive == NULL)
        return NULL;
    table_begin(&table);
    if (count_reads(alive, &table, &stack) == 0 && (found = PyList_New(0)) != NULL)
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(alive); i++) {
            PyObject *node = PyList_GET_ITEM(alive, i);
            if (table.entries[place_of(&table, node)].edges == 0
                && PyList_Append(found, node) < 0) {
                Py_CLEAR(found);
                break;
            }
        }
    PyMem_Free(stack.items);
    table_end(&table);
    Py_DECREF(alive);
    return found;
}

/* ---------------------------------------------------------------------------------------- rows */

/* Words shared by threads, a cache line of their own, lie in front of the rows: launch.py. */
enum { HEAD = 8, FLAGS_WORD = 2, SCALAR_BYTES = 16, FEW_SCALARS = 16, FEW_ARRAYS = 32 };

typedef int32_t (*Chunk)(const int64_t *row, const char *scalars);
typedef int32_t (*Loop)(Chunk, int64_t *rows, const char *scalars, int64_t *words, int64_t count,
                        int64_t bytes, int64_t spins);
typedef int32_t (*Share)(void *crew, int64_t helpers, Loop, Chunk, int64_t *rows,
                         const char *scalars, int64_t *words, int64_t count, int64_t bytes);

/* A launch with nothing but addresses and scalars to fill in: devices/cpu/bound_launch.py. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *codes, *keep; /* kinds of the scalars; what holds the code */
    Chunk entry;
    int64_t *template, *memory; /* `memory`: of the launch at hand, 64 bytes aligned in `raw` */
    char *raw;
    Py_ssize_t count, width, arrays, *columns;
    int busy;
} Rows;

static PyTypeObject *array_type;

static size_t rows_bytes(const Rows *self)
{
    return (HEAD + (size_t)(self->count * self->width)) * sizeof(int64_t);
}

static int64_t *aligned(char *raw)
{
    return (int64_t *)(((uintptr_t)raw + 63) & ~(uintptr_t)63);
}

/* The address of an array, or an address as it is; -1 with an error for anything else. */
static int64_t address_of(PyObject *object)
{
    if (Py_IS_TYPE(object, array_type)) /* the data pointer follows the object's head */
        return (int64_t)(uintptr_t) * (void **)((char *)object + sizeof(PyObject));
    if (PyLong_CheckExact(object))
        return PyLong_AsLongLong(object);
    PyErr_SetString(PyExc_TypeError, "rows: expected arrays or addresses");
    return -1;
}

static int pack_scalars(PyObject *codes, PyObject *values, char *to)
{
    const char *kinds = PyUnicode_AsUTF8(codes);
    Py_ssize_t count = PyUnicode_GET_LENGTH(codes);
    if (kinds == NULL)
        return -1;
    if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) != count) {
        PyErr_SetString(PyExc_ValueError, "rows: expected as many scalars as the program has");
        return -1;
    }
    memset(to, 0, count * SCALAR_BYTES);
    for (Py_ssize_t i = 0; i < count; i++, to += SCALAR_BYTES) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        if (kinds[i] == 'f') {
            double number = PyFloat_AsDouble(value);
            memcpy(to, &number, sizeof number);
        }
        else if (kinds[i] == 'c') {
            Py_complex number = PyComplex_AsCComplex(value);
            memcpy(to, &number, sizeof number);
        }
        else {
            PyObject *whole = PyNumber_Long(value);
            if (whole == NULL)
                return -1;
            if (kinds[i] == 'u') {
                unsigned long long number = PyLong_AsUnsignedLongLong(whole);
                memcpy(to, &number, sizeof number);
            }
            else {
                long long number = PyLong_AsLongLong(whole);
                memcpy(to, &number, sizeof number);
            }
            Py_DECREF(whole);
        }
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static void fill_rows(const Rows *self, const int64_t *addresses, int64_t *memory)
{
    memset(memory, 0, HEAD * sizeof(int64_t));
    memcpy(memory + HEAD, self->template, self->count * self->width * sizeof(int64_t));
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        int64_t *place = memory + HEAD + self->columns[i];
        for (Py_ssize_t row = 0; row < self->count; row++, place += self->width)
            *place += addresses[i];
    }
}

/* As `Launching.launch`. */
static long launch(PyObject *object, const int64_t *addresses, const char *scalars, const Crew *crew)
{
    Rows *self = (Rows *)object;
    int64_t *memory = self->memory;
    char *raw = NULL;
    long flags = 0;
    int mine = !self->busy; /* another thread may be inside, without the interpreter's lock */
    if (!mine) {
        raw = PyMem_Malloc(rows_bytes(self) + 64);
        if (raw == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memory = aligned(raw);
    }
    self->busy = 1;
    fill_rows(self, addresses, memory);
    int64_t *rows = memory + HEAD, bytes = 8 * self->width;
    Loop loop = (Loop)crew->loop;
    Py_INCREF(self);
    Py_BEGIN_ALLOW_THREADS
    if (self->count == 1)
        flags = self->entry(rows, scalars);
    else if (crew->helpers > 0)
        ((Share)crew->share)(crew->crew, crew->helpers, loop, self->entry, rows, scalars, memory,
                             self->count, bytes);
    else
        loop(self->entry, rows, scalars, memory, self->count, bytes, 0);
    Py_END_ALLOW_THREADS
    if (self->count != 1)
        flags = (long)memory[FLAGS_WORD];
    if (mine)
        self->busy = 0;
    PyMem_Free(raw);
    Py_DECREF(self);
    return flags;
}

/* `rows(arrays, scalars)`, or with `loop, share, crew, helpers` where there are several rows. */
static PyObject *rows_call(PyObject *callable, PyObject *const *args, size_t count, PyObject *names)
{
    Rows *self = (Rows *)callable;
    Py_ssize_t given = PyVectorcall_NARGS(count);
    Crew crew = {NULL, NULL, NULL, 0};
    char few[FEW_SCALARS * SCALAR_BYTES], *scalars = few;
    int64_t several[FEW_ARRAYS], *addresses = several;
    PyObject *result = NULL;
    if (names != NULL || given != (self->count == 1 ? 2 : 6)) {
        PyErr_SetString(PyExc_TypeError, "rows: expected arrays, scalars, and threads to share");
        return NULL;
    }
    if (given == 6) {
        crew.loop = PyLong_AsVoidPtr(args[2]);
        crew.share = PyLong_AsVoidPtr(args[3]);
        crew.crew = PyLong_AsVoidPtr(args[4]);
        crew.helpers = PyLong_AsSsize_t(args[5]);
        if (PyErr_Occurred())
            return NULL;
    }
    if (!PyList_Check(args[0]) || PyList_GET_SIZE(args[0]) != self->arrays) {
        PyErr_SetString(PyExc_ValueError, "rows: expected a list of the program's arrays");
        return NULL;
    }
    if (PyUnicode_GET_LENGTH(self->codes) > FEW_SCALARS)
        scalars = PyMem_Malloc(PyUnicode_GET_LENGTH(self->codes) * SCALAR_BYTES);
    if (self->arrays > FEW_ARRAYS)
        addresses = PyMem_Malloc(self->arrays * sizeof(int64_t));
    if (scalars == NULL || addresses == NULL)
        PyErr_NoMemory();
    else if (pack_scalars(self->codes, args[1], scalars) == 0) {
        Py_ssize_t at = 0;
        for (; at < self->arrays; at++) {
            addresses[at] = address_of(PyList_GET_ITEM(args[0], at));
            if (addresses[at] == -1 && PyErr_Occurred())
                break;
        }
        if (at == self->arrays) {
            long flags = launch(callable, addresses, scalars, &crew);
            result = flags == -1 && PyErr_Occurred() ? NULL : PyLong_FromLong(flags);
        }
    }
    if (addresses != several)
        PyMem_Free(addresses);
    if (scalars != few)
        PyMem_Free(scalars);
    return result;
}

static void rows_dealloc(PyObject *object)
{
    Rows *self = (Rows *)object;
    Py_XDECREF(self->codes);
    Py_XDECREF(self->keep);
    PyMem_Free(self->template);
    PyMem_Free(self->raw);
    PyMem_Free(self->columns);
    Py_TYPE(object)->tp_free(object);
}

static PyTypeObject rows_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._walk.Rows",
    .tp_basicsize = sizeof(Rows),
    .tp_dealloc = rows_dealloc,
    .tp_vectorcall_offset = offsetof(Rows, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A launch with nothing but addresses and scalars to fill in.",
};

/* As `Launching.look`. */
static Py_ssize_t look(PyObject *object, Py_ssize_t *arrays, const char **kinds)
{
    if (!Py_IS_TYPE(object, &rows_type))
        return -1;
    *arrays = ((Rows *)object)->arrays;
    *kinds = PyUnicode_AsUTF8(((Rows *)object)->codes);
    return *kinds == NULL ? -1 : ((Rows *)object)->count;
}

/* rows(array type, template, columns, width, kinds of scalars, entry, keep) */
static PyObject *rows(PyObject *module, PyObject *args)
{
    PyObject *kind, *columns, *codes, *entry, *keep;
    Py_buffer template;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(args, "O!y*O!nUOO", &PyType_Type, &kind, &template, &PyTuple_Type,
                          &columns, &width, &codes, &entry, &keep))
        return NULL;
    Rows *made = (Rows *)rows_type.tp_alloc(&rows_type, 0);
    if (made != NULL && (width < 1 || !template.len || template.len % (8 * width))) {
        PyErr_SetString(PyExc_ValueError, "rows: expected whole rows");
        Py_CLEAR(made);
    }
    if (made != NULL) {
        Py_XSETREF(array_type, (PyTypeObject *)Py_NewRef(kind));
        made->call = rows_call;
        made->codes = Py_NewRef(codes);
        made->keep = Py_NewRef(keep);
        made->entry = (Chunk)PyLong_AsVoidPtr(entry);
        made->width = width;
        made->count = template.len / (8 * width);
        made->arrays = PyTuple_GET_SIZE(columns);
        made->template = PyMem_Malloc(template.len);
        made->raw = PyMem_Malloc(rows_bytes(made) + 64);
        made->columns = PyMem_Calloc(made->arrays + 1, sizeof(Py_ssize_t));
        if (!made->template || !made->raw || !made->columns) {
            PyErr_NoMemory();
            Py_CLEAR(made);
        }
    }
    for (Py_ssize_t i = 0; made != NULL && i < made->arrays; i++) {
        made->columns[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(columns, i));
        if (made->columns[i] < 0 || made->columns[i] >= width) {
            PyErr_SetString(PyExc_ValueError, "rows: expected places in a row");
            Py_CLEAR(made);
        }
    }
    if (made != NULL && PyErr_Occurred())
        Py_CLEAR(made);
    if (made != NULL) {
        memcpy(made->template, template.buf, template.len);
        made->memory = aligned(made->raw);
    }
    PyBuffer_Release(&template);
    return (PyObject *)made;
}

/* ----------------------------------------------------------------------------------------- copies */

enum { COPY_RANK = 8, LET_GO = 1 << 16 }; /* bytes from which Python's lock is let go */
#define APART ((int64_t)1 << 40) /* beside the item: no element of one is one of the other's */

typedef struct {
    int64_t item, rank, dims[COPY_RANK], to[COPY_RANK], from[COPY_RANK];
} Copying;

/* The first byte of what strides reach, and how many bytes from there on. */
static void reach(const Copying *c, const int64_t *strides, int64_t *low, int64_t *length)
{
    *low = 0;
    *length = c->item;
    for (int64_t axis = 0; axis < c->rank; axis++) {
        int64_t far = (c->dims[axis] - 1) * strides[axis];
        *low += far < 0 ? far : 0;
        *length += far < 0 ? -far : far;
    }
}

/* Axes of length one go, axes that follow each other in both memories become one. */
static void joined(Copying *c)
{
    int64_t rank = 0;
    for (int64_t axis = 0; axis < c->rank; axis++) {
        if (c->dims[axis] == 1)
            continue;
        if (rank > 0 && c->to[rank - 1] == c->to[axis] * c->dims[axis]
            && c->from[rank - 1] == c->from[axis] * c->dims[axis])
            c->dims[rank - 1] *= c->dims[axis];
        else
            c->dims[rank++] = c->dims[axis];
        c->to[rank - 1] = c->to[axis];
        c->from[rank - 1] = c->from[axis];
    }
    c->rank = rank;
}

#define ELEMENTS_OF(bytes)                                                                             \
    case bytes:                                                                                        \
        for (int64_t i = 0; i < count; i++, to += there, from += here)                                 \
            memcpy(to, from, bytes);                                                                   \
        break

static void copy_axis(const Copying *c, int64_t axis, char *to, const char *from)
{
    if (c->rank == 0) {
        memcpy(to, from, c->item);
        return;
    }
    int64_t count = c->dims[axis], there = c->to[axis], here = c->from[axis];
    if (axis + 1 < c->rank) {
        for (int64_t i = 0; i < count; i++, to += there, from += here)
            copy_axis(c, axis + 1, to, from);
        return;
    }
    if (there == c->item && here == c->item) {
        memcpy(to, from, count * c->item);
        return;
    }
    switch (c->item) {
        ELEMENTS_OF(1);
        ELEMENTS_OF(2);
        ELEMENTS_OF(4);
        ELEMENTS_OF(8);
        ELEMENTS_OF(16);
    default:
        for (int64_t i = 0; i < count; i++, to += there, from += here)
            memcpy(to, from, c->item);
    }
}

/* As `Launching.copy`. The description is bytes of numbers: item (and APART), rank, lengths, strides
   of the target, of the source. */
static int copy_elements(int64_t target, int64_t source, PyObject *description)
{
    Copying c;
    const int64_t *numbers = (const int64_t *)PyBytes_AS_STRING(description);
    Py_ssize_t length = PyBytes_GET_SIZE(description);
    if (length < 16 || numbers[1] < 0 || numbers[1] > COPY_RANK || length != 8 * (2 + 3 * numbers[1])) {
        PyErr_SetString(PyExc_ValueError, "copy: expected item, rank, lengths and strides");
        return -1;
    }
    c.item = numbers[0] & (APART - 1);
    c.rank = numbers[1];
    memcpy(c.dims, numbers + 2, 8 * c.rank);
    memcpy(c.to, numbers + 2 + c.rank, 8 * c.rank);
    memcpy(c.from, numbers + 2 + 2 * c.rank, 8 * c.rank);
    int64_t low, size, other, width, bytes = c.item;
    reach(&c, c.to, &low, &size);
    reach(&c, c.from, &other, &width);
    if (!(numbers[0] & APART) && target + low < source + other + width
        && source + other < target + low + size)
        return 0;
    for (int64_t axis = 0; axis < c.rank; axis++)
        bytes *= c.dims[axis];
    joined(&c);
    if (bytes < LET_GO)
        copy_axis(&c, 0, (char *)(uintptr_t)target, (const char *)(uintptr_t)source);
    else {
        Py_BEGIN_ALLOW_THREADS
        copy_axis(&c, 0, (char *)(uintptr_t)target, (const char *)(uintptr_t)source);
        Py_END_ALLOW_THREADS
    }
    return 1;
}

/* copy(target, source, description): elements from address to address; False where memory meets. */
static PyObject *copy(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyBytes_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "copy: expected two addresses and bytes");
        return NULL;
    }
    int64_t target = PyLong_AsLongLong(args[0]), source = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    int done = copy_elements(target, source, args[2]);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

static Launching launching = {launch, look, copy_elements};

/* ------------------------------------------------------------------------------------- the module */

/* Where the instances of a class have a slot; -1 with an error if it is none. */
static Py_ssize_t offset_of(PyObject *type, const char *name)
{
    PyObject *slot = PyObject_GetAttrString(type, name);
    Py_ssize_t offset = -1;
    if (slot == NULL)
        return -1;
    if (Py_IS_TYPE(slot, &PyMemberDescr_Type)
        && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)slot)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s: expected a slot", name);
    Py_DECREF(slot);
    return offset;
}

static PyObject *setup(PyObject *self, PyObject *args)
{
    PyObject *node, *memory, *layout, *host_call, *scalar, *full, *arrange;
    if (!PyArg_ParseTuple(args, "O!O!O!O!OOO", &PyType_Type, &node, &PyType_Type, &memory,
                          &PyType_Type, &layout, &PyType_Type, &host_call, &scalar, &full, &arrange))
        return NULL;
    Py_ssize_t found[SLOTS];
    for (int i = 0; i < SLOTS; i++)
        if ((found[i] = offset_of(node, slot_names[i])) < 0)
            return NULL;
    memcpy(offsets, found, sizeof offsets);
    Py_XSETREF(node_type, (PyTypeObject *)Py_NewRef(node));
    Py_XSETREF(memory_type, (PyTypeObject *)Py_NewRef(memory));
    Py_XSETREF(layout_type, (PyTypeObject *)Py_NewRef(layout));
    Py_XSETREF(host_call_type, (PyTypeObject *)Py_NewRef(host_call));
    Py_XSETREF(scalar_op, Py_NewRef(scalar));
    Py_XSETREF(full_op, Py_NewRef(full));
    Py_XSETREF(arrangement, Py_NewRef(arrange));
    if (arranged == NULL && (arranged = PyDict_New()) == NULL)
        return NULL;
    PyDict_Clear(arranged);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"copy", (PyCFunction)(void (*)(void))copy, METH_FASTCALL, "Elements from address to address."},
    {"frontier", frontier, METH_VARARGS, "Pending nodes that no other pending node reads."},
    {"notes", notes, METH_VARARGS, "What writes nodes down as `Pending.note` does."},
    {"rows", rows, METH_VARARGS, "A launch with nothing but addresses and scalars to fill in."},
    {"setup", setup, METH_VARARGS, "The classes and rows that `walk` has to know."},
    {"walk", walk, METH_O, "Nodes, key, held, edges and sizes, as `linearize` finds them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_walk", "The walk of linearize in C.", -1, methods,
};

PyMODINIT_FUNC PyInit__walk(void)
{
    text_char = PyUnicode_InternFromString("char");
    text_number = PyUnicode_InternFromString("number");
    text_name = PyUnicode_InternFromString("name");
    text_shape = PyUnicode_InternFromString("shape");
    zero = PyLong_FromLong(0);
    one = PyLong_FromLong(1);
    minus_one = PyLong_FromLong(-1);
    text_filters = PyUnicode_InternFromString("filters");
    text_depth = PyUnicode_InternFromString("depth");
    text_kind = PyUnicode_InternFromString("kind");
    text_map = PyUnicode_InternFromString("map");
    text_check_limits = PyUnicode_InternFromString("check_limits");
    if (!text_filters || !text_depth || !text_kind || !text_map || !text_check_limits
        || PyType_Ready(&notes_type) < 0 || PyType_Ready(&rows_type) < 0)
        return NULL;
    if (!text_char || !text_number || !text_name || !text_shape || !zero || !one || !minus_one)
        return NULL;
    PyObject *made = PyModule_Create(&module), *lent = PyCapsule_New(&launching, LAUNCHING, NULL);
    if (made == NULL || lent == NULL || PyModule_AddObjectRef(made, "launching", lent) < 0)
        Py_CLEAR(made);
    Py_XDECREF(lent);
    return made;
}
