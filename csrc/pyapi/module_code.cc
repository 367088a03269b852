#include "pyapi/module_code.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "pyapi/code.h"
#include "pyapi/dict.h"
#include "pyapi/errors.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/ref.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::pyapi {

namespace {

class Collector {
 public:
  explicit Collector(PyObject* globals) : globals_(globals) {}

  std::vector<PyObject*> run() {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(globals_, &at, &key, &value)) {
      visit(value);
      visitItems(value);
    }
    while (!waiting_.empty()) {
      PyObject* object = waiting_.back();
      waiting_.pop_back();
      collectFrom(object);
    }
    return std::move(codes_);
  }

 private:
  void visit(PyObject* object) {
    if (object != nullptr && seen_.insert(object).second) waiting_.push_back(object);
  }

  // For tables of functions.
  void visitItems(PyObject* container) {
    if (PyDict_CheckExact(container) && container != globals_) {
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(container, &at, &key, &value)) visit(value);
    } else if (PyList_CheckExact(container) || PyTuple_CheckExact(container)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(container); ++i)
        visit(PySequence_Fast_GET_ITEM(container, i));
    }
  }

  void collectFrom(PyObject* object) {
    if (PyFunction_Check(object)) return collectFromFunction(reinterpret_cast<PyFunctionObject*>(object));
    if (PyMethod_Check(object)) return visit(PyMethod_GET_FUNCTION(object));
    if (PyType_Check(object)) {
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(dictOf(reinterpret_cast<PyTypeObject*>(object)), &at, &key, &value)) visit(value);
      return;
    }
    if (Py_TYPE(object) == &PyStaticMethod_Type || Py_TYPE(object) == &PyClassMethod_Type) {
      return visitPart(object, "__func__");
    }
    if (Py_TYPE(object) == &PyProperty_Type) {
      for (const char* name : {"fget", "fset", "fdel"}) visitPart(object, name);
      return;
    }
    if (isA(object, Known::kLruCacheWrapper)) visitPart(object, "__wrapped__");
  }

  // The object holds the value of such an attribute, so the borrowed reference stays valid.
  void visitPart(PyObject* object, const char* name) {
    const Ref<> part = steal(PyObject_GetAttrString(object, name));
    PyErr_Clear();
    visit(part.get());
  }

  void collectFromFunction(PyFunctionObject* function) {
    if (function->func_globals == globals_) add(function->func_code);
    visitPart(reinterpret_cast<PyObject*>(function), "__annotate__");  // from CPython 3.14 on
    static PyObject* wrapped = PyUnicode_InternFromString("__wrapped__");
    if (function->func_dict != nullptr) visit(PyDict_GetItemWithError(function->func_dict, wrapped));
    PyErr_Clear();
    for (Py_ssize_t i = 0; function->func_closure != nullptr && i < PyTuple_GET_SIZE(function->func_closure);
         ++i) {
      PyObject* content = PyCell_GET(PyTuple_GET_ITEM(function->func_closure, i));
      if (content != nullptr && PyFunction_Check(content)) visit(content);
    }
  }

  void add(PyObject* code) {
    if (!added_.insert(code).second) return;
    codes_.push_back(code);
    PyObject* consts = reinterpret_cast<PyCodeObject*>(code)->co_consts;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(consts); ++i) {
      if (PyCode_Check(PyTuple_GET_ITEM(consts, i))) add(PyTuple_GET_ITEM(consts, i));
    }
  }

  PyObject* globals_;
  std::vector<PyObject*> waiting_, codes_;
  std::unordered_set<PyObject*> seen_, added_;
};

// True if a module of a subclass has taken the place of the module with these globals. It holds the old
// module, or its class, or a base, has functions with these globals.
bool replacesModule(PyObject* module, PyObject* globals) {
  if (Py_TYPE(module) == &PyModule_Type) return false;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(PyModule_GetDict(module), &at, &key, &value)) {
    if (PyModule_Check(value) && PyModule_GetDict(value) == globals) return true;
  }
  PyObject* bases = Py_TYPE(module)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); ++i) {
    PyObject* dict = dictOf(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i)));
    at = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
      if (PyFunction_Check(value) && PyFunction_GET_GLOBALS(value) == globals) return true;
    }
  }
  return false;
}

Ref<> specPart(PyObject* globals, const char* name) {
  PyObject* spec = PyDict_GetItemString(globals, "__spec__");
  Ref<> part = spec != nullptr ? steal(PyObject_GetAttrString(spec, name)) : Ref<>();
  PyErr_Clear();
  return part;
}

// True if the globals are of the module that was imported under the name.
bool areImportedAs(PyObject* name, PyObject* globals) {
  PyObject* module = name != nullptr && PyUnicode_Check(name)
                         ? PyDict_GetItemWithError(PyImport_GetModuleDict(), name)
                         : nullptr;
  PyErr_Clear();
  return module != nullptr && PyModule_Check(module) &&
         (PyModule_GetDict(module) == globals || replacesModule(module, globals));
}

// True if these are the globals of a module that has been imported: under its name, or, if it calls itself
// something else (as `_collections_abc` does), the name by which it was found.
bool areImported(PyObject* globals) {
  return areImportedAs(PyDict_GetItemString(globals, "__name__"), globals) ||
         areImportedAs(specPart(globals, "name").get(), globals);
}

// The folder of the standard library's modules, with a slash behind it. Empty: it has none.
const std::string& standardFolder() {
  static constinit Lazy<const std::string*> slot;
  return *slot.get([] {
    const PendingErrorScope kept;
    const Ref<> module = steal(importModule("os"));
    const Ref<> file = module ? steal(PyObject_GetAttrString(module.get(), "__file__")) : Ref<>();
    const std::string path = utf8(file.get());
    return new std::string(path.substr(0, path.rfind('/') + 1));
  });
}

// True for the globals of a module in that folder that is not one of the packages which were installed there.
bool isInStandardFolder(PyObject* globals, PyObject*) {
  const std::string& folder = standardFolder();
  const std::string file = utf8(PyDict_GetItemString(globals, "__file__"));
  return !folder.empty() && file.starts_with(folder) &&
         file.find("/site-packages/", folder.size() - 1) == std::string::npos &&
         file.find("/dist-packages/", folder.size() - 1) == std::string::npos;
}

}  // namespace

std::vector<PyObject*> codeOfModule(PyObject* globals) { return Collector(globals).run(); }

bool isInitializing(PyObject* globals) { return specPart(globals, "_initializing").get() == Py_True; }

bool isLoadedBy(PyObject* globals, PyObject* package) {
  if (!PyModule_Check(package)) return false;
  if (PyModule_GetDict(package) == globals) return true;
  const std::string file = utf8(specPart(globals, "origin").get());
  PyObject* path = PyDict_GetItemString(PyModule_GetDict(package), "__path__");
  const Py_ssize_t count = path != nullptr && PyList_Check(path) ? PyList_GET_SIZE(path) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const std::string folder = utf8(PyList_GET_ITEM(path, i));
    if (!folder.empty() && file.starts_with(folder + "/")) return true;
  }
  return false;
}

bool isStandardModule(PyObject* globals) {
  static constinit Lazy<PackageCode*> modules;
  PackageCode* known = modules.get([] { return new PackageCode(isInStandardFolder); });
  return known->hasModule(Py_None, globals) && areImported(globals);
}

bool isNamedTupleMaker(const PyCodeObject* code, PyObject* globals) {
  static constinit Lazy<PyObject*> slot;
  PyObject* maker = slot.get([] { return PyDict_GetItemString(dictOf(&PyTuple_Type), "__new__"); });
  PyObject* names = namesOf(code);
  return PyTuple_GET_SIZE(names) == 1 && freeVariableCount(code) == 0 &&
         PyDict_GetItemWithError(globals, PyTuple_GET_ITEM(names, 0)) == maker;
}

bool areOfPackage(PyObject* globals, std::string_view package) {
  const std::string name = utf8(PyDict_GetItemString(globals, "__name__"));
  return std::string_view(name).substr(0, name.find('.')) == package && areImported(globals);
}

// The same as isLoadedBy(). Globals that another loader has made stay so until something is set in them,
// which changes the version of the dict. No two dicts ever have the same version, so an address may be
// reused.
bool PackageCode::mayHave(PyObject* package, PyObject* globals) {
  constexpr size_t kMost = 4096;
  const uint64_t version = dictVersion(globals);
  const auto found = others_.find(globals);
  if (found != others_.end() && found->second == version) return false;
  if (isModule_(globals, package)) return true;
  if (others_.size() >= kMost) others_.clear();
  others_.insert_or_assign(globals, version);
  return false;
}

bool PackageCode::hasModule(PyObject* package, PyObject* globals) {
  return package != nullptr && PyDict_Check(globals) && mayHave(package, globals);
}

bool PackageCode::hasCode(PyObject* package, const PyCodeObject* code, PyObject* globals) {
  auto it = modules_.find(globals);
  if (it == modules_.end()) {
    if (!hasModule(package, globals) || !areImported(globals) || isInitializing(globals)) return false;
    Py_INCREF(globals);
    it = modules_.try_emplace(globals).first;
    for (PyObject* made : codeOfModule(globals)) {
      Py_INCREF(made);
      it->second.insert(reinterpret_cast<PyCodeObject*>(made));
    }
  }
  return it->second.contains(code);
}

}  // namespace kintsugi::pyapi
