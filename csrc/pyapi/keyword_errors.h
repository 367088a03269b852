// What `f(a=1, **{'a': 2})` raises.
//
// Threads: the GIL is needed; an error is pending.
#pragma once

namespace kintsugi::pyapi {

// The pending error is a KeyError of a repeated keyword. True if CPython raises a TypeError in its place. Up
// to 3.11 it does not inside a handler, where errors are made into instances at once, which it does not look
// into.
bool rewordsRepeatedKeyword();

}  // namespace kintsugi::pyapi
