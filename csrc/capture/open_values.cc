#include "capture/open_values.h"

namespace kintsugi::capture {

namespace {

bool isOpen(const RecorderState& known, ir::SourceId source) {
  return known.options_.dynamic != 0 && known.options_.dynamicSources != nullptr &&
         known.options_.dynamicSources->contains(known.sources_.hashOf(source));
}

}  // namespace

bool isOpenText(const RecorderState& known, Shadow shadow) {
  return shadow.isSource() && PyUnicode_CheckExact(known.sources_.objectOf(shadow.sourceId())) &&
         isOpen(known, shadow.sourceId());
}

bool isVaryingText(Recorder& rec, Shadow shadow, PyObject* object) {
  return PyUnicode_CheckExact(object) && shadow.isSource() && rec.comesFromStep(shadow);
}

bool hasVaryingLength(Recorder& rec, PyObject* container) {
  if (!PyList_CheckExact(container) && !PyDict_CheckExact(container)) return false;
  const RecorderState& known = rec.known();
  const auto found = known.sources_.of(container);
  return found && (known.openSlices_.contains(*found) || isOpen(known, *found));
}

}  // namespace kintsugi::capture
