#include "torchapi/torch_patches.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include "pyapi/code.h"
#include "pyapi/dict.h"
#include "pyapi/errors.h"
#include "pyapi/lazy.h"
#include "pyapi/ref.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "torchapi/known_torch.h"

namespace kintsugi::torchapi {

namespace {

// Names as text, since a module may hold objects from C code under names that are not interned strings.
using Names = std::unordered_set<std::string>;

struct Entry {
  PyObject* name;
  PyObject* value;  // null: there was none
};

// A namespace, and the objects that torch has put there.
struct Space {
  PyObject* dict;
  bool isTensor = false;
  std::vector<Entry> entries;
};

// One behind the other in memory, because each call compares all of them.
struct Version {
  PyObject* dict;
  uint64_t seen;
};

struct Replaced {
  PyObject* dict;
  PyObject* name;
  pyapi::Ref<> value;  // null: it was deleted
  bool operator==(const Replaced& other) const {
    return dict == other.dict && name == other.name && value.get() == other.value.get();
  }
};

constexpr Known kModules[] = {Known::kNnFunctional, Known::kTorchFunctional, Known::kJitInternal};
constexpr Known kModulesInC[] = {Known::kTorchNn,      Known::kTorchFft,    Known::kTorchLinalg,
                                 Known::kTorchSpecial, Known::kTorchNested, Known::kTorchSparse};

void addNames(PyObject* code, Names& names) {
  const auto* c = reinterpret_cast<PyCodeObject*>(code);
  PyObject *read = pyapi::namesOf(c), *constants = pyapi::constantsOf(c);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(read); ++k)
    names.insert(pyapi::utf8(PyTuple_GET_ITEM(read, k)));
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(constants); ++k) {
    PyObject* constant = PyTuple_GET_ITEM(constants, k);
    if (PyCode_Check(constant)) addNames(constant, names);
  }
}

bool isSpecial(PyObject* name) {
  const std::string text = pyapi::utf8(name);
  return text.starts_with("__") && text != "__doc__" && text != "__annotations__";
}

class Watch {
 public:
  Watch() {
    std::vector<PyObject*> dicts;
    const auto add = [&dicts](PyObject* module) {
      if (module == nullptr || !PyModule_Check(module) || !isTorchModule(PyModule_GetDict(module))) return;
      PyObject* dict = PyModule_GetDict(module);
      if (std::ranges::find(dicts, dict) == dicts.end()) dicts.push_back(dict);
    };
    for (const Known module : kModules) add(pyapi::known(module));
    const Names names = namesIn(dicts);
    const size_t functions = dicts.size();
    for (size_t k = 0; k < functions; ++k) {
      PyObject *name, *value;
      for (Py_ssize_t at = 0; PyDict_Next(dicts[k], &at, &name, &value);) {
        if (names.contains(pyapi::utf8(name))) add(value);
      }
    }
    for (const Known module : kModulesInC) {
      if (pyapi::known(module) != nullptr) dicts.push_back(PyModule_GetDict(pyapi::known(module)));
    }
    for (PyObject* dict : dicts) addModule(dict, names);
    if (PyTypeObject* tensor = pyapi::knownType(Known::kTensor)) addTensor(tensor);
    if (hasForeign(names)) patches_.epoch = clean_ = last_ = 1;
  }

  const TorchPatches& now() {
    const bool changed =
        std::ranges::any_of(versions_, [](const Version& v) { return pyapi::dictVersion(v.dict) != v.seen; });
    if (changed) [[unlikely]]
      look();
    return patches_;
  }

  bool isMethod(PyObject* descriptor) const { return methods_.contains(descriptor); }

 private:
  // The names that functions of these modules read.
  static Names namesIn(const std::vector<PyObject*>& dicts) {
    Names names;
    for (PyObject* dict : dicts) {
      PyObject *name, *value;
      for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &value);) {
        if (PyFunction_Check(value) && std::ranges::find(dicts, PyFunction_GET_GLOBALS(value)) != dicts.end())
          addNames(PyFunction_GET_CODE(value), names);
      }
    }
    return names;
  }

  // Watches these names in a module, even those that do not exist there yet.
  void addModule(PyObject* dict, const Names& names) {
    Space space{Py_NewRef(dict)};
    versions_.push_back({dict, pyapi::dictVersion(dict)});
    for (const std::string& text : names) {
      PyObject* name = PyUnicode_InternFromString(text.c_str());
      space.entries.push_back({name, Py_XNewRef(pyapi::dictGet(dict, name))});
    }
    spaces_.push_back(std::move(space));
  }

  void addTensor(PyTypeObject* tensor) {
    Space space{Py_NewRef(pyapi::dictOf(tensor)), true};
    versions_.push_back({space.dict, pyapi::dictVersion(space.dict)});
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(space.dict, &at, &name, &value);) {
      space.entries.push_back({Py_NewRef(name), Py_NewRef(value)});
      methods_.insert(value);
    }
    spaces_.push_back(std::move(space));
  }

  // True if one of the names already had a function that is not torch's when we started. (What torch.jit
  // takes from the standard library does not count.)
  bool hasForeign(const Names& names) const {
    return std::ranges::any_of(spaces_, [&](const Space& space) {
      if (space.dict == PyModule_GetDict(pyapi::known(Known::kJitInternal))) return false;
      return std::ranges::any_of(space.entries, [&](const Entry& entry) {
        return entry.value != nullptr && PyFunction_Check(entry.value) &&
               names.contains(pyapi::utf8(entry.name)) &&
               !isTorchCode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(entry.value)),
                            PyFunction_GET_GLOBALS(entry.value));
      });
    });
  }

  // Methods of torch.Tensor's base class can't be replaced. But torch.Tensor may get a method of the same
  // name, which overrides the base's.
  static void addOverriding(const Space& space, std::vector<Replaced>& found) {
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(space.dict, &at, &name, &value);) {
      const bool known = std::ranges::any_of(space.entries, [&](const Entry& e) { return e.name == name; });
      PyObject* below = known ? nullptr : pyapi::lookUpInType(pyapi::knownType(Known::kTensorBase), name);
      if (below != nullptr && below != value) found.push_back({space.dict, name, pyapi::newRef(value)});
    }
  }

  void look() {
    const pyapi::PendingErrorScope kept;
    std::vector<Replaced> found;
    for (Version& version : versions_) version.seen = pyapi::dictVersion(version.dict);
    for (const Space& space : spaces_) {
      for (const Entry& entry : space.entries) {
        PyObject* value = pyapi::dictGet(space.dict, entry.name);
        PyErr_Clear();
        const bool imported = entry.value == nullptr && value != nullptr && PyModule_Check(value) &&
                              isTorchModule(PyModule_GetDict(value));
        if (value != entry.value && !imported)
          found.push_back({space.dict, entry.name, pyapi::newRef(value)});
      }
      if (space.isTensor) addOverriding(space, found);
    }
    if (found == replaced_) return;
    std::swap(replaced_, found);  // the old values are dropped at the end of this function
    patches_.epoch = replaced_.empty() ? clean_ : ++last_;
    patches_.operators = std::ranges::any_of(replaced_, [&](const Replaced& one) {
      return one.dict == spaces_.back().dict && spaces_.back().isTensor && isSpecial(one.name);
    });
  }

  std::vector<Space> spaces_;
  std::vector<Version> versions_;   // of the dicts of spaces_
  std::vector<Replaced> replaced_;  // what differs now
  std::unordered_set<PyObject*> methods_;
  TorchPatches patches_;
  uint64_t clean_ = 0;
  uint64_t last_ = 0;
};

Watch& watch() {
  static constinit pyapi::Lazy<Watch*> madeSlot;
  Watch* made = madeSlot.get([] { return new Watch(); });
  return *made;
}

}  // namespace

const TorchPatches& torchPatches() { return watch().now(); }
bool isTorchMethod(PyObject* descriptor) { return watch().isMethod(descriptor); }

}  // namespace kintsugi::torchapi
