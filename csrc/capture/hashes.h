// Which objects the recorder may hash by itself: a `__hash__` of the program's is called as often as the
// program's own code calls it, so what would need one more call of it is a step, or ends the recording.
//
// Pure functions, GIL held. Example: if (isHashedInPython(key)) return opaqueModel(ctx, result);
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

// True if hashing the object runs Python code of the program's. Tensors have a `__hash__` of torch's, and
// members of an Enum are hashed by their names.
bool isHashedInPython(PyObject* object);

}  // namespace kintsugi::capture
