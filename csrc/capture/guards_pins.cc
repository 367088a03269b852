// Guards: pinning what is used of an object: its length, its truth, whether it is None.
#include <string>

#include "capture/classes.h"
#include "capture/open_values.h"
#include "capture/record_context.h"
#include "capture/special_methods.h"
#include "pyapi/known_objects.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::GuardKind;
using ir::Op;
using ir::Operand;

// Pins the number of elements that the container has at entry, from which its length now follows.
bool Guards::pinLength(Shadow shadow, PyObject* container) {
  if (!shadow.isSource() && !(shadow.isConst() && !PyTuple_Check(container) && !PyUnicode_Check(container) &&
                              !PyBytes_Check(container) && !PyFrozenSet_Check(container))) {
    if (shadow.isVirtual() && rec_.objects.virtualOf(shadow).kind == VirtualKind::kOpaque) {
      rec_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
    }
    return rec_.live();
  }
  Py_ssize_t length = PyDict_Check(container)                               ? PyDict_GET_SIZE(container)
                      : PyAnySet_Check(container)                           ? PySet_GET_SIZE(container)
                      : PyUnicode_Check(container)                          ? PyUnicode_GET_LENGTH(container)
                      : PyList_Check(container) || PyTuple_Check(container) ? Py_SIZE(container)
                                                                            : -1;
  if (length < 0) return pin(shadow, container);
  if (Overlay* overlay = rec_.objects.overlayOf(container)) {
    if (overlay->lengthUnknown() && PyDict_Check(container)) return pinKeys(shadow, container);
    if (overlay->dirty || overlay->lengthUnknown()) {
      rec_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
      return false;
    }
    if (!rec_.objects.fitsList(*overlay)) return false;
    if (overlay->parts) return rec_.live();  // the length at entry is already pinned
    length -= overlay->grown + static_cast<Py_ssize_t>(overlay->tail.size());
  }
  ir::SourceId source = sourceOf(shadow, container);
  guardLength(Shadow::source(source), container, length);
  return rec_.live();
}

bool Guards::pinIsNone(Shadow shadow, PyObject* object) {
  if (!shadow.isSource()) return true;
  if (object == Py_None) return pin(shadow, object);
  guardType(shadow, object);
  return rec_.live();
}

bool Guards::pinTruth(Shadow shadow, PyObject* object) {
  if (shadow.isValue()) {
    ir::Type type = document_.trace.values[shadow.valueId()];
    ir::ValueId value = shadow.valueId();
    if (type.kind == ir::TypeKind::kObject) return pin(shadow, object);
    if (type.kind != ir::TypeKind::kBool) {
      size_t at = rec_.steps.emit(Op::kToBool, {Operand::value(value)}, {{ir::TypeKind::kBool, ir::kNone}},
                                  ir::kNone);
      value = document_.trace.code[at].firstResult;
    }
    return guardTruth(value, PyObject_IsTrue(object) == 1);
  }
  if (isVaryingText(rec_, shadow, object) && !instruction_.isExecuted()) {
    guardType(shadow, object);
    return pinAnswer("truth", {Operand::source(shadow.sourceId())},
                     PyUnicode_GET_LENGTH(object) != 0 ? Py_True : Py_False);
  }
  if (isPlain(object)) return pin(shadow, object);
  PyTypeObject* type = Py_TYPE(object);
  if (shadow.isVirtual() && rec_.objects.virtualOf(shadow).kind == VirtualKind::kDeque) return rec_.live();
  if (PyList_CheckExact(object) || PyTuple_Check(object) || PyDict_CheckExact(object) ||
      PyAnySet_CheckExact(object) || type == &PyODict_Type) {
    Operand container;
    if (!hasVaryingLength(rec_, object) || !rec_.snapshots.operandOf(shadow, object, container))
      return pinLength(shadow, object);
    guardType(shadow, object);
    return pinAnswer("truth", {container}, PyObject_Size(object) != 0 ? Py_True : Py_False);
  }
  // True and False of numpy are singletons.
  if (pyapi::isA(object, pyapi::Known::kNumpyBool)) return pin(shadow, object);
  if (pyapi::isAlwaysTrue(type)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    return rec_.live();
  }
  if (shadow.isConst() && !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return true;
  PyObject* method = specialMethod(type, "__bool__");
  if (method == nullptr) method = specialMethod(type, "__len__");
  if (method != nullptr && PyFunction_Check(method)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    PendingFrame pending = rec_.callees.methodFrame(method, shadow, object);
    pending.rebuildable = false;
    pending.pinResult = true;
    rec_.callees.expectFrame(std::move(pending));
    return rec_.live();
  }
  if (PyDict_Check(object) && method != nullptr && Py_TYPE(method) == &PyWrapperDescr_Type) {
    guardTypeVersion(type);
    return pinLength(shadow, object);
  }
  Operand operand;  // C code decides the truth
  if (!rec_.live() || !rec_.snapshots.operandOf(shadow, object, operand)) {
    rec_.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) {
    PyErr_Clear();
    rec_.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  return pinAnswer("truth", {operand}, truth == 1 ? Py_True : Py_False);
}

// A function is pinned by its identity and its code, since a program may assign to `__code__`.
void Guards::pinFunction(PyObject* function) {
  if (virtualShadowOf(rec_, Shadow::constant(), function).isVirtual()) return;
  Shadow root = pinnedRoot(function);
  if (!root.isSource()) return;
  guard(GuardKind::kFunction, root.sourceId(), constId(PyFunction_GET_CODE(function)));
}

// Pins the module that an import statement inside a function found: sys.modules must still hold it.
void Guards::pinImport(PyObject* module, PyObject* name) {
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* key = name;
  PyObject* entry = PyDict_GetItemWithError(modules, name);
  // A relative import reads the package's own dict, which does not change in practice.
  if (entry == nullptr) return;
  Shadow shadow = rec_.objects.dictEntry(pinnedRoot(modules), modules, key, entry);
  pin(shadow, entry);
  if (entry != module) pinnedRoot(module);
}

}  // namespace kintsugi::capture
