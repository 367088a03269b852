#include "driver/trace_data.h"

#include "capture/attempt.h"
#include "driver/operand_objects.h"
#include "guard/kinds.h"
#include "ir/printer.h"
#include "pyapi/drop_reference.h"
#include "pyapi/text.h"
#include "runtime/run_events.h"
#include "torchapi/python_constants.h"

namespace kintsugi::driver {

using ir::Instruction;
using ir::Op;
using pyapi::Ref;

namespace {

Ref<> none() { return pyapi::newRef(Py_None); }

// kNone is None.
Ref<> numberOf(uint32_t id) { return id == ir::kNone ? none() : numberObject(id); }

std::string_view typeText(ir::TypeKind kind) {
  switch (kind) {
    case ir::TypeKind::kNone:
      return "none";
    case ir::TypeKind::kTensor:
      return "tensor";
    case ir::TypeKind::kInt:
      return "int";
    case ir::TypeKind::kFloat:
      return "float";
    case ir::TypeKind::kBool:
      return "bool";
    case ir::TypeKind::kObject:
      return "object";
  }
  return "none";
}

class Writer {
 public:
  explicit Writer(const runtime::CompiledTrace& trace)
      : recorded_(trace), recording_(trace.recording()), trace_(trace.trace()) {}

  Ref<> write() const {
    Ref<> dict = pyapi::steal(PyDict_New());
    const bool ok = dict && writeEntry(dict.get()) && writeTables(dict.get()) &&
                    setIn(dict.get(), "snaps", snaps()) &&
                    setIn(dict.get(), "code",
                          listOf(trace_.code, [this](const Instruction& ins) { return instruction(ins); }));
    return ok ? std::move(dict) : Ref<>();
  }

 private:
  bool writeEntry(PyObject* dict) const {
    return setIn(dict, "file", textObject(trace_.file)) && setIn(dict, "line", numberObject(trace_.line)) &&
           setIn(dict, "function", textObject(trace_.function)) &&
           setIn(dict, "arguments", numberObject(static_cast<int64_t>(recording_.argCount))) &&
           setIn(dict, "keywords",
                 recording_.kwNames ? recording_.kwNames.clone() : pyapi::steal(PyTuple_New(0)));
  }

  bool writeTables(PyObject* dict) const {
    const guard::Document& document = recording_.document;
    std::vector<ir::SourceId> ids(document.sources.nodes.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<ir::SourceId>(i);
    auto path = [&](ir::SourceId id) { return textObject(document.sources.path(id, trace_.constTexts)); };
    return setIn(dict, "sources",
                 listOf(document.sources.nodes, [this](const guard::SourceNode& n) { return source(n); })) &&
           setIn(dict, "paths", listOf(ids, path)) &&
           setIn(dict, "guards",
                 listOf(document.guards.guards,
                        [this](const guard::Guard& g) {
                          return tupleOf(textObject(guard::kindInfo(g.kind).text), numberOf(g.source),
                                         constant(g.key));
                        })) &&
           setIn(dict, "constants", listOf(recording_.consts, [](const Ref<>& c) { return c.clone(); })) &&
           setIn(dict, "values",
                 listOf(trace_.values, [](const ir::Type& t) { return textObject(typeText(t.kind)); })) &&
           setIn(dict, "metas", listOf(trace_.metas, [](const ir::TensorDesc& t) { return meta(t); })) &&
           setIn(dict, "recipes", listOf(trace_.recipes, [this](const ir::Recipe& r) { return recipe(r); }));
  }

  Ref<> constant(ir::ConstId id) const { return id == ir::kNone ? none() : recording_.consts[id].clone(); }

  Ref<> source(const guard::SourceNode& node) const {
    const guard::KindInfo& kind = guard::kindInfo(node.kind);
    const bool indexed = kind.has('i') || kind.has('v');
    return tupleOf(textObject(kind.text), kind.has('p') ? numberOf(node.parent) : none(),
                   kind.has('k') ? constant(node.key) : none(), indexed ? numberObject(node.index) : none());
  }

  static Ref<> meta(const ir::TensorDesc& info) {
    return tupleOf(listOf(info.sizes, numberObject), torchapi::dtypeObject(static_cast<int8_t>(info.dtype)));
  }

  Ref<> recipe(const ir::Recipe& r) const {
    return tupleOf(textObject(ir::recipeKindName(r.kind)), constant(r.type),
                   operandObjects(trace_, r.parts, Describing::kAll));
  }

  Ref<> snaps() const {
    std::vector<ir::StateId> ids(trace_.states.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<ir::StateId>(i);
    return listOf(ids, [this](ir::StateId id) { return frames(id); });
  }

  Ref<> frames(ir::StateId id) const {
    std::vector<ir::ConstId> codes;
    for (ir::StateId at = id; at != ir::kNone; at = trace_.states[at].parent) {
      codes.insert(codes.begin(), trace_.states[at].code);
    }
    size_t k = 0;
    return listOf(runtime::framesOf(recorded_, id), [&](const diag::SourceLoc& place) {
      return tupleOf(textObject(place.file), numberObject(place.line), textObject(place.function),
                     constant(codes[k++]));
    });
  }

  Ref<> instruction(const Instruction& ins) const {
    std::vector<ir::ValueId> results(ins.resultCount);
    for (uint32_t r = 0; r < ins.resultCount; ++r) results[r] = ins.firstResult + r;
    const bool aten = ins.op == Op::kAten;
    return tupleOf(textObject(opText(ins)), aten ? textObject(trace_.opNames[ins.opName]) : none(),
                   operandObjects(trace_, trace_.operandsOf(ins), Describing::kAll),
                   listOf(results, numberObject), numberOf(ins.snap), keywords(ins));
  }

  // Steps of our own have names of their own.
  std::string_view opText(const Instruction& ins) const {
    const std::string_view text = ir::opInfo(ins.op).text;
    if (ins.op != Op::kCall && ins.op != Op::kCallKnown) return text;
    const ir::Operand& callee = trace_.operandsOf(ins)[0];
    if (callee.kind != ir::OperandKind::kConst) return text;
    const PyObject* called = recording_.consts[callee.id].get();
    if (called == pyapi::dropReferenceFunction()) return "drop";
    return called == capture::attemptFunction() ? "attempt" : text;
  }

  Ref<> keywords(const Instruction& ins) const {
    std::vector<uint32_t> places(ins.kwCount);
    for (uint32_t k = 0; k < ins.kwCount; ++k) places[k] = ins.kwNames + k;
    return listOf(places,
                  [this](uint32_t at) { return pyapi::decoded(trace_.strings[trace_.lists[at].id]); });
  }

  const runtime::CompiledTrace& recorded_;
  const recording::Recording& recording_;
  const ir::Trace& trace_;
};

}  // namespace

Ref<> traceData(const runtime::CompiledTrace& trace) { return Writer(trace).write(); }

}  // namespace kintsugi::driver
