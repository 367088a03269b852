#include "capture/open_values.h"

#include "capture/recorder_tables.h"

namespace kintsugi::capture {

namespace {

bool isOpen(RecordContext& rec, ir::SourceId source) {
  return rec.tables.options.dynamic != 0 && rec.tables.options.dynamicSources != nullptr &&
         rec.tables.options.dynamicSources->contains(rec.tables.sources.hashOf(source));
}

}  // namespace

bool isOpenText(RecordContext& rec, Shadow shadow) {
  return shadow.isSource() && PyUnicode_CheckExact(rec.tables.sources.objectOf(shadow.sourceId())) &&
         isOpen(rec, shadow.sourceId());
}

bool isVaryingText(RecordContext& rec, Shadow shadow, PyObject* object) {
  return PyUnicode_CheckExact(object) && shadow.isSource() && rec.guards.comesFromStep(shadow);
}

bool hasVaryingLength(RecordContext& rec, PyObject* container) {
  if (!PyList_CheckExact(container) && !PyDict_CheckExact(container)) return false;
  const auto found = rec.tables.sources.of(container);
  return found && (rec.openSlices.contains(*found) || isOpen(rec, *found));
}

}  // namespace kintsugi::capture
