// Guards on the versions of classes, across a write to an open attribute.
//
// Such a write gives the class a new version. Each guard on the version would then fail in the next run,
// though nothing that the guard stands for has changed. So expectWrites() notes, before the write, which of
// these guards hold and what the dicts of their classes contain. renew() compares the dicts after the write.
// A guard of whose classes only open attributes have changed gets the new version.
//
// Ownership: borrows the document's guards, the constants (the classes) and the log; holds copies of dicts
// between expectWrites() and renew(). Owned by the Recorder; the recording thread, GIL held. Example:
//
//   versions.expectWrites();  // Counter.calls += 1
//   ... the write ...
//   if (versions.areExpected()) versions.renew();
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/tables/attribute_log.h"
#include "capture/tables/constant_pool.h"
#include "guard/document.h"

namespace kintsugi::capture {

class ClassVersions {
 public:
  ClassVersions(guard::Document& document, const ConstantPool& constants, const AttributeLog& log)
      : guards_(document.guards.guards), constants_(constants), log_(log) {}

  void expectWrites();
  bool areExpected() const { return !before_.guards.empty(); }
  void renew();

 private:
  struct Before {
    std::vector<std::pair<size_t, pyapi::Ref<>>> guards;       // guards that hold, each with its class's MRO
    std::unordered_map<PyTypeObject*, uint64_t> dicts;         // the versions of the classes' dicts
    std::unordered_map<PyTypeObject*, pyapi::Ref<>> contents;  // copies of dicts with open attributes
  };
  bool closedEntriesEqual(PyTypeObject* type, PyObject* before) const;

  std::vector<guard::Guard>& guards_;
  const ConstantPool& constants_;
  const AttributeLog& log_;
  Before before_;
};

}  // namespace kintsugi::capture
