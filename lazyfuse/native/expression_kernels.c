/* The compiled programs of expressions of small arrays, kept by their structure. */

#include "expressions.h"

#include <string.h>

enum { KERNELS = 512, CLOSE = 4, KEY = 8 + 4 * MOST + (MOST_AXES + 1) * LEAVES };

/* The compiled program of a structure: operations, dtypes, and classes of strides. */
typedef struct {
    int64_t *key;
    int length; /* of the key; 0: none */
    int never; /* there is no program */
    double work, due; /* operations on elements so far, and when to ask for a program */
    Chunk entry;
    PyObject *keep; /* what holds the code */
} Kernel;

static Kernel kernels[KERNELS];
static double compile_above = 1 << 22;
#define BETWEEN (1 << 20) /* operations on elements until a program is asked for again */

PyObject *expressions_compile_above(PyObject *Py_UNUSED(module), PyObject *count)
{
    compile_above = PyFloat_AsDouble(count);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* Puts a structure into an entry. What goes with the old one may run code that needs entries, too. */
static void kernel_set(Kernel *kernel, int64_t *key, int length)
{
    Kernel old = *kernel;
    *kernel = (Kernel){.key = key, .length = length};
    PyMem_Free(old.key);
    Py_XDECREF(old.keep);
}

/* Strides that programs are compiled for: 0, whole elements one after the other, and others. */
static int64_t class_of(npy_intp stride, npy_intp size, int is_last)
{
    return stride == 0 ? 0 : is_last && stride == size ? 1 : 2;
}

/* What a program depends on, as numbers; how many. */
static int key_of(const Program *program, const Walk *walk, int64_t *key)
{
    int length = 0;
    key[length++] = walk->nd + 256 * program->count + 65536 * program->leaves;
    for (int at = 0; at < program->count; at++) {
        const Step *step = &program->steps[at];
        key[length++] = (int64_t)(intptr_t)step->loops->ufunc;
        key[length++] = step->at + 65536 * (int64_t)(step->to + 256);
        key[length++] = step->from[0] + 65536 * (int64_t)(step->count == 2 ? step->from[1] : 512);
    }
    for (int k = 0; k < program->leaves; k++) {
        PyArrayObject *array = program->arrays[k];
        key[length++] = program->types[k] + (array == NULL ? TYPES : 0);
        for (int axis = 0; array != NULL && axis < walk->nd; axis++) {
            key[length++] = class_of(walk->steps[k][axis], program->sizes[k], axis == walk->nd - 1);
        }
    }
    return length;
}

static int is_of_key(const Kernel *kernel, const int64_t *key, int length)
{
    return kernel->length == length &&
           memcmp(kernel->key, key, (size_t)length * sizeof *key) == 0;
}

/* The kernel of a key, perhaps a new one, which may already be another's; NULL after an error. */
static Kernel *kernel_of(const int64_t *key, int length)
{
    uint64_t hash = 1469598103934665603u;
    for (int at = 0; at < length; at++) {
        hash = (hash ^ (uint64_t)key[at]) * 1099511628211u;
    }
    hash ^= hash >> 29;
    Kernel *free = NULL;
    for (size_t at = 0; at < CLOSE; at++) {
        Kernel *kernel = &kernels[(hash + at) % KERNELS];
        if (is_of_key(kernel, key, length)) {
            return kernel;
        }
        free = free == NULL && kernel->length == 0 ? kernel : free;
    }
    if (free == NULL) {
        free = &kernels[(hash + (hash >> 40) % CLOSE) % KERNELS];
    }
    int64_t *own = PyMem_Malloc((size_t)length * sizeof *key);
    if (own == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(own, key, (size_t)length * sizeof *key);
    kernel_set(free, own, length);
    return free;
}

/* The structure for Python: (rank, ((dtype number, class of the last stride), ...), dtype numbers of
   the numbers, ((ufunc, dtype number, operands), ...)). Operands: leaves and earlier operations. */
static PyObject *described(const Program *program, const Walk *walk)
{
    PyObject *arrays = PyList_New(0), *numbers = PyList_New(0), *steps = PyList_New(0);
    int place[LEAVES], last[MOST], failed = arrays == NULL || numbers == NULL || steps == NULL;
    int many = 0, beside = 0;
    for (int k = 0; k < program->leaves; k++) {
        many += program->arrays[k] != NULL;
    }
    for (int k = 0, at = 0; !failed && k < program->leaves; k++) {
        PyArrayObject *array = program->arrays[k];
        int type = program->types[k], last_axis = walk->nd - 1;
        place[k] = array == NULL ? many + beside++ : at++;
        PyObject *each = array == NULL ? PyLong_FromLong(type)
            : Py_BuildValue("iL", type, class_of(walk->steps[k][last_axis], program->sizes[k], 1));
        failed = each == NULL || PyList_Append(array == NULL ? numbers : arrays, each) < 0;
        Py_XDECREF(each);
    }
    for (int at = 0; !failed && at < program->count; at++) {
        const Step *step = &program->steps[at];
        int from[2] = {-1, -1};
        for (int k = 0; k < step->count; k++) {
            from[k] = step->from[k] >= 0 ? place[step->from[k]]
                                         : program->leaves + last[~step->from[k]];
        }
        if (step->to != INTO) {
            last[~step->to] = at;
        }
        int type = (unsigned char)step->loops->ufunc->types[
            step->at * step->loops->ufunc->nargs];
        PyObject *each = Py_BuildValue("Oiii", step->loops->ufunc, type, from[0], from[1]);
        failed = each == NULL || PyList_Append(steps, each) < 0;
        Py_XDECREF(each);
    }
    PyObject *result = failed ? NULL : Py_BuildValue("iOOO", walk->nd, arrays, numbers, steps);
    Py_XDECREF(arrays);
    Py_XDECREF(numbers);
    Py_XDECREF(steps);
    return result;
}

/* Asks Python for the program: first for a function that asks for it, then that function, which
   gives False while it is compiled, then (address, what holds it); None: there will be none. While
   Python runs, the entry may come to be another structure's: then nothing is stored. -1 with an
   exception. */
static int kernel_ask(Kernel *kernel, const int64_t *key, int length, const Program *program,
                      const Walk *walk)
{
    kernel->due = kernel->work + (compile_above < BETWEEN ? compile_above : BETWEEN);
    PyObject *ask = Py_XNewRef(kernel->keep), *answer = NULL;
    if (ask == NULL) {
        PyObject *structure = hooks.expression_program == NULL ? NULL : described(program, walk);
        ask = structure == NULL ? NULL
            : PyObject_CallOneArg(hooks.expression_program, structure);
        Py_XDECREF(structure);
    }
    if (ask != NULL) {
        answer = ask == Py_None ? Py_NewRef(ask) : PyObject_CallNoArgs(ask);
    }
    if (answer != NULL && kernel->entry == NULL && is_of_key(kernel, key, length)) {
        PyObject *old = kernel->keep, *keep = ask;
        kernel->never = answer == Py_None;
        if (PyTuple_CheckExact(answer)) {
            kernel->entry = (Chunk)PyLong_AsVoidPtr(PyTuple_GET_ITEM(answer, 0));
            keep = PyTuple_GET_ITEM(answer, 1);
        }
        kernel->keep = Py_NewRef(keep);
        Py_XDECREF(old);
    }
    Py_XDECREF(ask);
    Py_XDECREF(answer);
    return PyErr_Occurred() ? -1 : 0;
}

/* Runs the compiled program; whether there is one, and its flags. */
static int run_compiled(const Kernel *kernel, const Program *program, const Walk *walk, char *out,
                        npy_intp out_size, int *flags)
{
    int64_t row[MOST_AXES + (LEAVES + 1) * (MOST_AXES + 1)], scalars[LEAVES][2], *next = row;
    int count = 0;
    for (int axis = 0; axis < walk->nd; axis++) {
        *next++ = walk->dims[axis];
    }
    for (int k = 0; k <= program->leaves; k++) {
        int is_out = k == program->leaves;
        if (!is_out && program->arrays[k] == NULL) {
            continue;
        }
        npy_intp size = is_out ? out_size : program->sizes[k];
        *next++ = (int64_t)(intptr_t)(is_out ? out : program->data[k]);
        for (int axis = 0; axis < walk->nd; axis++) {
            if (walk->steps[k][axis] % size != 0) {
                return 0;
            }
            *next++ = walk->steps[k][axis] / size;
        }
    }
    for (int k = 0; k < program->leaves; k++) {
        int type = program->types[k];
        char kind = PyTypeNum_ISBOOL(type) ? 'b' : PyTypeNum_ISUNSIGNED(type) ? 'u'
            : PyTypeNum_ISINTEGER(type) ? 'i' : PyTypeNum_ISCOMPLEX(type) ? 'c' : 'f';
        if (program->arrays[k] == NULL &&
            !pack_scalar(program->data[k], type, kind, scalars[count++])) {
            return 0;
        }
    }
    *flags = kernel->entry(row, (const char *)scalars);
    return 1;
}

int run_as_kernel(const Program *program, const Walk *walk, npy_intp size, char *out,
                  npy_intp out_size, int *flags)
{
    int64_t key[KEY];
    int length = key_of(program, walk, key);
    Kernel *kernel = kernel_of(key, length);
    if (kernel == NULL) {
        return -1;
    }
    double work = (double)size * program->count;
    kernel->work += work;
    if (kernel->entry == NULL && !kernel->never && kernel->work >= compile_above &&
        kernel->work >= kernel->due && kernel_ask(kernel, key, length, program, walk) < 0) {
        return -1;
    }
    if (kernel->entry == NULL || !is_of_key(kernel, key, length)) { /* Python may have run */
        return 0;
    }
    PyObject *keep = Py_NewRef(kernel->keep);
    Kernel copy = *kernel; /* without Python's lock, others may exchange it */
    PyThreadState *state = work >= 4 * UNLOCKED ? PyEval_SaveThread() : NULL;
    int done = run_compiled(&copy, program, walk, out, out_size, flags);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    Py_DECREF(keep);
    return done && *flags >= 0;
}

void kernels_clear(void)
{
    for (int at = 0; at < KERNELS; at++) {
        kernel_set(&kernels[at], NULL, 0);
    }
}
