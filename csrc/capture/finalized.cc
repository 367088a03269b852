#include "capture/finalized.h"

#include <algorithm>
#include <utility>

#include "capture/calls/model.h"
#include "capture/recorder.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/generator.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

constexpr int kDepth = 3;  // csv.writer(open(...)) holds a method that holds the file
constexpr int kMost = 64;  // objects that are looked at

struct Search {
  int depth = 0;
  int left = kMost;
  bool owned = true;    // nobody else holds what is looked at
  bool found = false;   // a finalizer in C
  bool weak = false;    // a weak reference, or what nobody but one would miss
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
  search.weak =
      search.weak || PyWeakref_Check(object) || (search.owned && !python && isWeaklyReferenced(object));
  if ((pyapi::hasFinalizer(type) && !runs && !python) || (search.owned && hasWeakCallback(object))) {
    search.found = true;
  } else if (search.depth < kDepth && pyapi::isTraversable(object) && PyObject_IS_GC(object)) {
    ++search.depth;
    pyapi::traverse(object, visit, &search);
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

// Exceptions that no handler of the program's has caught and C code has swallowed, as close() does: they hold
// the frames that they have passed.
void forgetSwallowed(RecorderState& state) {
  std::erase_if(state.raised_, [&](const Raised& raised) {
    PyObject* object = raised.exception.get();
    const auto ours = 1 + static_cast<Py_ssize_t>(state.kept_.contains(object)) +
                      static_cast<Py_ssize_t>(state.virtualIds_.contains(object));
    return !raised.caught && Py_REFCNT(object) == ours;
  });
}

}  // namespace

bool Finalized::runsPython(PyObject* object) { return searchFrom(object).python; }

bool Finalized::holdsPython(PyObject* object) {
  Search search;
  const auto visitPart = [](PyObject* part, void* data) {
    auto& parts = *static_cast<Search*>(data);
    if (PyGen_CheckExact(part) && pyapi::hasHandlers(pyapi::codeOf(pyapi::asGenerator(part))))
      parts.python = true;  // it is closed
    return visit(part, data);
  };
  if (!Recorder::isPlain(object) && pyapi::isTraversable(object)) pyapi::traverse(object, visitPart, &search);
  return search.python;
}

void Finalized::add(PyObject* object) {
  const pyapi::PendingErrorScope kept;
  if (pythonMethod(object, "__del__") != nullptr) return;  // see mortals.h
  if (PyExceptionInstance_Check(object) || PyTraceBack_Check(object)) return addTo(exceptions_, object);
  const Search search = searchFrom(object);
  if (search.found) addTo(objects_, object);
  if (search.weak) addTo(weak_, object);
}

void Finalized::addPart(PyObject* object) {
  const pyapi::PendingErrorScope kept;
  PyTypeObject* type = Py_TYPE(object);
  const bool weak = PyWeakref_Check(object) || isWeaklyReferenced(object);
  if ((!pyapi::hasFinalizer(type) && !weak) || Recorder::isPlain(object)) return;
  const bool other = PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object) ||
                     PyGen_Check(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object) ||
                     torchapi::isTensor(object) || pythonMethod(object, "__del__") != nullptr;
  if (!other) addTo(pyapi::hasFinalizer(type) || hasWeakCallback(object) ? objects_ : weak_, object);
}

void Finalized::addTo(std::vector<PyObject*>& list, PyObject* object) {
  if (std::ranges::find(list, object) == list.end()) list.push_back(object);
}

void Finalized::freeDropped(RecorderState& state) {
  const pyapi::PendingErrorScope
      kept;  // the instruction may have raised: what follows asks objects, and lets them go
  if (!state.raised_.empty()) forgetSwallowed(state);
  do {
    state.droppable_.sweepInstances(state);  // methods that are bound to one, objects that hold one
  } while (state.live_ && (freeOne(exceptions_, state) || freeOne(objects_, state) || freeOne(weak_, state)));
}

// The first that nobody but the recorder holds. False: there is none.
bool Finalized::freeOne(const std::vector<PyObject*>& objects, RecorderState& state) {
  for (size_t i = 0; i < objects.size(); ++i) {
    PyObject* object = objects[i];
    if (Py_REFCNT(object) > 1 || !state.kept_.contains(object)) continue;
    for (std::vector<PyObject*>* list : {&exceptions_, &objects_, &weak_}) std::erase(*list, object);
    state.sourceIds_.erase(object);
    std::ranges::replace(state.sourceObjects_, object, nullptr);
    ++state.paused_;
    state.kept_.take(object).reset();
    --state.paused_;
    return true;
  }
  return false;
}

}  // namespace kintsugi::capture
