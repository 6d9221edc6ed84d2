/* Calls on small arrays that come round: steps over memory, which namespace/small_programs.py has
   made of what such a call records. No Python runs between the first step and the last. */

#include "tape.h"

#include "../player/expressions.h"

#include <string.h>

enum { LOOP, COPY, SELECT, CAST }; /* kinds of steps, as there */
enum { MEMORY, CONSTANTS, GIVEN, MOST_RESULTS = 8, MOST_GIVEN = 5, ROOM = 1 << 19, LINE = 64,
       HEAD = 3 };
enum { IS_NUMBER, TYPE, AXES, DIMS, RESULT_WORDS = DIMS + MOST_AXES };

struct Small {
    npy_int64 *words, *results, *steps; /* numbers of the call; results; steps, in one block */
    npy_int64 cells, results_count, steps_count;
    PyObject *ufuncs, *constants, *shape;
    int runs, is_dropped; /* runs that have begun; whether the last of them frees it */
};

static char memory[ROOM + LINE]; /* with Python's lock, which no step lets go */

void small_free(Small *small)
{
    if (small != NULL && small->runs > 0) { /* what takes memory may run Python code */
        small->is_dropped = 1;
    }
    else if (small != NULL) {
        Py_XDECREF(small->ufuncs);
        Py_XDECREF(small->constants);
        Py_XDECREF(small->shape);
        PyMem_Free(small->words);
        PyMem_Free(small);
    }
}

Small *small_new(PyObject *made)
{
    PyObject *words, *ufuncs, *constants, *shape;
    if (!PyArg_ParseTuple(made, "SO!SO", &words, &PyTuple_Type, &ufuncs, &constants, &shape)) {
        return NULL;
    }
    Small *small = PyMem_Calloc(1, sizeof(Small));
    npy_int64 *own = PyMem_Malloc((size_t)PyBytes_GET_SIZE(words));
    if (small == NULL || own == NULL) {
        PyMem_Free(small);
        PyMem_Free(own);
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(own, PyBytes_AS_STRING(words), (size_t)PyBytes_GET_SIZE(words));
    *small = (Small){
        .words = own, .cells = own[0], .results_count = own[1], .steps_count = own[2],
        .results = own + HEAD + 3 * own[0], .ufuncs = Py_NewRef(ufuncs),
        .constants = Py_NewRef(constants), .shape = Py_NewRef(shape),
    };
    small->steps = small->results + RESULT_WORDS * small->results_count;
    return small;
}

/* One step; returns where the next one begins. */
static const npy_int64 *run_step(const Small *small, const npy_int64 *step, char **bases)
{
    int kind = (int)step[0], given = (int)step[3], nd = (int)step[4], inner = nd - 1;
    const npy_int64 *each = step + 5 + nd;
    npy_intp dims[MOST_AXES], place[MOST_AXES] = {0}, steps[MOST_GIVEN];
    npy_intp strides[MOST_GIVEN][MOST_AXES];
    char *data[MOST_GIVEN], *args[MOST_GIVEN];
    PyUFuncObject *u = kind != LOOP ? NULL
        : (PyUFuncObject *)PyTuple_GET_ITEM(small->ufuncs, step[1]);
    for (int axis = 0; axis < nd; axis++) {
        dims[axis] = (npy_intp)step[5 + axis];
    }
    for (int k = 0; k < given; k++, each += 2 + nd) {
        data[k] = bases[each[0]] + each[1];
        for (int axis = 0; axis < nd; axis++) {
            strides[k][axis] = (npy_intp)each[2 + axis];
        }
        steps[k] = strides[k][inner];
    }
    npy_intp count = dims[inner];
    do {
        memcpy(args, data, sizeof(args));
        if (kind == LOOP) {
            npy_intp length = count, own[MOST_GIVEN]; /* loops may change both */
            memcpy(own, steps, sizeof(own));
            u->functions[step[2]](args, &length, own, u->data == NULL ? NULL : u->data[step[2]]);
        }
        else if (kind == COPY) {
            copy_row(step[1], args[0], steps[0], args[1], steps[1], count);
        }
        else if (kind == SELECT) {
            select_row(step[1], args, steps, count);
        }
        else {
            loops_cast((int)step[1], (int)step[2], args[0], args[1], count);
        }
    } while (next_row(nd, dims, strides, given, place, data));
    return each;
}

/* What the call gives, of its results (stolen). */
static PyObject *given_of(const Small *small, PyObject *shape, PyObject **results, char **data)
{
    if (PyTuple_CheckExact(shape)) {
        PyObject *made = PyTuple_New(PyTuple_GET_SIZE(shape));
        for (Py_ssize_t at = 0; made != NULL && at < PyTuple_GET_SIZE(shape); at++) {
            PyObject *each = given_of(small, PyTuple_GET_ITEM(shape, at), results, data);
            if (each == NULL) {
                Py_CLEAR(made);
                break;
            }
            PyTuple_SET_ITEM(made, at, each);
        }
        return made;
    }
    Py_ssize_t at = PyLong_AsSsize_t(shape);
    const npy_int64 *kind = small->results + at * RESULT_WORDS;
    if (kind[IS_NUMBER]) {
        return PyArray_Scalar(data[at], descriptors[kind[TYPE]], NULL);
    }
    PyObject *array = results[at];
    results[at] = NULL;
    return wrapped(array);
}

PyObject *small_run(Small *small, const Call *call, PyObject *const *args)
{
    char *bases[GIVEN + MOST_OPERANDS + MOST_RESULTS];
    npy_clongdouble numbers[MOST_RESULTS];
    PyObject *results[MOST_RESULTS] = {NULL}, *found = NULL;
    char **first = bases + GIVEN + call->operands_count;
    PyObject *held[MOST_OPERANDS]; /* what takes memory may run Python code, which changes operands */
    int made = 0;
    small->runs++;
    for (int at = 0; at < call->operands_count; at++) {
        held[at] = Py_NewRef(EAGER(call->operands[at]));
        bases[GIVEN + at] = PyArray_BYTES((PyArrayObject *)held[at]);
    }
    for (; made < small->results_count; made++) {
        const npy_int64 *kind = small->results + made * RESULT_WORDS;
        first[made] = (char *)&numbers[made];
        if (!kind[IS_NUMBER]) {
            npy_intp dims[MOST_AXES];
            for (int axis = 0; axis < kind[AXES]; axis++) {
                dims[axis] = (npy_intp)kind[DIMS + axis];
            }
            results[made] = (PyObject *)new_array((int)kind[TYPE], (int)kind[AXES], dims, 0);
            if (results[made] == NULL) {
                break;
            }
            first[made] = PyArray_BYTES((PyArrayObject *)results[made]);
        }
    }
    if (made == small->results_count) {
        bases[MEMORY] = memory + (LINE - (uintptr_t)memory % LINE) % LINE;
        bases[CONSTANTS] = PyBytes_AS_STRING(small->constants);
        const npy_int64 *cell = small->words + HEAD;
        for (npy_int64 at = 0; at < small->cells; at++, cell += 3) {
            PyObject *x = args[call->numbers[cell[0]]];
            double value = PyFloat_Check(x) ? PyFloat_AS_DOUBLE(x)
                                            : (double)PyArrayScalar_VAL(x, Float);
            char *to = bases[MEMORY] + cell[2];
            if (cell[1] == NPY_DOUBLE) {
                *(double *)to = value;
            }
            else {
                *(float *)to = (float)value;
            }
        }
        const npy_int64 *step = small->steps;
        loops_begin();
        for (npy_int64 at = 0; at < small->steps_count; at++) {
            step = run_step(small, step, bases);
        }
        if (!are_minded(as_numpys(loops_raised()))) {
            found = given_of(small, small->shape, results, first);
        }
    }
    for (int at = 0; at < call->operands_count; at++) {
        Py_DECREF(held[at]);
    }
    for (int at = 0; at < MOST_RESULTS; at++) {
        Py_XDECREF(results[at]);
    }
    if (--small->runs == 0 && small->is_dropped) {
        small_free(small);
    }
    return found;
}
