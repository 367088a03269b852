// Changes of lists while recording (some functions also serve dicts): what the trace has to do again, and
// what the elements are afterwards.
//
// For a list that the trace has made and nobody else has seen, only the shadows change. For an older list, or
// one that was handed out, an effect is emitted too, and the recorder keeps its elements in an Overlay. All
// functions are called before the instruction that changes the real list. They return false or null where the
// change can't be followed; the recording may have ended then. Thread: the recording one, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// The shadows of the elements, to be changed along with the list. The length of an older list is guarded.
Shadows* listParts(RecordContext& rec, Shadow list, PyObject* object);
// True if others hold the list as well, so that a change is an effect.
bool isSharedList(RecordContext& rec, Shadow list);

bool appendElement(RecordContext& rec, Shadow list, PyObject* object, Shadow item, PyObject* real);
bool extendList(RecordContext& rec, Shadow list, PyObject* object, Shadow more, PyObject* iterable);
// After the instruction: from `start` on, the new elements are pairs of a dict's items.
void pairElements(RecordContext& rec, Shadow list, PyObject* object, Shadow more, Py_ssize_t start);
bool storeElement(RecordContext& rec, Shadow list, PyObject* object, Py_ssize_t index, Shadow value,
                  PyObject* real);

// True if the bounds are integers or None. Other objects have an `__index__`, which may run anything.
bool hasNumberBounds(PyObject* slice);
// `list[slice] = iterable`.
bool storeSlice(RecordContext& rec, Shadow list, PyObject* object, Shadow& key, PyObject* slice, Shadow value,
                PyObject* real);
// `list.clear()` and `del list[:]`: the old elements do not matter.
bool clearElements(RecordContext& rec, Shadow list, PyObject* object);
// `del list[i]` and `del list[a:b]`.
bool deleteElements(RecordContext& rec, Shadow list, PyObject* object, Shadow& key, PyObject* index);

}  // namespace kintsugi::capture
