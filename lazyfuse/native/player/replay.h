/* What the files of replays share: a replay as numbers. */

#ifndef LAZYFUSE_REPLAY_H
#define LAZYFUSE_REPLAY_H

#include "player.h"

enum { LAUNCH, BLOCK, COPY, WINDOW, NUMBER, BY_PYTHON };
enum { SUM, MOST, LEAST };
enum { WORDS = 2 }; /* of 8 bytes, of a scalar */

typedef struct {
    Py_ssize_t root, offset;
} Place;

/* One index along an axis of what a part was recorded of, and where that lies. */
typedef struct {
    int64_t elements, bytes;
} Step;

/* A scalar of a launch, or an operand of a number: a value of the run, or an element of a block. */
typedef struct {
    Py_ssize_t index; /* -1: of a block */
    Place place;
    int type; /* of the element; -1: the array's */
} Scalar;

/* Partial results, one row of `width` elements per part, and how to combine them into one row. */
typedef struct {
    Place from, to;
    int how, type;
    Py_ssize_t count, width;
    PyObject *joins; /* bytes: after each partial sum, how many pairs are added */
} Combining;

/* Combines partial results as `Combination.run` does it. 0: Python does it. */
int combine(const Combining *one, const char *from, char *to);

typedef struct {
    int kind, type, out;
    PyObject *first, *second; /* rows and threads; shape and dtype; a description; steps; - */
    Place *places;
    Scalar *scalars;
    Combining *combining;
    Py_ssize_t places_count, scalars_count, combining_count, item;
    const char *kinds;
    Loops *loops;
    PyObject *dead; /* blocks that no later event reads */
    int ends_in_python;
    PyObject *crew; /* who shares the chunks, as Python has said; NULL: it is asked */
    int64_t changes, late; /* what they were then: see crew_of */
    double until; /* a moment of seconds_now() */
} Event;

typedef struct {
    PyObject_HEAD
    Event *events;
    Py_ssize_t count, blocks;
    PyObject *leaves, *written, *given, *results;
    PyObject *pool, *reserved; /* of the device; what a run reserves of it, or NULL: nothing */
} Program;

#define IS_SET(node, slot) (NODE(node, slot) != NULL && NODE(node, slot) != Py_None)

/* How often a graph refers to its nodes: in a dict of Python's, or as the walk has counted. */
typedef struct {
    PyObject *counts;
    const Table *table;
} Edges;

typedef struct {
    int64_t *numbers;
    Py_ssize_t count, room;
    int64_t few[128];
} Key; /* numbers, in `few` while they fit */

/* How often the graph refers to a node; -1: not at all. */
Py_ssize_t edges_to(const Edges *edges, PyObject *node);
/* As `Memory.has_readers`, with the list of nodes as one more holder of what it holds; -1: an
   error. */
int is_captured(PyObject *memory, const Edges *edges);
/* Whether a run may overwrite a leaf's memory: as `RunValues.free`; -1: an error. */
int is_free(PyObject *node, const Edges *edges);
int put(Key *key, int64_t number);
int put_all(Key *key, PyObject *numbers);
int put_layout(Key *key, PyObject *layout, int slides);
/* The values of a plan with `size` values: the operands' are there (new). */
PyObject *values_for(PyObject *size, PyObject *operands, PyObject *nodes);
/* Whether an array has exactly this number of references, and only it refers to its memory. */
int is_unseen(PyObject *array, Py_ssize_t owners);

/* What evaluate._set_up has given: names of modules, tables, functions. NULL: nothing yet. */
extern PyObject *asked;
enum {
    PERMISSION, CONCURRENCY, SPANS, TOTALS, STAND_INS, EVALUATE, OFFLOAD, TABLE, WATCHED, FRESH,
    GO_ON, MODES, WITHIN, AT_HOME, STATE, AT_FIRST, CHEAP, CHOICES, CHOSEN, NOTE_ELIDED,
    WARN, ASKED_FIELDS
};
#define ASKED(which) PyTuple_GET_ITEM(asked, which)

/* What the evaluations before have taken, by NumPy's loops. */
extern double first_seconds;
/* Whether it has, asked for at the first evaluation that needs it. */
int is_set_up(void);
/* Whether a name of a module is zero or false. */
int is_none(PyObject *names, PyObject *name);
/* Counts an evaluation that a replay has done under a rule, one done by the rule `what`, or a
   decision (`what` is None); counters.totals adds them up. -1: an error. */
int count_done(PyObject *what, PyObject *rule, long times);
/* Notes that an evaluation begins, or that it has ended: an exception that is set stays. -1: an
   error, which hides that one. */
int busy_begin(void);
int busy_end(void);
/* The number of the devices' state; -1: the user names another device than the CPU, or an error. */
long device_state(void);

/* Whether what a kept evaluation elides (a state and a choice of elision.py, or None) is still the
   choice, and no root; -1: an error. */
int is_chosen(PyObject *elided, PyObject *nodes, PyObject *roots);
/* After an evaluation of these nodes that raised nothing: what it elided is no unfinished work. What
   is to be watched of it (new), once nothing else keeps the nodes. */
PyObject *elided_begin(PyObject *elided, PyObject *nodes, PyObject *recorded);
/* Watches what is alive of it; -1: an error. */
int elided_end(PyObject *watches);

/* The nodes at these positions (new). */
PyObject *nodes_at(PyObject *positions, PyObject *nodes);
/* Looks an evaluation up. None: Python looks at it (`among`: since other operations are pending
   that may be computed along). (key, pins): the table does not have it. (kept, nodes, values,
   (blocks, addresses)): it can be played. */
PyObject *replay_find(PyObject *roots, PyObject *table, PyObject *recorded, PyObject *watched,
                      long mode, int *among);
/* Which other pending operations an evaluation computes along, as co_evaluation.py has decided
   before: (rule or None, nodes). (key, pins, nodes in their order): it is not known. None: Python
   looks at it. */
PyObject *replay_along(PyObject *roots, PyObject *recorded, PyObject *choices, long mode);

/* An evaluation that was done before, again. `others`: recorded operations of which no other may
   be pending, or None; `waits`: a caller waits for it. None: Python looks at it. (key, pins): it is
   not kept. (key, pins, nodes): whether others are computed along is not known. Else it is done: a
   list of the exceptions that arose. */
PyObject *again(PyObject *roots, PyObject *others, PyObject *recorded, PyObject *rule, int waits);
/* The only node that an evaluation of roots computes (borrowed), apart from parts of arrays; NULL:
   there are more, or it has no source location. */
PyObject *lone_root(PyObject *roots);
/* Notes that such a node was evaluated, and what that took. */
void alone_looked(PyObject *node, double seconds);
/* The same by NumPy's loops, where the structure is fresh: 1, 0: not done, -1: an error. */
int plain_again(PyObject *key, PyObject *roots, PyObject *rule, PyObject *recorded);

#endif
