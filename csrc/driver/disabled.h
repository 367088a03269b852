// Is the calling thread inside a function that kintsugi.disable() covers? Compiled callables run in eager
// mode there, and nothing of it is recorded code. See DisabledScope (driver/compiled_function.h).
#pragma once

namespace kintsugi::driver {

bool isDisabled();

}  // namespace kintsugi::driver
