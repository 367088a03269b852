#include "driver/const_texts.h"

#include <string>

#include "pyapi/code.h"
#include "pyapi/functions.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::driver {

namespace {

constexpr Py_ssize_t kLongest = 60;

// Names of what has one in C, short strings and numbers; empty for the rest, whose repr() may be anything.
std::string textOf(PyObject* object) {
  if (object == nullptr) {
    return "";
  }
  if (PyUnicode_CheckExact(object)) {
    return PyUnicode_GET_LENGTH(object) <= kLongest ? "'" + pyapi::utf8(object) + "'" : "";
  }
  if (PyType_Check(object)) {
    return pyapi::typeName(reinterpret_cast<PyTypeObject*>(object));
  }
  if (PyFunction_Check(object)) {
    return pyapi::utf8(pyapi::qualifiedNameOf(pyapi::asFunction(object)));
  }
  if (PyCode_Check(object)) {
    return pyapi::utf8(pyapi::qualifiedNameOf(reinterpret_cast<PyCodeObject*>(object)));
  }
  if (PyCFunction_CheckExact(object)) {
    return pyapi::builtinName(object);
  }
  if (PyModule_Check(object)) {
    const char* name = PyModule_GetName(object);
    PyErr_Clear();
    return name != nullptr ? name : "";
  }
  if (object == Py_None || PyBool_Check(object)) {
    return object == Py_None ? "None" : object == Py_True ? "True" : "False";
  }
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0 ? std::to_string(value) : "";
  }
  return "";
}

}  // namespace

void describeConstants(recording::Recording& recording, PyObject* function) {
  std::vector<std::string>& texts = recording.document.trace.constTexts;
  if (texts.empty()) {
    texts.reserve(recording.consts.size());
    for (const pyapi::Ref<>& object : recording.consts) {
      texts.push_back(textOf(object.get()));
    }
  }
  std::vector<std::string>& names = recording.document.sources.argNames;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const Py_ssize_t positional = static_cast<Py_ssize_t>(recording.argCount);
  for (Py_ssize_t i = 0; names.size() < recording.argCount && i < positional; ++i) {
    const bool named = i < pyapi::argumentCount(code);
    names.push_back(named ? pyapi::utf8(pyapi::variableName(code, i)) : "arg" + std::to_string(i));
  }
  PyObject* keywords = recording.kwNames.get();
  for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); ++i) {
    names.push_back(pyapi::utf8(PyTuple_GET_ITEM(keywords, i)));
  }
}

}  // namespace kintsugi::driver
