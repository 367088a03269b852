// Text for Python. GIL: held. Nothing is owned.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace kintsugi::bindings {

// UTF-8.
inline nanobind::str strOf(std::string_view text) { return nanobind::str(text.data(), text.size()); }

}  // namespace kintsugi::bindings
