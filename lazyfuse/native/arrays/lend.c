/* Memory of ours that other code is given: the copy or the block itself, by its first exporter. */

#include "arrays.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- lending */

/* Exports memory to NumPy arrays and ends their chain of bases, as meta_arrays.Holder. */
typedef struct {
    PyObject_HEAD
    PyObject *keep, *owner;
    char *start;
    Py_ssize_t length;
} Holder;

static PyObject *holder_over(char *start, Py_ssize_t length, PyObject *keep, PyObject *owner)
{
    Holder *made = (Holder *)HolderType.tp_alloc(&HolderType, 0);
    if (made != NULL) {
        made->start = start;
        made->length = length;
        made->keep = Py_XNewRef(keep);
        made->owner = Py_XNewRef(owner);
    }
    return (PyObject *)made;
}

/* Holder(start, length) */
static PyObject *holder_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *named)
{
    PyObject *start;
    Py_ssize_t length;
    if (named != NULL || !PyArg_ParseTuple(args, "On:Holder", &start, &length)) {
        return named == NULL ? NULL
            : PyErr_Format(PyExc_TypeError, "Holder: expected an address and a length");
    }
    char *first = PyLong_AsVoidPtr(start);
    return PyErr_Occurred() ? NULL : holder_over(first, length, NULL, NULL);
}

static void holder_dealloc(PyObject *x)
{
    Py_XDECREF(((Holder *)x)->keep);
    Py_XDECREF(((Holder *)x)->owner);
    Py_TYPE(x)->tp_free(x);
}

static int holder_buffer(PyObject *x, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, x, ((Holder *)x)->start, ((Holder *)x)->length, 0, flags);
}

static PyBufferProcs holder_as_buffer = {.bf_getbuffer = holder_buffer};

static PyMemberDef holder_members[] = {
    {"keep", T_OBJECT, offsetof(Holder, keep), 0, "What lives as long as the memory is exported."},
    {"owner", T_OBJECT, offsetof(Holder, owner), 0, "A reference to the storage that lends it."},
    {NULL},
};

PyTypeObject HolderType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lazyfuse._native.Holder",
    .tp_basicsize = sizeof(Holder),
    .tp_dealloc = holder_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_as_buffer = &holder_as_buffer,
    .tp_members = holder_members,
    .tp_new = holder_new,
    .tp_doc = "Exports memory, from an address on so many bytes, to NumPy arrays.",
};

/* A flat array over the memory of `value`, whose base keeps `keep` alive (new). */
static PyObject *flat_over(PyArrayObject *value, PyObject *keep, PyObject *owner)
{
    npy_intp size = PyArray_SIZE(value);
    char *start = PyArray_BYTES(value);
    PyObject *base = holder_over(start, PyArray_NBYTES(value), keep, owner);
    Py_INCREF(PyArray_DESCR(value));
    PyObject *flat = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(value), 1, &size, NULL,
                                          start, NPY_ARRAY_CARRAY, NULL);
    if (base == NULL || flat == NULL ||
        PyArray_SetBaseObject((PyArrayObject *)flat, Py_NewRef(base)) < 0) {
        Py_CLEAR(flat);
    }
    Py_XDECREF(base);
    return flat;
}

/* As `Export(array, 1)` in a list (new). */
static PyObject *exports_of(PyObject *array)
{
    PyTypeObject *type = (PyTypeObject *)hooks.root;
    PyObject *root = type->tp_alloc(type, 0), *exports = root == NULL ? NULL : PyList_New(1);
    if (exports == NULL) {
        Py_XDECREF(root);
        return NULL;
    }
    ROOT(root, array) = Py_NewRef(array);
    ROOT(root, own) = PyLong_FromLong(1);
    PyList_SET_ITEM(exports, 0, root);
    return exports;
}

/* A leaf over a copy of the values of a node, if something else refers to it than its array and the
   caller (new); NULL without an exception: nothing does, or the values are not so plain. */
static PyObject *leaf_of_its_own(PyObject *node)
{
    PyArrayObject *value = IS_NODE(node) ? (PyArrayObject *)NODE(node, value) : NULL;
    if (value == NULL || !is_held_beyond(node, 2) || NODE(node, resident) != Py_None ||
        NODE(node, perm) != Py_None || !IS_REAL(value) || plain_type(value) < 0 ||
        !PyArray_ISCARRAY_RO(value)) {
        return NULL;
    }
    return copied_leaf(value);
}

/* As `Storage.detach`, where nothing has looked at the block yet: it gets a copy of values that it
   shares, with a node of its own. -1: an error. */
static int take_copy(PyObject *storage)
{
    int fresh = STORAGE(storage, value) == Py_None && STORAGE(storage, exports) == Py_None;
    PyObject *node = Py_NewRef(STORAGE(storage, node)), *own = fresh ? leaf_of_its_own(node) : NULL;
    if (own != NULL && STORAGE(storage, node) == node) {
        Py_SETREF(STORAGE(storage, node), Py_NewRef(own));
    }
    Py_DECREF(node);
    Py_XDECREF(own);
    return PyErr_Occurred() ? -1 : 0;
}

int own_values(Core *x)
{
    if (x->node == NULL || x->node == Py_None) {
        return 0;
    }
    PyObject *before = Py_NewRef(x->node), *own = leaf_of_its_own(before);
    if (own != NULL && x->node == before) { /* other threads ran during the copy */
        Py_SETREF(x->node, Py_NewRef(own));
    }
    Py_DECREF(before);
    Py_XDECREF(own);
    return PyErr_Occurred() ? -1 : 0;
}

/* As `Storage.lend`, at first: the array that other code gets (new); NULL without an exception: not
   so plain. */
static PyObject *lend_first(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node);
    if (!IS_NODE(node) || NODE(node, resident) != Py_None || NODE(node, perm) != Py_None ||
        is_held_beyond(node, 1) || STORAGE(storage, value) != Py_None ||
        STORAGE(storage, exports) != Py_None) {
        return NULL;
    }
    PyArrayObject *value = (PyArrayObject *)NODE(node, value);
    if (!IS_REAL(value) || is_held_beyond((PyObject *)value, 1) || !PyArray_ISCARRAY(value) ||
        (PyArray_BASE(value) != NULL && Py_IS_TYPE(PyArray_BASE(value), &HolderType))) {
        return NULL;
    }
    PyObject *owner = PyWeakref_NewRef(storage, NULL), *none = PyLong_FromLong(0);
    PyObject *inner = owner == NULL ? NULL : flat_over(value, (PyObject *)value, NULL);
    PyObject *outer = inner == NULL ? NULL : flat_over(value, inner, owner);
    PyObject *exports = outer == NULL ? NULL : exports_of(outer);
    PyObject *origin = PyLong_FromVoidPtr(PyArray_DATA(value));
    if (exports != NULL && origin != NULL && none != NULL) {
        Py_XSETREF(STORAGE(storage, flat), Py_NewRef(inner));
        Py_XSETREF(STORAGE(storage, origin), Py_NewRef(origin));
        Py_XSETREF(STORAGE(storage, picks), Py_NewRef(none));
        Py_XSETREF(STORAGE(storage, visits), Py_NewRef(none));
        Py_XSETREF(STORAGE(storage, exports), Py_NewRef(exports));
        Py_XSETREF(STORAGE(storage, value), Py_NewRef(value));
    }
    else {
        Py_CLEAR(outer);
    }
    Py_XDECREF(owner);
    Py_XDECREF(none);
    Py_XDECREF(inner);
    Py_XDECREF(exports);
    Py_XDECREF(origin);
    return outer;
}

/* The flat memory of a block, if it is known and nothing recorded reads it (borrowed): readers get
   copies before it is lent. */
static PyArrayObject *known_memory(PyObject *storage)
{
    PyObject *node = STORAGE(storage, node), *value = STORAGE(storage, value);
    PyArrayObject *flat = (PyArrayObject *)STORAGE(storage, flat);
    return !IS_NODE(node) || NODE(node, resident) != Py_None || value == NULL ||
                   value == Py_None || NODE(node, value) != value || flat == NULL ||
                   !IS_REAL(flat) || !PyArray_ISCARRAY(flat) || is_held_beyond(node, 1)
        ? NULL : flat;
}

/* The array under which a block has been lent before (new); NULL without an exception: it is none
   that other code may have as well. */
static PyObject *lent_before(PyObject *storage)
{
    PyArrayObject *flat = known_memory(storage);
    PyObject *exports = flat == NULL ? Py_None : STORAGE(storage, exports);
    PyObject *root = PyList_CheckExact(exports) && PyList_GET_SIZE(exports) == 1
        ? PyList_GET_ITEM(exports, 0) : NULL;
    PyArrayObject *lent = root != NULL && (PyObject *)Py_TYPE(root) == hooks.root
        ? (PyArrayObject *)ROOT(root, array) : NULL;
    int same = lent != NULL && IS_REAL(lent) && PyArray_BASE(lent) != NULL &&
        Py_IS_TYPE(PyArray_BASE(lent), &HolderType) && PyArray_ISCARRAY(lent) &&
        PyArray_NDIM(lent) == 1 && PyArray_DATA(lent) == PyArray_DATA(flat) &&
        PyArray_SIZE(lent) == PyArray_SIZE(flat);
    return same ? Py_NewRef((PyObject *)lent) : NULL;
}

/* The same of a block whose memory is known, and may have been lent before. */
static PyObject *lend_known(PyObject *storage)
{
    if (STORAGE(storage, exports) != Py_None) {
        return lent_before(storage);
    }
    PyArrayObject *flat = known_memory(storage);
    /* by the node, the storage, and what keeps `flat` */
    if (flat == NULL || is_held_beyond(STORAGE(storage, value), 3)) {
        return NULL;
    }
    PyObject *owner = PyWeakref_NewRef(storage, NULL);
    PyObject *outer = owner == NULL ? NULL : flat_over(flat, (PyObject *)flat, owner);
    PyObject *made = outer == NULL ? NULL : exports_of(outer);
    if (made == NULL) {
        Py_CLEAR(outer);
    }
    else {
        Py_XSETREF(STORAGE(storage, exports), made);
    }
    Py_XDECREF(owner);
    return outer;
}

/* Whether a node is of a dtype that the format of a buffer can tell. */
static int is_told(PyObject *node)
{
    PyArray_Descr *descr = (PyArray_Descr *)NODE(node, dtype), *plain;
    if (!PyArray_DescrCheck(descr) ||
        !(PyTypeNum_ISNUMBER(descr->type_num) || descr->type_num == NPY_BOOL)) {
        return 0;
    }
    plain = PyArray_DescrFromType(descr->type_num);
    Py_XDECREF(plain);
    return plain == descr;
}

/* NumPy may lose the exception that is set, if one is: exported_memory.py has it from now on. */
static void note_lost(Core *x)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    if (kind != NULL) {
        PyErr_NormalizeException(&kind, &error, &trace);
    }
    PyObject *lost = kind == NULL ? Py_NewRef(Py_None) : PyTuple_Pack(2, (PyObject *)x, error);
    if (lost == NULL || PyObject_SetAttr(hooks.lost, name_found, lost) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(lost);
    PyErr_Restore(kind, error, trace);
}

/* Evaluates the block of an array, which gets one if it has none, and lends it; under the lock. */
static PyObject *lend_block(Core *x)
{
    if (storage_locked(x) <= 0) {
        return NULL;
    }
    PyObject *storage = Py_NewRef(x->storage);
    int there = NODE(STORAGE(storage, node), value) != Py_None ||
                evaluate_locked(STORAGE(storage, node), hooks.export_rule) == 0;
    note_lost(x);
    PyObject *outer = there ? lend_known(storage) : NULL;
    if (outer == NULL && there && !PyErr_Occurred() && take_copy(storage) == 0) {
        outer = lend_first(storage);
    }
    if (x->storage != storage) { /* Python has run, and a finaliser with it */
        Py_CLEAR(outer);
    }
    Py_DECREF(storage);
    return outer;
}

/* The part of lent memory that an array is (new); steals `outer`. */
static PyObject *part_of(Core *x, PyObject *outer)
{
    PyArrayObject *view = outer == NULL ? NULL : part_geometry(x);
    PyObject *found = view == NULL ? NULL
        : make_view_on(outer, view, PyArray_NDIM(view), PyArray_DIMS(view), PyArray_STRIDES(view),
                       PyArray_BYTES((PyArrayObject *)outer) +
                           (PyArray_BYTES(view) - (char *)hooks.origin));
    Py_XDECREF(outer);
    return found;
}

/* Whether an exception is kept for the next request that fails. */
static int is_lost(void)
{
    PyObject *found = PyObject_GetAttr(hooks.lost, name_found);
    Py_XDECREF(found);
    PyErr_Clear();
    return found != Py_None;
}

PyObject *lend_result(Core *x)
{
    if (!IS_BOUND || hooks.storage == NULL || EAGER(x) != Py_None || x->node == NULL) {
        return NULL;
    }
    PyObject *node = x->node != Py_None ? x->node : any_node(x), *found = NULL;
    if (node == NULL || !IS_NODE(node) || NODE(node, resident) != Py_None || !is_told(node) ||
        !is_default_state()) {
        return NULL;
    }
    if (x->node == Py_None && !is_lost()) {
        found = part_of(x, lent_before(x->storage));
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
    }
    int lock = is_alone() ? lock_writes() : PyErr_Occurred() ? -1 : 0;
    found = part_of(x, lock <= 0 ? NULL : lend_block(x));
    if (lock > 0 && unlock_writes(found != NULL) < 0) {
        Py_CLEAR(found);
    }
    return found;
}
