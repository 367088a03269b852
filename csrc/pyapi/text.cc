#include "pyapi/text.h"

#include <string>
#include <unordered_set>

namespace kintsugi::pyapi {

const char* utf8(PyObject* text) {
  // For names with lone surrogates. There are few of them, and each is stored once.
  static auto* escaped = new std::unordered_set<std::string>();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const char* plain = PyUnicode_AsUTF8(text);
  if (plain == nullptr) {
    PyErr_Clear();
    PyObject* bytes = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    plain = bytes != nullptr ? escaped->insert(PyBytes_AS_STRING(bytes)).first->c_str() : "?";
    Py_XDECREF(bytes);
  }
  PyErr_Restore(type, value, traceback);
  return plain;
}

}  // namespace kintsugi::pyapi
