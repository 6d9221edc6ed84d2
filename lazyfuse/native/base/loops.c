/* NumPy's inner loops, called on small plain arrays without the overhead of a ufunc call.

   A small ufunc call spends most of its time on finding the loop, the shape and the memory order,
   and on asking for overrides. For arrays of NumPy's own dtypes all of that is known beforehand, so
   this file calls the loop itself, on the same memory with the same steps as NumPy: results are
   NumPy's, bit for bit. Operands that are broadcast or have gaps take only loops that the op table
   calls exact: each element depends only on its operands. Inexact functions of many floats are the
   C library's, which has SIMD where NumPy has none: within the units that the op table states. If a
   loop raises a floating-point flag, this file drops the result and NumPy computes it again, so
   warnings and errors are NumPy's. */

#include "base.h"

#include <string.h>

#define SCRATCH 16384  /* bytes of the largest result that is computed in a buffer first */
#define SIMD_FROM 512  /* elements from which an inexact loop is the C library's, which has SIMD */

PyArray_Descr *descriptors[TYPES];
static signed char promoted[TYPES][TYPES];

/* What base.loop_types says of the loop of a dtype. A loop that is not exact is called only as
   NumPy calls it: once, on all elements. */
enum { LEFT_TO_NUMPY, AT_ONCE, EXACT };

static int usual(int type)
{
    return type <= NPY_ULONGLONG || type == NPY_FLOAT || type == NPY_DOUBLE || type == NPY_CFLOAT ||
           type == NPY_CDOUBLE;
}

int loops_ready(void)
{
    for (int type = 0; type < TYPES; type++) {
        descriptors[type] = PyArray_DescrFromType(type);
        if (descriptors[type] == NULL) {
            return -1;
        }
    }
    for (int from = 0; from < TYPES; from++) {
        for (int to = 0; to < TYPES; to++) {
            promoted[from][to] = -1;
            if (!usual(from) || !usual(to)) {
                continue;
            }
            PyArray_Descr *both = PyArray_PromoteTypes(descriptors[from], descriptors[to]);
            if (both == NULL) {
                return -1;
            }
            int type = both->type_num;
            int both_integers = PyTypeNum_ISINTEGER(from) && PyTypeNum_ISINTEGER(to);
            /* NumPy compares a signed with an unsigned integer without a common type */
            if (type < TYPES && usual(type) && both == descriptors[type] &&
                !(both_integers && PyTypeNum_ISSIGNED(from) != PyTypeNum_ISSIGNED(to))) {
                promoted[from][to] = (signed char)type;
            }
            Py_DECREF(both);
        }
    }
    casts_ready();
    return reductions_ready();
}

Loops *loops_new(PyObject *ufunc)
{
    Loops *loops = PyMem_Malloc(sizeof(Loops));
    if (loops == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *loops = (Loops){.library = ""};
    for (int type = 0; type < TYPES; type++) {
        loops->index[type] = -1;
    }
    loops->ufunc = (PyUFuncObject *)Py_NewRef(ufunc);
    if (!PyObject_TypeCheck(ufunc, &PyUFunc_Type)) {
        return loops;
    }
    PyUFuncObject *u = loops->ufunc;
    if (u->core_enabled || u->nout != 1 || u->nin > 2 || u->userloops != NULL) {
        return loops;
    }
    /* the op table says which loops this file may call, and how: base.loop_types */
    PyObject *told = hooks.loop_types == NULL ? NULL : PyObject_CallOneArg(hooks.loop_types, ufunc);
    if (told == NULL || told == Py_None) {
        Py_XDECREF(told);
        return PyErr_Occurred() ? (loops_free(loops), NULL) : loops;
    }
    if (!PyBytes_CheckExact(told) || PyBytes_GET_SIZE(told) < TYPES + 2 ||
        PyBytes_GET_SIZE(told) > TYPES + 1 + (Py_ssize_t)sizeof(loops->library)) {
        PyErr_SetString(PyExc_TypeError, "loop_types: expected bytes per dtype, and a name");
        Py_DECREF(told);
        loops_free(loops);
        return NULL;
    }
    const char *ways = PyBytes_AS_STRING(told);
    loops->reduces = ways[TYPES];
    loops->raised = from_numpys(ways[TYPES + 1]) | FE_UNDERFLOW; /* an error state may mind that */
    memcpy(loops->library, ways + TYPES + 2, (size_t)(PyBytes_GET_SIZE(told) - TYPES - 2));
    for (int at = u->ntypes - 1; at >= 0; at--) { /* NumPy takes the first of a type */
        const unsigned char *types = (const unsigned char *)u->types + at * u->nargs;
        int type = types[0], out = types[u->nin];
        if (type >= TYPES || out >= TYPES || !usual(type) || !usual(out) ||
            (u->nin == 2 && types[1] != type) || ways[type] == LEFT_TO_NUMPY) {
            continue;
        }
        loops->index[type] = (short)at;
        loops->out[type] = (unsigned char)out;
        loops->exact[type] = ways[type] == EXACT;
    }
    Py_DECREF(told);
    return loops;
}

void loops_free(Loops *loops)
{
    if (loops != NULL) {
        Py_DECREF(loops->ufunc);
        PyMem_Free(loops);
    }
}

int plain_type(PyArrayObject *array)
{
    PyArray_Descr *descr = PyArray_DESCR(array);
    int type = descr->type_num;
    if ((unsigned)type >= TYPES || descriptors[type] != descr || !PyArray_ISALIGNED(array)) {
        return -1;
    }
    return type;
}

npy_intp size_of_type(int type)
{
    return PyDataType_ELSIZE(descriptors[type]);
}

/* The SIMD function that computes so many results of a type; NULL: NumPy's loop does. */
static void *simd_for(Loops *loops, int type, npy_intp count)
{
    int which = type == NPY_FLOAT, ours = which || type == NPY_DOUBLE;
    if (count < SIMD_FROM || !ours || loops->library[0] == 0 || loops->exact[type]) {
        return NULL;
    }
    if (!loops->asked[which]) {
        loops->asked[which] = 1;
        loops->simd[which] =
            simd_function(loops->library, loops->ufunc->nin, (int)size_of_type(type));
    }
    return loops->simd[which];
}

/* Whether NumPy computes so many integers of a type as doubles, and we by a SIMD function. */
static int are_doubles(Loops *loops, int type, npy_intp count)
{
    return type >= NPY_INT && type <= NPY_ULONGLONG && loops->index[type] < 0 &&
           simd_for(loops, NPY_DOUBLE, count) != NULL;
}

static double float_at(int type, const char *from)
{
    return type == NPY_FLOAT ? *(const float *)from : *(const double *)from;
}

/* Whether NumPy's loop of powers is the better one: it has others for some exponents that are one
   number, `x ** 2.0` is exact; and of a negative base the SIMD version takes ten times as long. */
static int is_power_of_numpys(const Loops *loops, int type, char **args, npy_intp count,
                              const npy_intp *steps)
{
    if (strcmp(loops->library, "pow") != 0) {
        return 0;
    }
    double other = float_at(type, args[1]);
    if (steps[1] == 0 && (other == -1 || other == 0 || other == 0.5 || other == 1 || other == 2)) {
        return 1;
    }
    for (npy_intp at = 0; at < count; at++) {
        if (float_at(type, args[0] + at * steps[0]) < 0) {
            return 1;
        }
    }
    return 0;
}

/* Calls a SIMD function, if one is given, or NumPy's loop: on a few elements first if it is exact,
   since what raises a flag there is NumPy's. */
static inline void run(Loops *loops, int type, void *simd, char **args, npy_intp count,
                       npy_intp *steps)
{
    if (loops->exact[type] && count >= SIMD_FROM) {
        loop_run(loops, loops->index[type], args, FLAGS_FIRST, steps);
        if (loops_raised()) {
            return;
        }
        for (int k = 0; k < loops->ufunc->nargs; k++) {
            args[k] += FLAGS_FIRST * steps[k];
        }
        count -= FLAGS_FIRST;
    }
    if (simd != NULL && !is_power_of_numpys(loops, type, args, count, steps)) {
        simd_run(simd, loops->ufunc->nin, (int)size_of_type(type), args, count, steps,
                 loops->raised);
        forget_flags(CONDITIONS & ~loops->raised); /* `arctan2(0, 0)` is none to NumPy */
    }
    else {
        loop_run(loops, loops->index[type], args, count, steps);
    }
}

static inline void call(Loops *loops, int type, char **args, npy_intp count, npy_intp *steps)
{
    void *simd = simd_for(loops, type, count);
    PyThreadState *state = count >= UNLOCKED ? PyEval_SaveThread() : NULL;
    run(loops, type, simd, args, count, steps);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
}

int loops_element(Loops *loops, int type, char **args)
{
    npy_intp steps[3] = {0, 0, 0};
    loops_begin();
    call(loops, type, args, 1, steps);
    return !loops_raised();
}

/* ------------------------------------------------------------------------------------ geometry */

#define EITHER (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS)

/* Calls the loop once for each row of a walk. */
static void along(Loops *loops, int type, Walk *walk, char **data, int operands)
{
    npy_intp place[MOST_AXES] = {0}, total = 1;
    int inner = walk->nd - 1;
    for (int each = 0; each <= inner; each++) {
        total *= walk->dims[each];
    }
    if (total == 0) {
        return;
    }
    void *simd = simd_for(loops, type, total);
    PyThreadState *state = total >= UNLOCKED ? PyEval_SaveThread() : NULL;
    do {
        char *args[3];
        npy_intp steps[3];
        for (int k = 0; k < operands; k++) {
            args[k] = data[k];
            steps[k] = walk->steps[k][inner];
        }
        run(loops, type, simd, args, walk->dims[inner], steps);
    } while (next_row(walk->nd, walk->dims, walk->steps, operands, place, data));
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
}

/* --------------------------------------------------------------------------------------- calls */

static PyObject *finished(PyArrayObject *out)
{
    if (loops_raised()) {
        Py_DECREF(out);
        return NULL;
    }
    return (PyObject *)out;
}

/* Calls the loop once, on all elements. `right` is NULL for a ufunc of one operand. */
static PyObject *at_once(
    Loops *loops, int type, PyArrayObject *shape, char *left, npy_intp left_step, char *right,
    npy_intp right_step)
{
    int fortran = !PyArray_IS_C_CONTIGUOUS(shape) && PyArray_NDIM(shape) > 1;
    PyArrayObject *made =
        new_array(loops->out[type], PyArray_NDIM(shape), PyArray_DIMS(shape), fortran);
    if (made == NULL) {
        return NULL;
    }
    npy_intp count = PyArray_SIZE(made);
    if (count == 0) {
        return (PyObject *)made;
    }
    loops_begin();
    if (right != NULL) {
        char *args[3] = {left, right, PyArray_BYTES(made)};
        npy_intp steps[3] = {left_step, right_step, PyArray_ITEMSIZE(made)};
        call(loops, type, args, count, steps);
    }
    else {
        char *args[2] = {left, PyArray_BYTES(made)};
        npy_intp steps[2] = {left_step, PyArray_ITEMSIZE(made)};
        call(loops, type, args, count, steps);
    }
    return finished(made);
}

int walk_steps(PyArrayObject *a, Walk *walk, int k)
{
    int lead = walk->nd - PyArray_NDIM(a);
    for (int axis = 0; axis < walk->nd; axis++) {
        npy_intp length = axis < lead ? 1 : PyArray_DIM(a, axis - lead);
        if (length != 1 && length != walk->dims[axis]) {
            return 0;
        }
        walk->steps[k][axis] = length == 1 ? 0 : PyArray_STRIDE(a, axis - lead);
    }
    return 1;
}

/* The same on operands that are broadcast or have gaps, if an element's bits depend on nothing
   else; `b` may be NULL. */
static PyObject *spread(
    Loops *loops, int type, PyArrayObject *a, PyArrayObject *b, Py_ssize_t limit)
{
    npy_intp steps[3][MOST_AXES];
    Walk walk = {.steps = steps};
    int operands = b == NULL ? 2 : 3;
    if (!broadcast(&walk.nd, walk.dims, MOST_AXES, PyArray_NDIM(a), PyArray_DIMS(a)) ||
        (b != NULL &&
         !broadcast(&walk.nd, walk.dims, MOST_AXES, PyArray_NDIM(b), PyArray_DIMS(b)))) {
        return NULL;
    }
    int nd = walk.nd;
    npy_intp total = 1;
    for (int axis = 0; axis < nd; axis++) {
        total *= walk.dims[axis];
        if (total >= limit) { /* a later axis may have length zero: NumPy does those */
            return NULL;
        }
    }
    if (!loops->exact[type] && simd_for(loops, type, total) == NULL) {
        return NULL;
    }
    if (nd == 0 || !walk_steps(a, &walk, 0) || (b != NULL && !walk_steps(b, &walk, 1))) {
        return NULL;
    }
    /* C order in NumPy: the strides of all operands fall, or those of one along every axis */
    int one = walk_falls(a, nd, walk.dims), other = b == NULL ? one : walk_falls(b, nd, walk.dims);
    if (one != 1 && other != 1 && (one < 0 || other < 0)) {
        return NULL;
    }
    PyArrayObject *made = new_array(loops->out[type], nd, walk.dims, 0);
    if (made == NULL) {
        return NULL;
    }
    walk_steps(made, &walk, operands - 1);
    walk_simplify(&walk, operands);
    char *data[3] = {PyArray_BYTES(a), NULL, NULL};
    if (b != NULL) {
        data[1] = PyArray_BYTES(b);
    }
    data[operands - 1] = PyArray_BYTES(made);
    loops_begin();
    along(loops, type, &walk, data, operands);
    return finished(made);
}

/* Casts an array to a contiguous one of another type, if NumPy would use that type. */
static PyArrayObject *cast(PyArrayObject *a, int from, int to)
{
    if (!PyArray_IS_C_CONTIGUOUS(a)) {
        return NULL;
    }
    PyArrayObject *made = new_array(to, PyArray_NDIM(a), PyArray_DIMS(a), 0);
    if (made == NULL) {
        return NULL;
    }
    loops_begin();
    if (!loops_cast(from, to, PyArray_DATA(a), PyArray_DATA(made), PyArray_SIZE(a))) {
        Py_DECREF(made);
        return NULL;
    }
    return (PyArrayObject *)finished(made);
}

static PyObject *mixed(
    Loops *loops, PyArrayObject *a, int first, PyArrayObject *b, int second, Py_ssize_t limit)
{
    npy_intp count = Py_MAX(PyArray_SIZE(a), PyArray_SIZE(b));
    int type = promoted[first][second];
    if (type >= 0 && are_doubles(loops, type, count)) {
        type = NPY_DOUBLE;
    }
    /* NumPy calls a loop on as much as it casts at once */
    if (type < 0 || loops->index[type] < 0 ||
        (!loops->exact[type] && simd_for(loops, type, count) == NULL)) {
        return NULL;
    }
    PyArrayObject *left = first == type ? (PyArrayObject *)Py_NewRef(a) : cast(a, first, type);
    if (left == NULL) {
        return NULL;
    }
    PyArrayObject *right = second == type ? (PyArrayObject *)Py_NewRef(b) : cast(b, second, type);
    PyObject *made = NULL;
    if (right != NULL) {
        made = loops_binary(loops, (PyObject *)left, (PyObject *)right, limit);
        Py_DECREF(right);
    }
    Py_DECREF(left);
    return made;
}

static inline npy_intp step_of(PyArrayObject *a)
{
    int nd = PyArray_NDIM(a);
    return nd == 1 ? PyArray_STRIDE(a, 0) : nd == 0 ? 0 : PyArray_ITEMSIZE(a);
}

/* Whether NumPy would call its loop once for the whole array. */
static inline int is_run(PyArrayObject *a)
{
    return PyArray_NDIM(a) == 1 || (PyArray_FLAGS(a) & EITHER) != 0;
}

static PyObject *two_arrays(Loops *loops, PyArrayObject *a, PyArrayObject *b, Py_ssize_t limit)
{
    int type = plain_type(a), second = plain_type(b);
    if (type < 0 || second < 0) {
        return NULL;
    }
    if (type != second || are_doubles(loops, type, PyArray_SIZE(a))) {
        return mixed(loops, a, type, b, second, limit);
    }
    if (loops->index[type] < 0) {
        return NULL;
    }
    int same = same_shape(a, b);
    if (same && (PyArray_NDIM(a) == 1 || (PyArray_FLAGS(a) & PyArray_FLAGS(b) & EITHER))) {
        if (PyArray_NDIM(a) == 0) {
            return NULL;
        }
        return at_once(
            loops, type, a, PyArray_BYTES(a), step_of(a), PyArray_BYTES(b), step_of(b));
    }
    if (!same && (PyArray_NDIM(a) == 0 || PyArray_NDIM(b) == 0)) {
        PyArrayObject *shape = PyArray_NDIM(a) == 0 ? b : a;
        if (is_run(shape)) {
            return at_once(
                loops, type, shape, PyArray_BYTES(a), step_of(a), PyArray_BYTES(b), step_of(b));
        }
    }
    return spread(loops, type, a, b, limit);
}

/* Makes a 0-d array of a number, for loops over arrays with gaps. */
static PyArrayObject *as_array(void *number, int type)
{
    PyArrayObject *made = new_array(type, 0, NULL, 0);
    if (made != NULL) {
        memcpy(PyArray_DATA(made), number, PyArray_ITEMSIZE(made));
    }
    return made;
}

static PyObject *array_and_number(
    Loops *loops, PyArrayObject *a, PyObject *x, int swapped, Py_ssize_t limit)
{
    npy_clongdouble number;
    int type = plain_type(a);
    if (type < 0 || !put_number(&number, x, type)) {
        if (type < 0 || type > NPY_ULONGLONG || !PyFloat_CheckExact(x) ||
            loops->index[NPY_DOUBLE] < 0 ||
            (!loops->exact[NPY_DOUBLE] && simd_for(loops, NPY_DOUBLE, PyArray_SIZE(a)) == NULL)) {
            return NULL;
        }
        /* NumPy computes integers and a float as doubles */
        PyArrayObject *wide = cast(a, type, NPY_DOUBLE);
        if (wide == NULL) {
            return NULL;
        }
        PyObject *made = array_and_number(loops, wide, x, swapped, limit);
        Py_DECREF(wide);
        return made;
    }
    if (loops->index[type] < 0 || PyArray_NDIM(a) == 0) {
        return NULL;
    }
    if (is_run(a)) {
        char *data = PyArray_BYTES(a), *beside = (char *)&number;
        npy_intp step = step_of(a);
        return at_once(
            loops, type, a, swapped ? beside : data, swapped ? 0 : step, swapped ? data : beside,
            swapped ? step : 0);
    }
    PyArrayObject *beside = as_array(&number, type);
    if (beside == NULL) {
        return NULL;
    }
    PyObject *made = swapped ? spread(loops, type, beside, a, limit)
                             : spread(loops, type, a, beside, limit);
    Py_DECREF(beside);
    return made;
}

PyObject *loops_binary(Loops *loops, PyObject *left, PyObject *right, Py_ssize_t limit)
{
    if (IS_REAL(left)) {
        if (IS_REAL(right)) {
            return two_arrays(loops, (PyArrayObject *)left, (PyArrayObject *)right, limit);
        }
        return array_and_number(loops, (PyArrayObject *)left, right, 0, limit);
    }
    return IS_REAL(right) ? array_and_number(loops, (PyArrayObject *)right, left, 1, limit) : NULL;
}

PyObject *loops_unary(Loops *loops, PyObject *operand)
{
    PyArrayObject *a = (PyArrayObject *)operand;
    int type = plain_type(a);
    if (type >= 0 && are_doubles(loops, type, PyArray_SIZE(a))) {
        PyArrayObject *wide = cast(a, type, NPY_DOUBLE);
        PyObject *made = wide == NULL ? NULL : loops_unary(loops, (PyObject *)wide);
        Py_XDECREF(wide);
        return made;
    }
    if (type < 0 || loops->index[type] < 0 || PyArray_NDIM(a) == 0) {
        return NULL;
    }
    if (is_run(a)) {
        return at_once(loops, type, a, PyArray_BYTES(a), step_of(a), NULL, 0);
    }
    return spread(loops, type, a, NULL, NPY_MAX_INTP);
}

/* ------------------------------------------------------------------------------- into an array */

int loops_into(Loops *loops, PyObject *left, PyObject *right, PyArrayObject *out)
{
    int type = plain_type(out);
    if (type < 0 || loops->index[type] < 0 || loops->out[type] != type ||
        !PyArray_ISWRITEABLE(out) || (PyArray_FLAGS(out) & WARN_ON_WRITE) ||
        PyArray_NDIM(out) == 0 || !PyArray_ISCONTIGUOUS(out)) {
        return 0;
    }
    npy_intp count = PyArray_SIZE(out), bytes = PyArray_NBYTES(out);
    /* NumPy's loop, if it is not exact, may give other bits where it overwrites its operand; an
       exact one is done before a large buffer is there */
    void *simd = simd_for(loops, type, count);
    if (loops->exact[type] ? bytes > SCRATCH : simd == NULL) {
        return 0;
    }
    npy_clongdouble numbers[2];
    PyObject *given[2] = {left, right};
    char *args[3];
    npy_intp steps[3];
    int operands = right == NULL ? 1 : 2;
    for (int k = 0; k < operands; k++) {
        if (IS_REAL(given[k])) {
            PyArrayObject *a = (PyArrayObject *)given[k];
            /* what is written element by element may be what is read, or lies elsewhere */
            if (plain_type(a) != type ||
                (a != out && !are_apart(PyArray_BYTES(out), PyArray_NDIM(out), PyArray_DIMS(out),
                                        PyArray_STRIDES(out), a))) {
                return 0;
            }
            if (PyArray_NDIM(a) != 0 &&
                !(same_shape(a, out) && (PyArray_NDIM(a) == 1 || PyArray_ISCONTIGUOUS(a)))) {
                return 0;
            }
            args[k] = PyArray_BYTES(a);
            steps[k] = step_of(a);
        }
        else {
            if (!put_number(&numbers[k], given[k], type)) {
                return 0;
            }
            args[k] = (char *)&numbers[k];
            steps[k] = 0;
        }
    }
    if (count == 0) {
        return 1;
    }
    char *scratch = PyMem_Malloc(bytes); /* if a flag is raised, NumPy needs the old values */
    if (scratch == NULL) {
        return 0;
    }
    args[operands] = scratch;
    steps[operands] = PyArray_ITEMSIZE(out);
    loops_begin();
    run(loops, type, simd, args, count, steps);
    int done = !loops_raised();
    if (done) {
        memcpy(PyArray_DATA(out), scratch, bytes);
    }
    PyMem_Free(scratch);
    return done;
}
