#include "driver/operand_objects.h"

#include "torchapi/python_constants.h"

namespace kintsugi::driver {

using ir::Operand;
using ir::OperandKind;
using pyapi::Ref;

namespace {

Ref<> reference(const char* kind, uint32_t number) {
  return pyapi::steal(Py_BuildValue("(sI)", kind, number));
}

Ref<> complexObject(const std::pair<double, double>& parts) {
  return pyapi::steal(PyComplex_FromDoubles(parts.first, parts.second));
}

// An object of the program, which operators take none of.
Ref<> programObject(const Operand& operand, Describing what) {
  if (what == Describing::kOperators) {
    PyErr_SetString(PyExc_SystemError, "kintsugi: an operator takes a Python object");
    return {};
  }
  switch (operand.kind) {
    case OperandKind::kSource:
      return reference("$", operand.id);
    case OperandKind::kConst:
      return reference("#", operand.id);
    case OperandKind::kRecipe:
      return reference("@", operand.id);
    default:
      return reference("null", 0);
  }
}

}  // namespace

bool appendTo(PyObject* list, Ref<> item) { return item && PyList_Append(list, item.get()) == 0; }

bool setIn(PyObject* dict, const char* key, Ref<> value) {
  return value && PyDict_SetItemString(dict, key, value.get()) == 0;
}

Ref<> numberObject(int64_t value) { return pyapi::steal(PyLong_FromLongLong(value)); }

Ref<> textObject(std::string_view text) {
  return pyapi::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

Ref<> operandObjects(const ir::Trace& trace, std::span<const Operand> operands, Describing what) {
  Ref<> list = pyapi::steal(PyList_New(0));
  for (const Operand& operand : operands) {
    if (!list || !appendTo(list.get(), operandObject(trace, operand, what))) return {};
  }
  return list;
}

Ref<> operandObject(const ir::Trace& trace, const Operand& operand, Describing what) {
  switch (operand.kind) {
    case OperandKind::kValue:
      return trace.values[operand.id].kind == ir::TypeKind::kNone ? pyapi::newRef(Py_None)
                                                                  : reference("%", operand.id);
    case OperandKind::kInt:
      return pyapi::steal(PyLong_FromLongLong(operand.i));
    case OperandKind::kFloat:
      return pyapi::steal(PyFloat_FromDouble(operand.f));
    case OperandKind::kBool:
      return pyapi::newRef(operand.i != 0 ? Py_True : Py_False);
    case OperandKind::kStr:
      return textObject(trace.strings[operand.id]);
    case OperandKind::kComplex:
      return complexObject(trace.complexes[operand.id]);
    case OperandKind::kDtype:
      return torchapi::dtypeObject(operand.i);
    case OperandKind::kDevice:
      return torchapi::deviceObject(trace.strings[operand.id]);
    case OperandKind::kLayout:
      return torchapi::layoutObject(operand.i);
    case OperandKind::kMemoryFormat:
      return torchapi::memoryFormatObject(operand.i);
    case OperandKind::kList:
      return operandObjects(trace, trace.listOf(operand), what);
    case OperandKind::kNone:
      return pyapi::newRef(Py_None);
    case OperandKind::kSource:
    case OperandKind::kConst:
    case OperandKind::kRecipe:
    case OperandKind::kNull:
      return programObject(operand, what);
  }
  return programObject(operand, what);
}

}  // namespace kintsugi::driver
