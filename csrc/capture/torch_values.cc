#include "capture/torch_values.h"

#include <utility>
#include <vector>

#include "capture/calls/numpy.h"
#include "capture/foreign.h"
#include "capture/plain_objects.h"
#include "pyapi/known_objects.h"
#include "pyapi/plain.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

using ir::TypeKind;

namespace {

PyObject* itemOf(PyObject* sequence, Py_ssize_t i) {
  return PyTuple_Check(sequence) ? PyTuple_GET_ITEM(sequence, i) : PyList_GET_ITEM(sequence, i);
}

}  // namespace

bool TorchValues::accepts(Shadow shadow, PyObject* object) const {
  if (torchapi::isTensor(object))
    return torchapi::isExactTensorType(Py_TYPE(object)) && !isForeign(shadow, object);
  if (isPlain(object) || (shadow.isConst() && isNumpyScalar(object))) return true;
  if (shadow.isSource() && pyapi::isNumpyNumber(object)) return true;  // its value is guarded
  if (shadow.isVirtual()) {
    const Virtual& v = virtuals_[shadow];
    switch (v.kind) {
      case VirtualKind::kRange:
      case VirtualKind::kSlice:
        return true;
      case VirtualKind::kTuple:
      case VirtualKind::kList:
        for (size_t i = 0; i < v.parts.size(); ++i) {
          if (!accepts(v.parts[i], itemOf(object, static_cast<Py_ssize_t>(i)))) return false;
        }
        return true;
      default:
        return false;
    }
  }
  if (PyTuple_Check(object) || PyList_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      if (!accepts(Shadow::constant(), itemOf(object, i))) return false;
    }
    return true;
  }
  if (PySlice_Check(object) || PyRange_Check(object)) return true;
  if (PyFunction_Check(object) || PyModule_Check(object) || PyCFunction_Check(object)) return false;
  return isIdentityValue(object) || pyapi::isA(object, torchapi::Known::kTorchGenerator);
}

bool TorchValues::hasStaticMeta(Shadow shadow, PyObject* tensor) const {
  auto value = shadow.isValue() ? std::optional(shadow.valueId())
                                : tensors_.valueOf(torchapi::innermost(tensor).get());
  return value && tensors_.level(*value) == torchapi::MetaLevel::kFull;
}

bool TorchValues::explainsNumbers(PyObject* result, const torchapi::DrainResult& drained) {
  if (drained.scalars.empty()) return true;
  return drained.scalars.size() == 1 && (PyLong_Check(result) || PyFloat_Check(result));
}

std::optional<Shadow> TorchValues::shadowOfTensor(PyObject* tensor) {
  if (!torchapi::isWrapper(tensor) && !torchapi::isExactTensorType(Py_TYPE(tensor)))
    return std::nullopt;                                    // operators make plain tensors
  if (torchapi::isZeroTensor(tensor)) return std::nullopt;  // it has no memory, but the trace's one would
  if (auto value = tensors_.valueOf(tensor)) return Shadow::value(*value);
  if (!torchapi::isWrapper(tensor) || !tensors_.valueOf(torchapi::innermost(tensor).get()))
    return std::nullopt;
  if (auto known = known_.knownObject(tensor)) return known;
  return known_.newVirtual(VirtualKind::kOpaque, tensor);
}

std::optional<Shadow> TorchValues::shadowOfNumber(PyObject* number,
                                                  const torchapi::DrainResult& drained) const {
  const bool isBool = PyBool_Check(number);
  for (const auto& scalar : drained.scalars) {
    if (isBool && scalar.kind == TypeKind::kBool && (number == Py_True) == (scalar.i != 0)) {
      return Shadow::value(scalar.value);
    }
    if (!isBool && PyLong_Check(number) && scalar.kind == TypeKind::kInt &&
        PyLong_AsLongLong(number) == scalar.i) {
      return Shadow::value(scalar.value);
    }
    if (PyFloat_Check(number) && scalar.kind == TypeKind::kFloat) return Shadow::value(scalar.value);
  }
  PyErr_Clear();
  return drained.scalars.empty() && torchCalls_.givesConstantNumbers()
             ? std::optional<Shadow>(Shadow::constant())
             : std::nullopt;
}

std::optional<Shadow> TorchValues::shadowOf(PyObject* result, const torchapi::DrainResult& drained) {
  if (result == Py_None || PyType_Check(result)) return Shadow::constant();
  if (torchapi::isTensor(result)) return shadowOfTensor(result);
  if (PyLong_Check(result) || PyFloat_Check(result)) return shadowOfNumber(result, drained);
  if (PyTuple_Check(result) || PyList_CheckExact(result)) {
    Shadows parts;
    for (Py_ssize_t i = 0; i < Py_SIZE(result); ++i) {
      auto part = shadowOf(itemOf(result, i), drained);
      if (!part) return std::nullopt;
      parts.push_back(*part);
    }
    if (PyTuple_Check(result)) {
      if (isPlainTuple(result)) return Shadow::constant();  // torch.Size and the like
      return objects_.tupleOf(result, std::move(parts));
    }
    const Shadow list = known_.newVirtual(VirtualKind::kList, result);
    virtuals_[list].parts = std::move(parts);
    return list;
  }
  if (auto known = known_.knownObject(result)) return known;
  if (PyUnicode_CheckExact(result) || pyapi::isPlainOfLibrary(result)) return Shadow::constant();
  return std::nullopt;
}

}  // namespace kintsugi::capture
