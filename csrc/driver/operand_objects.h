// The operands of a trace's instructions as Python objects: how traces are described to Python.
//
//   %3 -> ("%", 3)    an integer -> 3    dtype:6 -> torch.float32    [a, b] -> a list
//   $1 -> ("$", 1)    #2 -> ("#", 2)     @4 -> ("@", 4)              null -> ("null", 0)
//
// A tuple is always such a reference. New references; null with a Python exception pending. GIL. No state.
#pragma once

#include <string>

#include "ir/trace.h"
#include "pyapi/ref.h"

namespace kintsugi::driver {

// Which operands there may be: those of the dispatcher's operators, or Python objects ($, #, @, null) as
// well.
enum class Describing { kOperators, kAll };

pyapi::Ref<> operandObject(const ir::Trace& trace, const ir::Operand& operand, Describing what);
pyapi::Ref<> operandObjects(const ir::Trace& trace, std::span<const ir::Operand> operands, Describing what);

// A str; bytes that are no UTF-8 are replaced.
pyapi::Ref<> textObject(std::string_view text);

pyapi::Ref<> numberObject(int64_t value);

// Both take the item. False: it is null, or there is no memory; an exception is pending.
bool appendTo(PyObject* list, pyapi::Ref<> item);
bool setIn(PyObject* dict, const char* key, pyapi::Ref<> value);

// A tuple of all of them; null if one is.
template <typename... Items>
pyapi::Ref<> tupleOf(Items... items) {
  if (!(... && static_cast<bool>(items))) return {};
  return pyapi::steal(PyTuple_Pack(sizeof...(items), items.get()...));
}

// A list of make(item) for each of `items`; null if one is.
template <typename Range, typename Make>
pyapi::Ref<> listOf(const Range& items, const Make& make) {
  pyapi::Ref<> list = pyapi::steal(PyList_New(0));
  for (const auto& item : items) {
    if (!list || !appendTo(list.get(), make(item))) return {};
  }
  return list;
}

}  // namespace kintsugi::driver
