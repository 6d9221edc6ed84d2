/* What the files of hot loops share: the words that a compiled loop is given. */

#ifndef LAZYFUSE_ENTERING_H
#define LAZYFUSE_ENTERING_H

#include "../arrays/arrays.h"

typedef union {
    npy_int64 whole;
    double real;
} Word;

typedef int (*Compiled)(void *words, void *same);

/* How a loop ends, and the words at the beginning, as in loops/text. */
enum { FINISHED, BROKE };
enum { ASKED, CUR, STOP, STEP, SCRATCH, ROOM, ARENA, END, LOG, LOGS, OBJECTS };
enum { MISFIT = -1, PENDING = -2 }; /* other kinds; an array that Python has to export */
#define SMALL 40                    /* kinds.SMALL */

/* Writes what a loop begins with: the length of the longest axis, at least 64; MISFIT or PENDING,
   perhaps with an exception. `kept`: a list for the memory that the loop uses. */
npy_int64 words_fill(PyObject *rows, PyObject *values, Word *words, Py_ssize_t blocks,
                     PyObject *kept);
/* The values (new) of the names that a loop has assigned; NULL with an exception. */
PyObject *words_read(PyObject *rows, const Word *words, PyObject *unbound);

/* Hot loops of Python (entering/): from values to words and back, and entering in one step. */
OfferedFast loop_call, loop_fill;
extern PyTypeObject LoopEntranceType, LoopEntryType;

#endif
