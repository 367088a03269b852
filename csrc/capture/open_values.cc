#include "capture/open_values.h"

namespace kintsugi::capture {

namespace {

bool isOpen(RecordContext& rec, ir::SourceId source) {
  return rec.options.dynamic != 0 && rec.options.dynamicSources != nullptr &&
         rec.options.dynamicSources->contains(rec.sources.hashOf(source));
}

}  // namespace

bool isOpenText(RecordContext& rec, Shadow shadow) {
  return shadow.isSource() && PyUnicode_CheckExact(rec.sources.objectOf(shadow.sourceId())) &&
         isOpen(rec, shadow.sourceId());
}

bool isVaryingText(RecordContext& rec, Shadow shadow, PyObject* object) {
  return PyUnicode_CheckExact(object) && shadow.isSource() && rec.guards.comesFromStep(shadow);
}

bool hasVaryingLength(RecordContext& rec, PyObject* container) {
  if (!PyList_CheckExact(container) && !PyDict_CheckExact(container)) return false;
  const auto found = rec.sources.of(container);
  return found && (rec.openSlices.contains(*found) || isOpen(rec, *found));
}

}  // namespace kintsugi::capture
