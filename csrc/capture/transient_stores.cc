// TransientStores: what torch's code stores while a transform is active, and the trace leaves out.
#include <algorithm>
#include <utility>

#include "capture/plain_objects.h"
#include "capture/transforms.h"
#include "pyapi/plain.h"
#include "torchapi/tensor_desc.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

bool TransientStores::has(PyObject* dict, PyObject* key) const {
  return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.dict.get() == dict && PyObject_RichCompareBool(place.key.get(), key, Py_EQ) == 1;
  });
}

bool TransientStores::isTransient(PyObject* dict, PyObject* key, PyObject* object) const {
  if (!transforms_.active() && places_.empty()) return false;
  const bool wrapper = torchapi::isTensor(object) && torchapi::isWrapper(object);
  return (wrapper || has(dict, key)) && transforms_.isInside();
}

bool TransientStores::store(PyObject* dict, PyObject* key, Shadow value, PyObject* real) {
  PyObject* before = PyDict_GetItemWithError(dict, key);
  if (before == nullptr || !PyUnicode_CheckExact(key)) {
    roles_.breaks.abort(diag::Code::KTG0109, {"a name that a transform adds"});
    return false;
  }
  if (!has(dict, key)) {
    const Shadow entry = roles_.reads.dictEntry(roles_.guards.pinnedRoot(dict), dict, key, before);
    Shadow pinned = entry;
    if (!roles_.breaks.isLive() || (isPlain(before) && !roles_.guards.pin(pinned, before))) return false;
    places_.push_back({pyapi::newRef(dict), pyapi::newRef(key), pyapi::newRef(before)});
  }
  roles_.reads.makeOverlay(dict).written(dict, key, value, real);
  return roles_.breaks.isLive();
}

void TransientStores::frameExited(const ShadowFrame& frame) {
  if (places_.empty() || !frame.transform || transforms_.isInside()) return;
  for (const Place& place : std::exchange(places_, {})) {
    PyObject* now = PyDict_GetItemWithError(place.dict.get(), place.key.get());
    const bool same = now == place.before.get() ||
                      (now != nullptr && isPlain(now) && pyapi::plainEquals(now, place.before.get()));
    if (!same) roles_.breaks.abort(diag::Code::KTG0109, {"what a transform has left behind"});
  }
  PyErr_Clear();
}

}  // namespace kintsugi::capture
