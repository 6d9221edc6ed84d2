/* Launches of compiled programs, and copies between blocks: what devices/cpu/bound_launch.py and a
   replay (replay.c) ask for. */

#include "player.h"

#include <string.h>

/* ----------------------------------------------------------------------------------------- rows */

/* Words shared by threads, on their own cache line, lie in front of the rows: launch.py. */
enum { HEAD = 8, FLAGS_WORD = 2 };

/* The code of a compiled program: a row of sizes, addresses and strides, and scalars; the flags. */
typedef int32_t (*Chunk)(const int64_t *row, const char *scalars);
typedef int32_t (*Loop)(Chunk, int64_t *rows, const char *scalars, int64_t *words, int64_t count,
                        int64_t bytes, int64_t spins);
typedef int32_t (*Share)(void *crew, int64_t helpers, Loop, Chunk, int64_t *rows,
                         const char *scalars, int64_t *words, int64_t count, int64_t bytes);

/* A bound launch: runs fill in addresses and scalars only. See devices/cpu/bound_launch.py. */
typedef struct {
    PyObject_HEAD
    PyObject *codes, *keep; /* kinds of the scalars; what holds the code */
    Chunk entry;
    int64_t *template, *memory; /* `memory`: of the current launch, 64 bytes aligned in `raw` */
    char *raw;
    Py_ssize_t count, width, arrays, *columns;
    int busy;
} Rows;

static size_t rows_bytes(const Rows *self)
{
    return (HEAD + (size_t)(self->count * self->width)) * sizeof(int64_t);
}

static int64_t *aligned(char *raw)
{
    return (int64_t *)(((uintptr_t)raw + 63) & ~(uintptr_t)63);
}

static void fill_rows(const Rows *self, const int64_t *addresses, int64_t *memory)
{
    memset(memory, 0, HEAD * sizeof(int64_t));
    memcpy(memory + HEAD, self->template, self->count * self->width * sizeof(int64_t));
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        int64_t *place = memory + HEAD + self->columns[i];
        for (Py_ssize_t row = 0; row < self->count; row++, place += self->width) {
            *place += addresses[i];
        }
    }
}

long rows_launch(PyObject *object, const int64_t *addresses, const char *scalars, const Crew *crew)
{
    Rows *self = (Rows *)object;
    int64_t *memory = self->memory;
    char *raw = NULL;
    long flags = 0;
    int mine = !self->busy; /* another thread may be inside, without the interpreter's lock */
    if (!mine) {
        raw = PyMem_Malloc(rows_bytes(self) + 64);
        if (raw == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memory = aligned(raw);
    }
    self->busy = 1;
    fill_rows(self, addresses, memory);
    int64_t *rows = memory + HEAD, bytes = 8 * self->width;
    Loop loop = (Loop)crew->loop;
    Py_INCREF(self);
    Py_BEGIN_ALLOW_THREADS
    if (self->count == 1) {
        flags = self->entry(rows, scalars);
    }
    else if (crew->helpers > 0) {
        ((Share)crew->share)(crew->crew, crew->helpers, loop, self->entry, rows, scalars, memory,
                             self->count, bytes);
    }
    else {
        loop(self->entry, rows, scalars, memory, self->count, bytes, 0);
    }
    Py_END_ALLOW_THREADS
    if (self->count != 1) {
        flags = (long)memory[FLAGS_WORD];
    }
    if (mine) {
        self->busy = 0;
    }
    PyMem_Free(raw);
    Py_DECREF(self);
    return flags;
}

static void rows_dealloc(PyObject *object)
{
    Rows *self = (Rows *)object;
    Py_XDECREF(self->codes);
    Py_XDECREF(self->keep);
    PyMem_Free(self->template);
    PyMem_Free(self->raw);
    PyMem_Free(self->columns);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject RowsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Rows",
    .tp_basicsize = sizeof(Rows),
    .tp_dealloc = rows_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A launch with nothing but addresses and scalars to fill in.",
};

Py_ssize_t rows_look(PyObject *object, Py_ssize_t *arrays, const char **kinds)
{
    if (!Py_IS_TYPE(object, &RowsType)) {
        return -1;
    }
    *arrays = ((Rows *)object)->arrays;
    *kinds = PyUnicode_AsUTF8(((Rows *)object)->codes);
    return *kinds == NULL ? -1 : ((Rows *)object)->count;
}

/* rows(template, columns, width, kinds of scalars, entry, keep) */
PyObject *rows_new(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *columns, *codes, *entry, *keep;
    Py_buffer template;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(args, "y*O!nUOO", &template, &PyTuple_Type,
                          &columns, &width, &codes, &entry, &keep)) {
        return NULL;
    }
    Rows *made = (Rows *)RowsType.tp_alloc(&RowsType, 0);
    if (made != NULL && (width < 1 || !template.len || template.len % (8 * width))) {
        PyErr_SetString(PyExc_ValueError, "rows: expected whole rows");
        Py_CLEAR(made);
    }
    if (made != NULL) {
        made->codes = Py_NewRef(codes);
        made->keep = Py_NewRef(keep);
        made->entry = (Chunk)PyLong_AsVoidPtr(entry);
        made->width = width;
        made->count = template.len / (8 * width);
        made->arrays = PyTuple_GET_SIZE(columns);
        made->template = PyMem_Malloc(template.len);
        made->raw = PyMem_Malloc(rows_bytes(made) + 64);
        made->columns = PyMem_Calloc(made->arrays + 1, sizeof(Py_ssize_t));
        if (!made->template || !made->raw || !made->columns) {
            PyErr_NoMemory();
            Py_CLEAR(made);
        }
    }
    for (Py_ssize_t i = 0; made != NULL && i < made->arrays; i++) {
        made->columns[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(columns, i));
        if (made->columns[i] < 0 || made->columns[i] >= width) {
            PyErr_SetString(PyExc_ValueError, "rows: expected places in a row");
            Py_CLEAR(made);
        }
    }
    if (made != NULL && PyErr_Occurred()) {
        Py_CLEAR(made);
    }
    if (made != NULL) {
        memcpy(made->template, template.buf, template.len);
        made->memory = aligned(made->raw);
    }
    PyBuffer_Release(&template);
    return (PyObject *)made;
}

/* --------------------------------------------------------------------------------------- copies */

/* LET_GO: bytes from which a copy releases Python's lock; SHORT: a row that costs more than a call. */
enum { COPY_RANK = 8, LET_GO = 1 << 16, SHORT = 16 };

#define APART ((int64_t)1 << 40) /* a flag next to the item size: the two memories are disjoint */

typedef struct {
    npy_intp item, dims[COPY_RANK], to[COPY_RANK], from[COPY_RANK];
    int rank;
} Copying;

/* Drops axes of length 1, and joins axes that are contiguous in both memories. */
static void join_axes(Copying *c)
{
    int rank = 0;
    for (int axis = 0; axis < c->rank; axis++) {
        if (c->dims[axis] == 1) {
            continue;
        }
        if (rank > 0 && c->to[rank - 1] == c->to[axis] * c->dims[axis]
            && c->from[rank - 1] == c->from[axis] * c->dims[axis]) {
            c->dims[rank - 1] *= c->dims[axis];
        }
        else {
            c->dims[rank++] = c->dims[axis];
        }
        c->to[rank - 1] = c->to[axis];
        c->from[rank - 1] = c->from[axis];
    }
    c->rank = rank;
}

/* Lets the longest axis be the innermost where rows are short, as those of `repeat`. */
static void turn_short_rows(Copying *c)
{
    int last = c->rank - 1, longest = last;
    for (int axis = 0; axis < last && c->dims[last] < SHORT; axis++) {
        longest = c->dims[axis] > c->dims[longest] ? axis : longest;
    }
    if (longest == last) {
        return;
    }
    npy_intp *const each[] = {c->dims, c->to, c->from};
    for (int at = 0; at < 3; at++) {
        npy_intp own = each[at][longest];
        each[at][longest] = each[at][last];
        each[at][last] = own;
    }
}

/* The description is bytes of numbers: item (and APART), rank, lengths, strides
   of the target, of the source. */
int copy_elements(int64_t target, int64_t source, PyObject *description)
{
    Copying c;
    const int64_t *numbers = (const int64_t *)PyBytes_AS_STRING(description);
    Py_ssize_t length = PyBytes_GET_SIZE(description);
    if (length < 16 || numbers[1] < 0 || numbers[1] > COPY_RANK ||
        length != 8 * (2 + 3 * numbers[1])) {
        PyErr_SetString(PyExc_ValueError, "copy: expected item, rank, lengths and strides");
        return -1;
    }
    npy_intp bytes = c.item = (npy_intp)(numbers[0] & (APART - 1));
    c.rank = (int)numbers[1];
    for (int axis = 0; axis < c.rank; axis++) {
        c.dims[axis] = (npy_intp)numbers[2 + axis];
        c.to[axis] = (npy_intp)numbers[2 + c.rank + axis];
        c.from[axis] = (npy_intp)numbers[2 + 2 * c.rank + axis];
        bytes *= c.dims[axis];
    }
    char *to = (char *)(uintptr_t)target;
    const char *from = (const char *)(uintptr_t)source, *low, *high, *other, *end;
    reach(to, c.rank, c.dims, c.to, c.item, &low, &high);
    reach(from, c.rank, c.dims, c.from, c.item, &other, &end);
    if (!(numbers[0] & APART) && low < end && other < high) {
        return 0;
    }
    join_axes(&c);
    turn_short_rows(&c);
    PyThreadState *state = bytes >= LET_GO ? PyEval_SaveThread() : NULL;
    copy_along(to, c.to, from, c.from, c.dims, c.rank, c.item);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    return 1;
}
