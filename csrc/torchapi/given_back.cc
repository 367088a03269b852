#include "torchapi/given_back.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "torchapi/op_schema.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

bool hasTraceNumber(const c10::IValue& value) {
  if (value.isSymIntList()) {
    for (const c10::SymInt& element : value.toSymIntVector()) {
      if (element.is_heap_allocated()) {
        return true;
      }
    }
    return false;
  }
  return value.isSymInt() || value.isSymFloat();
}

namespace {

using Impls = std::vector<const at::TensorImpl*>;

Impls tensorsIn(const OpLog& log, size_t from, size_t to) {
  Impls found;
  for (size_t k = from; k < to; ++k) {
    forEachTensor(log.values[k], [&found](const at::Tensor& tensor) {
      if (tensor.defined()) found.push_back(tensor.unsafeGetTensorImpl());
    });
  }
  return found;
}

ir::TensorDesc descriptionOf(const at::TensorImpl& impl) {
  ir::TensorDesc desc = describe(impl);
  PyObject* object = impl.pyobj_slot()->load_pyobj();
  desc.pyType = object != nullptr ? reinterpret_cast<PyObject*>(Py_TYPE(object)) : THPVariableClass;
  return desc;
}

// True if strides decide, too: a memory format is asked for.
bool asksForFormat(const OpLog& log, const OpLog::Entry& entry, const OpSchema& schema) {
  for (size_t k = 0; k < schema.args.size(); ++k) {
    const c10::IValue& value = log.values[entry.firstInput + k];
    if (schema.args[k].cls == ArgClass::kMemoryFormat && !value.isNone() &&
        value.toMemoryFormat() != c10::MemoryFormat::Preserve)
      return true;
  }
  return false;
}

}  // namespace

bool mayGiveBack(const OpSchema& schema, std::span<const ir::Operand> operands) {
  const auto asksForFormat = [](const ir::Operand& operand) {
    return operand.kind == ir::OperandKind::kMemoryFormat &&
           operand.i != static_cast<int64_t>(c10::MemoryFormat::Preserve);
  };
  return schema.identityOfSizes ||
         (schema.identityOfType && std::any_of(operands.begin(), operands.end(), asksForFormat));
}

void noteMaybeArguments(const ir::Trace& trace, TensorTable& table) {
  std::vector<const OpSchema*> schemas;  // by name
  for (const std::string& name : trace.opNames) schemas.push_back(findOpSchema(name));
  for (const ir::Instruction& ins : trace.code) {
    const OpSchema* schema = ins.op == ir::Op::kAten ? schemas[ins.opName] : nullptr;
    if (schema != nullptr && ins.resultCount > 0 && mayGiveBack(*schema, trace.operandsOf(ins)))
      table.setMaybeArgument(ins.firstResult);
  }
}

namespace {

void look(const OpLog& log, const OpLog::Entry& entry, const TensorTable& table, GivenBack& answer) {
  const OpSchema& schema = opSchemaOf(entry.op);
  if (entry.op.schema().is_mutable()) return;  // in place or out=: that it gives it back is what it is for
  const Impls in = tensorsIn(log, entry.firstInput, entry.firstOutput);
  const Impls out = tensorsIn(log, entry.firstOutput, entry.end);
  const auto same = std::find_first_of(out.begin(), out.end(), in.begin(), in.end());
  if (same == out.end() && !schema.identityOfType) return;
  // Empty tensors are given back by some that copy others.
  const bool ofSizes = same != out.end() &&
                       (!schema.identityOfType || (*same)->numel() == 0 || asksForFormat(log, entry, schema));
  const auto first = log.values.begin() + static_cast<std::ptrdiff_t>(entry.firstInput);
  const bool numbers =
      same != out.end() &&
      std::any_of(first, first + static_cast<std::ptrdiff_t>(schema.args.size()), hasTraceNumber);
  answer.hasUnknown = answer.hasUnknown || numbers;
  const MetaLevel needed = ofSizes ? MetaLevel::kFull : MetaLevel::kRank;
  for (const at::TensorImpl* impl : in) {
    const TensorTable::Known* known = table.find(impl);
    if (known == nullptr) {
      answer.hasUnknown = answer.hasUnknown || (same != out.end() && *same == impl);
    } else if (numbers || table.level(known->value) < needed) {
      answer.tensors.push_back({known->value, needed, descriptionOf(*impl)});
    }
  }
}

}  // namespace

GivenBack findGivenBack(OpLog& log, const TensorTable& table) {
  GivenBack answer;
  log.lockOutputs();
  for (const OpLog::Entry& entry : log.entries) look(log, entry, table, answer);
  return answer;
}

}  // namespace kintsugi::torchapi
