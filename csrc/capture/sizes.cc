#include "capture/sizes.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "capture/recorder_tables.h"
#include "capture/tables/pauses.h"
#include "pyapi/functions.h"
#include "pyapi/lazy.h"
#include "pyapi/object_layout.h"
#include "pyapi/slices.h"
#include "pyapi/text.h"
#include "torchapi/global_state.h"
#include "torchapi/op_effects.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

using guard::SourceKind;
using ir::Op;
using ir::Operand;
using torchapi::MetaLevel;

namespace {

// The dimensions that a user has marked by mark_dynamic() or mark_static(), torch's or ours. These functions
// leave a set as an attribute of the tensor.
uint64_t markedDims(PyObject* tensor, std::initializer_list<const char*> names, int64_t rank) {
  PyObject** dict = pyapi::materializedDictSlot(tensor);
  uint64_t dims = 0;
  for (const char* name : names) {
    PyObject* marks = dict != nullptr && *dict != nullptr ? PyDict_GetItemString(*dict, name) : nullptr;
    if (marks == nullptr || !PyAnySet_Check(marks)) continue;
    pyapi::Ref<> list = pyapi::steal(PySequence_List(marks));
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
      const int64_t dim = PyLong_AsLongLong(PyList_GET_ITEM(list.get(), i));
      if (dim >= -rank && dim < std::min<int64_t>(rank, 64))
        dims |= uint64_t{1} << (dim < 0 ? dim + rank : dim);
    }
    PyErr_Clear();
  }
  return dims;
}

// True for a parameter or buffer of a module: its sizes belong to the model.
bool belongsToModule(RecordContext& rec, ir::SourceId source) {
  const auto& nodes = rec.tables.document.sources.nodes;
  for (ir::SourceId id = source; id != ir::kNone; id = nodes[id].parent) {
    if (nodes[id].kind != SourceKind::kDictItem || nodes[id].key == ir::kNone) continue;
    const std::string_view key = pyapi::ascii(rec.tables.constants.at(nodes[id].key));
    if (key == "_parameters" || key == "_buffers") return true;
  }
  return false;
}

// True for an argument or an item in it. Attributes of arguments are state, which seldom varies.
bool isGiven(RecordContext& rec, ir::SourceId source) {
  const auto& nodes = rec.tables.document.sources.nodes;
  for (; nodes[source].parent != ir::kNone; source = nodes[source].parent) {
    const SourceKind kind = nodes[source].kind;
    if (kind != SourceKind::kDictItem && kind != SourceKind::kListItem && kind != SourceKind::kTupleItem)
      return false;
    if (nodes[nodes[source].parent].kind == SourceKind::kDict) return false;
  }
  return nodes[source].kind == SourceKind::kArg;
}

void emitMetaGuard(RecordContext& rec, ir::ValueId tensor, const ir::TensorDesc& info, ir::StateId snap) {
  const ir::MetaId meta = rec.ops().internMeta(rec.trace(), info);
  rec.steps.emit(Op::kGuardMeta, {Operand::value(tensor), Operand::integer(meta)}, {}, snap);
}

// What was known of a tensor before code that may change anything is likely to be so behind it. A guard says
// so right there: no segment or graph goes on over such code, so the guard cuts none.
void renewMeta(RecordContext& rec, Shadow tensor, PyObject* object) {
  const MetaLevel level = rec.ops().expiredLevel(tensor.valueId());
  if (level == MetaLevel::kUnknown || torchapi::transformsActive()) return;
  // A graph of another backend does go on over an operator.
  if (rec.steps.isBehindOperator() && !rec.tables.options.pinLikely) return;
  const ir::ValueId value = rec.ops().valueOf(object).value_or(tensor.valueId());
  ir::MetaId meta = rec.trace().values[value].meta;
  if (meta == ir::kNone || (level == MetaLevel::kFull && rec.trace().metas[meta].isOpen()))
    meta = rec.ops().internMeta(rec.trace(), torchapi::atLevel(torchapi::describe(object), level));
  else if (!torchapi::matches(object, rec.trace().metas[meta], true))
    return forgetMeta(rec, value);  // it has changed in this run
  rec.steps.guardHeld(value, meta);
  rec.ops().setLevel(value, level);
}

bool guardMeta(RecordContext& rec, Shadow tensor, const ir::TensorDesc& info) {
  const ir::StateId snap = rec.snapshots.stateBefore();
  if (!rec.trace().states[snap].rebuildable) {
    rec.abort(diag::Code::KTG0103, {"metadata of a tensor that is known only at run time"});
    return false;
  }
  emitMetaGuard(rec, tensor.valueId(), info, snap);
  return true;
}

bool pinContiguity(RecordContext& rec, Shadow tensor, PyObject* object) {
  renewMeta(rec, tensor, object);
  if (rec.ops().level(tensor.valueId()) == MetaLevel::kFull) return true;
  ir::TensorDesc info = torchapi::atLevel(torchapi::describe(object), MetaLevel::kRank);
  if (!info.isOpen()) return pinRank(rec, tensor, object);
  info.contiguity = torchapi::isContiguous(object) ? ir::Contiguity::kContiguous : ir::Contiguity::kStrided;
  if (!guardMeta(rec, tensor, info)) return false;
  if (rec.ops().level(tensor.valueId()) == MetaLevel::kUnknown)
    rec.ops().setLevel(tensor.valueId(), MetaLevel::kRank);
  return true;
}

// The name of torch's method or attribute that a call uses; empty for Python code and operators. Names of C
// functions and descriptors can't change.
std::string nameOf(const CallValues& ctx) {
  PyObject* callable = ctx.callable;
  const PyTypeObject* type = Py_TYPE(callable);
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyGetSetDescr_Type ||
      type == &PyMemberDescr_Type) {
    return std::string(pyapi::ascii(PyDescr_NAME(callable)));
  }
  if (!PyCFunction_Check(callable)) return {};
  static constinit pyapi::Lazy<PyObject*> getattrSlot;
  PyObject* getattr = getattrSlot.get([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"); });
  if (callable == getattr && ctx.positional >= 2) return std::string(pyapi::ascii(ctx.args[1]));
  return pyapi::builtinName(callable);
}

template <size_t N>
bool isOneOf(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Metadata that does not depend on sizes.
constexpr std::string_view kOfRank[] = {
    "dtype",        "device",        "layout",     "ndim",       "requires_grad",
    "is_leaf",      "is_cuda",       "is_cpu",     "is_sparse",  "is_quantized",
    "is_meta",      "is_nested",     "itemsize",   "is_mps",     "is_xpu",
    "is_mkldnn",    "is_sparse_csr", "is_mtia",    "is_ipu",     "is_xla",
    "is_maia",      "is_vulkan",     "dim",        "ndimension", "is_floating_point",
    "is_complex",   "is_signed",     "is_conj",    "is_neg",     "is_inference",
    "element_size", "get_device",    "result_type"};

}  // namespace

uint64_t openSizes(RecordContext& rec, ir::SourceId source, PyObject* tensor) {
  const ir::TensorDesc info = torchapi::describe(tensor);
  const auto rank = static_cast<int64_t>(info.sizes.size());
  uint64_t dims = markedDims(
      tensor, {"_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices"}, rank);
  const uint64_t fixed = markedDims(tensor, {"_dynamo_static_indices"}, rank);
  const RecorderOptions& options = rec.tables.options;
  if (options.dynamic != 0) {
    if (options.dynamicSizes != nullptr) {
      auto it = options.dynamicSizes->find(rec.tables.sources.hashOf(source));
      if (it != options.dynamicSizes->end()) dims |= it->second;
    }
    const bool all = options.dynamic == 1 || !options.assumeStatic;
    if (all && !info.isParam && !belongsToModule(rec, source)) dims = ~uint64_t{0};
  }
  return dims & ~fixed;
}

void guardRanges(RecordContext& rec, ir::SourceId source, PyObject* tensor) {
  PyObject** dict = pyapi::materializedDictSlot(tensor);
  PyObject* marks =
      dict != nullptr && *dict != nullptr ? PyDict_GetItemString(*dict, "_dynamo_dynamic_range") : nullptr;
  if (marks == nullptr || !PyAnySet_Check(marks)) return;
  const auto rank = static_cast<int64_t>(torchapi::describe(tensor).sizes.size());
  pyapi::Ref<> list = pyapi::steal(PySequence_List(marks));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    int64_t numbers[3] = {0, 0, std::numeric_limits<int64_t>::max()};
    bool bounded = false;
    const char* names[] = {"dim", "min", "max"};
    for (int k = 0; k < 3; ++k) {
      pyapi::Ref<> number = pyapi::steal(PyObject_GetAttrString(PyList_GET_ITEM(list.get(), i), names[k]));
      if (!number || !PyLong_Check(number.get())) continue;
      numbers[k] = PyLong_AsLongLong(number.get());
      bounded = bounded || k > 0;
    }
    if (numbers[0] < 0) numbers[0] += rank;
    if (!bounded || PyErr_Occurred() || numbers[0] < 0 || numbers[0] >= rank) continue;
    pyapi::Ref<> range =
        pyapi::steal(Py_BuildValue("(LLL)", static_cast<long long>(numbers[0]),
                                   static_cast<long long>(numbers[1]), static_cast<long long>(numbers[2])));
    // If the tensor breaks the bounds now, the guard would never hold, so it is not written.
    if (range && torchapi::sizeIsBetween(tensor, range.get()))
      rec.guards.guard(guard::GuardKind::kDimRange, source, rec.guards.constId(range.get()));
  }
  PyErr_Clear();
}

uint64_t openSizesOf(RecordContext& rec, ir::ValueId tensor) {
  const ir::Trace& trace = rec.trace();
  const ir::MetaId meta = trace.values[tensor].meta;
  uint64_t dims = 0;
  for (size_t d = 0; meta != ir::kNone && d < std::min<size_t>(trace.metas[meta].sizes.size(), 64); ++d) {
    dims |= uint64_t{trace.metas[meta].sizes[d] == ir::kAnySize} << d;
  }
  return dims;
}

namespace {

// True for an element of a list or tuple that a step has given: one result of the step among others
// (`torch.randperm(n).tolist()`).
bool isElementOfResult(RecordContext& rec, ir::SourceId source) {
  const auto& nodes = rec.tables.document.sources.nodes;
  const guard::SourceNode* node = &nodes[source];
  const bool element = node->parent != ir::kNone;
  while (node->kind == guard::SourceKind::kListItem || node->kind == guard::SourceKind::kTupleItem)
    node = &nodes[node->parent];
  return element && node->kind == guard::SourceKind::kValue;
}

}  // namespace

bool opensNumbers(RecordContext& rec, ir::SourceId source) {
  const RecorderOptions& options = rec.tables.options;
  if (options.dynamic == 0) return false;
  if (isElementOfResult(rec, source)) return true;
  if (rec.tables.attributes.isReadingOpen()) return true;
  if (options.dynamicSources != nullptr &&
      options.dynamicSources->contains(rec.tables.sources.hashOf(source)))
    return true;
  return options.dynamic == 1 && isGiven(rec, source);
}

bool pinMeta(RecordContext& rec, Shadow tensor, PyObject* object) {
  renewMeta(rec, tensor, object);
  if (rec.ops().level(tensor.valueId()) == MetaLevel::kFull) return true;
  if (!guardMeta(rec, tensor, torchapi::describe(object))) return false;
  rec.ops().setLevel(tensor.valueId(), MetaLevel::kFull);
  return true;
}

bool pinLikely(RecordContext& rec, Shadow tensor, PyObject* object) {
  renewMeta(rec, tensor, object);
  if (rec.ops().level(tensor.valueId()) == MetaLevel::kFull) return true;
  // A mode would see the operator twice if its results turn out to be other ones in a run (`unbind` of more
  // rows), so nothing is left to a guess.
  if (torchapi::hasModes()) return pinMeta(rec, tensor, object);
  const std::string* op = rec.ops().likelyFrom(tensor.valueId());
  if (op == nullptr || !torchapi::describe(object).plain || torchapi::transformsActive()) return true;
  const RecorderOptions& options = rec.tables.options;
  const bool varies = !options.pinLikely || (options.dynamic != 0 && options.dynamicSources != nullptr &&
                                             options.dynamicSources->contains(hashOfOperator(*op)));
  if (varies || !rec.trace().states[rec.snapshots.stateBefore()].rebuildable) return true;
  return pinMeta(rec, tensor, object);
}

uint64_t hashOfOperator(std::string_view name) {
  return std::hash<std::string_view>()(name) ^ 0x9e3779b97f4a7c15ull;
}

std::optional<std::string> likelyOperator(const ir::Trace& trace, uint32_t guard) {
  const ir::Instruction& ins = trace.code[guard];
  if (ins.op != Op::kGuardMeta) return std::nullopt;
  const ir::ValueId tensor = trace.operandsOf(ins)[0].id;
  if (!trace.metas[static_cast<size_t>(trace.operandsOf(ins)[1].i)].isFixed()) return std::nullopt;
  for (uint32_t k = guard; k-- > 0;) {
    const ir::Instruction& before = trace.code[k];
    if (before.op == Op::kGuardMeta && trace.operandsOf(before)[0].id == tensor) return std::nullopt;
    if (tensor - before.firstResult >= before.resultCount) continue;
    const bool likely =
        before.op == Op::kAten && torchapi::opEffects(trace.opNames[before.opName]).likelySizes;
    return likely ? std::optional(trace.opNames[before.opName]) : std::nullopt;
  }
  return std::nullopt;
}

bool pinRank(RecordContext& rec, Shadow tensor, PyObject* object) {
  renewMeta(rec, tensor, object);
  if (rec.ops().level(tensor.valueId()) != MetaLevel::kUnknown) return true;
  const ir::TensorDesc info = torchapi::atLevel(torchapi::describe(object), MetaLevel::kRank);
  if (!guardMeta(rec, tensor, info)) return false;
  rec.ops().setLevel(tensor.valueId(), info.isOpen() ? MetaLevel::kRank : MetaLevel::kFull);
  return true;
}

bool pinGivenBack(RecordContext& rec, ir::StateId snap) {
  const torchapi::GivenBack given = rec.ops().givenBack();
  if (given.tensors.empty()) return true;
  if (given.hasUnknown || !rec.trace().states[snap].rebuildable) return false;
  for (const auto& tensor : given.tensors) {
    if (rec.ops().level(tensor.value) >= tensor.level) continue;  // pinned for another call of these
    const ir::TensorDesc desc = torchapi::atLevel(tensor.desc, tensor.level);
    emitMetaGuard(rec, tensor.value, desc, snap);
    rec.ops().setLevel(tensor.value, desc.isOpen() ? MetaLevel::kRank : MetaLevel::kFull);
  }
  return true;
}

void forgetMeta(RecordContext& rec, ir::ValueId tensor) {
  rec.ops().setLevel(tensor, MetaLevel::kUnknown);
  rec.tables.sizeReads.noteResized(tensor);
}

bool pinForBinding(CallContext& ctx, Shadow tensor, PyObject* object) {
  if (ctx.rec.ops().level(tensor.valueId()) == MetaLevel::kFull) return true;
  const std::string name = nameOf(ctx);
  const bool plain = ctx.total() == 1;  // no memory format is given
  if (plain && (name == "contiguous" || name == "is_contiguous"))
    return pinContiguity(ctx.rec, tensor, object);
  if (ctx.onlyReadsMetadata) {
    return isOneOf(kOfRank, name) ? pinRank(ctx.rec, tensor, object) : pinMeta(ctx.rec, tensor, object);
  }
  // A subscript of a tensor without dimensions is another one than that of one with some.
  if (name == "getitem" || name == "__getitem__") return pinRank(ctx.rec, tensor, object);
  // In an assignment, the binding drops leading dimensions of size 1 from the assigned tensor.
  const bool decides = name == "contiguous" || name == "setitem" || name == "__setitem__";
  return !decides || pinMeta(ctx.rec, tensor, object);
}

namespace {

// True if the trace knows this size as a constant. If the tensor was made with fixed sizes but its level is
// not "all" any more, a step has changed it since, so those sizes tell nothing.
bool isFixedSize(RecordContext& rec, ir::ValueId tensor, int64_t dim) {
  const ir::Type type = rec.trace().values[tensor];
  return type.meta != ir::kNone && rec.ops().level(tensor) != MetaLevel::kUnknown &&
         !rec.trace().hasFixedSizes(type) && !rec.tables.sizeReads.mayBeResized(tensor) &&
         rec.trace().metas[type.meta].sizes[static_cast<size_t>(dim)] != ir::kAnySize;
}

Shadow sizeValue(RecordContext& rec, Shadow tensor, Op op, int64_t dim) {
  if (op == Op::kSize && isFixedSize(rec, tensor.valueId(), dim)) return Shadow::constant();
  SizeReads& reads = rec.tables.sizeReads;
  if (const auto known = reads.find(tensor.valueId(), op, dim)) return Shadow::value(*known);
  std::vector<Operand> operands = {Operand::value(tensor.valueId())};
  if (op != Op::kNumel) operands.push_back(Operand::integer(dim));
  const size_t at = rec.steps.emit(op, operands, {{ir::TypeKind::kInt, ir::kNone}}, ir::kNone);
  const ir::ValueId value = rec.trace().code[at].firstResult;
  reads.add(tensor.valueId(), op, dim, value);
  return Shadow::value(value);
}

}  // namespace

std::optional<Flow> readSizes(CallContext& ctx, Shadow& result) {
  PyObject* object = ctx.total() > 0 ? ctx.args[0] : nullptr;
  if (object == nullptr || !torchapi::isTensor(object) || !ctx.shadows[0].isValue()) return std::nullopt;
  RecordContext& rec = ctx.rec;
  // Its newest value: what an operation in place has changed has sizes of another kind than the value had
  // that the shadow names.
  const auto newest = rec.ops().valueOf(object);
  const Shadow tensor = newest ? Shadow::value(*newest) : ctx.shadows[0];
  renewMeta(rec, tensor, object);
  if (rec.ops().level(tensor.valueId()) == MetaLevel::kFull || ctx.kwnames != nullptr) return std::nullopt;
  const std::string name = nameOf(ctx);
  const bool isAttribute = name == "shape";
  const bool given = ctx.positional > 1 && !isAttribute;  // one dimension is asked for
  const bool all = name == "numel" || name == "nelement";
  const bool first = name == "len" || name == "__len__";
  const Op op = all ? Op::kNumel : name == "stride" ? Op::kStride : Op::kSize;
  if (!isAttribute && !all && !first && name != "size" && name != "stride") return std::nullopt;
  if (given && (!PyLong_CheckExact(ctx.args[1]) || !ctx.shadows[1].isConst())) return std::nullopt;
  if (!pinRank(rec, tensor, object)) return rec.execute(ctx.act, ctx.instr);
  const auto rank = static_cast<int64_t>(torchapi::describe(object).sizes.size());
  int64_t dim = given ? PyLong_AsLongLong(ctx.args[1]) : 0;
  if (dim < 0) dim += rank;
  if ((given || first) && (dim < 0 || dim >= rank)) return std::nullopt;  // the run raises IndexError
  pyapi::Ref<> alive = pyapi::newRef(object);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = rec.execute(ctx.act, ctx.instr);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  if (given || first || all) {
    result = sizeValue(rec, tensor, op, dim);
    return flow;
  }
  Shadows parts;
  for (int64_t d = 0; d < rank; ++d) parts.push_back(sizeValue(rec, tensor, op, d));
  result = rec.objects.tupleOf(ctx.act.peek(1), std::move(parts));
  return flow;
}

bool decidesOnSlices(const CallValues& ctx) {
  if (ctx.positional < 2 || !PyTuple_Check(ctx.args[1])) return false;
  const std::string name = nameOf(ctx);
  if (name != "getitem" && name != "__getitem__") return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ctx.args[1]); ++i) {
    PyObject* part = PyTuple_GET_ITEM(ctx.args[1], i);
    if (PySlice_Check(part) && !pyapi::isFullSlice(part)) return true;
  }
  return false;
}

}  // namespace kintsugi::capture
