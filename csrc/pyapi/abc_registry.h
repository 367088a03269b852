// Counts registrations with ABCs (`Sequence.register(Mine)`). An ABC caches its answers, so a class that does
// not match goes on not matching until some class is registered. A class that matches does so for good.
//
// A trace that relies on "does not match" is guarded by the count of registrations, which is part of the
// global state. Counting begins with the first such trace, so processes without one pay nothing.
//
// Threads: the GIL is needed. No pending exception is lost, and none is left.
#pragma once

#include <Python.h>
#include <cstdint>

namespace kintsugi::pyapi {

void watchAbcs();
// The number of registrations since watchAbcs() was first called; 0 before.
uint64_t abcRegistrations();
// Is it Python code that runs when isinstance() or issubclass() asks an ABC of the standard library? It reads
// classes and registrations, and nothing else.
bool asksAbc(PyCodeObject* code);

}  // namespace kintsugi::pyapi
