#include "capture/open_values.h"

#include "capture/hashes.h"
#include "capture/recorder_tables.h"
#include "pyapi/plain.h"
#include "torchapi/tensor_desc.h"

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

bool isVaryingKey(RecordContext& rec, Shadow shadow, PyObject* key) {
  return isVaryingText(rec, shadow, key) || (shadow.isValue() && PyLong_CheckExact(key));
}

bool isVaryingLookUp(RecordContext& rec, Shadow shadow, PyObject* key, PyObject* dict) {
  if (isVaryingText(rec, shadow, key)) return true;
  return isVaryingKey(rec, shadow, key) && PyDict_GET_SIZE(dict) != 0 && !pyapi::needsProgram(dict, key);
}

bool pinKey(RecordContext& rec, Shadow& shadow, PyObject* key) {
  return !isHashedInPython(key) && rec.guards.tryPinDeep(shadow, key);
}

bool hasVaryingLength(RecordContext& rec, PyObject* container) {
  if (!PyList_CheckExact(container) && !PyDict_CheckExact(container)) return false;
  const auto found = rec.tables.sources.of(container);
  return found && (rec.openSlices.contains(*found) || isOpen(rec, *found));
}

}  // namespace kintsugi::capture
