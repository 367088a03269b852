// Well-known objects of other libraries, recognized by identity.
//
// Nothing may be guarded, skipped or taken as known because of its name: a program may call a class
// `collections.deque`, or keep its code in a folder `torch/`. So every class, function and module that the
// recorder treats specially has a row in known_objects.def, and code in known_code.def. Rows are looked up
// once, at start or when their module has been imported. After that they are compared as pointers.
//
// Example: `isA(object, Known::kDeque)`, `isKnownCode(code, CodeFamily::kOptimizers)`.
//
// Ownership: found objects are never freed, so that no other object can have their addresses; results are
// borrowed. Threads: the GIL is needed. No pending exception is lost, and none is left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

enum class Known : uint8_t {
#define KTG_KNOWN(member, path, there) member,
#include "pyapi/known_objects.def"
#undef KTG_KNOWN
  kCount,
};

enum class CodeFamily : uint8_t {
  kWeakCallback,
  kAnswersCompiling,
  kCountsModules,
  kOptimizers,
  kOwnFrameDisabled,
  kMovesParameters,
  kSaysRecording,
  kBreaksGraph,
  kForcesStatic,
  kAssertsStatic,
  kHigherOrder,
  kCondCall,
  kWhileLoopCall,
  kMapCall,
  kScanCall,
  kFlexCall,
  kFlexAttention,
  kEmptyBlockMask,
  kIndexesByTensors,
  kTransforms,
  kContextManagers,
  kWholeTransforms,
  kSwitchesHooks,
  kQuietHandlers,
  kOpensRegion,
  kClosesRegion,
  kPolyfills,
  kKeyTakers,
  kCount,
};

namespace detail {
extern PyObject* knownObjects[static_cast<size_t>(Known::kCount)];
PyObject* findKnown(Known which);
}  // namespace detail

// Null: the module has not been imported (or the row is wrong, which a test finds).
inline PyObject* known(Known which) {
  PyObject* found = detail::knownObjects[static_cast<size_t>(which)];
  return found != nullptr ? found : detail::findKnown(which);
}
inline PyTypeObject* knownType(Known which) { return reinterpret_cast<PyTypeObject*>(known(which)); }

inline bool isKnown(const void* object, Known which) { return object == known(which) && object != nullptr; }
// True if the object is of exactly this class.
inline bool isA(PyObject* object, Known which) { return isKnown(Py_TYPE(object), which); }

bool isKnownCode(const PyCodeObject* code, CodeFamily family);

// True if the code was made by a module of torch's own package, and these are the module's globals.
bool isTorchCode(const PyCodeObject* code, PyObject* globals);

// True if these are the globals of a module of torch's own package.
bool isTorchModule(PyObject* globals);

// Reads "attribute.attribute" from `object`, without descriptors, and without Python code if the object is a
// class or a module. Null: there is none.
PyObject* attributeOf(PyObject* object, const char* path);  // owned

// Finds the objects that have to be known at start. Called once, when the extension is loaded.
void findKnownObjects();
// Finds the polyfills and hides their frames. Called once, when their modules are loaded.
void hidePolyfills();

// The state of each row, for tests: "" for an object that was found; "absent" if nobody has imported its
// module; "missing" if the module lacks it. For a code row, the number of code objects.
struct KnownRow {
  std::string path;
  std::string state;
  bool always = false;
  size_t codes = 0;
};
std::vector<KnownRow> knownRows();

}  // namespace kintsugi::pyapi
