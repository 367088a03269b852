// Text of the core as a Python string.
//
//   row["code"] = strOf(diagnostic.codeInfo().id);
//
// Ownership: the result is a new string. Threads: the GIL is needed. Raises UnicodeDecodeError (as a C++
// exception of nanobind's) if the text is not UTF-8.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace kintsugi::bindings {

// UTF-8.
inline nanobind::str strOf(std::string_view text) { return nanobind::str(text.data(), text.size()); }

}  // namespace kintsugi::bindings
