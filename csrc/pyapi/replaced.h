// What a write replaces or deletes, and whether code of the program runs when that ends.
//
// An object ends when its last reference goes. Then a `__del__` may run, a callback of a weak reference, or
// the `finally` of a generator that waits; and a weak reference is empty from then on. So is each object that
// only this one holds. All of these are looked at, which costs about what it costs to free them.
//
// Ownership: everything is borrowed. Threads: the GIL is needed; no code of the program runs, and a pending
// exception stays as it is. Example:
//
//   if (endOf(replacedItem(list, index), rules) == End::kRuns) return leave();
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// What is there now, as the generic setter of attributes (of classes, too), or `container[key] = x` for a
// list or dict, would replace it. Null: nothing, or nothing that is known. None of the program's properties,
// `__getitem__`s and
// `__hash__`es is asked.
PyObject* replacedAttribute(PyObject* object, PyObject* name);
PyObject* replacedItem(PyObject* container, PyObject* key);
// The same for all items of `list[slice]`, in the order in which they go.
std::vector<PyObject*> replacedItems(PyObject* list, PyObject* slice);

// What follows when an object loses a reference, the worst of all that ends with it.
enum class End : uint8_t {
  kQuiet,    // nothing that the program can see
  kLibrary,  // a library's own tables lose an entry
  kEmpties,  // a weak reference is empty then
  kRuns,     // code of the program may run
};

// How many references to an object the asker is going to drop along with the one that is replaced.
using OwnReferences = std::function<Py_ssize_t(PyObject*)>;

struct EndRules {
  // Are these the globals of a library whose callbacks of weak references only keep its own tables?
  bool (*isLibrary)(PyObject* globals) = nullptr;
  const OwnReferences& own;
  std::vector<PyObject*>* ending =
      nullptr;  // gets the objects that end then and of which `own` knew; null: not asked
};

// The object (null: none) loses a reference; so does each of several, one after the other.
End endOf(PyObject* object, const EndRules& rules);
End endOf(std::span<PyObject* const> objects, const EndRules& rules);

}  // namespace kintsugi::pyapi
