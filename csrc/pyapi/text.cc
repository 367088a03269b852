#include "pyapi/text.h"

#include "pyapi/errors.h"

namespace kintsugi::pyapi {

namespace {

std::string encodedBy(PyObject* text, const char* errors) {
  if (PyUnicode_IS_ASCII(text)) return std::string(ascii(text));  // most names: no other object is made
  const Ref<> bytes = steal(PyUnicode_AsEncodedString(text, "utf-8", errors));
  if (!bytes) PyErr_Clear();
  return bytes
             ? std::string(PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get())))
             : "?";
}

}  // namespace

std::string utf8(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return "";
  const PendingErrorScope kept;
  return encodedBy(text, "backslashreplace");
}

std::string encoded(PyObject* name) {
  const PendingErrorScope kept;
  return encodedBy(name, "surrogatepass");
}

Ref<> decoded(std::string_view text) {
  PyObject* name = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass");
  if (name != nullptr) PyUnicode_InternInPlace(&name);
  return steal(name);
}

}  // namespace kintsugi::pyapi
