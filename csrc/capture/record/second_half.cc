#include "capture/record/second_half.h"

#include "pyapi/frame.h"

namespace kintsugi::capture {

SecondHalf::SecondHalf(Recorder& rec, ShadowFrame& frame, Activation& act)
    : rec_(rec), frame_(frame), act_(act), outer_(rec.known().stackBefore_) {
  before_.frame = &frame;
  before_.shadows = frame.stack;
  PyObject** base = pyapi::stackBase(act.frame);
  for (size_t i = 0; i < frame.stack.size(); ++i) {
    before_.objects.push_back(base[i] != nullptr ? pyapi::newRef(base[i]) : pyapi::Ref<>());
  }
}

SecondHalf::~SecondHalf() { rec_.known().stackBefore_ = outer_; }

Flow SecondHalf::run(const Instr& second) const {
  RecorderState& known = rec_.known();
  if (!rec_.live()) return rec_.execute(act_, second);
  known.stackBefore_ = &before_;
  known.depthBefore_ = frame_.stack.size();
  known.executed_ = false;
  return recordHandler(second.op)(rec_, frame_, act_, second);
}

}  // namespace kintsugi::capture
