#include "runtime/run_events.h"

#include <algorithm>
#include <unordered_map>

#include "pyapi/callable_name.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

namespace events = diag::events;

namespace {

// What the events of one instruction have in common.
struct StepTexts {
  events::TextId stack = 0;
  events::TextId name = 0;
};

constexpr size_t kMostSteps = 1 << 16;  // kept; then they are looked up again

// What is called, or what is written to.
std::string nameOf(const recording::Recording& recording, const ir::Instruction& ins) {
  const ir::Trace& trace = recording.document.trace;
  const auto operands = trace.operandsOf(ins);
  const bool isCall = ins.op == ir::Op::kCall || ins.op == ir::Op::kCallKnown || ins.op == ir::Op::kCallPure;
  const ir::Operand& target = operands[0];
  std::string name;
  if (target.kind == ir::OperandKind::kConst) {
    name = pyapi::callableName(recording.consts[target.id].get());
  } else if (target.kind == ir::OperandKind::kSource) {
    name = recording.document.sources.path(target.id, trace.constTexts);
  } else {
    name = "an object made here";
  }
  if (isCall) return name;
  const bool onAttribute = ins.op == ir::Op::kSetAttr || ins.op == ir::Op::kDelAttr;
  return onAttribute ? name + "." + trace.strings[operands[1].id]
                     : name + " (" + ir::opInfo(ins.op).text + ")";
}

StepTexts textsOf(const CompiledTrace& trace, uint32_t instruction) {
  // Under the GIL.
  static auto* known = new std::unordered_map<uint64_t, StepTexts>;
  const uint64_t key = (uint64_t{trace.number()} << 32) | instruction;
  if (const auto found = known->find(key); found != known->end()) return found->second;
  const ir::Instruction& ins = trace.trace().code[instruction];
  const StepTexts texts{stackOf(trace, ins.snap), events::intern(nameOf(trace.recording(), ins))};
  if (known->size() >= kMostSteps) known->clear();
  return (*known)[key] = texts;
}

events::Kind kindOf(ir::Op op) {
  switch (op) {
    case ir::Op::kCall:
      return events::Kind::kOpaque;
    case ir::Op::kCallKnown:
    case ir::Op::kCallPure:
      return events::Kind::kStep;
    default:
      return events::Kind::kEffect;
  }
}

}  // namespace

std::vector<diag::SourceLoc> framesOf(const CompiledTrace& trace, ir::StateId state) {
  std::vector<diag::SourceLoc> frames;
  const ir::Trace& recorded = trace.trace();
  for (; state != ir::kNone; state = recorded.states[state].parent) {
    const ir::FrameState& frame = recorded.states[state];
    auto* code = reinterpret_cast<PyCodeObject*>(trace.recording().consts[frame.code].get());
    const int32_t pc = frames.empty() ? frame.pc : frame.waitingUnit();
    frames.push_back({pyapi::utf8(pyapi::fileOf(code)), pyapi::lineAt(code, std::max(pc, 0)),
                      pyapi::utf8(pyapi::nameOf(code))});
  }
  std::reverse(frames.begin(), frames.end());
  return frames;
}

events::TextId stackOf(const CompiledTrace& trace, ir::StateId state) {
  const std::vector<diag::SourceLoc> frames = framesOf(trace, state);
  return frames.empty() ? entryOf(trace) : events::intern(events::stackText(frames));
}

events::TextId entryOf(const CompiledTrace& trace) {
  const ir::Trace& recorded = trace.trace();
  return events::intern(events::stackText({{recorded.file, recorded.line, recorded.function}}));
}

void emitStep(const CompiledTrace& trace, uint32_t instruction, uint64_t startNs) {
  const uint64_t duration = events::nowNs() - startNs;
  // The step may have left an exception pending.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const StepTexts texts = textsOf(trace, instruction);
  PyErr_Restore(type, value, traceback);
  events::emit({.startNs = startNs,
                .durationNs = duration,
                .extra = instruction,
                .trace = trace.number(),
                .stack = texts.stack,
                .name = texts.name,
                .kind = kindOf(trace.trace().code[instruction].op)});
}

std::string stepTitle(const CompiledTrace& trace, uint32_t instruction) {
  const StepTexts texts = textsOf(trace, instruction);
  const std::string stack = events::textOf(texts.stack);
  // The innermost frame: file US line US function.
  const std::string frame = stack.substr(stack.rfind('\n') + 1);
  const size_t first = frame.find('\x1f'), second = frame.find('\x1f', first + 1);
  const std::string file = frame.substr(0, first);
  return "kintsugi " + std::string(events::kindName(kindOf(trace.trace().code[instruction].op))) + " " +
         events::textOf(texts.name) + " (" + file.substr(file.rfind('/') + 1) + ":" +
         frame.substr(first + 1, second - first - 1) + ")";
}

std::string entryTitle(const CompiledTrace& trace) {
  const std::string& file = trace.trace().file;
  return trace.trace().function + " (" + file.substr(file.rfind('/') + 1) + ":" +
         std::to_string(trace.trace().line) + ")";
}

void ScopedEvent::begin(events::Event event) {
  event_ = event;
  event_.startNs = events::nowNs();
  active_ = true;
}

ScopedEvent::~ScopedEvent() {
  if (!active_) return;
  event_.durationNs = events::nowNs() - event_.startNs;
  events::emit(event_);
}

}  // namespace kintsugi::runtime
