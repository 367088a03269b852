// Read-only views of mappings (`types.MappingProxyType`): the mapping behind one.
//
// A proxy keeps its mapping for life, and hands its methods' calls on to it. So what a program reads through
// a proxy is guarded at the mapping itself.
//
// Threads: the GIL is needed. Example: mappingBehind(inspect.signature(f).parameters) is the ordered dict.
#pragma once

#include <Python.h>

namespace kintsugi::pyapi {

// Borrowed from the proxy. Null if the object is no proxy.
PyObject* mappingBehind(PyObject* proxy);

// A member descriptor for the mapping behind a proxy; borrowed, never freed. Null: an exception is pending.
PyObject* mappingField();

}  // namespace kintsugi::pyapi
