/* The array object: its slots, how it is made and freed, its attributes and buffer. operators.c and
   indexing.c have its operators and indexing. The same in Python: base.py. */

#include "arrays.h"

#include <string.h>

static void array_dealloc(PyObject *self);

/* Whether an instance's reference to its class is counted here. Python's own way to free
   instances of classes counts it where the first base with another way is no heap type. */
static int owns_class(PyTypeObject *type)
{
    while (type->tp_dealloc != array_dealloc) {
        type = type->tp_base;
    }
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
}

static void array_dealloc(PyObject *self)
{
    Core *x = (Core *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (x->weak != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_CLEAR(x->eager);
    Py_CLEAR(x->node);
    Py_CLEAR(x->storage);
    Py_CLEAR(x->base);
    Py_CLEAR(x->may_grow);
    part_forget(x);
    Py_CLEAR(x->view);
    Py_CLEAR(x->layout);
    Py_CLEAR(x->reals);
    Py_CLEAR(x->ticket);
    Py_CLEAR(x->picks);
    Py_CLEAR(x->deferred);
    if (type != array_type || !array_kept(x)) {
        type->tp_free(self);
    }
    if (owns_class(type)) {
        Py_DECREF(type);
    }
}

static int array_traverse(PyObject *self, visitproc visit, void *arg)
{
    Core *x = (Core *)self;
    if (owns_class(Py_TYPE(self))) {
        Py_VISIT(Py_TYPE(self));
    }
    Py_VISIT(x->eager);
    Py_VISIT(x->node);
    Py_VISIT(x->storage);
    Py_VISIT(x->base);
    Py_VISIT(x->view);
    Py_VISIT(x->layout);
    Py_VISIT(x->reals);
    Py_VISIT(x->deferred);
    return 0;
}

static int array_clear(PyObject *self)
{
    Core *x = (Core *)self;
    part_forget(x);
    Py_CLEAR(x->eager);
    Py_CLEAR(x->node);
    Py_CLEAR(x->storage);
    Py_CLEAR(x->base);
    Py_CLEAR(x->view);
    Py_CLEAR(x->layout);
    Py_CLEAR(x->reals);
    Py_CLEAR(x->deferred);
    return 0;
}

/* ------------------------------------------------------------------------------------- geometry */

/* A NumPy array with the geometry of an eager or aliased array (borrowed); NULL: neither. */
static PyArrayObject *geometry_of(PyObject *x)
{
    Core *self = (Core *)x;
    if (IS_DIRECT(x)) {
        return (PyArrayObject *)EAGER(x);
    }
    if (EAGER(x) != Py_None || self->node != Py_None || self->storage == Py_None) {
        return NULL;
    }
    PyObject *found = self->view != NULL ? self->view : self->real;
    return found != NULL && IS_REAL(found) ? (PyArrayObject *)found : NULL;
}

/* As methods.to_numpy. */
static PyObject *array_export(PyObject *x, PyObject *Py_UNUSED(nothing))
{
    if (IS_DIRECT(x)) {
        PyArrayObject *a = (PyArrayObject *)EAGER(x);
        return make_view(a, PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), PyArray_BYTES(a));
    }
    return PyObject_CallOneArg(hooks.export, x);
}

static int check(PyObject *x)
{
    if (PyObject_TypeCheck(x, &CoreType)) {
        return 1;
    }
    PyErr_SetString(PyExc_TypeError, "expected an array of lazyfuse");
    return 0;
}

PyObject *geometry_shape(PyObject *Py_UNUSED(module), PyObject *x)
{
    if (!check(x)) {
        return NULL;
    }
    PyArrayObject *a = geometry_of(x);
    if (a != NULL) {
        return shape_tuple(PyArray_NDIM(a), PyArray_DIMS(a));
    }
    PyObject *node = ((Core *)x)->node;
    return node != NULL && IS_NODE(node) ? Py_NewRef(NODE(node, shape))
                                         : PyObject_CallOneArg(hooks.shape, x);
}

PyObject *geometry_ndim(PyObject *module, PyObject *x)
{
    PyArrayObject *a = check(x) ? geometry_of(x) : NULL;
    if (a != NULL) {
        return PyLong_FromLong(PyArray_NDIM(a));
    }
    PyObject *shape = PyErr_Occurred() ? NULL : geometry_shape(module, x);
    if (shape == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyObject_Size(shape);
    Py_DECREF(shape);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

PyObject *geometry_dtype(PyObject *Py_UNUSED(module), PyObject *x)
{
    if (!check(x)) {
        return NULL;
    }
    PyArrayObject *a = geometry_of(x);
    if (a != NULL) {
        return Py_NewRef(PyArray_DESCR(a));
    }
    PyObject *node = ((Core *)x)->node;
    return node != NULL && IS_NODE(node) ? Py_NewRef(NODE(node, dtype))
                                         : PyObject_CallOneArg(hooks.dtype, x);
}

PyObject *geometry_size(PyObject *Py_UNUSED(module), PyObject *x)
{
    if (!check(x)) {
        return NULL;
    }
    PyArrayObject *a = geometry_of(x);
    if (a != NULL) {
        return PyLong_FromSsize_t(PyArray_SIZE(a));
    }
    PyObject *geometry = PyObject_CallOneArg(hooks.geometry, x);
    if (geometry == NULL) {
        return NULL;
    }
    PyObject *size = PyObject_GetAttrString(geometry, "size");
    Py_DECREF(geometry);
    return size;
}

PyObject *geometry_transposed(PyObject *Py_UNUSED(module), PyObject *x)
{
    if (!check(x)) {
        return NULL;
    }
    Core *self = (Core *)x;
    if (!IS_DIRECT(x)) {
        PyObject *found = part_transposed(self);
        return found != NULL || PyErr_Occurred()
            ? found : step_call(hooks.transposed, &x, 1, NULL, 0);
    }
    PyObject *value = PyArray_Transpose((PyArrayObject *)EAGER(x), NULL);
    if (value == NULL) {
        return NULL;
    }
    return direct_over(value, base_of(self), MAY_GROW(x));
}

PyObject *geometry_real(PyObject *Py_UNUSED(module), PyObject *x)
{
    return step_call(hooks.real, &x, 1, NULL, 0);
}

PyObject *geometry_imag(PyObject *Py_UNUSED(module), PyObject *x)
{
    return step_call(hooks.imag, &x, 1, NULL, 0);
}

static PyMethodDef array_methods[] = {
    {"to_numpy", array_export, METH_NOARGS,
     "The values as a `numpy.ndarray`, evaluated. Shares memory with the array, as a view does."},
    {NULL, NULL, 0, NULL},
};

#define SLOT(name, field) {name, T_OBJECT_EX, offsetof(Core, field), 0, NULL}

static PyMemberDef array_members[] = {
    SLOT("_eager", eager), SLOT("_node", node), SLOT("_storage", storage), SLOT("_base", base),
    SLOT("_may_grow", may_grow), SLOT("_layout", layout), SLOT("_ticket", ticket),
    SLOT("_picks", picks), SLOT("_selection", deferred), {NULL},
};

/* The slots that belong together with the real view: `_view` is made when it is asked for, and with
   another `_view` or `_reals` the real view is none of this array's. */
static PyObject *get_view(PyObject *x, void *Py_UNUSED(none))
{
    (void)part_geometry((Core *)x);
    PyObject *view = ((Core *)x)->view;
    if (view == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_AttributeError, "_view");
    }
    return Py_XNewRef(view);
}

static int set_view(PyObject *x, PyObject *value, void *Py_UNUSED(none))
{
    part_forget((Core *)x);
    Py_XSETREF(((Core *)x)->view, Py_XNewRef(value));
    return 0;
}

static PyObject *get_reals(PyObject *x, void *Py_UNUSED(none))
{
    PyObject *reals = ((Core *)x)->reals;
    if (reals == NULL) {
        PyErr_SetString(PyExc_AttributeError, "_reals");
    }
    return Py_XNewRef(reals);
}

static int set_reals(PyObject *x, PyObject *value, void *Py_UNUSED(none))
{
    if (part_geometry((Core *)x) == NULL && PyErr_Occurred()) {
        return -1;
    }
    part_forget((Core *)x);
    Py_XSETREF(((Core *)x)->reals, Py_XNewRef(value));
    return 0;
}

/* The `__class__` of an array, which `isinstance` reads where the type does not match: as in
   base.py. */
static PyObject *get_class(PyObject *x, void *Py_UNUSED(closure))
{
    PyObject *scope = PyEval_GetGlobals(); /* of the code that asks */
    PyObject *asking = scope == NULL ? NULL : PyDict_GetItemWithError(scope, name_module);
    const char *text =
        asking != NULL && PyUnicode_CheckExact(asking) ? PyUnicode_AsUTF8(asking) : NULL;
    if (PyErr_Occurred()) {
        return NULL;
    }
    int is_numpy = text != NULL && strncmp(text, "numpy.", 6) == 0;
    return Py_NewRef(is_numpy ? (PyObject *)&PyArray_Type : (PyObject *)Py_TYPE(x));
}

static PyGetSetDef array_pairs[] = {
    {"__class__", get_class, NULL, NULL, NULL},
    {"_view", get_view, set_view, NULL, NULL},
    {"_reals", get_reals, set_reals, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject CoreType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Core",
    .tp_doc = "The slots of an array (ndarray.py says what they hold) and its quick methods.",
    .tp_basicsize = sizeof(Core),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = array_dealloc,
    .tp_traverse = array_traverse,
    .tp_clear = array_clear,
    .tp_free = PyObject_GC_Del,
    .tp_weaklistoffset = offsetof(Core, weak),
    .tp_members = array_members,
    .tp_getset = array_pairs,
    .tp_methods = array_methods,
    .tp_as_number = &array_number,
    .tp_as_mapping = &array_mapping,
    .tp_as_sequence = &array_sequence,
    .tp_richcompare = array_compare,
    .tp_iter = array_iterator,
    .tp_hash = PyObject_HashNotImplemented,
};

static void copy_slots(void *to, const void *from, size_t bytes)
{
    void **mine = to;
    void *const *given = from;
    for (size_t at = 0; at < bytes / sizeof(void *); at++) {
        if (given[at] != NULL) {
            mine[at] = given[at];
        }
    }
}

PyObject *array_adopt(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyTypeObject *type = (PyTypeObject *)given;
    if (!PyType_Check(given) || !PyType_IsSubtype(type, &CoreType) ||
        type->tp_basicsize != CoreType.tp_basicsize || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_TypeError,
                        "adopt: expected a class on Core without slots of its own");
        return NULL;
    }
    /* Python's slot functions of a class look its methods up, or free slots that
       C lacks */
    copy_slots(type->tp_as_number, &array_number, sizeof(PyNumberMethods));
    copy_slots(type->tp_as_mapping, &array_mapping, sizeof(PyMappingMethods));
    copy_slots(type->tp_as_sequence, &array_sequence, sizeof(PySequenceMethods));
    type->tp_richcompare = array_compare;
    type->tp_iter = array_iterator;
    type->tp_dealloc = array_dealloc;
    type->tp_traverse = array_traverse;
    type->tp_clear = array_clear;
    PyType_Modified(type);
    array_type = (PyTypeObject *)Py_NewRef(given);
    Py_RETURN_NONE;
}

static PyObject *served_names = NULL, *served = NULL;

/* An attribute of the class itself, as `ndarray.copy`: under NumPy's names that of any array. */
static PyObject *class_attribute(PyObject *type, PyObject *name)
{
    int found = type == (PyObject *)array_type ? PySet_Contains(served_names, name) : 0;
    if (found != 0) {
        return found < 0 ? NULL : PyObject_CallOneArg(served, name);
    }
    return PyType_Type.tp_getattro(type, name);
}

PyObject *array_serve(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *names, *function;
    if (!PyArg_ParseTuple(args, "OO", &names, &function)) {
        return NULL;
    }
    Py_XSETREF(served_names, Py_NewRef(names));
    Py_XSETREF(served, Py_NewRef(function));
    Py_TYPE(array_type)->tp_getattro = class_attribute;
    PyType_Modified(Py_TYPE(array_type));
    PyType_Modified(array_type);
    Py_RETURN_NONE;
}

PyObject *array_new(PyObject *Py_UNUSED(module), PyObject *type)
{
    if (type == (PyObject *)array_type) {
        Core *x = array_made();
        if (x != NULL) {
            PyObject_GC_Track((PyObject *)x);
        }
        return (PyObject *)x;
    }
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &CoreType)) {
        PyErr_SetString(PyExc_TypeError, "new: expected a class on Core");
        return NULL;
    }
    return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
}

PyObject *array_direct(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count < 1 || count > 2 || !PyArray_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "direct: expected a numpy array and perhaps its base");
        return NULL;
    }
    PyObject *base = count == 2 ? args[1] : Py_None;
    return direct_over(Py_NewRef(args[0]), base, may_grow((PyArrayObject *)args[0]));
}

PyObject *array_may_grow(PyObject *Py_UNUSED(module), PyObject *value)
{
    if (!PyArray_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "may_grow: expected a numpy array");
        return NULL;
    }
    return PyBool_FromLong(may_grow((PyArrayObject *)value));
}

static PyObject *memory_of = NULL;

/* The buffer protocol: exports the memory, with a NumPy array that the consumer holds. */
/* What holds the memory of an eager array for a reader of its buffer, who may outlive its shape. */
typedef struct {
    PyObject_HEAD
    PyObject *array;
    Py_ssize_t shape[MOST_AXES], strides[MOST_AXES];
} Export;

static void export_dealloc(PyObject *x)
{
    Py_DECREF(((Export *)x)->array);
    Py_TYPE(x)->tp_free(x);
}

PyTypeObject ExportType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Export",
    .tp_basicsize = sizeof(Export),
    .tp_dealloc = export_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "What a reader of a buffer holds.",
};

/* The buffer of a plain array as memoryviews ask for it; 0: NumPy has to say; -1 with an exception.
   NumPy's own buffers keep a description for each array, and want an array of their own here. */
static int plain_buffer(PyArrayObject *array, Py_buffer *buffer, int flags)
{
    static const char formats[TYPES][2] = {
        [NPY_BOOL] = "?", [NPY_BYTE] = "b", [NPY_UBYTE] = "B", [NPY_SHORT] = "h",
        [NPY_USHORT] = "H", [NPY_INT] = "i", [NPY_UINT] = "I", [NPY_LONG] = "l",
        [NPY_ULONG] = "L", [NPY_LONGLONG] = "q", [NPY_ULONGLONG] = "Q", [NPY_FLOAT] = "f",
        [NPY_DOUBLE] = "d",
    };
    int type = plain_type(array), nd = PyArray_NDIM(array);
    if (type < 0 || formats[type][0] == 0 || nd == 0 || nd > MOST_AXES ||
        (flags | PyBUF_INDIRECT) != (PyBUF_FORMAT | PyBUF_INDIRECT) ||
        (flags & PyBUF_STRIDES) != PyBUF_STRIDES || (PyArray_FLAGS(array) & WARN_ON_WRITE)) {
        return 0;
    }
    Export *export = PyObject_New(Export, &ExportType);
    if (export == NULL) {
        return -1;
    }
    export->array = Py_NewRef(array);
    for (int axis = 0; axis < nd; axis++) {
        export->shape[axis] = PyArray_DIM(array, axis);
        export->strides[axis] = PyArray_STRIDE(array, axis);
    }
    *buffer = (Py_buffer){
        .buf = PyArray_DATA(array), .obj = (PyObject *)export, .len = PyArray_NBYTES(array),
        .itemsize = PyArray_ITEMSIZE(array), .readonly = !PyArray_ISWRITEABLE(array), .ndim = nd,
        .format = (char *)formats[type], .shape = export->shape, .strides = export->strides,
    };
    return 1;
}

static int get_buffer(PyObject *x, Py_buffer *buffer, int flags)
{
    PyArrayObject *small = IS_ARRAY(x) && IS_DIRECT(x) ? (PyArrayObject *)EAGER(x) : NULL;
    int plain = small != NULL ? plain_buffer(small, buffer, flags) : 0;
    if (plain != 0) {
        return plain < 0 ? -1 : 0;
    }
    PyObject *memory = small != NULL && plain_type(small) >= 0 ? PyArray_View(small, NULL, NULL)
        : small == NULL && IS_ARRAY(x) ? lend_result((Core *)x) : NULL;
    if (memory == NULL && !PyErr_Occurred()) {
        memory = PyObject_CallOneArg(memory_of, x);
    }
    int done = memory == NULL ? -1 : PyObject_GetBuffer(memory, buffer, flags);
    Py_XDECREF(memory);
    if (done < 0) {
        buffer->obj = NULL;
    }
    return done;
}

PyObject *array_buffer(PyObject *Py_UNUSED(module), PyObject *function)
{
    if (array_type == NULL || array_type->tp_as_buffer == NULL) {
        Py_RETURN_FALSE;
    }
    Py_XSETREF(memory_of, Py_NewRef(function));
    array_type->tp_as_buffer->bf_getbuffer = get_buffer;
    Py_RETURN_TRUE;
}
