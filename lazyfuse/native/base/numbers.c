/* Python's and NumPy's numbers as operands next to arrays: which are plain, and how NumPy stores
   them in an array's dtype. NumPy does numbers that it might convert with a warning or an
   error. */

#include "base.h"

#include <float.h>
#include <string.h>

int is_number(PyObject *x)
{
    return PyFloat_CheckExact(x) || PyLong_CheckExact(x) || PyBool_Check(x) ||
           Py_TYPE(x) == &PyDoubleArrType_Type || PyComplex_CheckExact(x) ||
           is_of(hooks.plain_numbers, x);
}

static int put_double(void *to, double value, int type)
{
    switch (type) {
    case NPY_DOUBLE:
        *(double *)to = value;
        return 1;
    case NPY_CDOUBLE:
        ((double *)to)[0] = value;
        ((double *)to)[1] = 0.0;
        return 1;
    case NPY_FLOAT:
    case NPY_CFLOAT: {
        double size = value < 0 ? -value : value;
        if (size != 0.0 && !(size > 1e-30 && size < FLT_MAX)) {
            return 0; /* the conversion may raise a flag */
        }
        ((float *)to)[0] = (float)value;
        if (type == NPY_CFLOAT) {
            ((float *)to)[1] = 0.0f;
        }
        return 1;
    }
    default:
        return 0;
    }
}

#define FITS(kind, low, high)                      \
    if (value < (long long)(low) || value > (long long)(high)) { \
        return 0;                                  \
    }                                              \
    *(kind *)to = (kind)value;                     \
    return 1

static int put_integer(void *to, long long value, int type)
{
    switch (type) {
    case NPY_BYTE:
        FITS(npy_byte, NPY_MIN_BYTE, NPY_MAX_BYTE);
    case NPY_UBYTE:
        FITS(npy_ubyte, 0, NPY_MAX_UBYTE);
    case NPY_SHORT:
        FITS(npy_short, NPY_MIN_SHORT, NPY_MAX_SHORT);
    case NPY_USHORT:
        FITS(npy_ushort, 0, NPY_MAX_USHORT);
    case NPY_INT:
        FITS(npy_int, NPY_MIN_INT, NPY_MAX_INT);
    case NPY_UINT:
        FITS(npy_uint, 0, NPY_MAX_UINT);
    case NPY_LONG:
        FITS(npy_long, NPY_MIN_LONG, NPY_MAX_LONG);
    case NPY_LONGLONG:
        *(npy_longlong *)to = value;
        return 1;
    case NPY_ULONG:
        FITS(npy_ulong, 0, NPY_MAX_LONG);
    case NPY_ULONGLONG:
        FITS(npy_ulonglong, 0, NPY_MAX_LONGLONG);
    case NPY_FLOAT:
    case NPY_CFLOAT:
        if (value < -(1LL << 24) || value > 1LL << 24) {
            return 0;
        }
        return put_double(to, (double)value, type);
    case NPY_DOUBLE:
    case NPY_CDOUBLE:
        if (value < -(1LL << 53) || value > 1LL << 53) {
            return 0;
        }
        return put_double(to, (double)value, type);
    default:
        return 0;
    }
}

int put_any_number(void *to, PyObject *x, int type)
{
    if (PyFloat_CheckExact(x)) {
        return put_double(to, PyFloat_AS_DOUBLE(x), type);
    }
    if (PyLong_CheckExact(x)) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(x, &overflow);
        return overflow ? 0 : put_integer(to, value, type);
    }
    if (Py_TYPE(x) == &PyDoubleArrType_Type) {
        double value = PyArrayScalar_VAL(x, Double);
        return type == NPY_DOUBLE || type == NPY_CDOUBLE ? put_double(to, value, type) : 0;
    }
    if (PyBool_Check(x) || Py_TYPE(x) == &PyBoolArrType_Type) {
        int value = PyBool_Check(x) ? x == Py_True : PyArrayScalar_VAL(x, Bool) != 0;
        if (type == NPY_BOOL) {
            *(npy_bool *)to = (npy_bool)value;
            return 1;
        }
        return put_integer(to, value, type);
    }
    if (PyComplex_CheckExact(x)) {
        if (type != NPY_CDOUBLE) {
            return 0;
        }
        Py_complex value = PyComplex_AsCComplex(x);
        ((double *)to)[0] = value.real;
        ((double *)to)[1] = value.imag;
        return 1;
    }
    if (Py_TYPE(x) == &PyLongArrType_Type && (type == NPY_LONG || type == NPY_DOUBLE)) {
        return put_integer(to, PyArrayScalar_VAL(x, Long), type);
    }
    if (Py_TYPE(x) == &PyFloatArrType_Type && type == NPY_FLOAT) {
        *(float *)to = PyArrayScalar_VAL(x, Float);
        return 1;
    }
    if (Py_TYPE(x) == &PyCDoubleArrType_Type && type == NPY_CDOUBLE) {
        npy_cdouble value = PyArrayScalar_VAL(x, CDouble);
        memcpy(to, &value, sizeof(value));
        return 1;
    }
    return 0;
}
