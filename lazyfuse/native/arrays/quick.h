/* What the files of NumPy's functions share: their objects. */

#ifndef LAZYFUSE_QUICK_H
#define LAZYFUSE_QUICK_H

#include "arrays.h"

enum { MOST_ARGUMENTS = 16 };
enum { METHOD, FIRST, ANY, CREATED, LISTED, FOLLOWED };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *theirs, *ours, *keywords, *method, *dict, *weak; /* `method`: its name */
    Py_ssize_t most;
    int kind, spreads, views, writes, is_copy, reduction;
    int declined; /* calls on small arrays since one was done by its program */
} Quick;

/* A call of such an object. */
PyObject *quick_call(PyObject *x, PyObject *const *args, size_t flags, PyObject *names);

#endif
