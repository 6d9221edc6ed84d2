/* Places in the user's program, instructions, of operations on small arrays: may the result wait for
   the operation that takes it? The instructions of a place are read once, by
   runtime/scheduling/eager_fusion.py, which says what they load up to that operation. They run no
   other code if all of it is arrays, numbers, slices and ufuncs; that is looked at each time. */

#include "record.h"

enum {
    SITES = 4096, SITES_NEAR = 4, /* how many are kept, and where one may lie */
    LEARNT = 8, /* visits before the instructions of a place are read */
};

/* What an instruction loads between an operation and the one that takes its result. */
typedef struct {
    int local; /* its place in the frame, -1: a global name */
    int arguments; /* of a ufunc that is called; 0: it is not called */
    PyObject *name, *attribute; /* the attribute of the object of that name, or NULL */
} Source;

typedef struct {
    PyObject *code; /* NULL: none */
    int offset, visits;
    int count; /* of sources, -1: not known yet, or the operation is done at once */
    int called; /* the source that is the function of this very operation, -1: it is an operator */
    Source *sources;
} Site;

static Site sites[SITES];

static void sources_free(Source *sources, int count)
{
    for (int at = 0; at < count; at++) {
        Py_XDECREF(sources[at].name);
        Py_XDECREF(sources[at].attribute);
    }
    PyMem_Free(sources);
}

/* Puts a place into an entry. What goes with the old one may run code that looks for places, too. */
static void site_set(Site *site, Site place)
{
    Site old = *site;
    *site = place;
    sources_free(old.sources, old.count);
    Py_XDECREF(old.code);
}

/* How many places are known. */
PyObject *expressions_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    long count = 0;
    for (int at = 0; at < SITES; at++) {
        count += sites[at].code != NULL;
    }
    return PyLong_FromLong(count);
}

/* The sources of ((local, arguments, name, attribute or None), ...); NULL where there are none. */
static Source *sources_of(PyObject *given)
{
    int count = (int)PyTuple_GET_SIZE(given);
    Source *sources = PyMem_Calloc(count + 1, sizeof(Source));
    for (int at = 0; sources != NULL && at < count; at++) {
        Source *source = &sources[at];
        PyObject *name, *attribute;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, at), "iiUO", &source->local,
                              &source->arguments, &name, &attribute)) {
            sources_free(sources, at);
            return NULL;
        }
        source->name = Py_NewRef(name);
        source->attribute = attribute == Py_None ? NULL : Py_NewRef(attribute);
    }
    return sources;
}

/* Asks Python what is loaded at a place: None, or (called, sources). Other threads come by
   meanwhile: they find no count, so nothing of theirs waits. */
static void site_learn(Site *site, PyObject *code, int offset)
{
    PyObject *answer = hooks.expression_site == NULL ? NULL
        : PyObject_CallFunction(hooks.expression_site, "Oi", code, offset);
    PyObject *given;
    int called;
    if (site->code == code && site->offset == offset && site->count < 0 && answer != NULL && PyTuple_CheckExact(answer) &&
        PyArg_ParseTuple(answer, "iO!", &called, &PyTuple_Type, &given) &&
        (site->sources = sources_of(given)) != NULL) {
        site->called = called;
        site->count = (int)PyTuple_GET_SIZE(given);
    }
    Py_XDECREF(answer);
}

/* The place of an instruction; NULL where another one has just begun to be known. */
static Site *site_of(PyObject *code, int offset)
{
    size_t first = ((size_t)code >> 4) * 31 + (size_t)offset * 3;
    Site *free = NULL;
    for (size_t at = 0; at < SITES_NEAR; at++) {
        Site *site = &sites[(first + at) % SITES];
        if (site->code == code && site->offset == offset) {
            return site;
        }
        if (free == NULL && site->code == NULL) {
            free = site;
        }
    }
    if (free == NULL) {
        free = &sites[(first + (size_t)offset % SITES_NEAR) % SITES];
    }
    site_set(free, (Site){.code = Py_NewRef(code), .offset = offset, .count = -1});
    return free->code == code && free->offset == offset ? free : NULL;
}

/* ------------------------------------------------------------------- what the instructions load */

/* Whether no operation on `x` and others of its kind runs code that is not ours or NumPy's. */
static int is_closed(PyObject *x)
{
    if (IS_ARRAY(x)) {
        PyArrayObject *values = (PyArrayObject *)values_of(x);
        if (values == NULL) {
            values = present_values((Core *)x);
        }
        return values != NULL && plain_type(values) >= 0;
    }
    if (IS_REAL(x)) {
        return plain_type((PyArrayObject *)x) >= 0;
    }
    return PyFloat_CheckExact(x) || PyLong_CheckExact(x) || PyBool_Check(x) || x == Py_None ||
           x == Py_Ellipsis || PyComplex_CheckExact(x) || is_numpy_integer(x) ||
           is_plain_slice(x) || is_number(x);
}

/* A global name, or one of Python's (borrowed). */
static PyObject *global_of(PyObject *globals, PyFrameObject *frame, PyObject *name)
{
    PyObject *found = PyDict_CheckExact(globals) ? PyDict_GetItemWithError(globals, name) : NULL;
    if (found == NULL && !PyErr_Occurred() && PyDict_CheckExact(globals)) {
        PyObject *builtins = PyFrame_GetBuiltins(frame);
        found = PyDict_CheckExact(builtins) ? PyDict_GetItemWithError(builtins, name) : NULL;
        Py_DECREF(builtins);
    }
    PyErr_Clear();
    return found;
}

/* An attribute (new), where to look it up runs no other code. */
static PyObject *attribute_of(PyObject *x, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(x);
    PyObject *found = NULL;
    if (type->tp_getattro == PyModule_Type.tp_getattro && PyModule_Check(x)) {
        PyObject *names = PyModule_GetDict(x);
        found = _PyType_Lookup(type, name) != NULL ? NULL : PyDict_GetItemWithError(names, name);
        Py_XINCREF(found);
    }
    else if (type->tp_getattro == PyObject_GenericGetAttr) {
        PyObject *own = _PyType_Lookup(type, name);
        if (own == NULL || Py_IS_TYPE(own, &PyMemberDescr_Type)) {
            found = PyObject_GetAttr(x, name);
        }
    }
    PyErr_Clear();
    return found;
}

/* Whether what a source loads now runs no other code. `function`: what this operation calls. */
static int is_known(const Source *source, PyFrameObject *frame, PyObject *globals,
                    PyObject *function)
{
    PyObject *x = source->local >= 0 ? local_of(frame, source->local, source->name)
                                     : Py_XNewRef(global_of(globals, frame, source->name));
    if (x != NULL && source->attribute != NULL) {
        Py_SETREF(x, attribute_of(x, source->attribute));
    }
    int known = x != NULL && (source->arguments > 0 ? ufunc_takes(x, source->arguments)
                                                    : is_closed(x));
    known &= function == NULL || x == function;
    Py_XDECREF(x);
    return known;
}

int may_wait(PyObject *function)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL || stretch_thread != 0) {
        return 0;
    }
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    int offset = PyFrame_GetLasti(frame);
    Site *site = site_of(code, offset);
    Py_DECREF(code); /* the frame holds it */
    if (site == NULL) {
        return 0;
    }
    if (site->visits < LEARNT) {
        if (++site->visits == LEARNT) {
            site_learn(site, code, offset);
        }
        if (PyErr_Occurred()) { /* an interrupt; a place that is not understood waits for none */
            if (!PyErr_ExceptionMatches(PyExc_Exception)) {
                return -1;
            }
            PyErr_Clear();
        }
        return 0;
    }
    if (site->count < 0 || (site->called >= 0) != (function != NULL)) {
        return 0;
    }
    PyObject *globals = PyFrame_GetGlobals(frame);
    int known = 1;
    for (int at = 0; known && at < site->count; at++) {
        known = is_known(&site->sources[at], frame, globals, at == site->called ? function : NULL);
    }
    Py_DECREF(globals);
    return known;
}

void sites_clear(void)
{
    for (int at = 0; at < SITES; at++) {
        site_set(&sites[at], (Site){NULL});
    }
}
