#include "capture/record/second_half.h"

#include "pyapi/frame.h"

namespace kintsugi::capture {

SecondHalf::SecondHalf(RecordContext& rec, ShadowFrame& frame, Activation& act)
    : rec_(rec), frame_(frame), act_(act), outer_(rec.instruction.stackBefore()) {
  before_.frame = &frame;
  before_.shadows = frame.stack;
  PyObject** base = pyapi::stackBase(act.frame);
  for (size_t i = 0; i < frame.stack.size(); ++i) {
    before_.objects.push_back(base[i] != nullptr ? pyapi::newRef(base[i]) : pyapi::Ref<>());
  }
}

SecondHalf::~SecondHalf() { rec_.instruction.setStackBefore(outer_); }

Flow SecondHalf::run(const Instr& second) const {
  if (!rec_.live()) return rec_.execute(act_, second);
  rec_.instruction.beginHalf(&before_, frame_.stack.size());
  return recordHandler(second.op)(rec_, frame_, act_, second);
}

}  // namespace kintsugi::capture
