/* What lazyfuse._walk lends to lazyfuse._native: launches and copies of a replay (replay.c). */

#ifndef LAZYFUSE_LAUNCHING_H
#define LAZYFUSE_LAUNCHING_H

#include <Python.h>
#include <stdint.h>

#define LAUNCHING "lazyfuse._walk.launching"

/* Who runs the rows of a launch: addresses of native code, and how many helpers join. */
typedef struct {
    void *loop, *share, *crew;
    Py_ssize_t helpers;
} Crew;

typedef struct {
    /* The launch, its arrays at these addresses, its scalars packed: the conditions; -1: an error.
       Lets Python's lock go. */
    long (*launch)(PyObject *rows, const int64_t *addresses, const char *scalars, const Crew *crew);
    /* The rows of a launch, its arrays, the kinds of its scalars (borrowed); -1: it is none. */
    Py_ssize_t (*look)(PyObject *rows, Py_ssize_t *arrays, const char **kinds);
    /* Elements from address to address: 1, 0 where memory meets, -1: an error. */
    int (*copy)(int64_t target, int64_t source, PyObject *description);
} Launching;

#endif
