#include "capture/check_shadows.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "capture/interpreter.h"
#include "capture/plain_objects.h"
#include "pyapi/containers.h"
#include "pyapi/frame.h"
#include "pyapi/opcodes.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/op_effects.h"

namespace kintsugi::capture {

namespace {

// True if `object` has the type of a value: a number that is known only at run time, or a step's result.
bool hasType(PyObject* object, ir::TypeKind kind) {
  switch (kind) {
    case ir::TypeKind::kInt:
      return PyLong_Check(object) != 0;
    case ir::TypeKind::kFloat:
      return PyFloat_Check(object) != 0;
    case ir::TypeKind::kBool:
      return PyBool_Check(object) != 0;
    case ir::TypeKind::kObject:
    case ir::TypeKind::kTensor:
    case ir::TypeKind::kNone:
      break;
  }
  return false;
}

class ShadowCheck {
 public:
  explicit ShadowCheck(const KnownShadows& known) : known_(known) {}

  // Returns what is wrong; empty if `shadow` describes `object`.
  std::string slot(Shadow shadow, PyObject* object) {
    if (shadow.isNull() || object == nullptr) {
      return shadow.isNull() && object == nullptr ? "" : "a shadow or an object is missing";
    }
    switch (shadow.kind()) {
      case ShadowKind::kNull:
        break;
      case ShadowKind::kConst:
        return isConstant(object) ? "" : "a constant that can change and is not pinned";
      case ShadowKind::kSource:
        return isSource(shadow.sourceId(), object)
                   ? ""
                   : "another object than source $" + std::to_string(shadow.sourceId());
      case ShadowKind::kValue:
        return isValue(shadow.valueId(), object)
                   ? ""
                   : "something else than value %" + std::to_string(shadow.valueId());
      case ShadowKind::kVirtual:
        return isVirtual(shadow.virtualId(), object)
                   ? ""
                   : "another object than virtual " + std::to_string(shadow.virtualId());
    }
    return "";
  }

 private:
  // What can change is only a constant if it is pinned.
  bool isConstant(PyObject* object) {
    if (known_.constants.contains(object) || known_.frozen.wasAdded(object)) return true;
    if (PyTuple_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
        if (!isConstant(PyTuple_GET_ITEM(object, i))) return false;
      }
    } else if (PyFrozenSet_CheckExact(object)) {
      PyObject* item;
      for (Py_ssize_t at = 0; pyapi::nextSetItem(object, &at, &item);) {
        if (!isConstant(item)) return false;
      }
    }
    return !torchapi::isTensor(object) && !PyList_CheckExact(object) && !PyDict_CheckExact(object) &&
           !PySet_Check(object) && !PyByteArray_CheckExact(object);
  }
  bool isSource(ir::SourceId id, PyObject* object) {
    if (id >= known_.sources.size()) {
      return false;
    }
    // A descriptor may return a new number object in each read. Plain objects are therefore compared by
    // value.
    PyObject* read = known_.sources.objectOf(id);
    return read == object || (read != nullptr && isPlain(read) && pyapi::plainEquals(read, object));
  }
  bool isValue(ir::ValueId id, PyObject* object) {
    const ir::Trace& trace = known_.trace;
    if (id >= trace.values.size()) {
      return false;
    }
    const ir::TypeKind kind = trace.values[id].kind;
    if (kind != ir::TypeKind::kTensor) {
      return hasType(object, kind);
    }
    return torchapi::isTensor(object) &&
           (isKnownAs(id, object) || isInput(id, object) || isRestored(id, object));
  }
  // Where a side trace begins, two values may be the same tensor, which is then known by the later value.
  bool isRestored(ir::ValueId id, PyObject* tensor) { return known_.restored.isTensor(id, tensor); }
  // If an in-place operator changes a tensor's metadata, the operator's result is the tensor's new name. The
  // earlier values are still the same tensor.
  bool isKnownAs(ir::ValueId id, PyObject* tensor) {
    const ir::Trace& trace = known_.trace;
    std::optional<ir::ValueId> name = known_.tensors.valueOf(tensor);
    for (size_t at = trace.code.size(); name && *name != id && at-- > 0;) {
      const ir::Instruction& ins = trace.code[at];
      const bool makes = *name >= ins.firstResult && *name < ins.firstResult + ins.resultCount;
      if (!makes) {
        continue;
      }
      const auto operands = trace.operandsOf(ins);
      if (ins.op != ir::Op::kAten || operands.empty()) return false;
      const ir::Operand* earlier = earlierName(trace, ins, operands, *name - ins.firstResult);
      name = earlier != nullptr && earlier->isValue() ? std::optional(earlier->id) : std::nullopt;
    }
    return name == id;
  }
  // The operand that is the tensor which result `place` is another name of; null: none. That is what was
  // written to: the first operand, or with `out=` one of the last. An operator may give an argument back,
  // too: of a list
  // (torch.broadcast_tensors) the one at the result's place.
  static const ir::Operand* earlierName(const ir::Trace& trace, const ir::Instruction& ins,
                                        std::span<const ir::Operand> operands, size_t place) {
    const std::string_view op = trace.opNames[ins.opName];
    const bool inPlace = op.substr(0, op.rfind('.')).ends_with('_');
    if (!inPlace && torchapi::opEffects(op).writes && operands.size() >= ins.resultCount) {
      return &operands[operands.size() - ins.resultCount + place];
    }
    if (operands.front().kind != ir::OperandKind::kList) return place == 0 ? &operands.front() : nullptr;
    const std::span<const ir::Operand> elements = trace.listOf(operands.front());
    return place < elements.size() ? &elements[place] : nullptr;
  }
  // True if the value is an input whose source led to this tensor. Two inputs may be the same tensor, under a
  // guard that says so (restorer.cc); then either value may name it.
  bool isInput(ir::ValueId id, PyObject* object) {
    bool input = false, read = false;
    const ir::Trace& trace = known_.trace;
    for (const ir::Instruction& ins : trace.code) {
      if (ins.op != ir::Op::kInput) continue;
      input = input || ins.firstResult == id;
      read = read || isSource(trace.operandsOf(ins)[0].id, object);
    }
    return input && read;
  }
  bool isVirtual(uint32_t id, PyObject* object) {
    return id < known_.virtuals.size() && known_.virtuals.at(id).object.get() == object;
  }

  const KnownShadows& known_;
};

bool isHandled(PyObject* object) {
  return object == Py_None || (object && PyExceptionInstance_Check(object));
}

std::string place(const char* what, size_t index, PyObject* object, const std::string& problem) {
  const char* type = object == nullptr ? "nothing" : pyapi::typeNameOf(object);
  return std::string(what) + " " + std::to_string(index) + " holds " + type + ": " + problem;
}

}  // namespace

std::string shadowProblem(const KnownShadows& known, const ShadowFrame& frame, const Activation& act,
                          const Instr& instr) {
  ShadowCheck check(known);
  for (size_t i = 0; i < frame.locals.size(); ++i) {
    PyObject* object = pyapi::localAt(act.frame, static_cast<int>(i));
    if (std::string problem = check.slot(frame.locals[i], object); !problem.empty()) {
      return place("local", i, object, problem);
    }
  }
  PyObject** stack = pyapi::stackBase(act.frame);
  for (size_t i = 0; i < frame.stack.size(); ++i) {
    const bool handles = !frame.handled.isNull() || instr.op == op::RERAISE;
    if (handles && frame.stack[i].isNull() && isHandled(stack[i])) {
      continue;
    }
    if (std::string problem = check.slot(frame.stack[i], stack[i]); !problem.empty()) {
      return place("stack slot", i, stack[i], problem);
    }
  }
  return "";
}

}  // namespace kintsugi::capture
