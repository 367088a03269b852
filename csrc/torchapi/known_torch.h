// torch's objects and code that are recognized by identity: the tables of this layer for
// pyapi/known_objects.h.
//
// A row is a class, function or module of torch's (known_objects.def), or its code (known_code.def).
// tests/python/test_known_objects.py fails for each row that a version of torch lacks.
//
// Example: `pyapi::isA(object, torchapi::Known::kTensor)`,
// `pyapi::isKnownCode(code, torchapi::CodeFamily::kOptimizers)`, `isTorchCode(code, globals)`.
//
// Ownership: as pyapi/known_objects.h. Threads: the GIL is needed. No pending exception is lost, and none is
// left.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pyapi/known_objects.h"

namespace kintsugi::torchapi {

enum class Known : uint8_t {
#define KTG_KNOWN(member, path, there) member,
#include "torchapi/known_objects.def"
#undef KTG_KNOWN
  kCount,
};

enum class CodeFamily : uint8_t {
  kAnswersCompiling = static_cast<uint8_t>(pyapi::CodeFamily::kCount),
  kHigherOrder,
  kCondCall,
  kWhileLoopCall,
  kMapCall,
  kScanCall,
  kFlexCall,
  kFlexAttention,
  kEmptyBlockMask,
  kCountsModules,
  kOptimizers,
  kOwnFrameDisabled,
  kMovesParameters,
  kTransforms,
  kSwitchesHooks,
  kWholeTransforms,
  kCount,
};

namespace detail {
extern PyObject* knownObjects[static_cast<size_t>(Known::kCount)];
}  // namespace detail
inline PyObject** foundObjects(Known) { return detail::knownObjects; }
pyapi::KnownTable& tableOf(Known);

// Registers the tables, finds the objects of all tables that have to be known at start, and tells
// pyapi/plain.h which types of torch's are plain. Called once, when the extension is loaded.
void findKnownObjects();

// True if the code was made by a module of torch's own package, and these are the module's globals.
bool isTorchCode(const PyCodeObject* code, PyObject* globals);
// True if these are the globals of a module of torch's own package.
bool isTorchModule(PyObject* globals);

}  // namespace kintsugi::torchapi
