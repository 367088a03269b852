// Versions of dicts, kept by a dict watcher (PEP 699).
#include "pyapi/dict.h"
#include "pyapi/lazy.h"

#define Py_BUILD_CORE 1
#include <internal/pycore_dict.h>
#undef Py_BUILD_CORE

namespace kintsugi::pyapi {

uint64_t watcherBit = 0;

namespace {

constexpr uint64_t kOtherBits = DICT_WATCHER_AND_MODIFICATION_MASK;
constexpr uint64_t kStep = kOtherBits + 1;
static_assert((kStep & kOtherBits) == 0, "the bits of others are the lower ones");

uint64_t last = 0;  // the last version that was given, shifted; the GIL guards it

void renumber(PyDictObject* dict) {
  last += kStep;
  dict->_ma_watcher_tag = last | (dict->_ma_watcher_tag & kOtherBits);
}

// Called before the change. Until the change is made, only other watchers could ask for the version.
int changes(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  if (event != PyDict_EVENT_DEALLOCATED) renumber(reinterpret_cast<PyDictObject*>(dict));
  return 0;
}

int ourWatcher() {
  static constinit Lazy<int> watcher;
  return watcher.get([] {
    const int id = PyDict_AddWatcher(&changes);
    PyErr_Clear();
    return id;
  });
}

}  // namespace

// If all watcher slots are taken, each question gets a new version, so no state is ever recognized.
void numberStates(PyDictObject* dict) {
  const int watcher = ourWatcher();
  if (watcher >= 0) {
    watcherBit = uint64_t{1} << watcher;
    PyDict_Watch(watcher, reinterpret_cast<PyObject*>(dict));
    PyErr_Clear();
  }
  renumber(dict);
}

}  // namespace kintsugi::pyapi
