/* Places in the user's program, instructions, of what gives a number: may it stay lazy? The
   instructions of a place are read once, by runtime/scheduling/escapes.py, which says what the number
   meets there. The answer is yes if all of it takes lazy numbers; that is looked at each time. */

#include "player.h"

enum { SITES = 4096, SITES_NEAR = 4 }; /* how many are kept, and where one may lie */

/* A name that the number meets. */
typedef struct {
    int local; /* its place in the frame, -1: a global name */
    int kind; /* what it is to be */
    PyObject *name, *attribute; /* the attribute of the object of that name, or NULL */
} Source;

typedef struct {
    PyObject *code; /* NULL: none */
    int offset, visits;
    int count; /* of sources */
    Source *sources;
} Site;

PyTypeObject *function_type, *ufunc_type;
static Site sites[SITES];

PyTypeObject *function_type, *ufunc_type;

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
PyObject *numbers_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
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
                              &source->kind, &name, &attribute)) {
            sources_free(sources, at);
            return NULL;
        }
        source->name = Py_NewRef(name);
        source->attribute = attribute == Py_None ? NULL : Py_NewRef(attribute);
    }
    return sources;
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

/* What a source loads by its name (new); NULL: nothing. */
static PyObject *named_by(const Source *source, PyFrameObject *frame, PyObject *globals)
{
    return source->local >= 0 ? local_of(frame, source->local, source->name)
        : source->local == -1 ? Py_XNewRef(global_of(globals, frame, source->name)) : NULL;
}

/* Forgets every place. */
PyObject *numbers_forget(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    for (int at = 0; at < SITES; at++) {
        site_set(&sites[at], (Site){NULL});
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------ numbers that leave */

/* What a name is to be (escapes.py); what is known of a place. */
enum { OPERAND, FUNCTION, ELEMENTS };
enum { LOOKS = -1, PYTHONS = -2 };

/* Whether a name is what takes a lazy number, as scalars._is_met: 1, 0; -1: Python looks. */
static int is_met(const Source *use, PyFrameObject *frame, PyObject *globals)
{
    int kind = use->kind;
    PyObject *x = named_by(use, frame, globals);
    if (x == NULL) {
        return -1;
    }
    int ours = IS_ARRAY(x) || (PyObject *)Py_TYPE(x) == hooks.scalar, met = -1;
    if (use->attribute != NULL) {
        Py_SETREF(x, !ours && PyModule_Check(x) ? attribute_of(x, use->attribute) : NULL);
        if (ours) {
            return kind != ELEMENTS; /* its methods, and parts of it */
        }
        if (x == NULL) {
            return -1;
        }
        ours = IS_ARRAY(x) || (PyObject *)Py_TYPE(x) == hooks.scalar;
    }
    if (kind == FUNCTION) {
        int known = Py_IS_TYPE(x, function_type) || PyObject_TypeCheck(x, ufunc_type);
        if (!known && (PyCFunction_Check(x) || Py_IS_TYPE(x, &PyType_Type))) {
            known = PySet_Contains(hooks.takes_numbers, x);
        }
        met = known > 0 ? 1 : -1;
    }
    else if (ours || (kind == OPERAND && (IS_REAL(x) || PyFloat_CheckExact(x) ||
                                          PyLong_CheckExact(x) || PyBool_Check(x)))) {
        met = 1;
    }
    Py_DECREF(x);
    return met;
}

/* Reads the instructions of a place. */
static int uses_of(PyObject *code, int offset)
{
    PyObject *answer = PyObject_CallFunction(hooks.number_uses, "Oi", code, offset);
    Site *site = site_of(code, offset);
    int count = answer == Py_None ? LOOKS : PYTHONS;
    if (answer == NULL) { /* an interrupt: it is read the next time */
        if (site != NULL) {
            site->visits = 0;
        }
        return PYTHONS;
    }
    if (site != NULL && PyTuple_CheckExact(answer)) {
        Source *sources = sources_of(answer);
        count = sources == NULL ? PYTHONS : (int)PyTuple_GET_SIZE(answer);
        site_set(site, (Site){Py_NewRef(code), offset, 1, count, sources});
    }
    else if (site != NULL) {
        site->count = count;
    }
    Py_DECREF(answer);
    return count;
}

/* Whether what a place gives may stay lazy: 1, 0; -1: Python looks, or an error. */
static int stays_lazy(PyFrameObject *frame)
{
    PyCodeObject *held = PyFrame_GetCode(frame);
    PyObject *code = (PyObject *)held;
    int offset = PyFrame_GetLasti(frame), met = 1;
    Site *site = held->co_flags & CO_OPTIMIZED ? site_of(code, offset) : NULL;
    int count = site == NULL ? PYTHONS : site->count;
    if (site != NULL && site->visits == 0) {
        site->visits = 1;
        count = uses_of(code, offset);
        site = site_of(code, offset); /* Python has run */
        count = site == NULL || site->visits == 0 ? PYTHONS : count;
    }
    PyObject *globals = count > 0 ? PyFrame_GetGlobals(frame) : NULL;
    for (int at = 0; met > 0 && at < count; at++) {
        met = is_met(&site->sources[at], frame, globals);
    }
    Py_XDECREF(globals);
    Py_DECREF(code);
    return count == LOOKS ? 0 : count < 0 ? -1 : met;
}

/* NumPy's number (new), evaluated; NULL without an exception: Python looks. */
static PyObject *number_of(Core *x)
{
    PyObject *node = Py_NewRef(x->node), *done = NULL, *nodes = PyList_New(1);
    if (nodes != NULL) {
        PyList_SET_ITEM(nodes, 0, Py_NewRef(node));
        PyObject *const given[] = {nodes, hooks.gather_rule};
        done = evaluate_nodes(NULL, given, 2);
        Py_DECREF(nodes);
    }
    PyObject *value = done == NULL ? NULL : NODE(node, value), *number = NULL;
    if (value != NULL && IS_REAL(value) && PyArray_NDIM((PyArrayObject *)value) == 0) {
        number = PyArray_ToScalar(PyArray_DATA((PyArrayObject *)value), (PyArrayObject *)value);
    }
    Py_XDECREF(done);
    Py_DECREF(node);
    return number;
}

/* Whether the exception is that of a frozen function's parameter, which has no value: drops it. */
static int is_of_parameter(void)
{
    PyObject *kind, *error, *trace;
    if (!PyErr_ExceptionMatches(hooks.evaluation_error)) {
        return 0;
    }
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    PyObject *op = PyObject_GetAttr(error, name_op);
    int found = op != NULL && PyUnicode_Check(op) &&
                PyUnicode_CompareWithASCIIString(op, "freeze") == 0;
    Py_XDECREF(op);
    PyErr_Restore(kind, error, trace);
    if (found) {
        PyErr_Clear();
    }
    return found;
}

PyObject *number_value(PyObject *Py_UNUSED(module), PyObject *x)
{
    Core *core = (Core *)x;
    int lazy = (PyObject *)Py_TYPE(x) == hooks.scalar && core->node != NULL && IS_NODE(core->node);
    PyObject *number = lazy ? number_of(core) : NULL;
    return number != NULL || PyErr_Occurred() ? number : PyObject_CallOneArg(hooks.gathered, x);
}

PyObject *deliver(PyObject *Py_UNUSED(module), PyObject *x)
{
    PyObject *calls = PyObject_GetAttr(hooks.numbers_inside, name_calls);
    int inside = calls == NULL ? -1 : PyObject_IsTrue(calls);
    Py_XDECREF(calls);
    if (inside != 0 || OPTION(lazy_numbers) == Py_True) {
        return inside < 0 ? NULL : Py_NewRef(x);
    }
    PyFrameObject *frame = user_frame();
    int stays = frame == NULL ? -1 : is_inside(frame) ? 1 : stays_lazy(frame);
    Py_XDECREF(frame);
    PyObject *number = NULL;
    if (stays > 0) {
        return Py_NewRef(x);
    }
    if (stays == 0) {
        number = number_of((Core *)x);
    }
    else if (PyErr_Occurred()) {
        return NULL;
    }
    return number != NULL ? number
        : PyErr_Occurred() && !is_of_parameter() ? NULL : PyObject_CallOneArg(hooks.deliver, x);
}

/* As scalars.make_scalar. */
static PyObject *make_scalar(PyObject *node)
{
    Core *x = hooks.scalar == NULL ? NULL : (Core *)PyType_GenericAlloc((PyTypeObject *)hooks.scalar, 0);
    if (x != NULL) {
        x->eager = Py_NewRef(Py_None);
        x->node = Py_NewRef(node);
        x->storage = Py_NewRef(Py_None);
        x->base = Py_NewRef(Py_None);
    }
    return (PyObject *)x;
}

/* As ndarray.from_node: what a user gets for a node; steals it. */
PyObject *from_node(PyObject *node)
{
    if (node == NULL) {
        return NULL;
    }
    PyObject *shape = NODE(node, shape);
    int number = PyTuple_CheckExact(shape) && PyTuple_GET_SIZE(shape) == 0;
    PyObject *x = number ? make_scalar(node) : array_alone(NULL, node);
    if (x != NULL) {
        PyObject *done = PyObject_CallOneArg(hooks.note, node);
        if (done == NULL) {
            Py_CLEAR(x);
        }
        Py_XDECREF(done);
    }
    Py_DECREF(node);
    if (number && x != NULL && hooks.deliver != NULL) {
        Py_SETREF(x, deliver(NULL, x));
    }
    return x;
}
