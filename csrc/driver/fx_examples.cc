#include "driver/fx_examples.h"

#include "driver/operand_objects.h"
#include "torchapi/example_tensor.h"
#include "torchapi/global_state.h"
#include "torchapi/value.h"

namespace kintsugi::driver {

using ir::Instruction;
using ir::Op;
using ir::TypeKind;
using ir::ValueId;
using pyapi::Ref;
using torchapi::Value;

StateAt stateAt(const recording::Recording& recording, uint32_t end) {
  const ir::Trace& trace = recording.document.trace;
  std::unordered_map<ValueId, const torchapi::StateAfterCall*> after;
  for (const torchapi::StateAfterCall& each : recording.statesAfterCalls) {
    after[each.call] = &each;
  }
  StateAt state{.gradMode = torchapi::gradMode()};
  for (uint32_t i = 0; i < end; ++i) {
    const Instruction& ins = trace.code[i];
    if ((ins.op == Op::kCall || ins.op == Op::kCallKnown) && !ins.deferrable) {
      const auto found = after.find(ins.firstResult);
      state.known = found != after.end() && found->second->unchanged;
      state.gradMode = state.known ? found->second->gradMode : state.gradMode;
    } else if (ins.op == Op::kSetGrad) {
      const ir::Operand& mode = trace.operandsOf(ins)[0];
      state.known = state.known && !mode.isValue();
      state.gradMode = mode.i != 0;
    }
  }
  return state;
}

Examples::Examples(const recording::Recording& recording, const std::vector<Ref<>>& objects)
    : recording_(recording), trace_(recording.document.trace), objects_(objects), walker_(trace_) {
  for (const Instruction& ins : trace_.code) {
    if (ins.op == Op::kInput) {
      sources_[ins.firstResult] = trace_.operandsOf(ins)[0].id;
    }
  }
}

// A step may have changed what it was given.
Ref<> Examples::of(const ir::SegmentRange& range) {
  for (; seen_ < range.begin; ++seen_) {
    Instruction ins = trace_.code[seen_];
    ins.snap = ir::kNone;
    if (ins.op == Op::kCall || ins.op == Op::kCallKnown || ins.op == Op::kBuild) {
      walker_.instruction(
          ins, [this](ValueId value) { given_.insert(value); }, [](ir::SourceId) {});
    }
  }
  std::vector<ValueId> inputs;
  ir::collectValues(trace_, trace_.operandsOf(trace_.code[range.begin]), inputs);
  Ref<> list = pyapi::steal(PyList_New(0));
  made_ = pyapi::steal(PyList_New(0));
  bool any = false;
  for (const ValueId value : inputs) {
    Ref<> example = found(value);
    const bool make = !example;
    example = make ? looksLike(value) : std::move(example);
    any = any || make;
    if (!example || !appendTo(made_.get(), make ? example.clone() : pyapi::newRef(Py_None)) ||
        !appendTo(list.get(), std::move(example))) {
      PyErr_Clear();
      return {};
    }
  }
  if (!any) {
    made_.reset();
  }
  return list;
}
// An object that the call was given, or has found. The call may have put another one in its place.
Ref<> Examples::found(ValueId value) const {
  const auto source = sources_.find(value);
  if (source == sources_.end() || source->second >= objects_.size() || !objects_[source->second]) {
    return {};
  }
  PyObject* object = objects_[source->second].get();
  const ir::Type& type = trace_.values[value];
  Value unboxed;
  const bool fits = torchapi::unbox(object, torchapi::kindOfType(type.kind), unboxed);
  torchapi::clear(unboxed);
  const bool same =
      fits && (type.kind != TypeKind::kTensor || type.meta == ir::kNone ||
               torchapi::matches(object, trace_.metas.at(type.meta), trace_.hasFixedSizes(type)));
  return same ? pyapi::newRef(object) : Ref<>();
}

Ref<> Examples::looksLike(ValueId value) const {
  const ir::Type& type = trace_.values[value];
  const bool known = type.kind == TypeKind::kTensor && trace_.hasFixedSizes(type) && !given_.contains(value);
  return known ? torchapi::exampleOf(trace_.metas.at(type.meta)) : Ref<>();
}

}  // namespace kintsugi::driver
