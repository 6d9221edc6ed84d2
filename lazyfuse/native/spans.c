/* The time of operations by line, for the report: runtime/events/spans.py in C. A span is a stretch
   of time in which lazyfuse works for a line; what spans inside it have taken is not counted again.
   Nothing of this runs unless the option `report` is on: then the array's operators are replaced by
   others that take the time around them. */

#include "native.h"

#include <string.h>
#include <time.h>

int spans_on;

#if defined(_MSC_VER)
#define PER_THREAD __declspec(thread)
#else
#define PER_THREAD __thread
#endif

static PER_THREAD double attributed; /* seconds of this thread's spans that have ended */

static double monotonic(void)
{
#ifdef CLOCK_MONOTONIC
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
#else
    return seconds_now();
#endif
}

Span span_open(void)
{
    Span span = {monotonic(), attributed};
    return span;
}

/* The seconds of a span that ends without those of the spans in it. */
static double ended(Span span)
{
    double elapsed = monotonic() - span.began;
    double own = elapsed - (attributed - span.before);
    attributed = span.before + elapsed;
    return own > 0.0 ? own : 0.0;
}

/* -------------------------------------------------------------------------------------- the table */

typedef struct {
    PyObject *code; /* NULL: free */
    unsigned long thread;
    int offset, kind;
    Py_ssize_t count; /* those that the line itself asked for */
    double seconds;
} Taken;

static Taken *entries;
static size_t room, taken;

static Taken *entry_in(Taken *table, size_t size, PyObject *code, unsigned long thread, int offset,
                       int kind)
{
    size_t at = ((size_t)code >> 4) * 31 + (size_t)offset * 7 + (size_t)kind + thread * 13;
    for (;; at++) {
        Taken *entry = &table[at % size];
        if (entry->code == NULL ||
            (entry->code == code && entry->thread == thread && entry->offset == offset &&
             entry->kind == kind)) {
            return entry;
        }
    }
}

static int grow(void)
{
    size_t size = room == 0 ? 256 : 2 * room;
    Taken *table = PyMem_Calloc(size, sizeof(Taken));
    if (table == NULL) {
        return 0;
    }
    for (size_t at = 0; at < room; at++) {
        Taken *old = &entries[at];
        if (old->code != NULL) {
            *entry_in(table, size, old->code, old->thread, old->offset, old->kind) = *old;
        }
    }
    PyMem_Free(entries);
    entries = table;
    room = size;
    return 1;
}

static void close_here(Span span, SpanKind kind)
{
    PyFrameObject *frame = user_frame();
    if (frame == NULL || (2 * taken >= room && !grow())) {
        (void)ended(span);
        Py_XDECREF(frame);
        return;
    }
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    Taken *entry = entry_in(entries, room, code, PyThread_get_thread_ident(),
                            PyFrame_GetLasti(frame), kind);
    if (entry->code == NULL) {
        entry->code = Py_NewRef(code);
        entry->thread = PyThread_get_thread_ident();
        entry->offset = PyFrame_GetLasti(frame);
        entry->kind = kind;
        taken++;
    }
    entry->count += frame == PyEval_GetFrame();
    entry->seconds += ended(span);
    Py_DECREF(code);
    Py_DECREF(frame);
}

void span_close(Span span, SpanKind kind)
{
    if (PyErr_Occurred()) { /* of the operation: it is raised afterwards */
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        close_here(span, kind);
        PyErr_Restore(type, value, trace);
        return;
    }
    close_here(span, kind);
}

/* spans_take(): ((code, offset, thread, kind, count, seconds), ...), which are forgotten. */
PyObject *spans_take(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    Taken *old = entries;
    size_t size = room;
    PyObject *found = PyList_New(0);
    entries = NULL;
    room = taken = 0;
    for (size_t at = 0; at < size; at++) {
        Taken *entry = &old[at];
        if (entry->code == NULL) {
            continue;
        }
        PyObject *each = found == NULL ? NULL
            : Py_BuildValue("Oikind", entry->code, entry->offset, entry->thread, entry->kind,
                            entry->count, entry->seconds);
        if (each == NULL || PyList_Append(found, each) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(each);
        Py_DECREF(entry->code);
    }
    PyMem_Free(old);
    return found;
}

/* span_begin(): what span_end takes. */
PyObject *span_begin(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    Span span = span_open();
    return Py_BuildValue("dd", span.began, span.before);
}

/* span_end((began, before)): the seconds of the span without those of the spans in it. */
PyObject *span_end(PyObject *Py_UNUSED(module), PyObject *given)
{
    Span span;
    if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "dd", &span.began, &span.before)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "span_end: expected what span_begin gave");
        }
        return NULL;
    }
    return PyFloat_FromDouble(ended(span));
}

/* span_skip(seconds): these are not of the spans that are open now. */
PyObject *span_skip(PyObject *Py_UNUSED(module), PyObject *seconds)
{
    double given = PyFloat_AsDouble(seconds);
    if (given == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    attributed += given;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------------------- the operators */

/* What an operation that gave this result was. */
static SpanKind kind_of(PyObject *result)
{
    return result != NULL && IS_ARRAY(result) && !IS_DIRECT(result) ? SPAN_RECORDED
                                                                    : SPAN_OPERATIONS;
}

#define UNARY(_)                                                                                   \
    _(nb_negative) _(nb_positive) _(nb_absolute) _(nb_invert)
#define BINARY(_)                                                                                  \
    _(nb_add) _(nb_subtract) _(nb_multiply) _(nb_true_divide) _(nb_floor_divide) _(nb_remainder)   \
    _(nb_and) _(nb_or) _(nb_xor) _(nb_lshift) _(nb_rshift) _(nb_matrix_multiply)                   \
    _(nb_inplace_add) _(nb_inplace_subtract) _(nb_inplace_multiply) _(nb_inplace_true_divide)      \
    _(nb_inplace_floor_divide) _(nb_inplace_remainder) _(nb_inplace_and) _(nb_inplace_or)          \
    _(nb_inplace_xor) _(nb_inplace_lshift) _(nb_inplace_rshift)

#define TIMED_UNARY(slot)                                                                          \
    static PyObject *timed_##slot(PyObject *x)                                                     \
    {                                                                                              \
        Span span = span_open();                                                                   \
        PyObject *result = array_number.slot(x);                                                   \
        span_close(span, kind_of(result));                                                         \
        return result;                                                                             \
    }
UNARY(TIMED_UNARY)

#define TIMED_BINARY(slot)                                                                         \
    static PyObject *timed_##slot(PyObject *x, PyObject *y)                                        \
    {                                                                                              \
        Span span = span_open();                                                                   \
        PyObject *result = array_number.slot(x, y);                                                \
        span_close(span, kind_of(result));                                                         \
        return result;                                                                             \
    }
BINARY(TIMED_BINARY)

static PyObject *timed_nb_power(PyObject *x, PyObject *y, PyObject *z)
{
    Span span = span_open();
    PyObject *result = array_number.nb_power(x, y, z);
    span_close(span, kind_of(result));
    return result;
}

static PyObject *timed_compare(PyObject *x, PyObject *y, int op)
{
    Span span = span_open();
    PyObject *result = array_compare(x, y, op);
    span_close(span, kind_of(result));
    return result;
}

static PyObject *timed_mp_subscript(PyObject *x, PyObject *key)
{
    Span span = span_open();
    PyObject *result = array_mapping.mp_subscript(x, key);
    SpanKind kind = result != NULL && !IS_ARRAY(result) ? SPAN_READS : SPAN_PARTS;
    span_close(span, kind);
    return result;
}

/* Whether an index names one element: a number, or several. */
static int is_element(PyObject *key)
{
    int one = is_index(key);
    if (PyTuple_CheckExact(key)) {
        one = PyTuple_GET_SIZE(key) > 0;
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(key); at++) {
            one &= is_index(PyTuple_GET_ITEM(key, at));
        }
    }
    return one;
}

static int timed_mp_ass_subscript(PyObject *x, PyObject *key, PyObject *value)
{
    Span span = span_open();
    int one = is_element(key) && value != NULL && !IS_ARRAY(value);
    int result = array_mapping.mp_ass_subscript(x, key, value);
    span_close(span, one ? SPAN_WRITES : SPAN_PARTS);
    return result;
}

/* Puts the operators that take the time where the usual ones are, or the other way round. */
static void exchange(PyTypeObject *type, int timed)
{
    PyNumberMethods *number = type->tp_as_number;
#define EXCHANGE(slot)                                                                             \
    if (number->slot == (timed ? array_number.slot : timed_##slot)) {                              \
        number->slot = timed ? timed_##slot : array_number.slot;                                   \
    }
    UNARY(EXCHANGE)
    BINARY(EXCHANGE)
    EXCHANGE(nb_power)
#undef EXCHANGE
    type->tp_richcompare = timed ? timed_compare : array_compare;
    if (type->tp_as_mapping != NULL) {
        type->tp_as_mapping->mp_subscript = timed ? timed_mp_subscript : array_mapping.mp_subscript;
        type->tp_as_mapping->mp_ass_subscript =
            timed ? timed_mp_ass_subscript : array_mapping.mp_ass_subscript;
    }
    PyType_Modified(type);
}

/* spans_switch(on): take the time of operations from now on, or no longer. */
PyObject *spans_switch(PyObject *Py_UNUSED(module), PyObject *on)
{
    int timed = PyObject_IsTrue(on);
    if (timed < 0) {
        return NULL;
    }
    spans_on = timed;
    if (array_type != NULL) {
        exchange(array_type, timed);
        exchange(&SubexpressionType, timed);
    }
    Py_RETURN_NONE;
}
