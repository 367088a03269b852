// Objects: iteration.
#include <algorithm>

#include "capture/call_context.h"
#include "capture/objects.h"

#include "capture/foreign.h"
#include "capture/hashes.h"
#include "pyapi/items.h"
#include "pyapi/iterator_state.h"
#include "pyapi/types.h"
#include "support/verification.h"

namespace kintsugi::capture {

using ir::Op;

namespace {

// A longer range is iterated over item by item, as an object that is not known.
constexpr Py_ssize_t kLongestRange = Py_ssize_t{1} << 24;

bool isTooLong(PyObject* range) {
  const Py_ssize_t count = PyObject_Size(range);  // -1: it does not fit
  PyErr_Clear();
  return count < 0 || count > kLongestRange;
}

}  // namespace

// The shadows of all items that iterating over the object would give; nothing is consumed. Nothing: not
// known.
std::optional<Shadows> Objects::iterated(Shadow shadow, PyObject* object) {
  if (PyTuple_Check(object) || PyList_Check(object)) return elementsOf(shadow, object);
  if (PyRange_Check(object) && isTooLong(object)) return std::nullopt;
  if (shadow.isConst() && roles_.containers.isFrozen(object) && PyObject_Size(object) >= 0) {
    return Shadows(static_cast<size_t>(PyObject_Size(object)), Shadow::constant());
  }
  PyErr_Clear();
  if (PyRange_Check(object) || PyUnicode_CheckExact(object) || PyBytes_CheckExact(object)) {
    if (!roles_.guards.pin(shadow, object)) return std::nullopt;
    return Shadows(static_cast<size_t>(PyObject_Size(object)), Shadow::constant());
  }
  if (PyDict_Check(object) && plainDict(object)) return dictParts(shadow, object, 0);
  if (PyAnySet_CheckExact(object) && orderIsKnown(shadow, object)) {
    if (!roles_.containers.pinContainer(shadow, object)) return std::nullopt;
    return Shadows(PySet_GET_SIZE(object), Shadow::constant());
  }
  if (!shadow.isVirtual()) return std::nullopt;
  Virtual& v = virtualOf(shadow);
  if (v.kind == VirtualKind::kDeque) return v.parts;
  if (v.kind == VirtualKind::kDictView) return dictParts(v.parts[0], v.partObjects[0].get(), v.index);
  if (v.kind == VirtualKind::kIterator) return itemsLeft(v);
  return std::nullopt;
}

bool Objects::orderIsKnown(Shadow shadow, PyObject* set) {
  if (shadow.isVirtual() && !virtualOf(shadow).parts.empty()) return false;
  if (PySet_GET_SIZE(set) < 2) return true;
  facts_.bound = "the order of a set is part of it";  // hashes of strings differ from process to process
  return shadow.isConst() || (shadow.isVirtual() && virtualOf(shadow).kind == VirtualKind::kSet);
}

namespace {

// Ends the recording where an entry can only be named by hashing its key in Python code of the program's.
bool canName(BreakSink& breaks, PyObject* key) {
  if (!isHashedInPython(key)) return true;
  breaks.abort(diag::Code::KTG0102, {"__hash__"});
  return false;
}

}  // namespace

// `what`: 0 keys, 1 values, 2 items
std::optional<Shadows> Objects::dictParts(Shadow shadow, PyObject* dict, int64_t what) {
  if (!roles_.containers.pinKeys(shadow, dict)) return std::nullopt;
  Shadows parts;
  pyapi::Ref<> keys =
      pyapi::steal(PySequence_List(dict));  // in the order of iteration, OrderedDict's own included
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
    if (what == 0) {  // not looked up: that may call Python code
      parts.push_back(Shadow::constant());
      continue;
    }
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    if (!canName(roles_.breaks, key)) return std::nullopt;
    PyObject* value = PyDict_GetItemWithError(dict, key);
    if (value == nullptr) return std::nullopt;
    parts.push_back(dictEntry(shadow, dict, key, value));
    if (!roles_.breaks.isLive()) return std::nullopt;
  }
  return parts;
}

namespace {

// Where the real iterator is. Nothing: it is of another kind, or is being restored; then it is where its
// items were taken.
std::optional<pyapi::IteratorState> stateOf(const Virtual& v) {
  if (v.partObjects.empty()) return std::nullopt;
  return pyapi::iteratorState(v.object.get(), v.partObjects[0].get());
}

// True if the list or tuple has the item at that place.
bool hasAt(PyObject* container, int64_t at, PyObject* item) {
  return at >= 0 && at < Py_SIZE(container) && PySequence_Fast_ITEMS(container)[at] == item;
}

}  // namespace

// Describes `iterator`, which was just made for iterating over `object`.
Shadow Objects::newIterator(PyObject* iterator, Shadow shadow, PyObject* object, bool sized) {
  Shadow result = newVirtual(VirtualKind::kIterator, iterator);
  Virtual& v = virtualOf(result);
  v.parts = {shadow};
  v.partObjects.push_back(pyapi::newRef(object));
  v.sized = sized;
  if (const auto state = stateOf(v)) v.index = state->place;
  return result;
}

// The shadows of the items that an iterator has still to give. Nothing: not known, or it is going to raise.
std::optional<Shadows> Objects::itemsLeft(const Virtual& v) {
  const auto state = stateOf(v);
  if (state && state->ended) return Shadows{};
  if (state && state->broken) return std::nullopt;
  const int64_t place = state ? state->place : v.index;
  auto all = iterated(v.parts[0], v.partObjects[0].get());
  if (!all) return std::nullopt;
  const auto size = static_cast<int64_t>(all->size());
  if (state && state->backwards) {  // it ends at once where the list has become too short
    all->resize(place >= 0 && place < size ? static_cast<size_t>(place) + 1 : 0);
    std::reverse(all->begin(), all->end());
    return all;
  }
  if (place < 0) return Shadows{};
  if (place > size) {  // of a list that has become shorter
    const bool ends = state && pyapi::sequenceIteratorOf(v.object.get()) != nullptr;
    return ends ? std::optional(Shadows{}) : std::nullopt;
  }
  if (state && !state->plain) return std::nullopt;
  all->erase(all->begin(), all->begin() + place);
  return all;
}

// Takes over where the real iterator is, which has changed. One that has ended has dropped its container,
// which may grow again, but is not read.
void Objects::follow(Virtual& v) {
  if (v.kind == VirtualKind::kEnumerate) {
    const auto number = pyapi::nextNumber(v.object.get());
    if (!number || *number == v.index) return;
    v.index = *number;
    return noteChange(v);
  }
  const auto state = stateOf(v);
  if (!state) return;
  if (verifying()) {
    KINTSUGI_CHECK(pyapi::agreesWithHint(v.object.get(), v.partObjects[0].get(), *state), "an iterator (",
                   pyapi::typeNameOf(v.object.get()), ") says something else than that it is at ",
                   state->place, state->ended ? ", ended" : "");
  }
  if (state->plain && !state->ended && state->place == v.index) return;  // advance() has noted it
  noteChange(v);
  v.index = state->place;
  if (!state->ended) return;
  v.parts = {Shadow::constant()};
  v.partObjects[0] = pyapi::newRef(Py_None);
}

// Finds the iterators that were moved on since the last instruction, also by C code alone: zip() takes an
// item of its first iterator before it finds that the second one has none left.
void Objects::syncIterators() {
  std::erase_if(virtuals_.iterators(), [&](VirtualTable::Followed& followed) {
    Virtual& v = virtuals_.at(followed.id);
    const bool follows = v.kind == VirtualKind::kIterator || v.kind == VirtualKind::kEnumerate;
    if (!follows || !v.object || Py_REFCNT(v.object.get()) == 1) return true;
    if (v.partObjects.empty()) return false;
    if (!pyapi::hasMoved(v.object.get(), followed.words)) return false;
    follow(v);
    return v.partObjects[0].get() == Py_None;
  });
}

// The items that one instruction takes are counted from where the iterator was when it began: zip(i, i) takes
// two. Where another one was given, C code has moved the iterator on in between.
std::optional<Shadow> Objects::advanceSequence(Virtual& v, PyObject* container, PyObject* item) {
  const int64_t step = Py_TYPE(v.object.get()) == &PyListRevIter_Type ? -1 : 1;
  int64_t at = v.index;
  if (!hasAt(container, at, item)) {
    const auto state = stateOf(v);
    if (!state || !hasAt(container, state->place - step, item)) return std::nullopt;
    at = state->place - step;
  }
  v.index = at + step;
  return elementOf(v.parts[0], container, at);
}

// The iterator has given `item` and moves on. Returns the shadow of the item.
std::optional<Shadow> Objects::advance(Shadow iterator, PyObject* item) {
  if (!iterator.isVirtual()) return std::nullopt;
  Virtual& v = virtualOf(iterator);
  v.kind == VirtualKind::kMap ? noteChange() : noteChange(v);
  switch (v.kind) {
    case VirtualKind::kIterator: {
      PyObject* container = v.partObjects[0].get();
      if (PyTuple_Check(container) || PyList_Check(container)) return advanceSequence(v, container, item);
      const int64_t at = v.index++;
      if (PyDict_Check(container)) return Shadow::constant();
      if (v.parts[0].isVirtual() && virtualOf(v.parts[0]).kind == VirtualKind::kDeque) {
        const Shadows& parts = virtualOf(v.parts[0]).parts;
        return static_cast<size_t>(at) < parts.size() ? std::optional(parts[static_cast<size_t>(at)])
                                                      : std::nullopt;
      }
      if (v.parts[0].isConst() && roles_.containers.isFrozen(container))
        return roles_.frozen.frozenPart(item);
      if (v.parts[0].isVirtual() && virtualOf(v.parts[0]).kind == VirtualKind::kDictView) {
        return advanceView(v.parts[0], at, item);
      }
      return Shadow::constant();
    }
    case VirtualKind::kEnumerate: {
      if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) return std::nullopt;
      ++v.index;
      PyObject* inner = PyTuple_GET_ITEM(item, 1);
      auto part = advance(v.parts[0], inner);
      if (!part) return std::nullopt;
      return tupleOf(item, {Shadow::constant(), *part});
    }
    case VirtualKind::kZip: {
      Shadows inner = v.parts;
      Shadows parts;
      if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != static_cast<Py_ssize_t>(inner.size()))
        return std::nullopt;
      for (size_t i = 0; i < inner.size(); ++i) {
        auto part = advance(inner[i], PyTuple_GET_ITEM(item, i));
        if (!part) return std::nullopt;
        parts.push_back(*part);
      }
      return tupleOf(item, std::move(parts));
    }
    case VirtualKind::kMap:
    case VirtualKind::kGenerator:
      return roles_.frames.returned();
    default:
      return std::nullopt;
  }
}

std::optional<Shadow> Objects::advanceView(Shadow view, int64_t at, PyObject* item) {
  Virtual& v = virtualOf(view);
  PyObject* dict = v.partObjects[0].get();
  pyapi::Ref<> keys = pyapi::steal(PySequence_List(dict));
  if (!keys || at >= PyList_GET_SIZE(keys.get())) return std::nullopt;
  if (v.index == 0) return Shadow::constant();
  PyObject* key = PyList_GET_ITEM(keys.get(), at);
  if (!canName(roles_.breaks, key)) return std::nullopt;
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr) return std::nullopt;
  Shadow entry = dictEntry(v.parts[0], dict, key, value);
  if (v.index == 1) return entry;
  return tupleOf(item, {Shadow::constant(), entry});
}

// How many items the iterator gives was pinned when it was made. Behind code that may change its container
// that is pinned again. Of one that is going to raise the size is pinned that makes it do so; one that has
// ended asks for nothing.
bool Objects::pinAgain(Virtual& v) {
  v.unpinned = false;
  PyObject* container = v.partObjects[0].get();
  const auto state = stateOf(v);
  const bool broken = state && state->broken;
  if (container == Py_None || (state && state->ended)) return true;
  if (broken && !(v.sized && pyapi::asksForSize(v.object.get()))) return true;
  Shadow shadow = current(v.parts[0]);
  if (shadow.isVirtual() && virtualOf(shadow).kind == VirtualKind::kDictView) {
    container = virtualOf(shadow).partObjects[0].get();
    shadow = current(virtualOf(shadow).parts[0]);
  }
  if (!shadow.isSource()) return true;
  if (broken && state->expected == PyObject_Size(container)) {  // its keys have changed, which no guard says
    roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
    return false;
  }
  const bool pinned = PyList_Check(container) || broken ? roles_.containers.pinLength(shadow, container)
                      : PyDict_Check(container)         ? roles_.containers.pinKeys(shadow, container)
                      : PyAnySet_CheckExact(container)  ? roles_.containers.pinContainer(shadow, container)
                                                        : true;
  if (!pinned && roles_.breaks.isLive())
    roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
  return pinned;
}

// Makes sure that the iterator will give as many items in each run, and announces the frame that the next
// item may need.
bool Objects::prepareNext(Shadow iterator, CallSite site) {
  if (!iterator.isVirtual()) {
    roles_.breaks.abort(diag::Code::KTG0101, {"an iterator that is older than the trace"});
    return false;
  }
  Virtual& v = virtualOf(iterator);
  switch (v.kind) {
    case VirtualKind::kIterator: {
      if (v.unpinned && !pinAgain(v)) return false;
      PyObject* container = v.partObjects[0].get();
      const bool items = PyTuple_Check(container) || PyList_Check(container);
      const auto state = items ? stateOf(v) : std::nullopt;
      const int64_t at = state ? state->place : v.index;
      // This may need an instruction of the trace, which has to come before the current one is executed.
      if (items && at >= 0 && at < static_cast<int64_t>(Py_SIZE(container)) &&
          torchapi::isTensor(PySequence_Fast_ITEMS(container)[at]))
        elementOf(v.parts[0], container, at);
      return roles_.breaks.isLive();
    }
    case VirtualKind::kEnumerate:
      return prepareNext(v.parts[0]);
    case VirtualKind::kZip:
      for (size_t i = 0, generators = 0; i < v.parts.size(); ++i) {
        Shadow part = v.parts[i];
        VirtualKind kind = part.isVirtual() ? virtualOf(part).kind : VirtualKind::kOpaque;
        if (kind == VirtualKind::kGenerator) ++generators;
        bool simple = kind == VirtualKind::kIterator || kind == VirtualKind::kEnumerate ||
                      (kind == VirtualKind::kGenerator && generators == 1);
        if (!simple || !prepareNext(part)) {
          roles_.breaks.abort(diag::Code::KTG0101, {"zip"});
          return false;
        }
      }
      return roles_.breaks.isLive();
    case VirtualKind::kGenerator: {
      PendingFrame pending;
      pending.generator = &v;
      pending.rebuildable = site.instr != nullptr;
      pending.site = std::move(site);
      roles_.frames.expectFrame(std::move(pending));
      return true;
    }
    default:
      roles_.breaks.abort(diag::Code::KTG0101, {pyapi::typeNameOf(v.object.get())});
      return false;
  }
}

// The shadow of one item. For dict items, iterated() gives the values' shadows; here the pair is described.
Shadow Objects::itemOf(Shadow iterable, Shadow part, PyObject* item) {
  return iterable.isVirtual() && isItemsView(iterable) ? tupleOf(item, {Shadow::constant(), part}) : part;
}

bool Objects::exhausted(Shadow iterator) {
  if (!iterator.isVirtual()) return false;
  Virtual& v = virtualOf(iterator);
  if (v.kind == VirtualKind::kEnumerate) return exhausted(v.parts[0]);
  if (v.kind == VirtualKind::kZip) {
    for (Shadow part : Shadows(v.parts)) {
      if (exhausted(part)) return true;
    }
    return v.parts.empty();
  }
  if (v.kind != VirtualKind::kIterator) return false;
  auto left = iterated(iterator, v.object.get());
  return left && left->empty();
}

bool Objects::isItemsView(Shadow shadow) {
  Virtual& v = virtualOf(shadow);
  if (v.kind == VirtualKind::kDictView) return v.index == 2;
  return v.kind == VirtualKind::kIterator && v.parts[0].isVirtual() && isItemsView(v.parts[0]);
}

}  // namespace kintsugi::capture
