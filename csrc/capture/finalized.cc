// Recorder: what steps gave and does something when it goes: a file that is written out and closed, a socket.
//
// The recorder keeps what a step gave for as long as it records, because objects are told apart by their
// address. One with a finalizer in C, or that holds such a one, is freed where the program has dropped it:
// between two instructions, as soon as nobody but the recorder holds it. Its source is forgotten then. A
// replay needs nothing for it: a value dies behind the last instruction or snapshot that names it.
#include <algorithm>

#include "capture/calls/model.h"
#include "capture/paused.h"
#include "capture/recorder.h"

namespace kintsugi::capture {

namespace {

constexpr int kDepth = 3;  // csv.writer(open(...)) holds a method that holds the file
constexpr int kMost = 64;  // objects that are looked at

struct Search {
  int depth = 0;
  int left = kMost;
  bool found = false;
};

int visit(PyObject* object, void* data);

void look(PyObject* object, Search& search) {
  PyTypeObject* type = Py_TYPE(object);
  if (search.found || search.left-- <= 0 || PyType_Check(object) || PyModule_Check(object) ||
      PyFunction_Check(object) || torchapi::isTensor(object))
    return;
  const bool runs = PyGen_Check(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object);
  if (type->tp_finalize != nullptr && !runs && pythonMethod(object, "__del__") == nullptr) {
    search.found = true;
  } else if (search.depth < kDepth && type->tp_traverse != nullptr && PyObject_IS_GC(object)) {
    ++search.depth;
    type->tp_traverse(object, visit, &search);
    --search.depth;
  }
}

int visit(PyObject* object, void* data) {
  look(object, *static_cast<Search*>(data));
  return 0;
}

}  // namespace

void Recorder::keepFinalized(PyObject* object) {
  if (isPlain(object) || torchapi::isTensor(object)) return;
  Search search;
  look(object, search);
  if (search.found && std::ranges::find(finalized_, object) == finalized_.end()) finalized_.push_back(object);
}

void Recorder::freeDropped() {
  droppable_.sweep(*this);  // methods that are bound to one
  for (size_t i = 0; live_ && i < finalized_.size();) {
    PyObject* object = finalized_[i];
    const auto own = std::ranges::count_if(kept_, [&](const auto& kept) { return kept.get() == object; });
    if (Py_REFCNT(object) > own) {
      ++i;
      continue;
    }
    finalized_.erase(finalized_.begin() + static_cast<ptrdiff_t>(i));
    sourceIds_.erase(object);
    std::ranges::replace(sourceObjects_, object, nullptr);
    Paused paused(*this);
    std::erase_if(kept_, [&](const auto& kept) { return kept.get() == object; });
    i = 0;
  }
}

}  // namespace kintsugi::capture
