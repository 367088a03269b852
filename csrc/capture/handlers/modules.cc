// Imports, and what only module-level and interactive code does.
#include "capture/handlers/common.h"
#include "pyapi/containers.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "pyapi/intrinsics.h"
#include "pyapi/names.h"
#include "pyapi/types.h"

namespace kintsugi::capture::handlers {

namespace {

PyObject* importModule(const Activation& act, PyObject* name, PyObject* fromList, PyObject* level) {
  PyObject* entry = nullptr;
  if (pyapi::importEntry(pyapi::builtinsOf(act.frame), &entry) <= 0) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_ImportError, "__import__ not found");
    }
    return nullptr;
  }
  const auto function = pyapi::steal(entry);
  PyObject* globals = pyapi::globalsOf(act.frame);
  PyObject* locals = pyapi::localsDictOf(act.frame) != nullptr ? pyapi::localsDictOf(act.frame) : Py_None;
  if (pyapi::isBuiltinImport(act.tstate, function.get())) {
    const int levelValue = pyapi::asInt(level);
    if (levelValue == -1 && PyErr_Occurred() != nullptr) {
      return nullptr;
    }
    return PyImport_ImportModuleLevelObject(name, globals, locals, fromList, levelValue);
  }
  PyObject* arguments[] = {name, globals, locals, fromList, level};
  return PyObject_Vectorcall(function.get(), arguments, 5, nullptr);
}

// The ImportError for `from module import name`.
Flow raiseCannotImport(PyObject* module, PyObject* name, pyapi::Ref<> moduleName) {
  auto path = pyapi::steal(PyModule_GetFilenameObject(module));
  auto shownName =
      moduleName ? moduleName.clone() : pyapi::steal(PyUnicode_FromString("<unknown module name>"));
  if (!shownName) {
    return Flow::kRaise;
  }
  pyapi::Ref<> message;
  if (!path || !PyUnicode_Check(path.get())) {
    PyErr_Clear();
    path.reset();
    message = pyapi::steal(
        PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name, shownName.get()));
  } else {
    auto spec = pyapi::steal(PyObject_GetAttr(module, pyapi::names::spec()));
    const char* format =
        pyapi::isInitializing(spec.get())
            ? "cannot import name %R from partially initialized module %R (most likely due to a "
              "circular import) (%S)"
            : "cannot import name %R from %R (%S)";
    message = pyapi::steal(PyUnicode_FromFormat(format, name, shownName.get(), path.get()));
  }
  PyErr_SetImportError(message.get(), moduleName.get(), path.get());
  return Flow::kRaise;
}

// What `from module import *` imports: `__all__`, or the names of the module's dict, without private ones.
struct StarNames {
  pyapi::Ref<> names;
  bool skipPrivate = false;
};

bool starNames(PyObject* module, StarNames* star) {
  PyObject* all = nullptr;
  if (pyapi::lookUpAttribute(module, pyapi::names::all(), &all) < 0) {
    return false;
  }
  star->names = pyapi::steal(all);
  if (star->names) {
    return true;
  }
  PyObject* dict = nullptr;
  if (pyapi::lookUpAttribute(module, pyapi::names::dict(), &dict) < 0) {
    return false;
  }
  if (dict == nullptr) {
    PyErr_SetString(PyExc_ImportError, "from-import-* object has no __dict__ and no __all__");
    return false;
  }
  star->names = pyapi::steal(PyMapping_Keys(dict));
  star->skipPrivate = true;
  Py_DECREF(dict);
  return static_cast<bool>(star->names);
}

bool raiseBadStarName(PyObject* module, PyObject* name, bool fromDict) {
  auto moduleName = pyapi::steal(PyObject_GetAttr(module, pyapi::names::name()));
  if (!moduleName) {
    return false;
  }
  if (!PyUnicode_Check(moduleName.get())) {
    PyErr_Format(PyExc_TypeError, "module __name__ must be a string, not %.100s",
                 pyapi::typeNameOf(moduleName.get()));
  } else {
    PyErr_Format(PyExc_TypeError, "%s in %U.%s must be str, not %.100s", fromDict ? "Key" : "Item",
                 moduleName.get(), fromDict ? "__dict__" : "__all__", pyapi::typeNameOf(name));
  }
  return false;
}

bool importStarName(PyObject* locals, PyObject* module, PyObject* name, bool skipPrivate) {
  if (!PyUnicode_Check(name)) {
    return raiseBadStarName(module, name, skipPrivate);
  }
  if (skipPrivate) {
    if (PyUnicode_READY(name) < 0) {
      return false;
    }
    if (PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) == '_') {
      return true;
    }
  }
  auto value = pyapi::steal(PyObject_GetAttr(module, name));
  if (!value) {
    return false;
  }
  return (PyDict_CheckExact(locals) ? PyDict_SetItem(locals, name, value.get())
                                    : PyObject_SetItem(locals, name, value.get())) == 0;
}

bool importAll(PyObject* locals, PyObject* module) {
  StarNames star;
  if (!starNames(module, &star)) {
    return false;
  }
  for (Py_ssize_t i = 0;; i++) {
    auto name = pyapi::steal(PySequence_GetItem(star.names.get(), i));
    if (!name) {
      if (PyErr_ExceptionMatches(PyExc_IndexError) == 0) {
        return false;
      }
      PyErr_Clear();
      return true;
    }
    if (!importStarName(locals, module, name.get(), star.skipPrivate)) {
      return false;
    }
  }
}

// Since CPython 3.12 these instructions leave a result for a POP_TOP. A nonzero argument says so.
Flow leaveNone(Activation& act, const Instr& instr) {
  if (instr.arg != 0) {
    pushNew(act, Py_None);
  }
  return Flow::kNext;
}

}  // namespace

Flow importName(Activation& act, const Instr& instr) {
  auto fromList = popRef(act);
  auto level = popRef(act);
  return pushResult(act, importModule(act, nameArg(act, instr), fromList.get(), level.get()));
}

Flow importFrom(Activation& act, const Instr& instr) {
  PyObject* module = top(act);
  PyObject* name = nameArg(act, instr);
  PyObject* value = nullptr;
  if (pyapi::lookUpAttribute(module, name, &value) != 0) {
    return pushResult(act, value);
  }
  // In a circular relative import, the submodule may be in sys.modules before its package has it as an
  // attribute.
  auto moduleName = pyapi::steal(PyObject_GetAttr(module, pyapi::names::name()));
  if (!moduleName || !PyUnicode_Check(moduleName.get())) {
    return raiseCannotImport(module, name, nullptr);
  }
  auto fullName = pyapi::steal(PyUnicode_FromFormat("%U.%U", moduleName.get(), name));
  if (!fullName) {
    return Flow::kRaise;
  }
  value = PyImport_GetModule(fullName.get());
  if (value == nullptr && PyErr_Occurred() == nullptr) {
    return raiseCannotImport(module, name, std::move(moduleName));
  }
  return pushResult(act, value);
}

Flow importStar(Activation& act, const Instr& instr) {
  auto module = popRef(act);
  // Only module-level code may do this. It has no fast locals, so the dict is all that changes.
  PyObject* locals = pyapi::localsDictOf(act.frame);
  if (locals == nullptr) {
    PyErr_SetString(PyExc_SystemError, "no locals found during 'import *'");
    return Flow::kRaise;
  }
  if (!importAll(locals, module.get())) {
    return Flow::kRaise;
  }
  return leaveNone(act, instr);
}

// Makes sure that the namespace has an `__annotations__` dict.
Flow setupAnnotations(Activation& act, const Instr&) {
  PyObject* locals = pyapi::localsDictOf(act.frame);
  PyObject* key = pyapi::names::annotations();
  if (locals == nullptr) {
    PyErr_SetString(PyExc_SystemError, "no locals found when setting up annotations");
    return Flow::kRaise;
  }
  const bool isDict = PyDict_CheckExact(locals);
  auto annotations = isDict ? pyapi::newRef(PyDict_GetItemWithError(locals, key))
                            : pyapi::steal(PyObject_GetItem(locals, key));
  if (annotations) {
    return Flow::kNext;
  }
  if (PyErr_Occurred() != nullptr) {
    if (isDict || PyErr_ExceptionMatches(PyExc_KeyError) == 0) {
      return Flow::kRaise;
    }
    PyErr_Clear();
  }
  annotations = pyapi::steal(PyDict_New());
  if (!annotations) {
    return Flow::kRaise;
  }
  const int error = isDict ? PyDict_SetItem(locals, key, annotations.get())
                           : PyObject_SetItem(locals, key, annotations.get());
  return error == 0 ? Flow::kNext : Flow::kRaise;
}

// Interactive mode: shows the value of an expression statement.
Flow printExpr(Activation& act, const Instr& instr) {
  auto value = popRef(act);
  PyObject* hook = PySys_GetObject("displayhook");
  if (hook == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "lost sys.displayhook");
    return Flow::kRaise;
  }
  auto owned = pyapi::newRef(hook);
  auto result = pyapi::steal(PyObject_CallOneArg(owned.get(), value.get()));
  return result ? leaveNone(act, instr) : Flow::kRaise;
}

Flow intrinsic1(Activation& act, const Instr& instr) {
  auto value = popRef(act);
  return pushResult(act, pyapi::callIntrinsic(instr.arg, value.get()));
}

Flow intrinsic2(Activation& act, const Instr& instr) {
  auto second = popRef(act);
  auto first = popRef(act);
  return pushResult(act, pyapi::callIntrinsic(instr.arg, first.get(), second.get()));
}

}  // namespace kintsugi::capture::handlers
