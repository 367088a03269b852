#include "pyapi/iterator_state.h"

#include <algorithm>
#include <cstring>

#include "pyapi/containers.h"
#include "pyapi/items.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"

namespace kintsugi::pyapi {

namespace {

// The structs are the same in all releases that are supported, but none is exported.

struct DictIterator {
  PyObject_HEAD;
  PyObject* dict;  // null: it has ended
  Py_ssize_t used;
  Py_ssize_t slot;
  PyObject* result;
  Py_ssize_t left;
};

struct SetIterator {
  PyObject_HEAD;
  PyObject* set;  // null: it has ended
  Py_ssize_t used;
  Py_ssize_t slot;
  Py_ssize_t left;
};

struct OrderedIterator {
  PyObject_HEAD;
  int kind;
  PyObject* dict;  // null: it has ended
  Py_ssize_t size;
  size_t state;       // of the dict: another one after each change
  PyObject* current;  // the next key; null: it ends
  PyObject* result;
};

// Its first field says the next number; a huge one is kept elsewhere.
struct Enumeration {
  PyObject_HEAD;
  Py_ssize_t number;
};

struct Deque {
  PyObject_VAR_HEAD;
  void* ends[2];
  Py_ssize_t indices[2];
  size_t state;  // another one after each change
};

struct DequeIterator {
  PyObject_HEAD;
  void* block;
  Py_ssize_t index;
  Deque* deque;
  size_t state;
  Py_ssize_t left;
};

template <typename T>
T* as(PyObject* object) {
  return reinterpret_cast<T*>(object);
}

template <typename T>
bool hasSizeOf(const PyTypeObject* type) {
  return type->tp_basicsize == sizeof(T) && type->tp_itemsize == 0;
}

bool isDictIterator(const PyTypeObject* type) {
  const bool one =
      type == &PyDictIterKey_Type || type == &PyDictIterValue_Type || type == &PyDictIterItem_Type;
  return one && hasSizeOf<DictIterator>(type);
}

bool isSetIterator(const PyTypeObject* type) {
  return type == &PySetIter_Type && hasSizeOf<SetIterator>(type);
}

// Iterators of OrderedDict, where they are laid out like here.
bool isOrderedIterator(const PyTypeObject* type) {
  static constinit Lazy<bool> fitsSlot;
  return type == &PyODictIter_Type && fitsSlot.get([] {
    const Ref<> dict = steal(PyODict_New());
    bool fits = hasSizeOf<OrderedIterator>(&PyODictIter_Type) && dict &&
                PyODict_SetItem(dict.get(), Py_Ellipsis, Py_None) == 0;
    const Ref<> iterator = fits ? steal(PyObject_GetIter(dict.get())) : Ref<>();
    fits = iterator && as<OrderedIterator>(iterator.get())->dict == dict.get() &&
           as<OrderedIterator>(iterator.get())->size == 1 &&
           as<OrderedIterator>(iterator.get())->current == Py_Ellipsis;
    const size_t state = fits ? as<OrderedIterator>(iterator.get())->state : 0;
    fits = fits && PyODict_SetItem(dict.get(), Py_None, Py_None) == 0;
    const Ref<> later = fits ? steal(PyObject_GetIter(dict.get())) : Ref<>();
    PyErr_Clear();
    return later && as<OrderedIterator>(later.get())->state != state;
  });
}

// The type of the iterators of deques. Null: it is laid out in another way than here.
PyTypeObject* dequeIteratorType() {
  static constinit Lazy<PyTypeObject*> foundSlot;
  return foundSlot.get([]() -> PyTypeObject* {
    PyObject* type = known(Known::kDeque);
    Ref<> deque = type != nullptr ? steal(PyObject_CallFunction(type, "s", "ab")) : Ref<>();
    Ref<> iterator = deque ? steal(PyObject_GetIter(deque.get())) : Ref<>();
    Ref<> item = iterator ? steal(PyIter_Next(iterator.get())) : Ref<>();
    bool fits = item && hasSizeOf<DequeIterator>(Py_TYPE(iterator.get())) &&
                Py_TYPE(deque.get())->tp_basicsize >= static_cast<Py_ssize_t>(sizeof(Deque));
    fits = fits && as<DequeIterator>(iterator.get())->deque == as<Deque>(deque.get()) &&
           as<DequeIterator>(iterator.get())->left == 1 &&
           as<DequeIterator>(iterator.get())->state == as<Deque>(deque.get())->state;
    Ref<> changed = fits ? steal(PyObject_CallMethod(deque.get(), "append", "O", Py_None)) : Ref<>();
    fits = changed && as<DequeIterator>(iterator.get())->state != as<Deque>(deque.get())->state;
    PyErr_Clear();
    return fits ? Py_TYPE(iterator.get()) : nullptr;
  });
}

PyTypeObject* asciiIteratorType() {
  static constinit Lazy<PyTypeObject*> foundSlot;
  return foundSlot.get([]() -> PyTypeObject* {
    const Ref<> text = steal(PyUnicode_FromString(""));
    const Ref<> iterator = text ? steal(PyObject_GetIter(text.get())) : Ref<>();
    PyErr_Clear();
    return iterator ? Py_TYPE(iterator.get()) : nullptr;
  });
}

// The iterators of texts are laid out like those of lists.
const SequenceIterator* textIteratorOf(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const bool one = type == &PyUnicodeIter_Type || type == &PyBytesIter_Type || type == asciiIteratorType();
  return one && hasSizeOf<SequenceIterator>(type) ? as<const SequenceIterator>(object) : nullptr;
}

// How many entries of the dict lie in front of the slot.
int64_t entriesBefore(PyObject* dict, Py_ssize_t slot) {
  const auto* table = as<PyDictObject>(dict);
  const bool full = table->ma_values != nullptr || table->ma_keys->dk_nentries == table->ma_used;
  if (full) return std::min(slot, table->ma_used);  // no entry was deleted
  int64_t count = 0;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, nullptr, nullptr) && at <= slot;) ++count;
  return count;
}

int64_t membersBefore(PyObject* set, Py_ssize_t slot) {
  int64_t count = 0;
  PyObject* key = nullptr;
  for (Py_ssize_t at = 0; nextSetItem(set, &at, &key) && at <= slot;) ++count;
  return count;
}

IteratorState ofSequence(const SequenceIterator& real, PyObject* iterator, PyObject* container) {
  IteratorState state;
  state.ended = real.sequence == nullptr;
  state.place = real.index;
  if (state.ended) return state;
  if (Py_TYPE(iterator) == &PyListRevIter_Type) {
    state.backwards = true;
    state.plain = false;
  } else if (Py_TYPE(iterator) == &PyReversed_Type) {
    state.place = PyTuple_GET_SIZE(container) - 1 - real.index;
  } else {
    state.plain = state.place >= 0 && state.place <= PyObject_Size(container);
  }
  return state;
}

IteratorState ofDict(const DictIterator& real) {
  IteratorState state;
  state.ended = real.dict == nullptr;
  if (state.ended) return state;
  const Py_ssize_t size = PyDict_GET_SIZE(real.dict);
  state.expected = real.used;
  state.left = real.left;
  state.place = entriesBefore(real.dict, real.slot);
  state.broken = real.used != size;
  state.plain = !state.broken && state.place + state.left == size;
  return state;
}

IteratorState ofSet(const SetIterator& real) {
  IteratorState state;
  state.ended = real.set == nullptr;
  if (state.ended) return state;
  const auto* set = as<PySetObject>(real.set);
  state.expected = real.used;
  state.left = real.left;
  state.place = membersBefore(real.set, real.slot);  // a set may have been cleared, and filled again, since
  state.broken = real.used != set->used;
  state.plain = !state.broken && state.place + state.left == set->used;
  return state;
}

IteratorState ofDeque(const DequeIterator& real) {
  IteratorState state;
  state.left = real.left;
  state.broken = real.state != real.deque->state;
  state.plain = !state.broken;
  state.place = state.plain ? Py_SIZE(real.deque) - real.left : 0;
  return state;
}

// True if looking an item up runs no code of the program.
bool hasPlainKeys(PyObject* dict) {
  PyObject* key = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, nullptr);) {
    if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) return false;
  }
  return true;
}

// An iterator over an OrderedDict shows the items that are left, or why it has none.
std::optional<IteratorState> ofOrdered(PyObject* iterator) {
  IteratorState state;
  PyObject* dict = as<OrderedIterator>(iterator)->dict;
  state.ended = dict == nullptr;
  if (state.ended) return state;
  if (!PyODict_CheckExact(dict) || !hasPlainKeys(dict)) return std::nullopt;
  if (isOrderedIterator(Py_TYPE(iterator))) state.expected = as<OrderedIterator>(iterator)->size;
  const Ref<> shown = steal(PyObject_CallMethod(iterator, "__reduce__", nullptr));
  if (!shown) {
    PyErr_Clear();
    state.broken = true;
    state.plain = state.movable = false;
    return state;
  }
  state.left = PyList_GET_SIZE(PyTuple_GET_ITEM(PyTuple_GET_ITEM(shown.get(), 1), 0));
  state.ended = state.left == 0;
  state.place = PyODict_SIZE(dict) - state.left;
  return state;
}

std::optional<IteratorState> ofRange(PyObject* iterator, PyObject* range) {
  IteratorState state;
  const Py_ssize_t size = PyRange_Check(range) ? PyObject_Size(range) : -1;
  state.left = size < 0 ? -1 : PyObject_LengthHint(iterator, -1);
  PyErr_Clear();
  if (state.left < 0 || state.left > size) return std::nullopt;
  state.place = size - state.left;
  return state;
}

}  // namespace

std::optional<IteratorState> iteratorState(PyObject* iterator, PyObject* container) {
  PyTypeObject* type = Py_TYPE(iterator);
  const SequenceIterator* sequence = sequenceIteratorOf(iterator);
  if (sequence == nullptr) sequence = textIteratorOf(iterator);
  if (sequence != nullptr) {
    const bool turned = type == &PyReversed_Type;
    const bool same = turned ? PyTuple_Check(container) && sequence->sequence != nullptr &&
                                   PyTuple_Check(sequence->sequence) &&
                                   Py_SIZE(container) == Py_SIZE(sequence->sequence)
                             : sequence->sequence == container;
    if (sequence->sequence != nullptr && !same) return std::nullopt;
    return ofSequence(*sequence, iterator, container);
  }
  if (isDictIterator(type)) return ofDict(*as<DictIterator>(iterator));
  if (isSetIterator(type)) return ofSet(*as<SetIterator>(iterator));
  if (type == &PyODictIter_Type) return ofOrdered(iterator);
  if (type == &PyRangeIter_Type || type == &PyLongRangeIter_Type) return ofRange(iterator, container);
  if (type == dequeIteratorType()) return ofDeque(*as<DequeIterator>(iterator));
  return std::nullopt;
}

bool asksForSize(PyObject* iterator) {
  const PyTypeObject* type = Py_TYPE(iterator);
  return isDictIterator(type) || isSetIterator(type) || isOrderedIterator(type);
}

bool placeIterator(PyObject* iterator, const IteratorState& state) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (sequenceIteratorOf(iterator) != nullptr) {  // not by its __setstate__, which ends at the list's end
    as<SequenceIterator>(iterator)->index = state.place;
    return true;
  }
  if (type == dequeIteratorType()) {
    as<DequeIterator>(iterator)->state = as<DequeIterator>(iterator)->deque->state - 1;
    as<DequeIterator>(iterator)->left = state.left;
    return true;
  }
  if (isOrderedIterator(type) && as<OrderedIterator>(iterator)->size != state.expected) {
    auto* real = as<OrderedIterator>(iterator);
    // Only clear() leaves the state as it was, and an empty dict has probably been cleared.
    if (real->current != nullptr) {
      real->state -= 1;
    } else {
      real->current = Py_NewRef(Py_None);  // one without a next key would end
      real->size = state.expected;
    }
    return true;
  }
  const bool counts = isDictIterator(type) || isSetIterator(type);
  for (int64_t k = 0; k < state.place; ++k) {
    if (counts && PyObject_LengthHint(iterator, 0) == 0) break;  // it would end instead of raising
    const Ref<> skipped = steal(PyIter_Next(iterator));
    if (!skipped) return PyErr_Occurred() == nullptr;
  }
  if (isDictIterator(type)) {
    as<DictIterator>(iterator)->used = state.expected;
    as<DictIterator>(iterator)->left = state.left;
  } else if (isSetIterator(type)) {
    as<SetIterator>(iterator)->used = state.expected;
    as<SetIterator>(iterator)->left = state.left;
  }
  return true;
}

const char* kindOfEnded(PyObject* iterator) {
  const PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyListIter_Type) return "list";
  if (type == &PyTupleIter_Type) return "tuple";
  if (type == &PyListRevIter_Type) return "turned list";
  if (type == &PyReversed_Type) return "turned tuple";
  if (type == &PyDictIterKey_Type) return "keys";
  if (type == &PyDictIterValue_Type) return "values";
  if (type == &PyDictIterItem_Type) return "items";
  if (type == &PyODictIter_Type) return "ordered";
  if (type == &PySetIter_Type) return "set";
  if (type == &PyBytesIter_Type) return "bytes";
  if (type == asciiIteratorType()) return "ascii";
  if (type == &PyUnicodeIter_Type) return "text";
  return nullptr;
}

bool agreesWithHint(PyObject* iterator, PyObject* container, const IteratorState& state) {
  const PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyODictIter_Type) return true;  // it has no hint
  const bool counts = isDictIterator(type) || isSetIterator(type) || type == dequeIteratorType();
  int64_t left = state.left;
  if (state.ended) {
    left = 0;
  } else if (counts) {
    left = state.broken && type != dequeIteratorType() ? 0 : state.left;
  } else if (state.backwards) {
    left = state.place < PyList_GET_SIZE(container) ? state.place + 1 : 0;
  } else {
    left = state.place < 0 ? 0 : std::max<int64_t>(0, PyObject_Size(container) - state.place);
  }
  const Py_ssize_t hint = PyObject_LengthHint(iterator, 0);
  PyErr_Clear();
  return hint == left;
}

bool hasMoved(PyObject* iterator, IteratorWords& words) {
  const PyTypeObject* type = Py_TYPE(iterator);
  const size_t count = std::min(
      (static_cast<size_t>(type->tp_basicsize) - sizeof(PyObject)) / sizeof(uint64_t), words.size() - 1);
  const char* fields = reinterpret_cast<const char*>(iterator) + sizeof(PyObject);
  bool moved = false;
  const auto compare = [&](uint64_t& word, uint64_t now) {
    moved = moved || word != now;
    word = now;
  };
  for (size_t k = 0; k < count; ++k) {
    uint64_t now = 0;
    std::memcpy(&now, fields + k * sizeof(now), sizeof(now));
    compare(words[k], now);
  }
  if (isDictIterator(type) && as<DictIterator>(iterator)->dict != nullptr)
    compare(words.back(), static_cast<uint64_t>(PyDict_GET_SIZE(as<DictIterator>(iterator)->dict)));
  if (isSetIterator(type) && as<SetIterator>(iterator)->set != nullptr)
    compare(words.back(), static_cast<uint64_t>(PySet_GET_SIZE(as<SetIterator>(iterator)->set)));
  if (type == &PyLongRangeIter_Type) {  // its fields are ints; a new one may lie where an old one was
    compare(words.back(), static_cast<uint64_t>(PyObject_LengthHint(iterator, -1)));
    PyErr_Clear();
  }
  return moved;
}

std::optional<int64_t> nextNumber(PyObject* enumerate) {
  if (Py_TYPE(enumerate) != &PyEnum_Type) return std::nullopt;
  const auto* real = as<const Enumeration>(enumerate);
  return real->number != PY_SSIZE_T_MAX ? std::optional<int64_t>(real->number) : std::nullopt;
}

namespace {

bool givesOrder(PyObject* items, PyObject* order) {
  const Ref<> again = steal(PySet_New(items));
  const Ref<> found = again ? steal(PySequence_Tuple(again.get())) : Ref<>();
  if (!found || PyTuple_GET_SIZE(found.get()) != PyTuple_GET_SIZE(order)) return false;
  return std::equal(tupleItems(order), tupleItems(order) + PyTuple_GET_SIZE(order), tupleItems(found.get()));
}

}  // namespace

Ref<> membersAsAdded(PyObject* set) {
  constexpr Py_ssize_t kFew = 4;  // more make a larger table, in which members seldom collide
  const Ref<> order = steal(PySequence_Tuple(set));
  const Py_ssize_t count = order ? PyTuple_GET_SIZE(order.get()) : 0;
  bool found = order && givesOrder(order.get(), order.get());
  if (found || count == 0 || count > kFew) return found ? order.clone() : Ref<>();
  std::array<Py_ssize_t, kFew> at{0, 1, 2, 3};
  Ref<> items;
  while (!found && std::next_permutation(at.begin(), at.begin() + count)) {
    items = steal(PyTuple_New(count));
    for (Py_ssize_t i = 0; items && i < count; ++i)
      PyTuple_SET_ITEM(items.get(), i, Py_NewRef(PyTuple_GET_ITEM(order.get(), at[static_cast<size_t>(i)])));
    found = items && givesOrder(items.get(), order.get());
  }
  PyErr_Clear();
  return found ? std::move(items) : Ref<>();
}

}  // namespace kintsugi::pyapi
