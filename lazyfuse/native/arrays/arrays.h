/* Arrays as users have them: operators, indexing, functions, attributes, and memory that other code
   has. */

#ifndef LAZYFUSE_ARRAYS_H
#define LAZYFUSE_ARRAYS_H

#include "../tape/tape.h"

extern PyTypeObject CoreType;
/* The same, if NumPy may write to it at once. */
PyObject *part_for_writing(Core *x);
/* Takes the evaluations' lock, where NumPy may give Python's lock away while it writes so many
   elements: 2, or 1 where it does not; 0: Python does it, -1: an error. The caller asks for the
   memory again, since another thread may have had the lock. */
int lock_part(npy_intp size);
int unlock_part(int lock, int result);
/* An element or a small part of values that exist (new); NULL without an exception: neither. */
PyObject *part_get(Core *self, PyObject *key);
/* The same of large parts, and of small ones of values that are pending: a part of the block. */
PyObject *block_part(Core *self, PyObject *key);

/* The same is written at once: 1, 0 where Python does it, -1 with an exception. */
int part_set(Core *self, PyObject *key, PyObject *value);
/* The transpose of an aliased array (new); NULL without an exception: Python does it. */
PyObject *part_transposed(Core *self);
/* Iterates over an array by its indices. */
Offered array_items;
OfferedFast kept_real;

extern PyNumberMethods array_number;
extern PyMappingMethods array_mapping;
PyObject *array_iterator(PyObject *x);
extern PySequenceMethods array_sequence;
PyObject *array_compare(PyObject *self, PyObject *other, int op);
int operators_ready(void);
/* Find the loops of the operators, as soon as the op table has said how to call them. */
int operators_find_loops(void);
OfferedFast array_direct;
Offered array_adopt, array_operator, array_override, array_serve, array_buffer, array_new,
    array_may_grow;
/* An array of the whole numbers of a short list (new); NULL without an exception: it has others. */
PyObject *index_array(PyObject *list);
/* Whether an array holds indices or is a mask, of a plain dtype and with axes. */
int is_plain_index(PyArrayObject *where);
/* Whether `value` is the part `g` of `whole`, the real view of `self`. */
int is_same_part(Core *self, PyArrayObject *whole, const Geometry *g, PyObject *value);
/* What arrays of indices, lists of them and masks pick of values that exist, if it is little (new);
   NULL without an exception: Python does it. */
PyObject *part_pick(Core *self, PyObject *key);
/* Few elements become a number that the dtype holds, or elements of the same dtype and shape that
   lie elsewhere, without NumPy's way to its loop. Whether that was done. */
int write_plainly(PyArrayObject *whole, const Geometry *g, PyObject *right);
/* Whether nothing else reads or has the memory of values that exist. */
int is_private(Core *x);

/* ---------------------------------------------------------------------------------------- masks */

/* `a[key]` and `a[key] = value` as NumPy does them, and faster where the key is a mask. */
PyObject *read_items(PyArrayObject *a, PyObject *key);
int write_items(PyArrayObject *a, PyObject *key, PyObject *value);
OfferedFast masks_take, masks_put;

/* ---------------------------------------------------------------------------------------- calls */

extern PyTypeObject UfuncCoreType;
extern PyTypeObject QuickType;
Offered ufunc_adopt, quick_method, quick_first_array, quick_created, quick_followed, quick_listed,
    quick_any_arrays,
    geometry_shape, geometry_ndim, geometry_dtype, geometry_size, geometry_transposed,
    geometry_real, geometry_imag;
OfferedFast call_plainly;

/* ------------------------------------------------------------------------------ exported memory */

/* The operation on concrete values, in NumPy at once; NULL without an exception: Python
   does it. */
PyObject *exported_call(PyObject *op, const Loops *loops, PyObject *call, PyObject *const *args,
                        int count);
/* The same into an array: 1, 0 where Python does it, -1 with an exception. */
int exported_into(PyObject *op, PyObject *call, PyObject *const *args, int count, Core *out);
/* The memory of an array, evaluated, as the first exporter gets it (new); NULL without an
   exception: Python exports it. */
PyObject *lend_result(Core *x);
/* Gives an array values of its own, if it shares those of a node that are plain; -1: an error. */
int own_values(Core *x);
/* The names of a call with `out` (borrowed), made once: a new tuple may collect. */
PyObject *out_alone(void);
extern PyTypeObject HolderType, ExportType;
/* The values (new) that NumPy's function reduces at once, by its code in
   reductions.c; NULL without an exception: Python does it. */
PyObject *exported_reduction(int which, PyObject *theirs, PyObject *x);
/* A part, named by a basic key, becomes `value`, at once: as above. */
int exported_write(Core *self, PyObject *key, PyObject *value);

#endif
