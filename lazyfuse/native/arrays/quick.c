/* The objects by which users call NumPy's functions: of a kind each, which functions.c follows. */

#include "quick.h"

static PyObject *quick_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static PyObject *quick_repr(PyObject *self)
{
    PyObject *name = PyObject_GetAttr(self, name_qualname);
    if (name == NULL) {
        PyErr_Clear();
        return PyUnicode_FromString("<function>");
    }
    PyObject *text = PyUnicode_FromFormat("<function %U at %p>", name, self);
    Py_DECREF(name);
    return text;
}

/* Pickled by name, as functions are. */
static PyObject *quick_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return PyObject_GetAttr(self, name_qualname);
}

static int quick_traverse(PyObject *x, visitproc visit, void *arg)
{
    Quick *self = (Quick *)x;
    Py_VISIT(self->theirs);
    Py_VISIT(self->ours);
    Py_VISIT(self->keywords);
    Py_VISIT(self->method);
    Py_VISIT(self->dict);
    return 0;
}

static int quick_clear(PyObject *x)
{
    Quick *self = (Quick *)x;
    Py_CLEAR(self->theirs);
    Py_CLEAR(self->ours);
    Py_CLEAR(self->keywords);
    Py_CLEAR(self->method);
    Py_CLEAR(self->dict);
    return 0;
}

static void quick_dealloc(PyObject *x)
{
    PyObject_GC_UnTrack(x);
    if (((Quick *)x)->weak != NULL) {
        PyObject_ClearWeakRefs(x);
    }
    quick_clear(x);
    PyObject_GC_Del(x);
}

static PyMethodDef quick_methods[] = {
    {"__reduce__", quick_reduce, METH_NOARGS, "Its name."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef quick_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL},
};

PyTypeObject QuickType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Quick",
    .tp_basicsize = sizeof(Quick),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Quick, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = quick_dealloc,
    .tp_traverse = quick_traverse,
    .tp_clear = quick_clear,
    .tp_dictoffset = offsetof(Quick, dict),
    .tp_weaklistoffset = offsetof(Quick, weak),
    .tp_methods = quick_methods,
    .tp_getset = quick_attributes,
    .tp_descr_get = quick_get,
    .tp_repr = quick_repr,
};

static PyObject *made(
    int kind, PyObject *theirs, PyObject *ours, PyObject *keywords, Py_ssize_t most, int spreads)
{
    Quick *x = PyObject_GC_New(Quick, &QuickType);
    if (x == NULL) {
        return NULL;
    }
    memset((char *)x + sizeof(PyObject), 0, sizeof(Quick) - sizeof(PyObject));
    x->vectorcall = quick_call;
    x->theirs = Py_NewRef(theirs);
    x->ours = Py_NewRef(ours);
    x->keywords = Py_XNewRef(keywords);
    x->most = most;
    x->kind = kind;
    x->spreads = spreads;
    x->reduction = -1;
    PyObject *name = PyObject_GetAttrString(theirs, "__name__");
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8(name);
    if (text != NULL && PyObject_TypeCheck(theirs, &PyMethodDescr_Type)) {
        x->reduction = loops_reduction(text);
        x->is_copy = kind == METHOD && strcmp(text, "copy") == 0;
        x->method = Py_NewRef(name);
    }
    PyErr_Clear();
    Py_XDECREF(name);
    PyObject_GC_Track((PyObject *)x);
    return (PyObject *)x;
}

/* For functions whose arguments are NumPy's, or lazyfuse's arrays. */
static PyObject *of_kind(int kind, PyObject *args)
{
    PyObject *theirs, *ours;
    if (!PyArg_ParseTuple(args, "OO", &theirs, &ours)) {
        return NULL;
    }
    return made(kind, theirs, ours, NULL, MOST_ARGUMENTS, 0);
}

PyObject *quick_method(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *theirs, *ours;
    int writes = 0;
    if (!PyArg_ParseTuple(args, "OO|p", &theirs, &ours, &writes)) {
        return NULL;
    }
    PyObject *x = made(METHOD, theirs, ours, NULL, MOST_ARGUMENTS, 0);
    if (x != NULL) {
        ((Quick *)x)->writes = writes;
    }
    return x;
}

PyObject *quick_first_array(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *theirs, *ours, *keywords;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "OOnO!", &theirs, &ours, &most, &PyFrozenSet_Type, &keywords)) {
        return NULL;
    }
    return made(FIRST, theirs, ours, keywords, most, 0);
}

PyObject *quick_created(PyObject *Py_UNUSED(module), PyObject *args)
{
    return of_kind(CREATED, args);
}

PyObject *quick_followed(PyObject *Py_UNUSED(module), PyObject *args)
{
    return of_kind(FOLLOWED, args);
}

PyObject *quick_listed(PyObject *Py_UNUSED(module), PyObject *args)
{
    return of_kind(LISTED, args);
}

PyObject *quick_any_arrays(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *theirs, *ours;
    Py_ssize_t most;
    int spreads, views, writes;
    if (!PyArg_ParseTuple(args, "OOppnp", &theirs, &ours, &spreads, &views, &most, &writes)) {
        return NULL;
    }
    PyObject *x = made(ANY, theirs, ours, NULL, most, spreads);
    if (x != NULL) {
        ((Quick *)x)->views = views;
        ((Quick *)x)->writes = writes;
    }
    return x;
}
