// Where the iterators of builtin containers are, and how a new one is put where another one is.
//
// The real iterator says how far it is, whoever has moved it on. What the structs say that CPython keeps to
// itself is asked here alone; agreesWithHint() compares it with what the iterator says of itself.
//
// Ownership: nothing is held. Threads: the GIL is needed; no code of the program runs. Example:
//
//   if (const auto state = iteratorState(iterator, container)) ... state->place
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "pyapi/ref.h"
#include "pyapi/version.h"

namespace kintsugi::pyapi {

struct IteratorState {
  bool ended = false;      // it has dropped its container, or never reads it again
  bool backwards = false;  // it runs over its list from the end
  bool broken = false;     // the container has changed, so asking for the next item raises
  bool plain = true;       // a new iterator that has given `place` items is the same
  bool movable = true;     // placeIterator() can make such a one
  // Of the next item in the container as it is now: so many items lie before it. May lie behind its end, and
  // in front of its start, where iterators find nothing.
  int64_t place = 0;
  int64_t left = 0;      // of dicts, sets and deques: how many items it counts on
  int64_t expected = 0;  // of dicts and sets: the size that it asks of its container; -1: it raises for good
};

// Nothing: the object is no iterator of a known kind. `container` is what it was made for; for a reversed
// tuple or range a turned copy of that.
std::optional<IteratorState> iteratorState(PyObject* iterator, PyObject* container);

// True for those of dicts, OrderedDicts and sets, which raise where their container has another size than it
// had.
bool asksForSize(PyObject* iterator);

// Puts an iterator that was just made of a container where another one is. False: an exception is pending.
bool placeIterator(PyObject* iterator, const IteratorState& state);

// The name by which the polyfill `ended` makes an iterator of the same type that has ended. Null: not known.
const char* kindOfEnded(PyObject* iterator);

// False: the iterator says another number of items than its state does.
bool agreesWithHint(PyObject* iterator, PyObject* container, const IteratorState& state);

// What has changed when an iterator of C code is somewhere else: the words behind its head, and the size of
// its dict or set, or how many numbers of a long range are left.
using IteratorWords = std::array<uint64_t, 7>;
// Compares `words` with what they are now, and makes them so. A recording asks it some ten thousand times.
bool hasMoved(PyObject* iterator, IteratorWords& words);

// The number that an enumerate() gives next; nothing if it is none, or a huge one.
std::optional<int64_t> nextNumber(PyObject* enumerate);

// The members of a set as a tuple, such that a new set to which they are added in turn has the order of this
// one. Null: not found. Hashes the members.
Ref<> membersAsAdded(PyObject* set);

// In the place of a number of items in a recipe: three numbers behind the arguments (place, left, expected)
// say where the iterator is.
constexpr int64_t kPlaced = -1;

}  // namespace kintsugi::pyapi
