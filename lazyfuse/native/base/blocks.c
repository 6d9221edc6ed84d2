/* Blocks of memory, lent to results and taken back. Those of recorded work: as `BufferPool.empty`
   and `_take_back` (devices/pools/buffers.py), which own the blocks and do the rest. After other
   work their Python code comes back from the last cache, for each result of each evaluation. */

#include "base.h"

#include <string.h>
#include <time.h>

enum { SMALLEST = 65536 }; /* buffers.SMALLEST */
enum { STEPS = 8 }; /* buffers._STEPS */
enum { LARGER = 2 }; /* buffers._LARGER */

/* The base of an array over a block: when it dies, no array refers to the block any more. */
typedef struct {
    PyObject_HEAD
    PyObject *pool, *block;
} Lease;

static Py_ssize_t size_class(Py_ssize_t size)
{
    Py_ssize_t step = 1;
    while (step <= size / 2) {
        step *= 2;
    }
    step /= STEPS; /* of SMALLEST at least */
    return (size + step - 1) / step * step;
}

/* The free blocks of that size (borrowed), or NULL. */
static PyObject *free_blocks(PyObject *pool, PyObject *size)
{
    PyObject *table = POOL(pool, _free);
    return table == NULL || !PyDict_CheckExact(table) ? NULL : PyDict_GetItemWithError(table, size);
}

/* Adds to one of the pool's numbers. */
static int add_to(PyObject **number, Py_ssize_t change)
{
    Py_ssize_t before = *number == NULL ? -1 : PyLong_AsSsize_t(*number);
    PyObject *sum = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(before + change);
    if (sum == NULL) {
        return -1;
    }
    Py_XSETREF(*number, sum);
    return 0;
}

/* Whether a number that has just come together is over one of the pool's limits. */
static int is_due(PyObject *pool, double now)
{
    Py_ssize_t bytes = PyLong_AsSsize_t(POOL(pool, _free_bytes));
    Py_ssize_t limit = PyLong_AsSsize_t(POOL(pool, limit));
    double look = PyFloat_AsDouble(POOL(pool, _look));
    return bytes > limit || now > look;
}

static int take_back(PyObject *pool, PyObject *block)
{
    double now = seconds_now();
    PyObject *since = PyFloat_FromDouble(now), *size = RAW(block, size);
    PyObject *blocks = since == NULL ? NULL : free_blocks(pool, size);
    PyObject *done = NULL;
    if (blocks != NULL) {
        Py_XSETREF(RAW(block, since), Py_NewRef(since));
        done = PyObject_CallMethodOneArg(blocks, name_append, block);
    }
    Py_XDECREF(since);
    if (done == NULL || add_to(&POOL(pool, _free_bytes), PyLong_AsSsize_t(size)) < 0) {
        Py_XDECREF(done);
        return -1;
    }
    Py_DECREF(done);
    if (is_due(pool, now)) { /* by Python, where no handler of signals may raise */
        PyObject *trimmed = PyObject_CallOneArg(hooks.trim, pool);
        Py_XDECREF(trimmed);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static void lease_dealloc(Lease *self)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    /* modules are empty when the interpreter ends */
    if (!Py_IsFinalizing() && take_back(self->pool, self->block) < 0) {
        PyErr_Clear(); /* no memory for an entry: the block goes back to the system */
    }
    PyErr_Restore(type, value, traceback);
    Py_DECREF(self->block);
    Py_DECREF(self->pool);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef lease_members[] = {
    {"_block", T_OBJECT, offsetof(Lease, block), READONLY, "The block."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject LeaseType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Lease",
    .tp_doc = "What an array over a block of the pool is based on.",
    .tp_basicsize = sizeof(Lease),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)lease_dealloc,
    .tp_members = lease_members,
};

/* The block of that size that was used last (new); NULL: none is free, or an exception. */
static PyObject *last_block(PyObject *pool, Py_ssize_t bytes)
{
    PyObject *size = PyLong_FromSsize_t(bytes), *block = NULL;
    PyObject *blocks = size == NULL ? NULL : free_blocks(pool, size);
    Py_XDECREF(size);
    if (blocks != NULL && PyObject_Size(blocks) > 0) {
        block = PyObject_CallMethodNoArgs(blocks, name_pop);
    }
    if (block != NULL && (!Py_IS_TYPE(block, (PyTypeObject *)hooks.block) ||
                          add_to(&POOL(pool, _free_bytes), -bytes) < 0 ||
                          add_to(&POOL(pool, reused), 1) < 0)) {
        Py_CLEAR(block);
    }
    return block;
}

/* An array over a free block; NULL: there is none, or Python is to refuse it. */
static PyObject *over_free_block(PyObject *pool, int nd, npy_intp *dims, PyArray_Descr *descr)
{
    Py_ssize_t bytes = PyArray_OverflowMultiplyList(dims, nd);
    if (!Py_IS_TYPE(pool, (PyTypeObject *)hooks.pool) || !PyTypeNum_ISNUMBER(descr->type_num) ||
        bytes < 0 || bytes > NPY_MAX_INTP / PyDataType_ELSIZE(descr) / 2) {
        return NULL;
    }
    bytes *= PyDataType_ELSIZE(descr);
    if (bytes < SMALLEST) {
        Py_INCREF(descr);
        return PyArray_NewFromDescr(&PyArray_Type, descr, nd, dims, NULL, NULL, 0, NULL);
    }
    PyObject *block = NULL; /* or one a little larger, as Python's `_larger` */
    for (int k = 0; block == NULL && k <= LARGER && !PyErr_Occurred(); k++) {
        bytes = size_class(bytes + (k > 0));
        block = last_block(pool, bytes);
    }
    if (block == NULL) {
        return NULL;
    }
    void *memory = PyLong_AsVoidPtr(RAW(block, address));
    Lease *lease = memory == NULL ? NULL : PyObject_New(Lease, &LeaseType);
    if (lease == NULL) {
        Py_DECREF(block);
        return NULL;
    }
    lease->pool = Py_NewRef(pool);
    lease->block = block;
    Py_INCREF(descr);
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, nd, dims, NULL, memory,
                                           NPY_ARRAY_CARRAY, NULL);
    if (array == NULL || PyArray_SetBaseObject((PyArrayObject *)array, (PyObject *)lease) < 0) {
        if (array == NULL) {
            Py_DECREF(lease);
        }
        Py_XDECREF(array);
        return NULL;
    }
    return array;
}

static PyObject *by_python(PyObject *pool, PyObject *shape, PyObject *dtype)
{
    PyObject *args[] = {pool, shape, dtype};
    PyErr_Clear();
    return PyObject_Vectorcall(hooks.pool_empty, args, 3, NULL);
}

PyObject *pool_array(PyObject *pool, int nd, npy_intp *dims, PyArray_Descr *descr)
{
    PyObject *found = over_free_block(pool, nd, dims, descr);
    if (found == NULL) {
        PyErr_Clear();
        PyObject *shape = shape_tuple(nd, dims);
        found = shape == NULL ? NULL : by_python(pool, shape, (PyObject *)descr);
        Py_XDECREF(shape);
    }
    return found;
}

PyObject *array_from(PyObject *pool, PyObject *shape, PyObject *dtype)
{
    npy_intp dims[NPY_MAXDIMS];
    Py_ssize_t nd = PyTuple_CheckExact(shape) ? PyTuple_GET_SIZE(shape) : NPY_MAXDIMS + 1;
    PyObject *found = NULL;
    if (nd <= NPY_MAXDIMS && PyArray_DescrCheck(dtype)) {
        int plain = 1;
        for (Py_ssize_t axis = 0; plain && axis < nd; axis++) {
            dims[axis] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis));
            plain = dims[axis] >= 0;
        }
        if (plain) {
            found = over_free_block(pool, (int)nd, dims, (PyArray_Descr *)dtype);
        }
    }
    return found == NULL ? by_python(pool, shape, dtype) : found;
}

PyObject *pool_empty(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "empty: expected a shape and a dtype");
        return NULL;
    }
    return array_from(args[0], args[1], args[2]);
}

/* ------------------------------------------------------------------------------ of eager results */
/* An eager result of 100 KB comes from malloc, which takes pages from the system and gives them back
   whenever its heap ends in free memory: then an operation of 10 us takes 100. So blocks of that
   size that were free last are used again, a few of them. They are the arrays' own. */

enum { LARGEST = 1 << 20, KEPT_BYTES = 4 << 20, ALIGNED = 64 };

typedef struct Header {
    void *raw; /* where the memory begins for malloc */
    size_t room;
    struct Header *next;
} Header; /* in front of a block, in ALIGNED bytes */

static Header *kept_blocks; /* with Python's lock */
static size_t kept_bytes;

static void *header_made(size_t size)
{
    char *raw = size > SIZE_MAX - 2 * ALIGNED ? NULL : PyMem_RawMalloc(size + 2 * ALIGNED);
    if (raw == NULL) {
        return NULL;
    }
    char *block = (char *)(((uintptr_t)raw + 2 * ALIGNED - 1) & ~(uintptr_t)(ALIGNED - 1));
    Header *header = (Header *)(block - ALIGNED);
    *header = (Header){.raw = raw, .room = size};
    return block;
}

static void *kept_malloc(void *Py_UNUSED(context), size_t size)
{
    for (Header **at = &kept_blocks; *at != NULL; at = &(*at)->next) {
        Header *header = *at;
        if (header->room >= size && header->room - size <= size / 4) {
            *at = header->next;
            kept_bytes -= header->room;
            return (char *)header + ALIGNED;
        }
    }
    return header_made(size);
}

static void kept_free(void *Py_UNUSED(context), void *block, size_t Py_UNUSED(size))
{
    if (block == NULL) {
        return;
    }
    Header *header = (Header *)((char *)block - ALIGNED);
    if (header->room < SMALLEST || header->room > LARGEST) {
        PyMem_RawFree(header->raw);
        return;
    }
    header->next = kept_blocks;
    kept_blocks = header;
    kept_bytes += header->room;
    if (kept_bytes > KEPT_BYTES) { /* the one that was used longest ago goes */
        Header **last = &kept_blocks;
        while ((*last)->next != NULL) {
            last = &(*last)->next;
        }
        Header *old = *last;
        *last = NULL;
        kept_bytes -= old->room;
        PyMem_RawFree(old->raw);
    }
}

static void *kept_calloc(void *context, size_t count, size_t size)
{
    void *block = size && count > SIZE_MAX / size ? NULL : kept_malloc(context, count * size);
    return block == NULL ? NULL : memset(block, 0, count * size);
}

static void *kept_realloc(void *context, void *block, size_t size)
{
    void *made = kept_malloc(context, size);
    if (made != NULL && block != NULL) {
        size_t room = ((Header *)((char *)block - ALIGNED))->room;
        memcpy(made, block, room < size ? room : size);
        kept_free(context, block, room);
    }
    return made;
}

static PyDataMem_Handler handler = {
    "lazyfuse", 1, {NULL, kept_malloc, kept_calloc, kept_realloc, kept_free},
};
static PyObject *handler_capsule;

PyArrayObject *new_array(int type, int nd, npy_intp *dims, int fortran)
{
    PyArray_Descr *descr = PyArray_DescrFromType(type);
    npy_intp count = PyArray_MultiplyList(dims, nd);
    int flags = fortran ? NPY_ARRAY_F_CONTIGUOUS : 0;
    PyObject *before = NULL;
    if (count >= SMALLEST / 16 && count * PyDataType_ELSIZE(descr) >= SMALLEST) {
        if (handler_capsule == NULL) {
            handler_capsule = PyCapsule_New(&handler, "mem_handler", NULL);
        }
        before = handler_capsule == NULL ? NULL : PyDataMem_SetHandler(handler_capsule);
        if (before == NULL) {
            Py_DECREF(descr);
            return NULL;
        }
    }
    PyObject *made = PyArray_NewFromDescr(&PyArray_Type, descr, nd, dims, NULL, NULL, flags, NULL);
    if (before != NULL) {
        PyObject *ours = PyDataMem_SetHandler(before);
        Py_DECREF(before);
        if (ours == NULL) {
            Py_CLEAR(made);
        }
        Py_XDECREF(ours);
    }
    return (PyArrayObject *)made;
}

/* --------------------------------------------------------------------------------------- the clock */

double seconds_now(void)
{
    static time_t first;
    struct timespec time;
#ifdef CLOCK_MONOTONIC
    clock_gettime(CLOCK_MONOTONIC, &time);
#else
    timespec_get(&time, TIME_UTC);
#endif
    if (first == 0) {
        first = time.tv_sec;
    }
    return (double)(time.tv_sec - first) + 1e-9 * (double)time.tv_nsec;
}

PyObject *clock_seconds(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyFloat_FromDouble(seconds_now());
}

double least_of_late(double before, double now)
{
    before *= 1.05;
    return before == 0 || now < before ? now : before;
}
