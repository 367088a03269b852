// Changes of lists (and what dicts share with them) while recording: what the trace has to do again, and what
// the elements are afterwards.
//
// A list that was made in the trace and has not been seen by anybody else only changes its shadows. One that
// is older, or has been handed out, gets an effect besides; the recorder then remembers its elements in an
// Overlay. All functions come before the instruction that changes the real list. They return false, or null,
// where the change can't be followed; the recording may have ended then. Thread: the recording one, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// The shadows of the elements, to be changed along with the list. The length of an old list becomes a
// dependency.
std::vector<Shadow>* listParts(RecordContext& rec, Shadow list, PyObject* object);
// Others hold the list as well: what happens to it is an effect.
bool isSharedList(RecordContext& rec, Shadow list);

// Do others hold this dict, or the instance that it is the dict of?
bool isOutside(RecordContext& rec, const Virtual& v);

bool appendElement(RecordContext& rec, Shadow list, PyObject* object, Shadow item, PyObject* real);
bool extendList(RecordContext& rec, Shadow list, PyObject* object, Shadow more, PyObject* iterable);
// After it was executed: a dict's items became pairs, from `start` on.
void pairElements(RecordContext& rec, Shadow list, PyObject* object, Shadow more, Py_ssize_t start);
bool storeElement(RecordContext& rec, Shadow list, PyObject* object, Py_ssize_t index, Shadow value,
                  PyObject* real);
// Before an instruction: the iterators of sequences are where the real ones are.
void syncIterators(RecordContext& rec);

// Are the bounds numbers, or nothing? Others are asked for their __index__, which may run anything: once.
bool hasNumberBounds(PyObject* slice);
// list[slice] = iterable
bool storeSlice(RecordContext& rec, Shadow list, PyObject* object, Shadow& key, PyObject* slice, Shadow value,
                PyObject* real);
// list.clear(), del list[:]: whatever the elements were.
bool clearElements(RecordContext& rec, Shadow list, PyObject* object);
// del list[i], del list[a:b]
bool deleteElements(RecordContext& rec, Shadow list, PyObject* object, Shadow& key, PyObject* index);

}  // namespace kintsugi::capture
