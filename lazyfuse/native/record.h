/* What the files that record share: where the elements of arrays lie, and operands. */

#ifndef LAZYFUSE_RECORD_H
#define LAZYFUSE_RECORD_H

#include "native.h"

/* ------------------------------------------------------------------------------------- geometry */

enum { RANK = 8 }; /* most axes of arrays that C records */
enum { MIDDLING = 8 }; /* eager_rules.MIDDLING */

/* Where the elements of an array lie in its block. */
typedef struct {
    int nd;
    npy_intp dims[RANK], strides[RANK], offset; /* of both in bytes */
} Geometry;

static inline npy_intp size_of(const Geometry *g)
{
    npy_intp size = 1;
    for (int axis = 0; axis < g->nd; axis++) {
        size *= g->dims[axis];
    }
    return size;
}

/* What a basic key leaves of an array, and where it lies: some elements, one element (not as an
   array without axes), or neither: nothing, or the key is wrong or no basic one. */
enum { NO_PART, SOME, ELEMENT };
int select_part(int nd, const npy_intp *dims, const npy_intp *strides, PyObject *key, Geometry *g);
/* Whether it leaves some elements. */
int narrow(int nd, const npy_intp *dims, const npy_intp *strides, PyObject *key, Geometry *g);
/* As meta_arrays.falls: C order, whatever the gaps. `long_ones`: for axes that have a say. */
int falls(int nd, const npy_intp *dims, const npy_intp *strides, int long_ones);
/* Folds the lengths of one more operand into the shape of a result that has room for `most`
   axes; 0: they do not fit. */
int broadcast(int *nd, npy_intp *dims, int most, int other_nd, const npy_intp *other);

/* ---------------------------------------------------------------------------------------- parts */

/* The geometry of an aliased array in its block, as a meta array (borrowed); NULL: it has none. */
PyArrayObject *part_geometry(Core *x);
/* NumPy's array over a part of a block that has its values in host memory, if it was made before
   (borrowed). */
PyObject *real_of(Core *x);
/* An array on the block of `self` without a geometry yet, with that table of real views. */
Core *new_part(Core *self, PyObject *reals);
/* An array of the whole numbers of a short list (new); NULL without an exception: it has others. */
PyObject *index_array(PyObject *list);
/* Whether an array holds indices or is a mask, of a plain dtype and with axes. */
int is_plain_index(PyArrayObject *where);
/* An array on the block of `self`, over a part of the memory of its real view; steals `real`, which
   may be NULL after an error. */
PyObject *part_over(Core *self, PyObject *real);
/* Whether `value` is the part `g` of `whole`, the real view of `self`. */
int is_same_part(Core *self, PyArrayObject *whole, const Geometry *g, PyObject *value);
/* What arrays of indices, lists of them and masks pick of values that exist, if it is little (new);
   NULL without an exception: Python does it. */
PyObject *part_pick(Core *self, PyObject *key);
/* Few elements become a number that the dtype holds, or elements of the same dtype and shape that
   lie elsewhere, without NumPy's way to its loop. Whether that was done. */
int write_plainly(PyArrayObject *whole, const Geometry *g, PyObject *right);
/* Whether no byte lies in the memory of both, whose elements have one size: by their extents. */
int are_apart(const char *first, int nd, const npy_intp *dims, const npy_intp *strides,
              PyArrayObject *other);
/* As `Storage.shared`: whether other code has the memory of a block; forgets exports that ended. */
int has_exports(PyObject *storage);
/* Whether nothing else reads or has the memory of values that exist. */
int is_private(Core *x);
/* Whether a table of real views is empty; drop them; a new table. */
int is_empty(PyObject *reals);
void reals_clear(PyObject *reals);
PyObject *reals_new(void);
/* Take the evaluations' lock for a recorded write: 1, 0 where Python does it, -1: an error; and give
   it back. */
int lock_writes(void);
int unlock_writes(int result);
/* The block of `x`, or an array that owns its values, has those of a node (stolen, NULL after an
   error) from now on; -1: an error. The caller has the lock. */
int become(Core *x, PyObject *node);

/* The node of the block of `x`, if the block is not always eager. */
PyObject *any_node(Core *x);
/* As ndarray.storage_of: 1; 0 where another thread has made it eager, -1 with an exception. */
int storage_for(Core *x);
/* A view of a part of an evaluated block (new); NULL without an exception: not so plain. */
PyObject *view_of_block(Core *x);
/* As `Storage.read` (new). */
PyObject *read_storage(PyObject *storage);
/* A number as a node of a dtype (new). */
PyObject *number_node(PyObject *number, PyObject *dtype);
#endif
