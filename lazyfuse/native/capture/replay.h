/* What the files of replays share: a replay as numbers. */

#ifndef LAZYFUSE_REPLAY_H
#define LAZYFUSE_REPLAY_H

#include "../native.h"

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
} Event;

typedef struct {
    PyObject_HEAD
    Event *events;
    Py_ssize_t count, blocks;
    PyObject *leaves, *written, *given, *results;
} Program;

/* Whether an array has exactly this number of references, and only it refers to its memory. */
int is_unseen(PyObject *array, Py_ssize_t owners);

#endif
