#include "capture/stand_ins.h"

#include <algorithm>
#include <unordered_set>

#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

bool holds(VirtualTable& virtuals, Shadow shadow, std::unordered_set<uint32_t>& seen) {
  if (!shadow.isVirtual() || !seen.insert(shadow.virtualId()).second) return false;
  const Virtual& v = virtuals[shadow];
  if (isStandIn(v)) return true;
  for (Shadow part : v.parts) {
    if (holds(virtuals, part, seen)) return true;
  }
  for (PyObject* shadows : {v.entries.get(), v.attrs.get()}) {
    PyObject *key, *encoded;
    Py_ssize_t at = 0;
    while (shadows != nullptr && PyDict_Next(shadows, &at, &key, &encoded)) {
      if (holds(virtuals, decodeShadow(encoded), seen)) return true;
    }
  }
  if (!v.frame) return false;
  const auto inside = [&](Shadow slot) { return holds(virtuals, slot, seen); };
  return std::any_of(v.frame->locals.begin(), v.frame->locals.end(), inside) ||
         std::any_of(v.frame->stack.begin(), v.frame->stack.end(), inside);
}

}  // namespace

bool isStandIn(const Virtual& v) {
  static PyObject* mark = PyUnicode_InternFromString("_kintsugi_stand_in");
  return v.kind == VirtualKind::kInstance && v.object &&
         pyapi::lookUpInType(Py_TYPE(v.object.get()), mark) != nullptr;
}

bool holdsStandIn(VirtualTable& virtuals, Shadow shadow) {
  const auto& all = virtuals.all();
  if (!std::any_of(all.begin(), all.end(), [](const auto& v) { return isStandIn(*v); })) return false;
  std::unordered_set<uint32_t> seen;
  return holds(virtuals, shadow, seen);
}

}  // namespace kintsugi::capture
