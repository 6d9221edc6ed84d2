/* What the files of expressions share: an expression written down as steps. */

#ifndef LAZYFUSE_EXPRESSIONS_H
#define LAZYFUSE_EXPRESSIONS_H

#include "player.h"

enum {
    MOST = 24, /* operations of an expression, each with at most two operands */
    LEAVES = MOST + 1, /* its operands that are no results of its operations */
};

/* An operand or result of an operation: a leaf's number, or below zero a buffer's; `INTO`: what is
   asked for. */
enum { INTO = LEAVES };

typedef struct {
    Loops *loops;
    int at, count, from[2], to;
    npy_intp read, size; /* bytes of an element of the operands, and of the result */
} Step;

typedef struct {
    Step steps[MOST];
    PyArrayObject *arrays[LEAVES]; /* NULL: a number */
    char *data[LEAVES]; /* where a row begins */
    npy_intp strides[LEAVES + 1][MOST_AXES], sizes[LEAVES]; /* the last: of what is asked for */
    char *near[LEAVES]; /* where its elements are gathered, NULL: they are not */
    int count, leaves, gathered, buffers, flags, types[LEAVES];
    char taken[MOST];
    npy_intp widest, elements; /* bytes of an element; of the result */
} Program;

extern PyTypeObject SubexpressionType;
#define IS_SUBEXPRESSION(x) (Py_TYPE(x) == &SubexpressionType)
/* An operation on numpy arrays, numbers and other such operations, that is not done yet (new); NULL
   without an exception: NumPy does it in another way. */
PyObject *expression_of(Loops *loops, PyObject *left, PyObject *right);
/* Its numpy array (new), and the flags that were raised. */
PyObject *expression_array(PyObject *expression, int *flags);
/* How many operations it is; the dtype of its result. */
int expression_length(PyObject *expression);
int expression_type(PyObject *expression);
/* Whether NumPy has something to say of the flags that were raised. */
int are_minded(int flags);

#endif
