// Inside torchapi only: turns logged ATen calls into instructions of a trace.
//
// A log is converted as a whole or not at all: a first pass over it decides whether everything can be
// expressed, a second one writes. Ownership: borrows the log, the table and the trace for one conversion.
// Threads: the recording one. GIL: held (tensors' Python objects are looked at). Invalidation: none.
#pragma once

#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "torchapi/op_log.h"
#include "torchapi/op_recorder.h"
#include "torchapi/tensor_table.h"

namespace kintsugi::torchapi {

class OpDrain {
 public:
  OpDrain(OpLog& log, TensorTable& table, ir::Trace& trace, ir::StateId snap)
      : log_(log), table_(table), trace_(trace), snap_(snap) {}

  DrainResult run();

 private:
  // First pass. False: the status is set.
  bool check(const OpLog::Entry& entry, const OpSchema& schema);
  bool checkInput(const c10::IValue& value, OpSchema::Arg arg);
  bool checkTensor(const at::Tensor& tensor);
  bool checkOutput(const c10::IValue& value, OpSchema::Arg result);
  // C++ code that fills memory by hand calls an `empty` and works on its result. Neither must be replayed.
  bool isHidden(size_t index) const;
  bool isFactory(const OpLog::Entry& entry) const;
  bool isReadLater(const at::TensorImpl* impl, size_t index) const;
  bool isProduced(const at::TensorImpl* impl) const;
  void noteProduced(const at::TensorImpl* impl);
  size_t mentionsOf(const at::TensorImpl* impl) const;  // references that the log itself holds
  bool refuse(DrainResult::Status status);
  // True for a tensor that C++ has made of a Python number for this call alone, so that nobody else can reach
  // it.
  bool isTemporaryNumber(const at::Tensor& tensor);
  // The same, made of a list of integers.
  bool isTemporaryList(const at::Tensor& tensor);

  // Zeros without memory (zero_tensors.cc).
  static bool isZero(const at::Tensor& tensor);
  bool makesZero(const OpLog::Entry& entry) const;
  const at::Tensor* addedToZero(const OpLog::Entry& entry, const OpSchema& schema) const;
  bool checkSum(const OpLog::Entry& entry, const OpSchema& schema);
  bool appendSum(const OpLog::Entry& entry, const OpSchema& schema);
  void appendZero(const at::Tensor& tensor);

  // Second pass.
  void append(const OpLog::Entry& entry, const OpSchema& schema);
  MetaLevel resultLevel(const OpLog::Entry& entry, const OpSchema& schema) const;
  bool takesProduced(const OpLog::Entry& entry) const;
  bool inputsAreKnown(const OpLog::Entry& entry) const;
  MetaLevel levelOf(const at::Tensor& tensor) const;
  bool mixesRanks(const OpLog::Entry& entry) const;
  ir::Operand operandOf(const c10::IValue& value, OpSchema::Arg arg);
  ir::Operand listOperand(const c10::IValue& value, ArgClass cls);
  ir::Operand scalarOperand(const c10::IValue& value);
  ir::Operand tensorOperand(const at::Tensor& tensor);
  ir::Operand numberOperand(const at::Tensor& tensor);
  ir::ValueId appendNumberTensor(const at::Tensor& tensor);
  ir::ValueId appendListTensor(const at::Tensor& tensor);
  ir::ValueId appendFactory(ops::Operator op, std::span<const ir::Operand> operands, const at::Tensor& like);
  ir::Type tensorType(const at::Tensor& tensor, MetaLevel level);
  void addResult(const c10::IValue& value, MetaLevel level);
  void bindResult(const c10::IValue& value, ir::ValueId& next, MetaLevel level);
  void bindTensor(const at::Tensor& tensor, ir::ValueId value, MetaLevel level);
  void appendRequiresGrad(const OpLog::Entry& entry);

  OpLog& log_;
  TensorTable& table_;
  ir::Trace& trace_;
  ir::StateId snap_;
  DrainResult result_;
  // Tensors made by calls that were checked already. There are few, or, for functions on lists, many.
  std::vector<const at::TensorImpl*> produced_;
  std::unordered_set<const at::TensorImpl*> producedMany_;
  std::unordered_map<const at::TensorImpl*, ir::ValueId> numbers_;
  std::vector<ir::Type> types_;
};

}  // namespace kintsugi::torchapi
