/* NumPy's reductions of plain arrays, by the inner loops of their ufuncs. */

#include "base.h"

#include <string.h>

enum { SUM, MAX, MIN, MEAN, REDUCTIONS };

static Loops *reductions[REDUCTIONS];
static double start = 0.0; /* where NumPy's sums of floats start: 0.0 or -0.0 */

/* The ufunc of a method that reduces (new), from its op in base.REDUCTIONS. */
static PyObject *ufunc_of(const char *method)
{
    PyObject *pair = hooks.reductions == NULL ? NULL : PyDict_GetItemString(hooks.reductions, method);
    return pair == NULL ? NULL : PyObject_GetAttrString(PyTuple_GET_ITEM(pair, 0), "ufunc");
}

int loops_reduction(const char *method)
{
    static const char *const names[] = {"sum", "max", "min", "mean"};
    for (int at = 0; at < REDUCTIONS; at++) {
        if (strcmp(method, names[at]) == 0) {
            if (reductions[at] == NULL) {
                PyObject *ufunc = ufunc_of(names[at == MEAN ? SUM : at]);
                reductions[at] = ufunc == NULL ? NULL : loops_new(ufunc);
                Py_XDECREF(ufunc);
            }
            return reductions[at] == NULL ? -1 : at;
        }
    }
    return -1;
}

/* Asks NumPy where a sum starts. */
int reductions_ready(void)
{
    npy_intp one = 1;
    PyArrayObject *zero = new_array(NPY_DOUBLE, 1, &one, 0);
    if (zero == NULL) {
        return -1;
    }
    *(double *)PyArray_DATA(zero) = -0.0;
    PyObject *sum = PyObject_CallMethod((PyObject *)zero, "sum", NULL);
    Py_DECREF(zero);
    if (sum == NULL) {
        return -1;
    }
    start = PyFloat_AsDouble(sum);
    Py_DECREF(sum);
    return PyErr_Occurred() ? -1 : 0;
}

/* Counts the true elements: their number, or the mean. */
static PyObject *counted(PyArrayObject *a, int mean)
{
    npy_long found = (npy_long)PyArray_CountNonzero(a);
    if (!mean) {
        return PyArray_Scalar(&found, descriptors[NPY_LONG], NULL);
    }
    double value = (double)found / (double)PyArray_SIZE(a);
    return PyArray_Scalar(&value, descriptors[NPY_DOUBLE], NULL);
}

PyObject *loops_reduce(int which, PyArrayObject *a, int along, int keepdims)
{
    int type = plain_type(a), nd = PyArray_NDIM(a), mean = which == MEAN;
    if (type < 0 || nd == 0 || nd > MOST_AXES || !PyArray_IS_C_CONTIGUOUS(a) || PyArray_SIZE(a) == 0) {
        return NULL;
    }
    if (type == NPY_BOOL && (which == SUM || mean) && along < 0 && !keepdims) {
        return counted(a, mean);
    }
    int sums = which == SUM || mean;
    if (sums ? !(type == NPY_DOUBLE || (!mean && (type == NPY_FLOAT || type == NPY_LONG)))
             : type == NPY_CFLOAT || type == NPY_CDOUBLE) {
        return NULL;
    }
    Loops *loops = reductions[which];
    int at = loops->index[type];
    if (at < 0 || loops->out[type] != type) {
        return NULL;
    }
    npy_intp dims[MOST_AXES], outer = 1, length = 1, inner = 1;
    int to = 0;
    for (int axis = 0; axis < nd; axis++) {
        npy_intp each = PyArray_DIM(a, axis);
        int gone = along < 0 || axis == along;
        *(gone ? &length : axis < along ? &outer : &inner) *= each;
        if (!gone || keepdims) {
            dims[to++] = gone ? 1 : each;
        }
    }
    PyArrayObject *made = new_array(type, to, dims, 0);
    if (made == NULL) {
        return NULL;
    }
    npy_intp size = PyArray_ITEMSIZE(a);
    char *in = PyArray_BYTES(a), *out = PyArray_BYTES(made);
    loops_begin();
    for (npy_intp row = 0; row < outer; row++, out += inner * size) {
        npy_intp from = 0;
        if (sums) {
            for (npy_intp column = 0; column < inner; column++) {
                switch (type) {
                case NPY_DOUBLE:
                    ((double *)out)[column] = start;
                    break;
                case NPY_FLOAT:
                    ((float *)out)[column] = (float)start;
                    break;
                default:
                    ((npy_long *)out)[column] = 0;
                }
            }
        }
        else { /* a maximum or minimum starts with the first elements */
            memcpy(out, in, inner * size);
            in += inner * size;
            from = 1;
        }
        if (inner == 1) { /* one call for the row, with a result of stride zero: a reduction */
            npy_intp count = length - from, steps[3] = {0, size, 0};
            char *args[3] = {out, in, out};
            if (count > 0) {
                loop_run(loops, at, args, count, steps);
            }
            in += count * size;
            continue;
        }
        for (; from < length; from++, in += inner * size) {
            npy_intp steps[3] = {size, size, size};
            char *args[3] = {out, in, out};
            loop_run(loops, at, args, inner, steps);
        }
    }
    if (mean) {
        double *values = PyArray_DATA(made);
        for (npy_intp each = 0; each < outer * inner; each++) {
            values[each] /= (double)length;
        }
    }
    if (loops_raised()) {
        Py_DECREF(made);
        return NULL;
    }
    if (to == 0) {
        PyObject *scalar = PyArray_Scalar(PyArray_DATA(made), descriptors[type], NULL);
        Py_DECREF(made);
        return scalar;
    }
    return (PyObject *)made;
}
