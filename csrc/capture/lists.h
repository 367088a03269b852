// Changes of lists (and what dicts share with them) while recording: what the trace has to do again, and what
// the elements are afterwards.
//
// A list that was made in the trace and has not been seen by anybody else only changes its shadows. One that
// is older, or has been handed out, gets an effect besides; the recorder then remembers its elements in an
// Overlay. All functions come before the instruction that changes the real list. They return false, or null,
// where the change can't be followed; the recording may have ended then. Thread: the recording one, GIL held.
#pragma once

#include "capture/recorder.h"

namespace kintsugi::capture {

// The shadows of the elements, to be changed along with the list. The length of an old list becomes a
// dependency.
std::vector<Shadow>* listParts(Recorder& rec, Shadow list, PyObject* object);
// Others hold the list as well: what happens to it is an effect.
bool isSharedList(Recorder& rec, Shadow list);

// Do others hold this dict, or the instance that it is the dict of?
bool isOutside(Recorder& rec, const Virtual& v);

bool appendElement(Recorder& rec, Shadow list, PyObject* object, Shadow item, PyObject* real);
bool extendList(Recorder& rec, Shadow list, PyObject* object, Shadow more, PyObject* iterable);
// After it was executed: a dict's items became pairs, from `start` on.
void pairElements(Recorder& rec, Shadow list, PyObject* object, Shadow more, Py_ssize_t start);
bool storeElement(Recorder& rec, Shadow list, PyObject* object, Py_ssize_t index, Shadow value,
                  PyObject* real);
// Before an instruction: the iterators of sequences are where the real ones are.
void settleIterators(Recorder& rec);

// Are the bounds numbers, or nothing? Others are asked for their __index__, which may run anything: once.
bool hasNumberBounds(PyObject* slice);
// list[slice] = iterable
bool storeSlice(Recorder& rec, Shadow list, PyObject* object, Shadow& key, PyObject* slice, Shadow value,
                PyObject* real);
// list.clear(), del list[:]: whatever the elements were.
bool clearElements(Recorder& rec, Shadow list, PyObject* object);
// del list[i], del list[a:b]
bool deleteElements(Recorder& rec, Shadow list, PyObject* object, Shadow& key, PyObject* index);

}  // namespace kintsugi::capture
