/* The time of operations by line, for the report: runtime/events/spans.py in C. A span is a stretch
   of time in which lazyfuse works for a line; what spans inside it have taken is not counted again.
   Nothing of this runs unless the option `report` is on: each slot of the array asks `spans_on`. */

#include "graph.h"

int spans_on;

static _Thread_local double attributed; /* seconds of this thread's spans that have ended */

Span span_opened(void)
{
    Span span = {seconds_now(), attributed};
    return span;
}

/* The seconds of a span that ends without those of the spans in it. */
static double ended(Span span)
{
    double elapsed = seconds_now() - span.began;
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

void span_closed(Span span, SpanKind kind)
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
    PyObject *found = PyList_New(0); /* first: what a collection runs may add spans */
    Taken *old = entries;
    size_t size = room;
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
    Span span = span_opened();
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

/* spans_switch(on): take the time of operations from now on, or no longer. */
PyObject *spans_switch(PyObject *Py_UNUSED(module), PyObject *on)
{
    int timed = PyObject_IsTrue(on);
    if (timed < 0) {
        return NULL;
    }
    spans_on = timed;
    Py_RETURN_NONE;
}
