/* The recorded graph: nodes, their order and keys, the memory that arrays share, the time of
   lines. */

#ifndef LAZYFUSE_GRAPH_H
#define LAZYFUSE_GRAPH_H

#include "../base/base.h"

/* ----------------------------------------------------------------------------- open expressions */

/* The thread whose expression is open: its results read memory of other code, and are pending
   until an operation ends it (docs/design/arrays.md); 0: none. */
extern unsigned long stretch_thread;

PyObject *stretch_leave(PyObject *result);
Offered stretch_begin, frame_local;
/* A local name of a frame, by its place where that is known to C (new); NULL: it has no value. */
PyObject *local_of(PyFrameObject *frame, int at, PyObject *name);

/* The result of an operation that the user's frame called: the last thing that a slot does. */
#define LEAVE(result) (stretch_thread == 0 ? (result) : stretch_leave(result))

/* ---------------------------------------------------------------------------------------- nodes */

/* Checks a class of nodes that was just bound for slots that C does not know and could not
   fill. */
void look_for_other_slots(void);
/* As recording.may_record: whether NumPy's error state lets operations wait. */
int may_record(void);
/* The IEEE flags that NumPy's error state ignores; -1: it does more with exceptions than warn. */
long ignored_errors(void);
/* As nodes.caller: the user's source line (new). */
PyObject *find_caller(void);
/* As errstate.SourceLocation.like, with one more fact (new). */
PyObject *place_like(PyObject *where, PyObject *name, PyObject *fact);
/* A leaf over the memory of a new array (new). */
PyObject *leaf_of(PyArrayObject *value);
/* The first frame outside lazyfuse (new); NULL without an exception: there is none. */
PyFrameObject *user_frame(void);
/* Whether a frame runs code of lazyfuse, or what it traces of NumPy's. */
int is_inside(PyFrameObject *frame);
/* A node; steals `src`, which may be NULL after an error. */
PyObject *make_node(PyObject *op, PyObject *src, PyObject *arg, PyObject *shape, PyObject *dtype,
                    PyObject *perm, PyObject *where);

static inline int is_pending(PyObject *node)
{
    return NODE(node, value) == Py_None && NODE(node, resident) == Py_None;
}

/* As linearize._is_full: whether a pending node is a constant array whose number is there. */
static inline int is_full(PyObject *node)
{
    PyObject *src = NODE(node, src);
    return NODE(node, op) == hooks.full_op && PyTuple_GET_SIZE(src) == 1 &&
           NODE(PyTuple_GET_ITEM(src, 0), value) != Py_None;
}

/* The thread whose call is being traced; 0: none. */
extern unsigned long tracing_thread;
/* Whether this thread's call is being traced: what it records is none of the program's. */
int is_tracing(void);
extern long notes_made; /* operations that were recorded */
/* While a call is learnt: the operations that its thread records, with their arguments; else
   NULL. */
extern PyObject *operations_noted;
extern unsigned long noting_thread;

/* ----------------------------------------------------------------------------------------- walk */

/* What orders a pending graph: nodes by identity, their positions, how often each is read. */
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

typedef struct {
    PyObject **items;
    Py_ssize_t size, room;
} Stack;

void table_begin(Table *table);
/* The entry of a node, made if missing; valid until the next entry is made. */
Entry *entry_of(Table *table, PyObject *key);
int push(Stack *stack, PyObject *node);
void table_end(Table *table);
/* Where the entry of a node is, or would be. */
size_t entry_place(const Table *table, const PyObject *key);
/* As linearize._order: puts the nodes below the roots in order. */
int order_nodes(PyObject *roots, PyObject *order, Table *table, Stack *stack);

extern PyTypeObject NotesType;
int walk_ready(void);
Offered walk_roots, walk_frontier, notes_new;
/* What this thread has recorded (new). */
PyObject *recorded_here(void);
/* The references to its nodes (new), and whether some of them are due with the next sink. */
PyObject *noted_in(PyObject *pending, int *is_overdue);
/* As `Pending.reset`; -1: an error. */
int reset_recorded(PyObject *pending);
/* As `Pending.forget`, for nodes that stay pending; -1: an error. */
int forget_recorded(PyObject *pending, PyObject *left);

/* ---------------------------------------------------------------------------------------- spans */

/* Whether the time of operations is taken, by line: the option `report`. */
extern int spans_on;

/* When a span began, and the seconds of this thread's spans that had ended before. */
typedef struct {
    double began, before;
} Span;

/* What lazyfuse did in a span; spans.KINDS. */
typedef enum {
    SPAN_OPERATIONS, SPAN_FUNCTIONS, SPAN_READS, SPAN_WRITES, SPAN_PARTS, SPAN_RECORDED,
} SpanKind;

Span span_opened(void);
void span_closed(Span span, SpanKind kind);

/* A span begins, where their time is taken. */
static inline Span span_open(void)
{
    return spans_on ? span_opened() : (Span){0.0, 0.0};
}

/* It ends, and belongs to the line at which the user's program is: with the result of an operation,
   or of a `kind` of call, which may have recorded it. */
static inline PyObject *span_result(Span span, PyObject *result, SpanKind kind)
{
    if (span.began != 0.0) {
        int recorded = result != NULL && IS_ARRAY(result) && !IS_DIRECT(result);
        span_closed(span, recorded ? SPAN_RECORDED : kind);
    }
    return result;
}

/* Returns the result of an operator. */
#define RETURN_TIMED(call)                                                                         \
    if (spans_on) {                                                                                \
        Span span = span_opened();                                                                 \
        return span_result(span, call, SPAN_OPERATIONS);                                           \
    }                                                                                              \
    return call

Offered spans_switch, spans_take, span_begin, span_end, span_skip;

/* --------------------------------------------------------------------------------------- memory */

/* NumPy's array of a small part of a block that has its values (borrowed), else NULL. */
PyObject *small_part(Core *x);
/* The values of an array that owns them, or of its part of a block (borrowed); NULL: there are
   none, or Python has to look. */
PyArrayObject *present_values(Core *x);
/* Drop the real view of an array. */
void part_forget(Core *x);
int reals_ready(void);
extern PyTypeObject RealsType;

/* What NumPy works on at once: the values of an eager array, or of a small part of a block
   (borrowed); NULL: neither. */
static inline PyObject *values_of(PyObject *x)
{
    Core *core = (Core *)x;
    if (IS_DIRECT(x)) {
        return core->eager;
    }
    return core->real != NULL || core->ticket != NULL ? small_part(core) : NULL;
}

/* The geometry of an aliased array in its block, as a meta array (borrowed); NULL: it has none. */
PyArrayObject *part_geometry(Core *x);
/* NumPy's array over a part of a block that has its values in host memory, if it was made before
   (borrowed). */
PyObject *real_of(Core *x);
/* An array on the block of `self` without a geometry yet, with that table of real views. */
Core *new_part(Core *self, PyObject *reals);
/* An array on the block of `self`, over a part of the memory of its real view; steals `real`, which
   may be NULL after an error. */
PyObject *part_over(Core *self, PyObject *real);

/* exported_memory.py binds it last. */
#define IS_BOUND (hooks.run_counts != NULL)

/* As `Storage.shared`; 0, too, where an export is to be forgotten. */
int is_shared(PyObject *storage);
/* As `Storage.shared`: whether other code has the memory of a block; forgets exports that ended. */
int has_exports(PyObject *storage);
/* Whether a table of real views is empty; drop them; a new table. */
int is_empty(PyObject *reals);
void reals_clear(PyObject *reals);
PyObject *reals_new(void);
/* Take the evaluations' lock for a recorded write: 1, 0 where Python does it, -1: an error; and give
   it back. */
int lock_writes(void);
int unlock_writes(int result);
/* Whether the values of `x` are those of a node, and not small: it does not own its memory yet. */
int has_node(Core *x, PyObject *node);
/* As `Storage.replace`, where `has_node` was asked just before: the block of `x`, or an array that
   owns its values, has those of a node from now on; -1: an error. The caller has the lock, holds
   the old node, and notes the new one. */
int become(Core *x, PyObject *node);

/* The node of the block of `x`, if the block is not always eager. */
PyObject *any_node(Core *x);
/* As ndarray.storage_of: 1; 0 where another thread has made it eager, -1 with an exception. */
int storage_for(Core *x);
/* The same for a caller that has the lock of writes. */
int storage_locked(Core *x);
/* Whether the host has the values of a block, perhaps without an array over it yet. */
int is_evaluated(PyObject *storage);
/* The values of the block of a part (borrowed), in C order, and where the part begins there; NULL:
   not so. */
PyObject *block_of(Core *x, char **first);
/* A view of a part of an evaluated block (new); NULL without an exception: not so plain. */
PyObject *view_of_block(Core *x);
/* As `Storage.read` (new). */
PyObject *read_storage(PyObject *storage);
/* A number as a node of a dtype (new). */
PyObject *number_node(PyObject *number, PyObject *dtype);

/* An operand with concrete values. */
typedef struct {
    PyObject *value; /* new: while NumPy works, another thread may exchange the slots */
    int array, visible; /* `visible`: exporters see it, too */
} There;

/* Finds them: 1, else 0. `reads`: what comes of the values is no view of them. */
int values_look(PyObject *object, There *there, int reads);
/* The values of an operand that has them, as NumPy takes it (new); NULL without an exception. */
PyObject *value_there(PyObject *x);
/* As errstate.is_default. */
int is_default_state(void);
/* Memory of the CPU's pool (new). */
PyObject *take_room(int nd, npy_intp *dims, PyArray_Descr *descr);
/* The same for a large result; an array over it, which steals it. */
PyObject *large_room(int nd, npy_intp *dims, int type);
PyObject *array_over(PyObject *value);
/* As `wrap`: an array of ours around NumPy's result of any size, or each of a tuple, which the caller
   alone holds; other objects stay as they are. Steals `value`; NULL stays NULL. */
PyObject *wrapped(PyObject *value);
/* A leaf over a copy of values that C orders (new). */
PyObject *copied_leaf(PyArrayObject *value);
/* As nodes.snapshot (new): the present values of a small array as a node. */
PyObject *snapshot_of(PyArrayObject *value);
/* Counts that NumPy ran a function for the user's line. Never fails. */
void count_run(PyObject *name);
/* Whether an array that the caller alone holds has memory that nothing else has. */
int has_own_memory(PyObject *array);

#endif
