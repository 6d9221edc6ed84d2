/* Operations on arrays that run as one: block by block through all of them, in NumPy's own inner
   loops, with intermediate results in the first cache. plain.c makes an expression of pending nodes.

   Only exact loops are called so. Where one raises a floating-point flag that is minded, NumPy does
   one operation after the other in another way, so warnings and errors are NumPy's. */

#include "expressions.h"

#include <string.h>

enum {
    FROM = 512, LARGEST = 1 << 20, /* elements from which it pays, and those of large results */
    BLOCK = 8192, /* bytes of the widest operand of a block */
    SHORT_ROW = 64, /* elements of rows that are gathered first */
};

typedef struct {
    PyObject_HEAD
    Loops *loops;
    PyObject *given[2]; /* a numpy array, a Subexpression, a number; NULL: there is none */
    npy_clongdouble number;
    int type, nd, operations;
    npy_intp size, dims[MOST_AXES];
} Subexpression;

#define TERM(x) ((Subexpression *)(x))
#define OUT(term) ((term)->loops->out[(term)->type])

static long expressions_run; /* that ran as one */
static Subexpression *kept[16]; /* a free list */
static int kept_count;

static Subexpression *term_new(void)
{
    if (kept_count > 0) {
        Subexpression *term = kept[--kept_count];
        return (Subexpression *)PyObject_Init((PyObject *)term, &SubexpressionType);
    }
    return PyObject_New(Subexpression, &SubexpressionType);
}

/* ------------------------------------------------------------------------------------ operations */

static npy_intp size_of_operand(PyObject *x)
{
    return IS_SUBEXPRESSION(x) ? TERM(x)->size
        : IS_REAL(x) ? PyArray_SIZE((PyArrayObject *)x) : 1;
}

/* The dtype of an operand, -1: not one of these; TYPES: a number. */
static int type_of(PyObject *x)
{
    if (IS_SUBEXPRESSION(x)) {
        return OUT(TERM(x));
    }
    return IS_REAL(x) ? plain_type((PyArrayObject *)x) : is_number(x) ? TYPES : -1;
}

/* Folds the shape of an operand into that of the result; 0 if they do not fit. */
static int fold(Subexpression *term, PyObject *x)
{
    int nd = IS_REAL(x) ? PyArray_NDIM((PyArrayObject *)x) : TERM(x)->nd;
    const npy_intp *dims = IS_REAL(x) ? PyArray_DIMS((PyArrayObject *)x) : TERM(x)->dims;
    return broadcast(&term->nd, term->dims, MOST_AXES, nd, dims);
}

/* As `walk_falls`; a subexpression lies as its result would. */
static int order_of(const Subexpression *term, PyObject *x)
{
    return IS_REAL(x) ? walk_falls((PyArrayObject *)x, term->nd, term->dims) : 1;
}

PyObject *expression_of(Loops *loops, PyObject *left, PyObject *right)
{
    /* results of large operands are large, others are not: they would have been recorded */
    PyObject *given[2] = {left, right};
    npy_intp largest = 0;
    int type = TYPES, numbers = 0, order[2] = {1, 1}, count = right == NULL ? 1 : 2;
    if (loops == NULL || loops->ufunc->nin != count) {
        return NULL;
    }
    for (int k = 0; k < count; k++) {
        int found = type_of(given[k]);
        if (found < 0 || (found != TYPES && type != TYPES && found != type)) {
            return NULL;
        }
        type = found == TYPES ? type : found;
        numbers += found == TYPES;
        npy_intp size = size_of_operand(given[k]);
        largest = size > largest ? size : largest;
    }
    if (type == TYPES || loops->index[type] < 0 || !loops->exact[type]) {
        return NULL;
    }
    Subexpression *term = term_new();
    if (term == NULL) {
        return NULL;
    }
    term->loops = loops;
    term->given[0] = Py_NewRef(left);
    term->given[1] = Py_XNewRef(right);
    term->type = type;
    term->nd = 0;
    term->operations = 1;
    term->size = 1;
    int fits = 1;
    for (int k = 0; fits && k < count; k++) {
        if (IS_SUBEXPRESSION(given[k])) {
            term->operations += TERM(given[k])->operations;
        }
        fits = IS_REAL(given[k]) || IS_SUBEXPRESSION(given[k])
            ? fold(term, given[k]) : put_number(&term->number, given[k], type);
    }
    npy_intp limit = term->nd > 0 ? eager_below() : 1;
    limit = largest >= limit && limit > 1 ? LARGEST : limit;
    for (int axis = 0; axis < term->nd; axis++) {
        term->size *= term->dims[axis];
        fits &= term->size < limit;
    }
    for (int k = 0; fits && k < count; k++) {
        if (IS_SUBEXPRESSION(given[k])) { /* it is computed once for each element */
            fits = TERM(given[k])->size == term->size && TERM(given[k])->nd == term->nd;
        }
        order[k] = numbers && !IS_REAL(given[k]) && !IS_SUBEXPRESSION(given[k])
            ? 0 : order_of(term, given[k]);
    }
    if (count == 1) {
        order[1] = order[0];
    }
    /* C order in NumPy, as in base/loops.c */
    fits = fits && term->size >= FROM && term->operations <= MOST &&
           (order[0] == 1 || order[1] == 1 || (order[0] >= 0 && order[1] >= 0));
    if (!fits) {
        Py_DECREF(term);
        return NULL;
    }
    return (PyObject *)term;
}

/* --------------------------------------------------------------------------------- block by block */

/* The number of a leaf. */
static int leaf_of_program(Program *program, PyArrayObject *array, void *number, int type)
{
    for (int at = 0; array != NULL && at < program->leaves; at++) {
        if (program->arrays[at] == array) {
            return at;
        }
    }
    int at = program->leaves++;
    program->arrays[at] = array;
    program->data[at] = array == NULL ? number : PyArray_BYTES(array);
    program->types[at] = type;
    program->sizes[at] = size_of_type(type);
    program->near[at] = NULL;
    return at;
}

/* Writes the operations of a term down, its operands' first; where its result is. */
static int write_down(Program *program, Subexpression *term, int to)
{
    Step step = {.loops = term->loops, .at = term->loops->index[term->type]};
    npy_intp size = size_of_type(term->type);
    step.read = size;
    step.size = size_of_type(OUT(term));
    for (int k = 0; k < 2 && term->given[k] != NULL; k++, step.count++) {
        PyObject *x = term->given[k];
        if (IS_SUBEXPRESSION(x)) {
            step.from[k] = write_down(program, TERM(x), -1);
        }
        else {
            PyArrayObject *array = IS_REAL(x) ? (PyArrayObject *)x : NULL;
            step.from[k] = leaf_of_program(program, array, &term->number, term->type);
        }
    }
    int reused = 0;
    for (int k = 0; k < step.count; k++) {
        if (step.from[k] < 0) { /* a buffer, which may take the result of elements as wide */
            int buffer = ~step.from[k];
            if (to != INTO && !reused && step.size == size) {
                reused = to = step.from[k];
            }
            else {
                program->taken[buffer] = 0;
            }
        }
    }
    if (to != INTO && !reused) {
        /* not one that is read: it has other widths */
        int buffer = 0;
        while (program->taken[buffer] || step.from[0] == ~buffer ||
               (step.count == 2 && step.from[1] == ~buffer)) {
            buffer++;
        }
        program->taken[buffer] = 1;
        program->buffers = buffer >= program->buffers ? buffer + 1 : program->buffers;
        to = ~buffer;
    }
    program->widest = size > program->widest ? size : program->widest;
    program->widest = step.size > program->widest ? step.size : program->widest;
    step.to = to;
    program->steps[program->count++] = step;
    return to;
}

/* All operations on `count` elements, whose steps along the leaves are `strides`. */
static void run_block(Program *program, npy_intp count, char *const *data,
                      const npy_intp *strides, char *buffers, npy_intp width, char *out)
{
    for (int at = 0; at < program->count; at++) {
        const Step *step = &program->steps[at];
        char *args[3];
        npy_intp steps[3];
        for (int k = 0; k < step->count; k++) {
            int from = step->from[k];
            args[k] = from < 0 ? buffers + ~from * width : data[from];
            steps[k] = from < 0 ? step->read : strides[from];
        }
        args[step->count] = step->to == INTO ? out : buffers + ~step->to * width;
        steps[step->count] = step->size;
        loop_run(step->loops, step->at, args, count, steps);
        program->flags |= loops_raised(); /* some loops clear what those before them raised */
    }
}

/* Whether a leaf is one run of elements over all axes, or one number. */
static int is_one_run(const npy_intp *strides, const Walk *walk, npy_intp size)
{
    int runs = 1, repeats = 1;
    for (int axis = walk->nd - 1; axis >= 0; axis--) {
        runs &= strides[axis] == size;
        repeats &= strides[axis] == 0;
        size *= walk->dims[axis];
    }
    return runs || repeats;
}

/* Rows that are long enough for NumPy's loops, in pieces. */
static void run_rows(Program *program, const Walk *walk, char *buffers, npy_intp width, char *out,
                     npy_intp out_size)
{
    npy_intp place[MOST_AXES] = {0}, length = walk->dims[walk->nd - 1];
    npy_intp rows = program->elements / length;
    npy_intp most = width / program->widest, strides[LEAVES];
    for (int k = 0; k < program->leaves; k++) {
        strides[k] = program->strides[k][walk->nd - 1];
    }
    for (npy_intp row = 0; row < rows; row++) {
        char *data[LEAVES];
        memcpy(data, program->data, sizeof data);
        for (npy_intp from = 0; from < length; from += most) {
            npy_intp count = length - from < most ? length - from : most;
            run_block(program, count, data, strides, buffers, width, out);
            for (int k = 0; k < program->leaves; k++) {
                data[k] += count * strides[k];
            }
            out += count * out_size;
        }
        next_row(walk->nd, walk->dims, walk->steps, program->leaves, place, program->data);
    }
}

/* Short rows: those of each block are gathered first. */
static void run_gathered(Program *program, const Walk *walk, char *buffers, npy_intp width,
                         char *out, npy_intp out_size)
{
    npy_intp place[MOST_AXES] = {0}, length = walk->dims[walk->nd - 1];
    npy_intp rows = program->elements / length;
    npy_intp most = width / program->widest / length, strides[LEAVES];
    for (int k = 0; k < program->leaves; k++) {
        int repeats = program->arrays[k] == NULL || PyArray_SIZE(program->arrays[k]) == 1;
        strides[k] = repeats ? 0 : program->sizes[k];
    }
    for (npy_intp row = 0; row < rows; row += most) {
        npy_intp count = rows - row < most ? rows - row : most;
        char *data[LEAVES];
        for (int k = 0; k < program->leaves; k++) {
            data[k] = program->near[k] != NULL ? program->near[k] : program->data[k];
        }
        for (npy_intp each = 0; each < count; each++) {
            for (int k = 0; k < program->leaves; k++) {
                npy_intp size = program->sizes[k];
                if (program->near[k] != NULL) {
                    copy_row(size, program->data[k], program->strides[k][walk->nd - 1],
                             program->near[k] + each * length * size, size, length);
                }
            }
            next_row(walk->nd, walk->dims, walk->steps, program->leaves, place, program->data);
        }
        run_block(program, count * length, data, strides, buffers, width, out);
        out += count * length * out_size;
    }
}

/* --------------------------------------------------------------------------------------- as one */

/* The result by one pass (new), and the flags that were raised. */
static PyArrayObject *in_blocks(Subexpression *term, int *flags)
{
    Program program; /* of which much is never used */
    program.count = program.leaves = program.gathered = program.buffers = program.flags = 0;
    program.widest = 1;
    program.elements = term->size;
    memset(program.taken, 0, sizeof program.taken);
    Walk walk = {.nd = term->nd, .steps = program.strides};
    memcpy(walk.dims, term->dims, (size_t)term->nd * sizeof *walk.dims);
    (void)write_down(&program, term, INTO);
    int is_large = term->size >= eager_below();
    PyArrayObject *made = is_large
        ? (PyArrayObject *)large_room(term->nd, term->dims, OUT(term))
        : new_array(OUT(term), term->nd, term->dims, 0);
    if (made == NULL) {
        return NULL;
    }
    npy_intp out_size = PyArray_ITEMSIZE(made);
    for (int k = 0; k < program.leaves; k++) {
        if (program.arrays[k] == NULL) {
            memset(walk.steps[k], 0, sizeof *walk.steps);
        }
        else if (!walk_steps(program.arrays[k], &walk, k)) {
            Py_DECREF(made); /* the shapes were looked at when the operations were */
            PyErr_SetString(PyExc_SystemError, "expression: an operand has another shape");
            return NULL;
        }
    }
    (void)walk_steps(made, &walk, program.leaves);
    walk_simplify(&walk, program.leaves + 1);
    char *out = PyArray_BYTES(made);
    npy_intp width = BLOCK + 192, length = walk.dims[walk.nd - 1]; /* not all on one cache line */
    int gathers = walk.nd > 1 && length < SHORT_ROW;
    for (int k = 0; gathers && k < program.leaves; k++) {
        if (!is_one_run(program.strides[k], &walk, program.sizes[k])) {
            program.near[k] = (char *)1;
            program.gathered++;
        }
    }
    char *memory = PyMem_RawMalloc((program.buffers + program.gathered) * width + 64);
    if (memory == NULL) {
        Py_DECREF(made);
        PyErr_NoMemory();
        return NULL;
    }
    char *next = (char *)(((uintptr_t)memory + 63) & ~(uintptr_t)63), *buffers = next;
    next += program.buffers * width;
    for (int k = 0; k < program.leaves; k++) {
        if (program.near[k] != NULL) {
            program.near[k] = next;
            next += width;
        }
    }
    PyThreadState *state =
        term->size * program.count >= 4 * UNLOCKED ? PyEval_SaveThread() : NULL;
    loops_begin();
    (gathers ? run_gathered : run_rows)(&program, &walk, buffers, width, out, out_size);
    *flags = as_numpys(program.flags);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    PyMem_RawFree(memory);
    return made;
}

int are_minded(int flags)
{
    /* an error state that minds underflow is one in which nothing waits: ignored_errors() < 0 */
    flags &= NPY_FPE_DIVIDEBYZERO | NPY_FPE_OVERFLOW | NPY_FPE_INVALID;
    if (flags == 0) {
        return 0;
    }
    long ignored = ignored_errors();
    return ignored < 0 || (flags & ~ignored);
}

PyObject *expression_array(PyObject *expression, int *flags)
{
    expressions_run++;
    return (PyObject *)in_blocks(TERM(expression), flags);
}

int expression_length(PyObject *expression)
{
    return TERM(expression)->operations;
}

int expression_type(PyObject *expression)
{
    return OUT(TERM(expression));
}

/* run(): how many expressions ran as one. */
PyObject *expressions_ran(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(expressions_run);
}

/* ------------------------------------------------------------------------------------- the type */

static void term_dealloc(PyObject *x)
{
    Subexpression *term = TERM(x);
    Py_CLEAR(term->given[0]);
    Py_CLEAR(term->given[1]);
    if (kept_count < (int)(sizeof kept / sizeof *kept)) {
        kept[kept_count++] = term;
    }
    else {
        PyObject_Free(x);
    }
}

PyTypeObject SubexpressionType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Subexpression",
    .tp_doc = "An operation of an expression that is not done yet.",
    .tp_basicsize = sizeof(Subexpression),
    .tp_dealloc = term_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

int expressions_ready(void)
{
    return PyType_Ready(&SubexpressionType);
}
