// How long a number may be that is turned into text or read from it (`sys.set_int_max_str_digits()`).
//
// Threads: the GIL is needed. Invalidation: a program may change it at any time.
#pragma once

namespace kintsugi::pyapi {

int maxIntDigits();  // 0: there is no limit

}  // namespace kintsugi::pyapi
