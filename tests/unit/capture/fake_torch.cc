// What the recorder's parts ask of torch, of models and of the interpreter, without them: no object is a
// tensor but an instance of a class `Tensor` that a test has defined, and no function of kintsugi._polyfills
// is there but what a test has defined under its name (python_objects.h).
#include "unit/capture/fake_torch.h"

#include "capture/calls/numpy.h"
#include "capture/gradient_buckets.h"
#include "capture/handlers/handlers.h"
#include "capture/makers.h"
#include "capture/tables/global_states.h"
#include "torchapi/global_state.h"
#include "torchapi/op_effects.h"
#include "torchapi/op_recorder.h"
#include "torchapi/tensor_desc.h"
#include "torchapi/transforms.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture::test {

FakeTorch& fakeTorch() {
  static FakeTorch torch;
  return torch;
}

}  // namespace kintsugi::capture::test

namespace kintsugi::torchapi {

using capture::test::fakeTorch;

bool isTensor(PyObject* object) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) ==
         PyDict_GetItemString(capture::test::names(), "Tensor");
}
bool isExactTensorType(PyTypeObject*) { return true; }
// A wrapper has the tensor inside it as `inner`.
bool isWrapper(PyObject* object) { return isTensor(object) && PyObject_HasAttrString(object, "inner") != 0; }
pyapi::Ref<> innermost(PyObject* tensor) {
  return isWrapper(tensor) ? pyapi::steal(PyObject_GetAttrString(tensor, "inner")) : pyapi::newRef(tensor);
}
bool isZeroTensor(PyObject* tensor) { return PyObject_HasAttrString(tensor, "zero") != 0; }
const void* tensorImplOf(PyObject* tensor) { return tensor; }
// The trace can describe each tensor but those that are `foreign`.
ir::TensorDesc describe(PyObject* tensor) {
  ir::TensorDesc info;
  info.plain = PyObject_HasAttrString(tensor, "foreign") == 0;
  return info;
}
bool isRandomGenerator(PyObject*) { return false; }
bool hasModes() { return fakeTorch().modes; }
bool hasFunctionModes() { return fakeTorch().functionModes; }
bool operatorsCallUnseen() { return fakeTorch().unseenCode; }
bool transformsActive() { return false; }
pyapi::Ref<> makeSymNumber(NumberSink& sink, const TraceNumber& number) {
  fakeTorch().sink = &sink;
  PyObject* symbolic = PyDict_GetItemString(capture::test::names(), "Symbolic");
  return pyapi::steal(PyObject_CallFunction(symbolic, "iL", static_cast<int>(number.value),
                                            static_cast<long long>(number.i)));
}
pyapi::Ref<> withoutSymNumbers(PyObject* object) {
  const bool symbolic = reinterpret_cast<PyObject*>(Py_TYPE(object)) ==
                        PyDict_GetItemString(capture::test::names(), "Symbolic");
  return symbolic ? pyapi::steal(PyObject_GetAttrString(object, "number")) : pyapi::Ref<>();
}
ir::TensorDesc withOpenSizes(ir::TensorDesc info, uint64_t) { return info; }
bool tensorVersion(const void*, uint64_t&) { return true; }
GlobalState GlobalState::current() { return {}; }
bool GlobalState::equalsExceptGradMode(GlobalState other) const { return *this == other; }
bool gradMode() { return true; }
OpEffects opEffects(std::string_view name) {
  OpEffects effects;
  effects.known = true;
  effects.writes = name.ends_with("out") || name.find("_.") != std::string_view::npos;
  return effects;
}

// The tensors that were bound.
struct OpRecorder::Impl {
  std::unordered_map<PyObject*, ir::ValueId> values;
  std::unordered_map<ir::ValueId, MetaLevel> levels;
  std::unordered_map<ir::ValueId, MetaLevel> expired;
};
OpRecorder::OpRecorder() : impl_(std::make_unique<Impl>()) {}
OpRecorder::~OpRecorder() = default;
void OpRecorder::resume() {}
void OpRecorder::pause() {}
bool OpRecorder::hasEffects() const { return false; }
DrainResult OpRecorder::drain(ir::Trace&, ir::StateId) { return {}; }
void OpRecorder::discard() {}
void OpRecorder::forget(ir::ValueId) {}
std::optional<ir::ValueId> OpRecorder::valueOf(PyObject* tensor) const {
  const auto found = impl_->values.find(tensor);
  return found == impl_->values.end() ? std::nullopt : std::optional(found->second);
}
void OpRecorder::bind(PyObject* tensor, ir::ValueId value, MetaLevel level) {
  impl_->values[tensor] = value;
  impl_->levels[value] = level;
}
MetaLevel OpRecorder::level(ir::ValueId value) const { return impl_->levels.at(value); }
void OpRecorder::setLevel(ir::ValueId value, MetaLevel level) {
  impl_->levels[value] = level;
  impl_->expired.erase(value);
}
void OpRecorder::expireLevels() {
  for (auto& [value, level] : impl_->levels) {
    if (level != MetaLevel::kUnknown) impl_->expired[value] = std::exchange(level, MetaLevel::kUnknown);
  }
}
MetaLevel OpRecorder::expiredLevel(ir::ValueId value) const {
  const auto found = impl_->expired.find(value);
  return found == impl_->expired.end() ? MetaLevel::kUnknown : found->second;
}
bool OpRecorder::isMaybeArgument(ir::ValueId) const { return false; }
ir::MetaId OpRecorder::internMeta(ir::Trace& trace, const ir::TensorDesc& info) {
  trace.metas.push_back(info);
  return static_cast<ir::MetaId>(trace.metas.size() - 1);
}

}  // namespace kintsugi::torchapi

namespace kintsugi::capture {

PyObject* polyfill(const char* name) { return PyDict_GetItemString(test::names(), name); }
PyObject* makerOf(PyObject* object) { return reinterpret_cast<PyObject*>(Py_TYPE(object)); }
ir::GradientLimits activeBuckets() { return {}; }
OpHandler handlerOf(uint8_t) { return nullptr; }
bool isNumpyScalar(PyObject*) { return false; }
bool isArray(PyObject*) { return false; }

}  // namespace kintsugi::capture
