/* Entering and leaving hot loops of Python: what loops/entering.py does, for common kinds of values.

   A row of 64-bit integers says for a name which kind its value must have and where its words are
   (entering.py: PACKED). What C does not know is Python's: it returns that the values do not fit. */

#include "entering.h"

enum { KIND, INDEX, AT, DETAIL, FIRST, ROW }; /* the integers of a row */

/* One of NumPy's arrays whose dtype, rank, last step and right to write are those of a row. */
static int array_words(PyArrayObject *array, npy_int64 wanted, Word *words, npy_int64 *most)
{
    int rank = PyArray_NDIM(array);
    npy_intp size = PyArray_ITEMSIZE(array);
    unsigned flags = (unsigned)PyArray_FLAGS(array);
    if (rank < 1 || !PyArray_ISALIGNED(array) || PyArray_ISBYTESWAPPED(array) ||
        (flags & WARN_ON_WRITE)) {
        return MISFIT;
    }
    npy_int64 is_unit = PyArray_STRIDE(array, rank - 1) == size;
    npy_int64 found = PyArray_TYPE(array) | rank << 8 | is_unit << 16 |
                      (npy_int64)PyArray_ISWRITEABLE(array) << 17;
    if (found != wanted) {
        return MISFIT;
    }
    words[0].whole = (npy_int64)(intptr_t)PyArray_DATA(array);
    for (int axis = 0; axis < rank; axis++) {
        npy_intp length = PyArray_DIM(array, axis), step = PyArray_STRIDE(array, axis);
        if (step % size != 0) {
            return MISFIT;
        }
        words[1 + axis].whole = length;
        words[1 + rank + axis].whole = step / size;
        *most = length > *most ? length : *most;
    }
    return 0;
}

static int integer_words(PyObject *value, int is_small, Word *word)
{
    int beyond;
    long long found = PyLong_AsLongLongAndOverflow(value, &beyond);
    const long long limit = 1LL << SMALL;
    if (beyond || (found > -limit && found < limit) != is_small || found == LLONG_MIN) {
        return MISFIT;
    }
    word->whole = found;
    return 0;
}

/* One of NumPy's numbers. */
static int scalar_words(PyObject *value, int code, Word *words)
{
    union {
        npy_int8 i1;
        npy_int16 i2;
        npy_int32 i4;
        npy_int64 i8;
        npy_uint8 u1;
        npy_uint16 u2;
        npy_uint32 u4;
        float f4;
        double f8[2];
    } raw;
    PyArray_ScalarAsCtype(value, &raw);
    switch (code) {
#define AS(code, field, member)           \
    case code:                            \
        words->field = raw.member;        \
        return 0
        AS(NPY_BOOL, whole, u1);
        AS(NPY_INT8, whole, i1);
        AS(NPY_INT16, whole, i2);
        AS(NPY_INT32, whole, i4);
        AS(NPY_INT64, whole, i8);
        AS(NPY_UINT8, whole, u1);
        AS(NPY_UINT16, whole, u2);
        AS(NPY_UINT32, whole, u4);
        AS(NPY_FLOAT32, real, f4);
        AS(NPY_FLOAT64, real, f8[0]);
#undef AS
    case NPY_COMPLEX128:
        words[0].real = raw.f8[0];
        words[1].real = raw.f8[1];
        return 0;
    default:
        return MISFIT;
    }
}

/* The type of the first item of a list or tuple; that of None if there is none. */
static npy_int64 first_type(PyObject *value)
{
    PyObject *found = Py_None;
    if (PyList_Check(value) && PyList_GET_SIZE(value) > 0) {
        found = PyList_GET_ITEM(value, 0);
    }
    else if (PyTuple_Check(value) && PyTuple_GET_SIZE(value) > 0) {
        found = PyTuple_GET_ITEM(value, 0);
    }
    return (npy_int64)(intptr_t)Py_TYPE(found);
}

static int value_words(PyObject *value, const npy_int64 *row, Word *words, npy_int64 *most,
                       PyObject *kept)
{
    words += row[AT];
    switch (row[KIND] & 255) {
    case 'i':
        return PyLong_CheckExact(value) ? integer_words(value, row[DETAIL] != 0, words) : MISFIT;
    case 'f':
        words->real = PyFloat_CheckExact(value) ? PyFloat_AS_DOUBLE(value) : 0.0;
        return PyFloat_CheckExact(value) ? 0 : MISFIT;
    case 'b':
        words->whole = value == Py_True;
        return PyBool_Check(value) ? 0 : MISFIT;
    case 'c':
        if (!PyComplex_CheckExact(value)) {
            return MISFIT;
        }
        words[0].real = PyComplex_RealAsDouble(value);
        words[1].real = PyComplex_ImagAsDouble(value);
        return 0;
    case 's':
        return (npy_int64)(intptr_t)Py_TYPE(value) == row[DETAIL]
                   ? scalar_words(value, (int)(row[KIND] >> 8), words)
                   : MISFIT;
    case 'a':
        if (IS_ARRAY(value)) {
            if (!IS_DIRECT(value)) {
                return PENDING;
            }
            value = EAGER(value);
            if (PyList_Append(kept, value) < 0) {
                return MISFIT;
            }
        }
        return IS_REAL(value) ? array_words((PyArrayObject *)value, row[DETAIL], words, most)
                              : MISFIT;
    case 'h': /* a string of one character */
        if (!PyUnicode_CheckExact(value) || PyUnicode_GET_LENGTH(value) != 1) {
            return MISFIT;
        }
        words->whole = PyUnicode_READ_CHAR(value, 0);
        return 0;
    case 'q':
        words->whole = (npy_int64)(intptr_t)value;
        return (npy_int64)(intptr_t)Py_TYPE(value) == row[DETAIL] && row[FIRST] == first_type(value)
                   ? 0
                   : MISFIT;
    case 't': /* whatever is of this type */
        return (npy_int64)(intptr_t)Py_TYPE(value) == row[DETAIL] ? 0 : MISFIT;
    default: /* this very object */
        return (npy_int64)(intptr_t)value == row[DETAIL] ? 0 : MISFIT;
    }
}

/* Working memory: room for `most` numbers of 16 bytes in each block. */
static int scratch_words(Word *words, npy_int64 most, Py_ssize_t blocks, PyObject *kept)
{
    PyObject *memory = PyBytes_FromStringAndSize(NULL, 16 * (Py_ssize_t)most * blocks + 16);
    int failed = memory == NULL || PyList_Append(kept, memory) < 0;
    if (!failed) {
        uintptr_t begin = (uintptr_t)PyBytes_AS_STRING(memory);
        words[SCRATCH].whole = (npy_int64)(begin + -begin % 16);
        words[ROOM].whole = most;
    }
    Py_XDECREF(memory);
    return failed ? MISFIT : 0;
}

npy_int64 words_fill(PyObject *rows, PyObject *values, Word *words, Py_ssize_t blocks,
                     PyObject *kept)
{
    const npy_int64 *row = (const npy_int64 *)PyBytes_AS_STRING(rows);
    const npy_int64 *end = row + PyBytes_GET_SIZE(rows) / (Py_ssize_t)sizeof(*row);
    npy_int64 most = 64;
    int failed = 0;
    for (; row < end && !failed; row += ROW) {
        failed = value_words(PyList_GET_ITEM(values, row[INDEX]), row, words, &most, kept);
    }
    if (!failed && blocks > 0) {
        failed = scratch_words(words, most, blocks, kept);
    }
    return failed ? failed : most;
}

/* loop_fill(rows, values, words, blocks): write what a loop begins with. A list of the length of the
   longest axis, at least 64, and of the memory that the loop uses; or MISFIT, PENDING. */
PyObject *loop_fill(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer memory;
    Py_ssize_t blocks = count == 4 ? PyLong_AsSsize_t(args[3]) : -1;
    if (blocks < 0 || !PyBytes_Check(args[0]) || !PyList_Check(args[1]) ||
        PyObject_GetBuffer(args[2], &memory, PyBUF_WRITABLE) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "loop_fill");
    }
    PyObject *kept = PyList_New(1);
    npy_int64 most =
        kept == NULL ? MISFIT : words_fill(args[0], args[1], memory.buf, blocks, kept);
    PyBuffer_Release(&memory);
    PyObject *first = PyErr_Occurred() ? NULL : PyLong_FromLongLong(most);
    if (most < 0 || first == NULL) {
        Py_XDECREF(kept);
        return first;
    }
    PyList_SET_ITEM(kept, 0, first);
    return kept;
}

/* The value of a name that a loop has assigned, or `unbound` where it has not. */
static PyObject *value_at(const npy_int64 *row, const Word *words, PyObject *unbound)
{
    const Word *at = words + row[INDEX];
    int kind = (int)(row[KIND] & 255);   /* Python's type; 's': NumPy's */
    int weak = row[KIND] >> 8 & 255;     /* of a union: Python's type, where its tag is zero */
    int is_real = row[KIND] >> 16 != 0;  /* whether the words of an integer hold a float */
    if (kind == 'u' || (row[AT] != 0 && words[row[AT]].whole == 0)) {
        return Py_NewRef(unbound);
    }
    switch (weak && at[2].whole == 0 ? weak : kind) {
    case 'i':
        return is_real ? PyLong_FromDouble(at->real) : PyLong_FromLongLong(at->whole);
    case 'f':
        return PyFloat_FromDouble(at->real);
    case 'b':
        return PyBool_FromLong(at->whole != 0);
    case 'c':
        return PyComplex_FromDoubles(at[0].real, at[1].real);
    case 'q': /* an item of a sequence: what runs since the loop looked at it is no Python */
        return Py_NewRef((PyObject *)(intptr_t)at->whole);
    case 'h':
        return PyUnicode_FromOrdinal((int)at->whole);
    default:;
    }
    PyArray_Descr *dtype = (PyArray_Descr *)(intptr_t)row[DETAIL];
    float single = (float)at->real;
    const void *raw = at;
    if (dtype->type_num == NPY_FLOAT32) {
        raw = &single;
    }
    else if (NPY_BYTE_ORDER == NPY_BIG_ENDIAN && PyDataType_ELSIZE(dtype) < 8) {
        raw = (const char *)(at + 1) - PyDataType_ELSIZE(dtype);
    }
    return PyArray_Scalar((void *)raw, dtype, NULL);
}

PyObject *words_read(PyObject *rows, const Word *words, PyObject *unbound)
{
    const npy_int64 *row = (const npy_int64 *)PyBytes_AS_STRING(rows);
    Py_ssize_t size = PyBytes_GET_SIZE(rows) / (Py_ssize_t)(ROW * sizeof(*row));
    PyObject **made = PyMem_Malloc((size_t)(size + 1) * sizeof(PyObject *));
    Py_ssize_t count = 0;
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    while (count < size && (made[count] = value_at(row, words, unbound)) != NULL) {
        count++;
        row += ROW;
    }
    PyObject *values = count < size ? NULL : PyList_New(size); /* last: it may collect */
    for (Py_ssize_t at = 0; at < count; at++) {
        if (values != NULL) {
            PyList_SET_ITEM(values, at, made[at]);
        }
        else {
            Py_DECREF(made[at]);
        }
    }
    PyMem_Free(made);
    return values;
}

/* loop_call(entry, words, exits, unbound): run a loop. How it ended, and the values of the names
   that it assigns; None for these where `exits` has no rows for them: Python reads them. */
PyObject *loop_call(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer memory;
    if (count != 4 || !PyDict_Check(args[2]) ||
        PyObject_GetBuffer(args[1], &memory, PyBUF_WRITABLE) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "loop_call");
    }
    Compiled entry = (Compiled)PyLong_AsVoidPtr(args[0]);
    int code = PyErr_Occurred() ? -1 : entry(memory.buf, memory.buf);
    PyObject *number = PyErr_Occurred() ? NULL : PyLong_FromLong(code);
    PyObject *rows = number == NULL ? NULL : PyDict_GetItemWithError(args[2], number);
    PyObject *values = NULL;
    if (rows != NULL && PyBytes_Check(rows)) {
        values = words_read(rows, memory.buf, args[3]);
    }
    PyBuffer_Release(&memory);
    PyObject *found = NULL;
    if (number != NULL && !PyErr_Occurred()) {
        found = PyTuple_Pack(2, number, values == NULL ? Py_None : values);
    }
    Py_XDECREF(number);
    Py_XDECREF(values);
    return found;
}
