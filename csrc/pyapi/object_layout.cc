#include "pyapi/object_layout.h"

#include <structmember.h>

#include <array>

#include "pyapi/imports.h"
#include "pyapi/internal.h"
#include "pyapi/lazy.h"

namespace kintsugi::pyapi {

namespace {

// The head of the private struct in Objects/odictobject.c. A test moves a key and checks that `state` has
// changed.
struct OrderedDictHead {
  PyDictObject dict;
  void* first;
  void* last;
  void* fastNodes;
  Py_ssize_t fastNodesSize;
  void* resizeSentinel;
  size_t state;
};

// While guards hold borrowed pointers, no collection may start, because it runs finalizers.
class PauseCollector {
 public:
  PauseCollector() : enabled_(PyGC_Disable() != 0) {}
  ~PauseCollector() {
    if (enabled_) {
      PyGC_Enable();
    }
  }
  PauseCollector(const PauseCollector&) = delete;
  PauseCollector& operator=(const PauseCollector&) = delete;

 private:
  bool enabled_;
};

bool hasManagedDict(PyObject* object) { return (Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0; }

// The offsets of func, args and keywords in functools.partial, from its own member descriptors.
struct PartialLayout {
  PyTypeObject* type = nullptr;
  std::array<Py_ssize_t, 3> offsets{};
};

PartialLayout findPartialLayout() {
  PartialLayout layout;
  Ref<> module = steal(importModule("_functools"));
  Ref<> type = module ? steal(PyObject_GetAttrString(module.get(), "partial")) : Ref<>();
  if (!type || !PyType_Check(type.get())) {
    PyErr_Clear();
    return layout;
  }
  const char* names[] = {"func", "args", "keywords"};
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    PyObject* member = PyDict_GetItemString(dictOf(reinterpret_cast<PyTypeObject*>(type.get())), names[i]);
    if (member == nullptr || Py_TYPE(member) != &PyMemberDescr_Type) {
      return layout;
    }
    layout.offsets[i] = reinterpret_cast<PyMemberDescrObject*>(member)->d_member->offset;
  }
  layout.type = reinterpret_cast<PyTypeObject*>(type.release());  // never freed: one type for each process
  return layout;
}

const PartialLayout& partialLayout() {
  static constinit Lazy<const PartialLayout*> layout;
  return *layout.get([] { return new PartialLayout(findPartialLayout()); });
}

}  // namespace

const Word* dictOrderWord(PyObject* dict) {
  return PyODict_Check(dict) ? wordAt(&reinterpret_cast<OrderedDictHead*>(dict)->state) : nullptr;
}

bool ensureTypeVersion(PyTypeObject* type) {
  if (validTypeVersion(type) != 0) {
    return true;
  }
  // A look-up assigns versions to the type and its bases. Any name that can be cached will do, and every type
  // has this one.
  Ref<> name = steal(PyUnicode_InternFromString("__class__"));
  if (name) {
    _PyType_Lookup(type, name.get());
  }
  PyErr_Clear();
  return validTypeVersion(type) != 0;
}

bool hasFixedInstances(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 && !PyType_IsSubtype(type, &PyModule_Type);
}

PyObject** instanceDictSlot(PyObject* object) {
  return hasManagedDict(object) ? managedDictSlot(object) : _PyObject_GetDictPtr(object);
}

PyObject* instanceDict(PyObject* object) {
  PyObject** slot = instanceDictSlot(object);
  if (slot == nullptr || dictIn(slot) != nullptr) {
    return slot == nullptr ? nullptr : *slot;
  }
  if (!hasManagedDict(object) || managedValues(object) == nullptr) {
    return nullptr;
  }
  PauseCollector pause;
  slot = _PyObject_GetDictPtr(object);  // moves the inline values into a dict
  return slot == nullptr ? nullptr : *slot;
}

bool hasInstanceAttributes(PyObject* object) {
  PyObject** slot = instanceDictSlot(object);
  if (slot != nullptr && dictIn(slot) != nullptr) {
    return PyDict_GET_SIZE(*slot) != 0;
  }
  PyDictValues* values = hasManagedDict(object) ? managedValues(object) : nullptr;
  if (values == nullptr) {
    return false;
  }
  auto* keys = reinterpret_cast<PyHeapTypeObject*>(Py_TYPE(object))->ht_cached_keys;
  for (Py_ssize_t i = 0; i < keys->dk_nentries; ++i) {
    if (values->values[i] != nullptr) {
      return true;
    }
  }
  return false;
}

bool isObjectMember(PyObject* descriptor) {
  if (descriptor == nullptr || Py_TYPE(descriptor) != &PyMemberDescr_Type) {
    return false;
  }
  const int type = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->type;
  return type == T_OBJECT || type == T_OBJECT_EX;
}

PyObject** memberSlot(PyObject* descriptor, PyObject* object, bool* noneIfNull) {
  auto* descr = reinterpret_cast<PyMemberDescrObject*>(descriptor);
  if (!isObjectMember(descriptor) || !PyObject_TypeCheck(object, descr->d_common.d_type)) {
    return nullptr;
  }
  const PyMemberDef* member = descr->d_member;
  *noneIfNull = member->type == T_OBJECT;
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + member->offset);
}

Ref<> readDescriptor(PyObject* descriptor, PyObject* object) {
  PauseCollector pause;
  PyObject* result = nullptr;
  if (Py_TYPE(descriptor) == &PyMemberDescr_Type) {
    auto* descr = reinterpret_cast<PyMemberDescrObject*>(descriptor);
    if (PyObject_TypeCheck(object, descr->d_common.d_type)) {
      result = PyMember_GetOne(reinterpret_cast<const char*>(object), descr->d_member);
    }
  } else if (Py_TYPE(descriptor) == &PyGetSetDescr_Type) {
    auto* descr = reinterpret_cast<PyGetSetDescrObject*>(descriptor);
    if (PyObject_TypeCheck(object, descr->d_common.d_type) && descr->d_getset->get != nullptr) {
      result = descr->d_getset->get(object, descr->d_getset->closure);
    }
  }
  if (result == nullptr) {
    PyErr_Clear();
  }
  return steal(result);
}

PyObject** partialField(PyObject* object, int64_t index) {
  const PartialLayout& layout = partialLayout();
  if (layout.type == nullptr || index < 0 || index > 2 || !PyObject_TypeCheck(object, layout.type)) {
    return nullptr;
  }
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) +
                                      layout.offsets[static_cast<size_t>(index)]);
}

const Word* lengthWord(PyObject* object) {
  if (PyDict_Check(object)) {
    return dictSizeWord(object);
  }
  if (PyAnySet_Check(object)) {
    return wordAt(&reinterpret_cast<PySetObject*>(object)->used);
  }
  if (PyUnicode_Check(object)) {
    return wordAt(&reinterpret_cast<PyASCIIObject*>(object)->length);
  }
  if (PyList_Check(object) || PyTuple_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object)) {
    return wordAt(&reinterpret_cast<PyVarObject*>(object)->ob_size);
  }
  return nullptr;
}

}  // namespace kintsugi::pyapi
