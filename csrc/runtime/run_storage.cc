#include <algorithm>
#include <utility>

#include "runtime/replay_program.h"
#include "support/check.h"

namespace kintsugi::runtime {

using torchapi::Value;
using torchapi::ValueKind;

void RunStorage::clear() {
  for (Value& value : values) {
    torchapi::clear(value);
  }
  for (PyObject*& object : objects) {
    Py_CLEAR(object);
  }
  release();
}

void RunStorage::clearReturned(const ReplayCode& code) {
  for (const ir::ValueId value : code.leftAtReturn) {
    drop(value);
  }
  release();
#ifndef NDEBUG
  for (size_t value = 0; value < values.size(); ++value) {
    KINTSUGI_CHECK(values[value].kind == ValueKind::kEmpty && objects[value] == nullptr,
                   "a value outlives its run");
  }
#endif
}

void RunStorage::release() {
  for (PyObject* object : held) {
    Py_DECREF(object);
  }
  held.clear();
  writes.clear();
  if (!numbers.empty()) {
    for (const auto& [value, object] : numbers) {
      Py_DECREF(object);
    }
    numbers.clear();
  }
}

void RunStorage::dropReference(ir::ValueId value, const std::vector<guard::SourceId>& parts,
                               PyObject** sources) {
  drop(value);
  for (const guard::SourceId part : parts) {
    const auto found = std::ranges::find(held, sources[part]);
    if (found == held.end()) {
      continue;
    }
    PyObject* object = std::exchange(*found, held.back());
    held.pop_back();
    Py_DECREF(object);
  }
}

}  // namespace kintsugi::runtime
