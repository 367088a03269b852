#include "capture/finalized.h"

#include <algorithm>
#include <utility>

#include "capture/calls/model.h"
#include "capture/recorder.h"

namespace kintsugi::capture {

namespace {

constexpr int kDepth = 3;  // csv.writer(open(...)) holds a method that holds the file
constexpr int kMost = 64;  // objects that are looked at

struct Search {
  int depth = 0;
  int left = kMost;
  bool owned = true;    // nobody else holds what is looked at
  bool found = false;   // a finalizer in C
  bool python = false;  // one in Python, which nobody else keeps from running
};

int visit(PyObject* object, void* data);

void look(PyObject* object, Search& search) {
  PyTypeObject* type = Py_TYPE(object);
  if (search.python || search.left-- <= 0 || PyType_Check(object) || PyModule_Check(object) ||
      PyFunction_Check(object) || torchapi::isTensor(object))
    return;
  const bool runs = PyGen_Check(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object);
  const bool outer = std::exchange(search.owned, search.owned && Py_REFCNT(object) == 1);
  const bool python = pythonMethod(object, "__del__") != nullptr;
  search.python = search.python || (python && search.owned);
  if (type->tp_finalize != nullptr && !runs && !python) {
    search.found = true;
  } else if (search.depth < kDepth && type->tp_traverse != nullptr && PyObject_IS_GC(object)) {
    ++search.depth;
    type->tp_traverse(object, visit, &search);
    --search.depth;
  }
  search.owned = outer;
}

int visit(PyObject* object, void* data) {
  look(object, *static_cast<Search*>(data));
  return 0;
}

Search searchFrom(PyObject* object) {
  Search search;
  if (!Recorder::isPlain(object)) look(object, search);
  return search;
}

}  // namespace

bool Finalized::runsPython(PyObject* object) { return searchFrom(object).python; }

bool Finalized::holdsPython(PyObject* object) {
  Search search;
  const auto visitPart = [](PyObject* part, void* data) {
    auto& parts = *static_cast<Search*>(data);
    if (PyGen_CheckExact(part) &&
        PyBytes_GET_SIZE(reinterpret_cast<PyGenObject*>(part)->gi_code->co_exceptiontable) > 0)
      parts.python = true;  // it is closed
    return visit(part, data);
  };
  if (!Recorder::isPlain(object) && Py_TYPE(object)->tp_traverse != nullptr)
    Py_TYPE(object)->tp_traverse(object, visitPart, &search);
  return search.python;
}

void Finalized::add(PyObject* object) {
  if (pythonMethod(object, "__del__") != nullptr) return;  // see mortals.h
  if (searchFrom(object).found && std::ranges::find(objects_, object) == objects_.end())
    objects_.push_back(object);
}

void Finalized::freeDropped(RecorderState& state) {
  Droppable::sweepInstances(state);  // methods that are bound to one, objects that hold one
  for (size_t i = 0; state.live_ && i < objects_.size();) {
    PyObject* object = objects_[i];
    const auto isObject = [object](const pyapi::Ref<>& kept) { return kept.get() == object; };
    if (Py_REFCNT(object) > std::ranges::count_if(state.kept_, isObject)) {
      ++i;
      continue;
    }
    objects_.erase(objects_.begin() + static_cast<ptrdiff_t>(i));
    state.sourceIds_.erase(object);
    std::ranges::replace(state.sourceObjects_, object, nullptr);
    ++state.paused_;
    std::erase_if(state.kept_, isObject);
    --state.paused_;
    i = 0;
  }
}

}  // namespace kintsugi::capture
