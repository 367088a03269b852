#include "capture/finalized_objects.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "capture/own_handlers.h"
#include "capture/plain_objects.h"
#include "capture/special_methods.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/exception_state.h"
#include "pyapi/generator.h"
#include "pyapi/known_objects.h"
#include "pyapi/types.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::capture {

namespace {

constexpr int kDepth = 3;  // `csv.writer(open(...))` holds a method that holds the file
constexpr int kMost = 64;  // the number of objects that one search looks at

struct Search {
  int depth = 0;
  int left = kMost;
  Py_ssize_t references = 1;  // to the first object, by who lets go of it
  bool owned = true;          // nobody outside the searched path holds the current object
  bool found = false;         // something has a finalizer in C, or a callback of a weak reference
  bool weak = false;          // a weak reference, or an object that only weak references would miss
  bool python = false;        // a finalizer in Python runs if the object is dropped
};

// Does it hold the memory of another object, which can't be resized or closed before it goes?
bool holdsMemory(PyObject* object) {
  if (PyMemoryView_Check(object)) return true;
  if (!pyapi::isA(object, pyapi::Known::kNumpyArray)) return false;
  const pyapi::Ref<> base = pyapi::steal(PyObject_GetAttrString(object, "base"));
  return base && base.get() != Py_None;
}

int visit(PyObject* object, void* data);

void look(PyObject* object, Search& search) {
  PyTypeObject* type = Py_TYPE(object);
  if (search.python || search.left-- <= 0 || PyType_Check(object) || PyModule_Check(object) ||
      PyFunction_Check(object) || torchapi::isTensor(object))
    return;
  const bool runs = PyGen_Check(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object);
  const bool alone = Py_REFCNT(object) == std::exchange(search.references, 1);
  const bool outer = std::exchange(search.owned, search.owned && alone);
  const bool python = pythonMethod(object, "__del__") != nullptr;
  search.python = search.python || (python && search.owned);
  search.weak =
      search.weak || PyWeakref_Check(object) || (search.owned && !python && isWeaklyReferenced(object));
  if ((pyapi::hasFinalizer(type) && !runs && !python) || (search.owned && hasWeakCallback(object)) ||
      (search.owned && holdsMemory(object))) {
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
  if (!isPlain(object)) look(object, search);
  return search;
}

// What an exception holds by its finished frames, and by those of the exceptions that it replaced.
Search searchPassedFrames(PyObject* exception) {
  std::unordered_map<PyObject*, Py_ssize_t> held;
  constexpr int kChain = 8;
  PyObject* at = exception;
  for (int i = 0; i < kChain && at != nullptr && PyExceptionInstance_Check(at); ++i) {
    const pyapi::ExceptionParts parts = pyapi::partsOf(at);
    pyapi::forEachVariableOfFinishedFrames(parts.traceback, [&](PyObject* object) { ++held[object]; });
    at = parts.context;
  }
  Search all;
  for (const auto& [object, references] : held) {
    if (isPlain(object)) continue;
    Search search;
    search.references = references;
    const bool generator = PyGen_CheckExact(object) && Py_REFCNT(object) == references &&
                           pyapi::stateOf(pyapi::asGenerator(object)) == pyapi::GeneratorState::kSuspended;
    if (generator && !pyapi::closesQuietly(pyapi::asGenerator(object))) all.python = true;
    look(object, search);
    all.found = all.found || search.found;
    all.weak = all.weak || search.weak;
    all.python = all.python || search.python;
  }
  return all;
}

// Has it neither attributes of its own nor items that the trace knows? Then no table but those of identity
// knows it.
bool isBare(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const bool attributes = !pyapi::hasNoInstanceDict(type) || Py_TYPE(type) != &PyType_Type ||
                          PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "__slots__") != 0;
  return !attributes && !isPlain(object) && !torchapi::isTensor(object) && !PyType_Check(object) &&
         !PyList_Check(object) && !PyDict_Check(object) && !PyTuple_Check(object) && !PyAnySet_Check(object);
}

}  // namespace

bool FinalizedObjects::runsPython(PyObject* object) { return searchFrom(object).python; }

bool FinalizedObjects::passedFramesRunPython(PyObject* exception) {
  return searchPassedFrames(exception).python;
}

bool FinalizedObjects::holdsPython(PyObject* object) {
  Search search;
  const auto visitPart = [](PyObject* part, void* data) {
    auto& parts = *static_cast<Search*>(data);
    if (PyGen_CheckExact(part) && hasOwnHandlers(pyapi::codeOf(pyapi::asGenerator(part))))
      parts.python = true;  // dropping it closes it, which runs a handler
    return visit(part, data);
  };
  if (!isPlain(object) && pyapi::isTraversable(object)) pyapi::traverse(object, visitPart, &search);
  return search.python;
}

void FinalizedObjects::add(PyObject* object) {
  const pyapi::PendingErrorScope kept;
  if (pythonMethod(object, "__del__") != nullptr) return;  // see finalizer_tracker.h
  if (PyExceptionInstance_Check(object) || PyTraceBack_Check(object)) {
    const bool exception = PyExceptionInstance_Check(object) != 0;
    const Search passed = exception ? searchPassedFrames(object) : Search();
    if (passed.found || passed.weak) addTo(objects_, object);
    return addTo(exceptions_, object);
  }
  const Search search = searchFrom(object);
  if (search.found) addTo(objects_, object);
  if (search.weak) addTo(weak_, object);
  if (!search.found && !search.weak && isBare(object)) bare_.push_back(object);
}

// Frees those that the program has dropped. Those to which weak references have been made since are looked at
// as such.
void FinalizedObjects::sortBare() {
  std::vector<PyObject*> left;
  for (PyObject* object : std::exchange(bare_, {})) {
    if (!tables_.kept.contains(object)) continue;
    if (isWeaklyReferenced(object)) {
      addTo(hasWeakCallback(object) ? objects_ : weak_, object);
    } else if (Py_REFCNT(object) == 1) {
      free(object);
    } else {
      left.push_back(object);
    }
  }
  bare_.insert(bare_.begin(), left.begin(), left.end());
}

void FinalizedObjects::addPart(PyObject* object) {
  const pyapi::PendingErrorScope kept;
  PyTypeObject* type = Py_TYPE(object);
  const bool weak = PyWeakref_Check(object) || isWeaklyReferenced(object);
  if ((!pyapi::hasFinalizer(type) && !weak) || isPlain(object)) return;
  const bool other = PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object) ||
                     PyGen_Check(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object) ||
                     torchapi::isTensor(object) || pythonMethod(object, "__del__") != nullptr;
  if (!other) addTo(pyapi::hasFinalizer(type) || hasWeakCallback(object) ? objects_ : weak_, object);
}

void FinalizedObjects::addTo(std::vector<PyObject*>& list, PyObject* object) {
  if (std::ranges::find(list, object) == list.end()) list.push_back(object);
}

// Forgets exceptions that no handler of the program's has caught, because C code has swallowed them, as
// close() does with GeneratorExit. They would keep the frames alive that they have passed.
void FinalizedObjects::forgetSwallowed() {
  std::erase_if(tables_.exceptions.raised(), [&](const Raised& raised) {
    PyObject* object = raised.exception.get();
    const auto ours = 1 + static_cast<Py_ssize_t>(tables_.kept.contains(object)) +
                      static_cast<Py_ssize_t>(tables_.virtuals.contains(object));
    return !raised.caught && Py_REFCNT(object) == ours;
  });
}

bool FinalizedObjects::freeDropped() {
  const pyapi::PendingErrorScope
      kept;  // the instruction may have raised: what follows asks objects, and lets them go
  forgetSwallowed();
  bool any = false;
  const auto freeNext = [&] {
    return tables_.breaks.isLive() && (freeOne(exceptions_) || freeOne(objects_) || freeOne(weak_));
  };
  tables_.dead.sweepAll();  // bound methods of such objects, and what else holds them
  for (; freeNext(); any = true) tables_.dead.sweepAll();
  return any;
}

// Frees the first object that only the recorder holds. Returns false if there is none.
bool FinalizedObjects::freeOne(const std::vector<PyObject*>& objects) {
  for (size_t i = 0; i < objects.size(); ++i) {
    PyObject* object = objects[i];
    if (Py_REFCNT(object) > 1 || !tables_.kept.contains(object)) continue;
    for (std::vector<PyObject*>* list : {&exceptions_, &objects_, &weak_}) std::erase(*list, object);
    free(object);
    return true;
  }
  return false;
}

void FinalizedObjects::free(PyObject* object) {
  tables_.sources.forget(object);
  const Paused paused(tables_.pauses);
  tables_.kept.take(object).reset();
}

}  // namespace kintsugi::capture
