/* The walk of codegen/graph/linearize.py, and of flush.py: the frontier of a flush, and the notes
   of recorded nodes, as Pending.note takes them where there is nothing to decide.

   `walk` orders a pending graph and makes its structural key, with the same objects as
   `linearize.walk`, which runs where lazyfuse was installed without a C compiler. No Python
   code runs while the graph is ordered. The count of references leaves out those of the list
   of nodes and of the graph's own edges. */

#include "graph.h"

#include <string.h>

#ifdef Py_GIL_DISABLED
#error "references are counted: the Python text runs in free-threaded builds"
#endif

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
Entry *entry_of(Table *table, PyObject *key)
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

int push(Stack *stack, PyObject *node)
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
