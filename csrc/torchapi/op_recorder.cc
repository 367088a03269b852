#include "torchapi/op_recorder.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "ops/operator.h"
#include "support/check.h"
#include "support/fault.h"
#include "torchapi/given_back.h"
#include "torchapi/op_drain.h"
#include "torchapi/op_log.h"
#include "torchapi/op_schema.h"
#include "torchapi/tensor_stamp.h"
#include "torchapi/tensor_table.h"

namespace kintsugi::torchapi {

struct OpRecorder::Impl {
  OpLog log;
  TensorTable table;
  int depth = 0;
  // The state before resume(), since recorders may be nested.
  OpLog* outerLog = nullptr;
  bool outerKey = false;
};

OpRecorder::OpRecorder() : impl_(std::make_unique<Impl>()) {}

OpRecorder::~OpRecorder() {
  while (impl_->depth > 0) {
    pause();
  }
}

void OpRecorder::resume() {
  if (impl_->depth++ > 0) {
    return;
  }
  impl_->outerLog = std::exchange(OpLog::active(), &impl_->log);
  impl_->outerKey = c10::impl::tls_is_dispatch_key_included(kRecorderKey);
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, true);
}

void OpRecorder::pause() {
  KINTSUGI_CHECK(impl_->depth > 0, "pause() without resume()");
  if (--impl_->depth > 0) {
    return;
  }
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, impl_->outerKey);
  OpLog::active() = impl_->outerLog;
}

bool OpRecorder::hasEffects() const {
  const OpLog& log = impl_->log;
  return log.failedInEffect ||
         std::any_of(log.entries.begin(), log.entries.end(),
                     [](const OpLog::Entry& entry) { return mayHaveEffects(entry.op); });
}

void OpRecorder::discard() { impl_->log.clear(); }

GivenBack OpRecorder::givenBack() { return findGivenBack(impl_->log, impl_->table); }

DrainResult OpRecorder::drain(ir::Trace& trace, ir::StateId snap) {
  faultPoint("drain");
  if (impl_->log.entries.empty()) {
    return {};
  }
  // The conversion itself may call an operator (to read a number). It must not be logged.
  c10::impl::ExcludeDispatchKeyGuard below(kRecorderKey);
  DrainResult result = OpDrain(impl_->log, impl_->table, trace, snap).run();
  impl_->log.clear();
  return result;
}

std::optional<ir::ValueId> OpRecorder::valueOf(PyObject* tensor) const {
  const TensorTable::Known* known = impl_->table.find(THPVariable_Unpack(tensor).unsafeGetTensorImpl());
  return known == nullptr ? std::nullopt : std::optional<ir::ValueId>(known->value);
}

void OpRecorder::bind(PyObject* tensor, ir::ValueId value, MetaLevel level) {
  const at::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  impl_->table.bind(impl, metaStamp(*impl), value, level);
}

void OpRecorder::restore(PyObject* tensor, ir::ValueId value) {
  const at::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  impl_->table.restore(impl, metaStamp(*impl), value);
}

MetaLevel OpRecorder::level(ir::ValueId value) const { return impl_->table.level(value); }
void OpRecorder::expireLevels() { impl_->table.expireLevels(); }
void OpRecorder::expireChanged() { impl_->table.expireChanged(); }
MetaLevel OpRecorder::expiredLevel(ir::ValueId value) const { return impl_->table.expiredLevel(value); }
void OpRecorder::setLevel(ir::ValueId value, MetaLevel level) { impl_->table.setLevel(value, level); }
bool OpRecorder::isMaybeArgument(ir::ValueId value) const { return impl_->table.isMaybeArgument(value); }
const std::string* OpRecorder::likelyFrom(ir::ValueId value) const { return impl_->table.likelyFrom(value); }
bool OpRecorder::inOperator() { return c10::impl::tls_local_dispatch_key_set().excluded_.has(kRecorderKey); }

void OpRecorder::forgetTensors() {
  impl_->log.clear();
  impl_->table.forgetTensors();
}

void OpRecorder::forget(ir::ValueId value) { impl_->table.forget(value); }

ir::MetaId OpRecorder::internMeta(ir::Trace& trace, const ir::TensorDesc& info) {
  return impl_->table.internMeta(trace, info);
}
void OpRecorder::adopt(const ir::Trace& trace, const std::vector<MetaLevel>& levels, ir::ValueId known) {
  noteMaybeArguments(trace, impl_->table);
  impl_->table.adoptMetas(trace);
  impl_->table.adoptLevels(levels, known);
}
std::vector<MetaLevel> OpRecorder::takeLevels() { return impl_->table.takeLevels(); }

}  // namespace kintsugi::torchapi
