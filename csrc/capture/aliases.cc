#include "capture/aliases.h"

#include <algorithm>
#include <utility>

#include "capture/numbers.h"
#include "capture/record_context.h"
#include "capture/recorder_tables.h"

namespace kintsugi::capture {

namespace {

bool rename(const AliasList& aliases, Shadow& shadow) {
  if (!shadow.isSource()) return false;
  const auto found = std::find_if(aliases.begin(), aliases.end(),
                                  [&](const auto& alias) { return alias.first == shadow.sourceId(); });
  if (found == aliases.end()) return false;
  shadow = found->second;
  return true;
}

void renameAll(const AliasList& aliases, Shadows& shadows) {
  for (Shadow& shadow : shadows) rename(aliases, shadow);
}

void renameIn(const AliasList& aliases, ShadowFrame& frame) {
  renameAll(aliases, frame.locals);
  renameAll(aliases, frame.stack);
  rename(aliases, frame.handled);
  rename(aliases, frame.functionShadow);
}

// For a dict whose values are encoded shadows. No key is added or removed, so walking it meanwhile is safe.
void renameIn(const AliasList& aliases, PyObject* dict) {
  PyObject *key, *encoded;
  Py_ssize_t at = 0;
  while (dict != nullptr && PyDict_Next(dict, &at, &key, &encoded) != 0) {
    Shadow shadow = decodeShadow(encoded);
    if (!rename(aliases, shadow)) continue;
    pyapi::Ref<> renamed = pyapi::steal(encodeShadow(shadow));
    if (!renamed || PyDict_SetItem(dict, key, renamed.get()) != 0) PyErr_Clear();
  }
}

}  // namespace

void applyAliases(RecordContext& rec) {
  AliasList aliases = std::exchange(rec.tables.aliases, {});
  for (auto& [source, shadow] : aliases) {
    if (shadow.isNull()) shadow = numberInput(rec, source, rec.tables.sources.objectOf(source));
    rec.tables.sources.setShadow(source, shadow);
  }
  for (auto& frame : rec.tables.frames.all()) renameIn(aliases, *frame);
  for (RestoredFrame& restored : rec.tables.restored.all()) rename(aliases, restored.replacement);
  for (Virtual* v : rec.tables.virtuals.held()) {
    renameAll(aliases, v->parts);
    if (v->frame) renameIn(aliases, *v->frame);
    renameIn(aliases, v->attrs.get());
    renameIn(aliases, v->entries.get());
  }
  rec.tables.virtuals.noteChange();  // cached recipes still name the old sources
}

}  // namespace kintsugi::capture
