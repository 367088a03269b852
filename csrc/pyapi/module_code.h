// All code objects that a module has made, and whether a module belongs to a package. See known_objects.h.
//
// A module's code is the code of its functions and of its classes' functions: those whose globals are the
// module's dict, also behind decorators, and the code inside them. Ownership: borrowed from the module.
// Threads: the GIL is needed. Never leaves an exception pending.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

std::vector<PyObject*> codeOfModule(PyObject* globals);

// True while the body of the module with these globals is being executed. Not all of its code exists then.
bool isInitializing(PyObject* globals);

// True if the module with these globals was loaded from a folder of the package (a module with a `__path__`).
bool isLoadedBy(PyObject* globals, PyObject* package);

// True if these are the globals of a module of the standard library. (Not all code of such a module can be
// found: `os` deletes the function that has made the functions of `os.environ`.)
bool isStandardModule(PyObject* globals);

// True for the `__new__` that collections.namedtuple() makes: it calls `tuple.__new__`, and nothing else.
bool isNamedTupleMaker(const PyCodeObject* code, PyObject* globals);

// True if these are the globals of a module that was imported under a name of the package ("numpy").
bool areOfPackage(PyObject* globals, std::string_view package);

// The modules of one package and their code, for what is asked again and again. Modules that are found are
// never freed, so that no other dict can have such an address.
class PackageCode {
 public:
  using IsModule = bool (*)(PyObject* globals, PyObject* package);
  explicit PackageCode(IsModule isModule = isLoadedBy) : isModule_(isModule) {}

  // True if these are the globals of a module that was loaded from a folder of the package. Null: there is no
  // such package.
  bool hasModule(PyObject* package, PyObject* globals);
  // True if the code was made by such a module, and these are the module's globals.
  bool hasCode(PyObject* package, const PyCodeObject* code, PyObject* globals);

 private:
  bool mayHave(PyObject* package, PyObject* globals);

  const IsModule isModule_;
  std::unordered_map<PyObject*, std::unordered_set<const PyCodeObject*>> modules_;  // owned
  // Globals that another loader has made, with the versions of the dicts.
  std::unordered_map<PyObject*, uint64_t> others_;
};

}  // namespace kintsugi::pyapi
