// Strings of the program: names for records, and texts for messages. A Python string need not be UTF-8: names
// of files have lone surrogates for invalid bytes, and names of attributes and keywords may be any string,
// zero bytes in them included. So nothing else asks CPython for the UTF-8 of a string
// (scripts/check_layers.py).
//
//   utf8(name):              a file name with the byte e9 shows it as a backslash and the letters udce9
//   decoded(encoded(name)):  equal to `name`, whatever is in it
//
// Threads: the GIL is needed. Never fails but for want of memory, and leaves a pending exception as it is.
#pragma once

#include <string>
#include <string_view>

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// For messages. What can't be encoded appears as "\udce9". Empty for what is no string.
std::string utf8(PyObject* text);

// To compare with names that are ASCII: the text itself, and nothing if it is another one, or no string.
// Valid as long as `text`; no allocation.
inline std::string_view ascii(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text) || !PyUnicode_IS_ASCII(text)) return {};
  return {static_cast<const char*>(PyUnicode_DATA(text)), static_cast<size_t>(PyUnicode_GET_LENGTH(text))};
}

// A name as the text of a trace: UTF-8 in which lone surrogates are encoded like other characters.
std::string encoded(PyObject* name);
// The interned name that encoded() has made `text` of. Null with a pending exception if it has made none.
Ref<> decoded(std::string_view text);

}  // namespace kintsugi::pyapi
