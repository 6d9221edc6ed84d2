/* What runs an evaluation: launches, replays of earlier runs, NumPy's loops block by block,
   numbers. */

#ifndef LAZYFUSE_PLAYER_H
#define LAZYFUSE_PLAYER_H

#include "../graph/graph.h"

/* ------------------------------------------------------------------------------------- launches */

/* The threads that run the rows of a launch: addresses of native code, and how many workers
   join. */
typedef struct {
    void *loop, *share, *crew;
    Py_ssize_t helpers;
} Crew;

extern PyTypeObject RowsType;
Offered rows_new;
/* The launch, its arrays at these addresses, its scalars packed: the IEEE flags; -1: an error.
   Releases Python's lock. */
long rows_launch(PyObject *rows, const int64_t *addresses, const char *scalars, const Crew *crew);
/* The rows of a launch, its arrays, the kinds of its scalars (borrowed); -1: it is none. */
Py_ssize_t rows_look(PyObject *rows, Py_ssize_t *arrays, const char **kinds);
/* Elements from address to address: 1, 0 where memory meets, -1: an error. */
int copy_elements(int64_t target, int64_t source, PyObject *description);

/* --------------------------------------------------------------------------------------- replay */

extern PyTypeObject ReplayProgramType;
Offered replay_program;
OfferedFast replay_bind, replay_begin, replay_play, replay_commit, replay_run,
    replay_again, evaluate_nodes;
Offered replay_setup, replay_uncounted;
/* Gives pending nodes their values by NumPy's loops, as fresh.run does: 1, 0 where these do not do
   it, or it is `most` additions' work, -1: an error. */
int plain_run(PyObject *roots, double most);
/* Whether this thread's evaluation may be done again in C: no other thread evaluates, no call is
   traced, no array lies in chunks. 0 with an exception: an interrupt. */
int is_alone(void);

/* As `evaluate` of one node, where this thread has the lock of writes; -1: an error. */
int evaluate_locked(PyObject *node, PyObject *rule);

/* What is known of an operation at an instruction of the user's. */
typedef struct Alone Alone;
/* For an operation that the user's code does now, with a result of so many elements: its place if
   NumPy is to do it, since what it gives is always looked at alone; NULL: it is to be recorded. */
Alone *alone_here(PyObject *op, npy_intp size);
/* Notes what it took NumPy. */
void alone_took(Alone *place, double seconds);

/* -------------------------------------------------------------------------------------- numbers */

/* As scalars.deliver: what the user gets for a recorded number (new). */
Offered deliver;
/* The classes of our functions and ufuncs, which module.c names. */
extern PyTypeObject *function_type, *ufunc_type;
/* As scalars.value_of: NumPy's number of a lazy one (new). */
Offered number_value;
Offered expressions_ran, numbers_forget, numbers_count;
int expressions_ready(void);
/* As ndarray.from_node: what a user gets for a node; steals it. */
PyObject *from_node(PyObject *node);

#endif
