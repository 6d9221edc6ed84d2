/* Calls that come round: what Python decided about one, followed in C (docs/design/tape.md).

   layout.c describes a call in words, steps.c keeps what is known of calls, follow.c does one as it
   was done before, called.c has NumPy do it. */

#ifndef LAZYFUSE_TAPE_H
#define LAZYFUSE_TAPE_H

#include "../player/player.h"

enum { MOST_WORDS = 160, MOST_OPERANDS = 12, MOST_HELD = 32, MOST_VALUES = 64,
       MOST_NUMBERS = 8 };

/* A call: what was decided about it depends on nothing but these words. */
typedef struct {
    uint64_t words[MOST_WORDS];
    Py_ssize_t count;
    PyObject *held[MOST_HELD]; /* whose addresses stand in words (borrowed) */
    int holds;
    PyObject *operands[MOST_OPERANDS]; /* arrays and lazy numbers of ours (borrowed) */
    int operands_count;
    int numbers[MOST_NUMBERS]; /* places of arguments of which words say no more than their kind */
    int numbers_count;
    int waits; /* whether an operand is pending */
    int is_settled; /* whether an operand has values that are NumPy's at once */
} Call;

/* Describes a call of `function`, whose first `fixed` arguments are always these objects. Numbers
   are described by kind, or `by_value`. 0: it holds something of which words do not say all, or
   eager arrays alone (where these are `small`: 0 for any other call). */
int describe_call(Call *call, PyObject *function, PyObject *const *args, Py_ssize_t count,
                  PyObject *names, Py_ssize_t fixed, int by_value, int small);

/* What a result is: a node's array or number, a part of an operand, the operand, a container, an
   array that has the values of an operand's node. */
typedef enum { AN_ARRAY, A_NUMBER, A_PART, AN_OPERAND, NOTHING, A_TUPLE, A_LIST, SHARED } ResultKind;

/* The call as its template says, with these arguments; NULL without an exception: nothing was done,
   Python does it. */
PyObject *template_follow(PyObject *made, Call *call, PyObject *const *args);

/* NumPy's function on the values of the arguments, which it cannot write if they are `sealed`; NULL
   without an exception: nothing was done, Python does it. */
PyObject *call_numpy(PyObject *theirs, PyObject *const *args, Py_ssize_t count, PyObject *names,
                     int sealed);
/* Whether a result is of a kind that `call_numpy` gives: arrays with memory of their own, numbers,
   or a tuple of these. */
int is_taken_over(PyObject *result);

/* What a call on small arrays does, as steps over memory. */
typedef struct Small Small;
/* Of what Python has made (small_programs.py): the words, ufuncs, constants, and what it gives. */
Small *small_new(PyObject *made);
void small_free(Small *small);
/* The call, done (new); NULL without an exception: NumPy does it, and says what it has to say. */
PyObject *small_run(Small *small, const Call *call, PyObject *const *args);

/* Calls a function of Python's that records, whose first `fixed` arguments are always these
   objects: as before, where the call was met before (tape/). */
PyObject *step_call(PyObject *function, PyObject *const *args, size_t flags, PyObject *names,
                    Py_ssize_t fixed);
/* The same of a function in whose place NumPy has `theirs`. */
PyObject *step_function(PyObject *function, PyObject *theirs, PyObject *const *args, size_t flags,
                        PyObject *names, Py_ssize_t fixed);
/* A call on small arrays alone, done by its program (new); NULL without an exception: it has none,
   or NumPy is to do it. `has_none`: it will get none. */
PyObject *step_small(PyObject *function, PyObject *theirs, PyObject *const *args, Py_ssize_t count,
                     PyObject *names, int *has_none);
Offered steps_after, steps_forget, steps_count;

#endif
