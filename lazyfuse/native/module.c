/* The module lazyfuse._native: see native.h. */

#define LAZYFUSE_MODULE
#include "native.h"

static PyMethodDef functions[] = {
    {"adopt", array_adopt, METH_O, "Let a class on Core be the array type."},
    {"adopt_ufunc", ufunc_adopt, METH_O, "Let the objects of a class on UfuncCore be called directly."},
    {"alone", array_alone, METH_O, "An array whose values are those of a node."},
    {"bind", array_bind, METH_VARARGS, "Put a function in for what is not quick, by name."},
    {"buffer", lent_buffer, METH_O, "Let arrays export the buffer of what a function gives for them."},
    {"created", quick_created, METH_VARARGS, "A function that makes an array of a shape."},
    {"direct", (PyCFunction)(void (*)(void))array_direct, METH_FASTCALL,
     "An array that runs everything at once on a numpy array, and perhaps its base."},
    {"any_arrays", quick_any_arrays, METH_VARARGS, "A function of arrays, and of lists of them."},
    {"first_array", quick_first_array, METH_VARARGS, "A function of one array and plain values."},
    {"get_dtype", geometry_dtype, METH_O, "The dtype of an array."},
    {"get_imag", geometry_imag, METH_O, "The imaginary parts of an array."},
    {"get_ndim", geometry_ndim, METH_O, "How many axes an array has."},
    {"get_real", geometry_real, METH_O, "The real parts of an array."},
    {"get_shape", geometry_shape, METH_O, "The shape of an array."},
    {"get_size", geometry_size, METH_O, "How many elements an array has."},
    {"get_transposed", geometry_transposed, METH_O, "The transpose of an array."},
    {"is_thin", array_is_thin, METH_O, "Whether an operation on a numpy array may give much."},
    {"lent", lent_bind, METH_VARARGS, "Put in what operations on lent memory need: lent.tell."},
    {"listed", quick_listed, METH_VARARGS, "`array`, of a short list or a direct array."},
    {"method", quick_method, METH_VARARGS, "A method: NumPy's on direct arrays, ours on the others."},
    {"new", array_new, METH_O, "An array without slots set."},
    {"operator", array_operator, METH_VARARGS, "Complete the operator of that name."},
    {"bring_back", section_bring_back, METH_NOARGS, "Handlers come back, after so many calls as of put_off."},
    {"new_main", section_new_main, METH_O, "The thread that runs handlers from now on."},
    {"put_off", section_put_off, METH_NOARGS, "Handlers of signals wait."},
    {"replay_begin", (PyCFunction)(void (*)(void))replay_begin, METH_FASTCALL,
     "The blocks of a replay, and their addresses."},
    {"replay_bind", (PyCFunction)(void (*)(void))replay_bind, METH_FASTCALL,
     "What a run begins with, and the key under which replays are kept."},
    {"replay_commit", (PyCFunction)(void (*)(void))replay_commit, METH_FASTCALL,
     "Give the nodes their values."},
    {"replay_play", (PyCFunction)(void (*)(void))replay_play, METH_FASTCALL,
     "Go through the events of a replay."},
    {"replay_program", replay_program, METH_VARARGS, "A replay as numbers."},
    {"replay_setup", replay_setup, METH_VARARGS, "The classes that replays read."},
    {"section_setup", section_setup, METH_VARARGS, "What sections call: critical.use."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The record path in C: the base of arrays, the base of ufuncs, quick functions.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void)
{
    import_array();
    import_umath();
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    if (loops_ready() < 0 || array_ready(module) < 0 || ufunc_ready(module) < 0 ||
        functions_ready(module) < 0 || section_ready(module) < 0 ||
        PyType_Ready(&ReplayProgramType) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
