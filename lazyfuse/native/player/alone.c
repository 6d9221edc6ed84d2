/* Operations whose results are looked at before anything else reads them. Fusion gains nothing
   there, and to record and evaluate one costs as much as a middling array takes NumPy: C times both
   where the user's instruction stands, and has the quicker do it. Now and then the operation is
   recorded again, to see whether it is still looked at alone.

   Owns what is known of such instructions: predictions, by addresses that nothing reads. */

#include "replay.h"

enum { PLACES = 1024, ENOUGH = 4, MOST_TURNS = 64 };

static const double RECORDS = 3e-6; /* what it takes to record an operation, in seconds */

struct Alone {
    uintptr_t code, op;
    npy_intp size;
    int offset;
    int looks; /* how often in a row it was looked at alone */
    int waits; /* it is recorded, and nothing has looked yet */
    int turns, left; /* how often NumPy does it before it is recorded again, and has yet to */
    double ours, theirs; /* the least times of late; 0: not known */
};

static Alone places[PLACES];

static Alone *place_of(PyObject *code, int offset, PyObject *op, npy_intp size)
{
    size_t at = ((size_t)code >> 4) * 31 + (size_t)offset * 7 + ((size_t)op >> 4) + (size_t)size;
    return &places[at % PLACES];
}

static int is_known(const Alone *place, PyObject *code, int offset, PyObject *op, npy_intp size)
{
    return place->code == (uintptr_t)code && place->offset == offset &&
           place->op == (uintptr_t)op && place->size == size;
}

Alone *alone_here(PyObject *op, npy_intp size)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL || is_inside(frame)) {
        return NULL; /* a step of a function of ours, which others follow */
    }
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    int offset = PyFrame_GetLasti(frame);
    Alone *place = place_of(code, offset, op, size);
    Py_DECREF(code);
    if (!is_known(place, code, offset, op, size)) {
        *place = (Alone){.code = (uintptr_t)code, .op = (uintptr_t)op, .size = size,
                         .offset = offset};
    }
    if (place->waits) { /* what came of it the last time was read by other operations, or not at all */
        place->looks = place->turns = place->left = 0;
    }
    if (place->left > 0) {
        place->left--;
        return place;
    }
    place->waits = 1;
    return NULL;
}

void alone_took(Alone *place, double seconds)
{
    place->theirs = least_of_late(place->theirs, seconds);
}

PyObject *lone_root(PyObject *roots)
{
    PyObject *node = PyList_GET_SIZE(roots) == 1 ? PyList_GET_ITEM(roots, 0) : NULL;
    PyObject *src = node == NULL || !IS_NODE(node) ? NULL : NODE(node, src);
    if (src == NULL || !PyTuple_Check(NODE(node, location))) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(src); at++) {
        PyObject *each = PyTuple_GET_ITEM(src, at);
        if (is_pending(each) && (NODE(each, op) != hooks.view_op ||
                                 is_pending(PyTuple_GET_ITEM(NODE(each, src), 0)))) {
            return NULL;
        }
    }
    return node;
}

void alone_looked(PyObject *node, double seconds)
{
    PyObject *value = NODE(node, value), *where = NODE(node, location);
    if (!IS_REAL(value) || PyTuple_GET_SIZE(where) != 2) {
        return;
    }
    PyObject *code = PyTuple_GET_ITEM(where, 0);
    int offset = (int)PyLong_AsLong(PyTuple_GET_ITEM(where, 1));
    npy_intp size = PyArray_SIZE((PyArrayObject *)value);
    Alone *place = place_of(code, offset, NODE(node, op), size);
    if (!is_known(place, code, offset, NODE(node, op), size) || !place->waits) {
        return;
    }
    place->waits = 0;
    place->looks++;
    place->ours = least_of_late(place->ours, seconds + RECORDS);
    if (place->looks < ENOUGH) {
        return;
    }
    if (place->theirs == 0 || place->theirs < place->ours) {
        place->turns = place->turns == 0 ? 2 : 2 * place->turns;
        place->turns = place->turns > MOST_TURNS ? MOST_TURNS : place->turns;
        place->left = place->turns;
    }
    else if ((place->looks & (place->looks - 1)) == 0) {
        place->turns = 0;
        place->left = 1; /* NumPy once more: the machine may be another now */
    }
}
