/* Nodes: how one is made, with the user's line where it was recorded. The same in Python: nodes.py,
   and errstate.py for NumPy's error state. */

#include "graph.h"

#if PY_VERSION_HEX < 0x030E0000 /* where PyFrame_GetVar is missing, or slow */
#define Py_BUILD_CORE
#include "internal/pycore_frame.h"

#undef Py_BUILD_CORE
#endif

static int is_whole_node; /* whether a node has no slots but those known here */

/* As errstate.is_untouched: whether this thread's error state is the one that NumPy starts with. */
static int is_usual(void)
{
    PyObject *state = NULL;
    if (hooks.state == NULL || PyContextVar_Get(hooks.state, NULL, &state) < 0) {
        PyErr_Clear();
        return 0;
    }
    Py_XDECREF(state); /* the context holds it */
    return state == hooks.usual_state;
}

/* As errstate.is_default. */
int is_default_state(void)
{
    return hooks.plain && is_usual();
}

/* The flags that an unusual error state ignores, -1: it is one in which operations run at once.
   Python is asked once per state. */
static long error_bits(void)
{
    static PyObject *known_state; /* NumPy never changes one */
    static long known_bits = -1;
    static int known_plain;
    PyObject *state = NULL, *bits;
    if (hooks.state == NULL || hooks.error_bits == NULL ||
        PyContextVar_Get(hooks.state, NULL, &state) < 0 || state == NULL) {
        PyErr_Clear();
        return -1;
    }
    if (state != known_state || known_plain != hooks.plain) {
        bits = PyObject_CallNoArgs(hooks.error_bits);
        long found = bits == NULL ? -1 : PyLong_AsLong(bits);
        Py_XDECREF(bits);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            Py_DECREF(state);
            return -1;
        }
        Py_XSETREF(known_state, Py_NewRef(state));
        known_bits = found;
        known_plain = hooks.plain;
    }
    Py_DECREF(state);
    return known_bits;
}

/* As recording.may_record. */
int may_record(void)
{
    return is_default_state() || error_bits() >= 0;
}

long ignored_errors(void)
{
    return is_default_state() ? 0 : error_bits();
}

PyObject *place_like(PyObject *where, PyObject *name, PyObject *fact)
{
    PyObject *place = PyObject_CallOneArg(hooks.source_location, where);
    if (place != NULL && (PyObject *)Py_TYPE(where) == hooks.source_location) {
        PyObject *facts = PyObject_GenericGetDict(where, NULL);
        PyObject *own = facts == NULL ? NULL : PyObject_GenericGetDict(place, NULL);
        int failed = own == NULL || PyDict_Update(own, facts) < 0;
        Py_XDECREF(own);
        Py_XDECREF(facts);
        if (failed) {
            Py_CLEAR(place);
        }
    }
    if (place != NULL && PyObject_SetAttr(place, name, fact) < 0) {
        Py_CLEAR(place);
    }
    return place;
}

/* As nodes.caller: a location with the flags that are ignored there; steals `where`. */
static PyObject *note_ignored(PyObject *where, long ignored)
{
    PyObject *bits = PyLong_FromLong(ignored);
    PyObject *place = bits == NULL ? NULL : place_like(where, name_ignored, bits);
    Py_XDECREF(bits);
    Py_DECREF(where);
    return place;
}

/* ----------------------------------------------------------------------------- open expressions */

unsigned long stretch_thread;

PyObject *stretch_begin(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    unsigned long mine = PyThread_get_thread_ident();
    if (hooks.stretch_left == NULL || (stretch_thread != 0 && stretch_thread != mine)) {
        Py_RETURN_FALSE;
    }
    stretch_thread = mine;
    Py_RETURN_TRUE;
}

PyObject *stretch_leave(PyObject *result)
{
    if (stretch_thread != PyThread_get_thread_ident()) {
        return result;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *open = PyObject_CallOneArg(hooks.stretch_left, result == NULL ? Py_None : result);
    if (open != Py_True) {
        stretch_thread = 0;
    }
    if (result == NULL) {
        PyErr_Restore(type, value, trace);
    }
    else if (open == NULL) {
        Py_CLEAR(result);
    }
    Py_XDECREF(open);
    return result;
}

PyObject *local_of(PyFrameObject *frame, int at, PyObject *name)
{
#if PY_VERSION_HEX >= 0x030E0000
    PyObject *found = PyFrame_GetVar(frame, name);
    PyErr_Clear();
    return found;
#else
    /* `f_locals` would keep what it shows */
    PyObject *found = frame->f_frame->localsplus[at];
    found = found != NULL && PyCell_Check(found) ? PyCell_GET(found) : found;
    return Py_XNewRef(found);
#endif
}

PyObject *frame_local(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frame, *name;
    int at;
    if (!PyArg_ParseTuple(args, "O!iU", &PyFrame_Type, &frame, &at, &name)) {
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030C0000
    return PyFrame_GetVar((PyFrameObject *)frame, name);
#else
    PyObject *found = local_of((PyFrameObject *)frame, at, name);
    if (found == NULL) {
        PyErr_SetObject(PyExc_NameError, name);
    }
    return found;
#endif
}

int is_inside(PyFrameObject *frame)
{
    PyObject *globals = PyFrame_GetGlobals(frame);
    PyObject *package = PyDict_GetItemWithError(globals, name_package);
    int inside = package == NULL ? 0 : PySet_Contains(hooks.inside, package);
    Py_DECREF(globals);
    PyErr_Clear(); /* a package that is not hashable is not lazyfuse's */
    return inside > 0;
}

PyFrameObject *user_frame(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != NULL && is_inside(frame)) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        if (back == NULL) {
            break;
        }
        Py_SETREF(frame, back);
    }
    return frame;
}

/* As nodes.caller: the first frame outside lazyfuse. */
PyObject *find_caller(void)
{
    int usual = is_usual();
    long ignored = usual ? 0 : error_bits();
    PyFrameObject *frame = ignored < 0 || hooks.source_location == NULL ? NULL : user_frame();
    if (frame == NULL) {
        return PyObject_CallNoArgs(hooks.caller);
    }
    PyObject *where = PyTuple_New(2);
    PyObject *offset = PyLong_FromLong(PyFrame_GetLasti(frame));
    if (where == NULL || offset == NULL) {
        Py_XDECREF(where);
        Py_XDECREF(offset);
        Py_DECREF(frame);
        return NULL;
    }
    PyTuple_SET_ITEM(where, 0, (PyObject *)PyFrame_GetCode(frame));
    PyTuple_SET_ITEM(where, 1, offset);
    Py_DECREF(frame);
    return usual ? where : note_ignored(where, ignored);
}

/* A node; steals `src`, which may be NULL after an error. */
PyObject *make_node(PyObject *op, PyObject *src, PyObject *arg, PyObject *shape, PyObject *dtype,
                         PyObject *perm, PyObject *where)
{
    PyObject *node = NULL;
    PyTypeObject *type = (PyTypeObject *)hooks.node;
    if (src == NULL) {
        return NULL;
    }
    if (!is_whole_node) {
        node = PyObject_CallFunctionObjArgs(
            hooks.node, op, src, arg, shape, dtype, perm, where, NULL);
    }
    else if ((node = type->tp_alloc(type, 0)) != NULL) {
        NODE(node, op) = Py_NewRef(op);
        NODE(node, src) = Py_NewRef(src);
        NODE(node, arg) = Py_NewRef(arg);
        NODE(node, shape) = Py_NewRef(shape);
        NODE(node, dtype) = Py_NewRef(dtype);
        NODE(node, perm) = Py_NewRef(perm);
        NODE(node, location) = Py_NewRef(where);
        NODE(node, value) = Py_NewRef(Py_None);
        NODE(node, resident) = Py_NewRef(Py_None);
    }
    Py_DECREF(src);
    return node;
}

/* As storage.leaf, of an array that C orders (new). */
PyObject *leaf_of(PyArrayObject *value)
{
    int type = plain_type(value);
    PyTypeObject *kind = (PyTypeObject *)hooks.leaf_memory;
    if (!is_whole_node || kind == NULL || type < 0 || type == NPY_LONGLONG ||
        type == NPY_ULONGLONG || !PyArray_IS_C_CONTIGUOUS(value)) {
        return PyObject_CallFunctionObjArgs(hooks.leaf, (PyObject *)value, Py_None, NULL);
    }
    PyObject *memory = kind->tp_alloc(kind, 0), *node = NULL, *weak = NULL;
    PyObject *shape = memory == NULL ? NULL
                                     : shape_tuple(PyArray_NDIM(value), PyArray_DIMS(value));
    if (shape != NULL) {
        MEMORY(memory, owned) = Py_NewRef(Py_True);
        MEMORY(memory, leaves) = PyList_New(0);
        node = make_node(hooks.leaf_op, PyTuple_New(0), memory, shape,
                         (PyObject *)PyArray_DESCR(value), Py_None, Py_None);
        weak = node == NULL ? NULL : PyWeakref_NewRef(node, NULL);
    }
    if (weak == NULL || MEMORY(memory, leaves) == NULL) {
        Py_CLEAR(node);
        Py_XDECREF(weak);
    }
    else {
        LEAF_MEMORY(memory, leaf) = weak;
        Py_SETREF(NODE(node, value), Py_NewRef(value));
    }
    Py_XDECREF(memory);
    Py_XDECREF(shape);
    return node;
}

void look_for_other_slots(void)
{
    PyTypeObject *type = (PyTypeObject *)hooks.node;
    PyObject *slots = PyObject_GetAttrString(hooks.node, "__slots__"); /* and `__weakref__` */
    Py_ssize_t known = sizeof(NodeSlots) / sizeof(Py_ssize_t);
    is_whole_node = slots != NULL && PySequence_Size(slots) == known + 1 &&
                    type->tp_base == &PyBaseObject_Type;
    Py_XDECREF(slots);
    PyErr_Clear();
}
unsigned long tracing_thread; /* whose call is being traced; 0: none */

int is_tracing(void)
{
    return tracing_thread != 0 && tracing_thread == PyThread_get_thread_ident();
}
