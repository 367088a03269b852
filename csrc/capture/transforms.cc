#include "capture/transforms.h"

#include <algorithm>

#include "capture/calls/model.h"
#include "capture/record_context.h"
#include "capture/recorder_tables.h"
#include "pyapi/known_objects.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

bool Transforms::enter(RecordContext& rec, bool gradMode) {
  ShadowFrame* current = rec.tables.frames.current();
  if (current == nullptr || !isTransformCode(current->code)) return false;
  gradModes_.push_back(gradMode);
  for (ShadowFrame* frame = current; frame != nullptr && frame->caller != nullptr; frame = frame->caller) {
    const bool manager = pyapi::isKnownCode(frame->code, pyapi::CodeFamily::kContextManagers);
    if (!isTransformCode(frame->code) && !manager) break;
    frame->transform = isTransformCode(frame->code);
    frame->rebuildable = false;
  }
  return true;
}

void Transforms::leave() {
  if (!gradModes_.empty()) gradModes_.pop_back();
}

bool Transforms::isInside(RecordContext& rec) {
  for (const ShadowFrame* frame = rec.tables.frames.current(); frame != nullptr; frame = frame->caller) {
    if (frame->transform) return true;
  }
  return false;
}

bool Transforms::gradModeBelow(bool mode) const {
  return mode && std::find(gradModes_.begin(), gradModes_.end(), false) == gradModes_.end();
}

bool Transforms::countsTransforms(RecordContext& rec) {
  return rec.tables.frames.current() != nullptr && isTransformCode(rec.tables.frames.current()->code) &&
         isInside(rec);
}

bool Transforms::has(PyObject* dict, PyObject* key) const {
  return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.dict.get() == dict && PyObject_RichCompareBool(place.key.get(), key, Py_EQ) == 1;
  });
}

bool Transforms::isTransient(RecordContext& rec, PyObject* dict, PyObject* key, PyObject* object) const {
  if (gradModes_.empty() && places_.empty()) return false;
  const bool wrapper = torchapi::isTensor(object) && torchapi::isWrapper(object);
  return (wrapper || has(dict, key)) && isInside(rec);
}

bool Transforms::store(RecordContext& rec, PyObject* dict, PyObject* key, Shadow value, PyObject* real) {
  PyObject* before = PyDict_GetItemWithError(dict, key);
  if (before == nullptr || !PyUnicode_CheckExact(key)) {
    rec.abort(diag::Code::KTG0109, {"a name that a transform adds"});
    return false;
  }
  if (!has(dict, key)) {
    const Shadow entry = rec.objects.dictEntry(rec.guards.pinnedRoot(dict), dict, key, before);
    Shadow pinned = entry;
    if (!rec.live() || (isPlain(before) && !rec.guards.pin(pinned, before))) return false;
    places_.push_back({pyapi::newRef(dict), pyapi::newRef(key), pyapi::newRef(before)});
  }
  rec.objects.makeOverlay(dict).written(dict, key, value, real);
  return rec.live();
}

void Transforms::frameExited(RecordContext& rec, const ShadowFrame& frame) {
  if (places_.empty() || !frame.transform || isInside(rec)) return;
  for (const Place& place : std::exchange(places_, {})) {
    PyObject* now = PyDict_GetItemWithError(place.dict.get(), place.key.get());
    const bool same =
        now == place.before.get() ||
        (now != nullptr && isPlain(now) && PyObject_RichCompareBool(now, place.before.get(), Py_EQ) == 1);
    if (!same) rec.abort(diag::Code::KTG0109, {"what a transform has left behind"});
  }
  PyErr_Clear();
}

}  // namespace kintsugi::capture
