#include "pyapi/mapping_proxy.h"

#include <structmember.h>

#include <cstring>

#include "pyapi/lazy.h"

namespace kintsugi::pyapi {

namespace {

// mappingproxyobject: PyObject_HEAD, mapping.
constexpr Py_ssize_t kOffset = sizeof(PyObject);
constinit PyMemberDef g_mapping = {"mapping", T_OBJECT, kOffset, READONLY, nullptr};

}  // namespace

PyObject* mappingBehind(PyObject* proxy) {
  if (Py_TYPE(proxy) != &PyDictProxy_Type) return nullptr;
  PyObject* mapping = nullptr;
  std::memcpy(&mapping, reinterpret_cast<const char*>(proxy) + kOffset, sizeof(mapping));
  return mapping;
}

PyObject* mappingField() {
  static constinit Lazy<PyObject*> made;
  return made.get([] { return PyDescr_NewMember(&PyDictProxy_Type, &g_mapping); });
}

}  // namespace kintsugi::pyapi
