#include "capture/dead_objects.h"

#include <algorithm>
#include <initializer_list>

#include "capture/finalized_objects.h"
#include "capture/own_handlers.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/generator.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

constexpr size_t kNewest = 16;
constexpr size_t kMany = 32;

// Dropping an object of these kinds runs no code of the program, other than finalizers of what only it holds.
constexpr uint32_t maskOf(std::initializer_list<VirtualKind> kinds) {
  uint32_t mask = 0;
  for (const VirtualKind kind : kinds) mask |= 1u << static_cast<uint32_t>(kind);
  return mask;
}
constexpr uint32_t kQuietKinds = maskOf(
    {VirtualKind::kTuple, VirtualKind::kList, VirtualKind::kDict, VirtualKind::kCell, VirtualKind::kFunction,
     VirtualKind::kMethod, VirtualKind::kIterator, VirtualKind::kDictView, VirtualKind::kSlice,
     VirtualKind::kZip, VirtualKind::kEnumerate, VirtualKind::kMap, VirtualKind::kRange, VirtualKind::kDeque,
     VirtualKind::kGenerator, VirtualKind::kInstance, VirtualKind::kException, VirtualKind::kTraceback});

// How many references `holder` has to `part`.
Py_ssize_t timesHeld(PyObject* holder, PyObject* part) {
  struct Count {
    PyObject* part;
    Py_ssize_t times = 0;
  } count{part};
  const auto visit = [](PyObject* held, void* data) {
    auto& counted = *static_cast<Count*>(data);
    counted.times += held == counted.part ? 1 : 0;
    return 0;
  };
  pyapi::traverse(holder, visit, &count);
  return count.times;
}

// True if closing the generator runs no code: it has no handlers, it does not delegate to a generator that
// somebody else holds and would see closed, and what it holds has no finalizer in Python.
bool isQuietGenerator(PyObject* object) {
  if (!PyGen_CheckExact(object)) return false;
  auto* generator = pyapi::asGenerator(object);
  if (hasOwnHandlers(pyapi::codeOf(generator))) return false;
  PyObject* inner = pyapi::delegatesTo(generator);
  const auto hasOtherOwner = [&] {
    return Py_REFCNT(inner) > timesHeld(object, inner) + 1;
  };  // one more reference is the recorder's
  if (inner != nullptr && (hasOtherOwner() || !isQuietGenerator(inner))) return false;
  return !FinalizedObjects::holdsPython(object);
}

bool hasFinalizer(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return pyapi::hasAnyFinalizer(type) && !isQuietGenerator(object);
}

bool mayBeDropped(const Virtual& v) {
  return (kQuietKinds >> static_cast<uint32_t>(v.kind) & 1) != 0 && v.object && !v.shared;
}

}  // namespace

bool isWeaklyReferenced(PyObject* object) {
  return pyapi::isWeaklyReferenceable(object) && *PyObject_GET_WEAKREFS_LISTPTR(object) != nullptr;
}

bool hasWeakCallback(PyObject* object) {
  if (!isWeaklyReferenced(object)) return false;
  auto* reference = reinterpret_cast<PyWeakReference*>(*PyObject_GET_WEAKREFS_LISTPTR(object));
  while (reference != nullptr && reference->wr_callback == nullptr) reference = reference->wr_next;
  return reference != nullptr;
}

void DeadObjects::drop(Virtual& v) {
  v.parts.clear();
  v.partObjects.clear();
  v.attrs.reset();
  v.entries.reset();
  v.frame.reset();
  const Paused paused(pauses_);
  virtuals_.dropObject(v);
}

void DeadObjects::sweep() {
  const pyapi::PendingErrorScope kept;  // of a frame that an exception leaves; generators are closed here
  if (ids_.size() > 2 * left_ + kMany) {
    sweepFrom(0);
    left_ = ids_.size();
  } else {
    sweepFrom(ids_.size() - std::min(ids_.size(), kNewest));
  }
}

void DeadObjects::sweepAll() {
  const auto mayGo = [this](uint32_t id) { return mayBeDropped(virtuals_.at(id)); };
  for (size_t i = live_.size(); i-- > 0;) {
    Virtual& v = virtuals_.at(live_[i]);
    if (!mayGo(live_[i])) {
      continue;
    }
    PyObject* object = v.object.get();
    if (Py_REFCNT(object) == 1 && !hasFinalizer(object) && !isWeaklyReferenced(object)) {
      drop(v);
    }
  }
  std::erase_if(live_, [&](uint32_t id) { return !mayGo(id); });
}

// Goes from the newest to the oldest, since newer objects hold older ones.
void DeadObjects::sweepFrom(size_t first) {
  for (size_t i = ids_.size(); i-- > first;) {
    Virtual& v = virtuals_.at(ids_[i]);
    if (mayBeDropped(v)) {
      PyObject* object = v.object.get();
      if (Py_REFCNT(object) > 1) {
        continue;  // true for most objects, so this is asked first
      }
      if (!hasFinalizer(object) && !isWeaklyReferenced(object)) {
        drop(v);
      }
    }
    ids_.erase(ids_.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace kintsugi::capture
