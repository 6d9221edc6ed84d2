/* Places in the user's program where recording does not pay: NumPy runs their operations at once,
   with the same bits. runtime/capture/governor.py decides, from what evaluations took and from the
   times that are taken here; it says for how many visits. A place is an instruction at a class of
   sizes. */

#include "record.h"

#include <string.h>
#include <time.h>

typedef struct {
    PyObject *code; /* borrowed: the address of one that has died makes a wrong guess, no more */
    long offset, class;
    Py_ssize_t left, runs; /* visits at once that are to come, and that were */
    Py_ssize_t passed; /* visits that were recorded, while these are counted */
    int counts;
    double seconds; /* of the shortest of these */
} Place;

enum { PLACES = 1024, NEAR = 8 };
static Place places[PLACES];
static Py_ssize_t governed; /* places with visits to come, or to count */

static long class_of(Py_ssize_t size)
{
    long class = 0;
    for (; size > 1; size >>= 1) {
        class++;
    }
    return class;
}

double replay_seconds;

/* played(): the seconds of what was replayed since the last call. */
PyObject *played(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    double found = replay_seconds;
    replay_seconds = 0.0;
    return PyFloat_FromDouble(found);
}

double seconds_now(void)
{
    static time_t first;
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    if (first == 0) {
        first = time.tv_sec;
    }
    return (double)(time.tv_sec - first) + 1e-9 * (double)time.tv_nsec;
}

PyObject *clock_seconds(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyFloat_FromDouble(seconds_now());
}

/* The entry of a place; NULL where there is none. `make`: an older one gives way. */
static Place *entry_of(PyObject *code, long offset, long class, int make)
{
    size_t first = ((size_t)code >> 4) * 31 + (size_t)offset * 7 + (size_t)class;
    for (size_t i = 0; i < NEAR; i++) {
        Place *place = &places[(first + i) % PLACES];
        if (place->code == code && place->offset == offset && place->class == class) {
            return place;
        }
    }
    for (size_t i = 0; make && i < NEAR; i++) {
        Place *place = &places[(first + i) % PLACES];
        if ((place->left == 0 && !place->counts) || i == NEAR - 1) {
            governed -= place->left > 0 || place->counts;
            *place = (Place){.code = code, .offset = offset, .class = class};
            return place;
        }
    }
    return NULL;
}

/* Where the user's program is now, if NumPy is to run operations of this size there. */
static Place *here(Py_ssize_t size)
{
    if (governed == 0 || !hooks.plain) {
        return NULL;
    }
    PyFrameObject *frame = user_frame();
    if (frame == NULL) {
        return NULL;
    }
    PyCodeObject *code = PyFrame_GetCode(frame);
    Place *place = entry_of((PyObject *)code, PyFrame_GetLasti(frame), class_of(size), 0);
    Py_DECREF(code);
    Py_DECREF(frame);
    if (place != NULL && place->counts) {
        place->passed++;
    }
    return place != NULL && place->left > 0 ? place : NULL;
}

int is_governing(void)
{
    return governed > 0;
}

int governed_begin(Governed *turn, Py_ssize_t size)
{
    turn->place = here(size);
    turn->began = turn->place == NULL ? 0.0 : seconds_now();
    return turn->place != NULL;
}

void governed_end(const Governed *turn, Py_ssize_t operations)
{
    Place *place = turn->place;
    if (place == NULL || place->left == 0) {
        return;
    }
    double seconds = (seconds_now() - turn->began) / (double)operations;
    if (place->runs++ == 0 || seconds < place->seconds) {
        place->seconds = seconds;
    }
    place->left -= operations < place->left ? operations : place->left;
    governed -= place->left == 0 && !place->counts;
}

PyObject *governed_call(PyObject *op, PyObject *const *args, int count, Py_ssize_t size)
{
    Governed turn;
    PyObject *result = governed_begin(&turn, size) ? called_at_once(op, args, count) : NULL;
    if (result != NULL) {
        governed_end(&turn, 1);
    }
    return result;
}

/* govern(code, offset, size, visits): NumPy runs the next visits of a place at once, or (-1) they
   are counted; what was measured before is forgotten. */
PyObject *govern(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *code;
    long offset;
    Py_ssize_t size, visits;
    if (!PyArg_ParseTuple(args, "Olnn", &code, &offset, &size, &visits)) {
        return NULL;
    }
    Place *place = entry_of(code, offset, class_of(size), 1);
    governed += (visits != 0) - (place->left > 0 || place->counts);
    place->counts = visits < 0;
    place->passed = 0;
    place->left = visits > 0 ? visits : 0;
    place->runs = 0;
    place->seconds = 0.0;
    Py_RETURN_NONE;
}

/* governed(code, offset, size): (visits to come, visits since, seconds of the shortest, visits that
   were counted); None: no such place. */
PyObject *governed_at(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *code;
    long offset;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "Oln", &code, &offset, &size)) {
        return NULL;
    }
    Place *place = entry_of(code, offset, class_of(size), 0);
    if (place == NULL) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("nndn", place->left, place->runs, place->seconds, place->passed);
}

/* ungovern(): no place is governed any more. */
PyObject *ungovern(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    memset(places, 0, sizeof places);
    governed = 0;
    Py_RETURN_NONE;
}
