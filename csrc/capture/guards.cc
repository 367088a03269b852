// Guards: constants, sources and guards (rules 1 and 2 in docs/internals/capture.md).
#include "capture/guards.h"

#include <algorithm>
#include <string_view>

#include "capture/foreign.h"
#include "capture/gradient_buckets.h"
#include "capture/plain_objects.h"
#include "capture/source_hash.h"
#include "ir/value_maker.h"
#include "pyapi/callable_name.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/number.h"
#include "pyapi/object_layout.h"
#include "pyapi/plain.h"
#include "pyapi/slices.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/known_torch.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;
using ir::Op;
using ir::Operand;
using ir::TypeKind;

// A step, or an object that it has changed, has given back a tensor that the trace already knows. In another
// run it may be another tensor, so a guard pins its identity.
bool Guards::pinSameTensor(ir::SourceId source, ir::ValueId known) {
  if (sameTensors_.contains(source)) return roles_.breaks.isLive();
  const ir::Instruction* maker = ir::makerOf(document_.trace, known);
  if (maker != nullptr && maker->op == ir::Op::kInput) {
    const ir::SourceId own = document_.trace.operandsOf(*maker)[0].id;
    if (own != source) guard(GuardKind::kSame, source, ir::kNone, 0, own);
    return roles_.breaks.isLive();
  }
  if (!pinAnswer("is_", {ir::Operand::source(source), ir::Operand::value(known)}, Py_True)) return false;
  sameTensors_.insert(source);
  return true;
}

// The shadow of a source that is known to be the same object as `known`. Until the guard that says so is
// written, the source keeps a name of its own (see aliases.h).
Shadow Guards::aliasOf(ir::SourceId source, Shadow known) {
  if (!blocks_.isPending()) return known;
  aliases_.emplace_back(source, known);
  return Shadow::source(source);
}

ir::ConstId Guards::constId(PyObject* object) {
  const auto [id, isNew] = constants_.add(object);
  if (isNew && (!virtuals_.classes().empty() || PyFunction_Check(object)))
    roles_.classes.refuseConstant(object);
  return id;
}

Shadow Guards::readSource(SourceKind kind, ir::SourceId parent, PyObject* key, int64_t index,
                          PyObject* object) {
  const guard::BlockId block =
      blocks_.ofSource(kind, parent == ir::kNone ? guard::BlockId{0} : sources_.node(parent).block);
  const KnownSources::Found found = sources_.find({kind, parent, key, index}, block);
  const ir::SourceId id = found.id;
  if (!found.isNew) {
    if (sources_.objectOf(id) != object) {
      // Equal, but a new object: C code has computed the attribute. Else another thread has written there.
      // (The result of a step is asked for without its object.)
      const bool same = kind == SourceKind::kValue || pyapi::plainEquals(sources_.objectOf(id), object);
      if (isPlain(object) && same) {
        kept_.add(object);
        return Shadow::source(id);
      }
      roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
      return Shadow::constant();
    }
    const Shadow known = sources_.shadowOf(id);
    return known.isNull() ? Shadow::source(id) : known;
  }
  guard::SourceNode node;
  node.kind = kind;
  node.parent = parent;
  node.key = key ? constId(key) : ir::kNone;
  node.index = index;
  node.block = block;
  sources_.append(found, node, object);
  kept_.add(object);
  if (parent != ir::kNone && comesFromStep(Shadow::source(id))) finalized_.addPart(object);
  Shadow result = describeSource(id, kind, object);
  sources_.setShadow(id, result);
  return result;
}

// Finds the shadow for a source that was read for the first time: an alias, a tensor or a number that varies.
Shadow Guards::describeSource(ir::SourceId id, SourceKind kind, PyObject* object) {
  if (isPlain(object)) {
    if (roles_.varying.isOpenText(Shadow::source(id))) guardType(Shadow::source(id), object);
    bool number = PyLong_CheckExact(object) || PyFloat_CheckExact(object);
    if (number && roles_.varying.opensNumbers(id)) {
      if (PyFloat_CheckExact(object) || pyapi::fitsInt64(object)) {
        return blocks_.isPending() ? aliasOf(id, Shadow::null()) : roles_.varying.numberInput(id, object);
      }
    }
    return Shadow::source(id);
  }
  if (const auto made = virtuals_.find(object)) {
    const uint32_t virt = *made;
    ir::ValueId built = virtuals_.at(virt).value;
    if (built != ir::kNone) {
      // The trace has built this object and handed it out, and now it is found again: a step returned it, or
      // it was in something older. A guard says that it is the same object in each run.
      sources_.name(object, id);
      Shadow original = readSource(SourceKind::kValue, ir::kNone, nullptr, built, Py_None);
      guard(GuardKind::kSame, id, ir::kNone, 0, original.sourceId());
      const Shadow same = Shadow::virt(virt);
      return kind == SourceKind::kValue ? aliasOf(id, same) : same;
    }
    if (PyTuple_Check(object) && isPlainTuple(object))
      return Shadow::source(id);  // an equal tuple would do as well
    // The trace has not handed this object out, yet it is found in an older object. The recorder can't
    // explain it.
    roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
    return Shadow::constant();
  }
  const bool fresh = sources_.name(object, id);
  Shadow result = Shadow::source(id);
  if (!fresh) {
    const ir::SourceId first = *sources_.of(object);
    guard(GuardKind::kSame, id, ir::kNone, 0, first);
    result = Shadow::source(first);
    if (kind == SourceKind::kValue) result = aliasOf(id, result);
  }
  if (torchapi::isTensor(object) && kind != SourceKind::kValue) {
    if (!isForeign(result, object)) return tensorShadow(object, Shadow::source(id));
    guardType(result, object);
  }
  if (fresh && !overlays_.empty()) guardDistinct(id, object);
  return result;
}

// The object is not the same as any object that the trace writes to. Guards make sure that this stays so.
void Guards::guardDistinct(ir::SourceId id, PyObject* object) {
  overlays_.eachObject([&](PyObject* written) {
    if (written == object || Py_TYPE(written) != Py_TYPE(object)) return;
    if (const auto source = sources_.of(written)) guard(GuardKind::kNotSame, id, ir::kNone, 0, *source);
  });
}

Shadow Guards::tensorShadow(PyObject* tensor, Shadow shadow) {
  if (shadow.isValue()) return shadow;
  auto known = ops_.valueOf(tensor);
  if (shadow.isSource() || shadow.isConst()) {
    ir::SourceId source = sourceOf(shadow, tensor);
    bool fromStep = document_.sources.nodes[source].kind == SourceKind::kValue;
    ir::TensorDesc info = torchapi::describe(tensor);
    guardType(Shadow::source(source), tensor);
    if (!info.plain || !torchapi::isExactTensorType(Py_TYPE(tensor))) {
      roles_.breaks.abort(diag::Code::KTG0301, {pyapi::typeNameOf(tensor)});
      return Shadow::constant();
    }
    ir::Type type{ir::TypeKind::kTensor, ir::kNone};
    if (!fromStep) {
      info = torchapi::withOpenSizes(
          std::move(info), known ? roles_.sizes.openSizesOf(*known) : roles_.sizes.openSizes(source, tensor));
      type.meta = ops_.internMeta(document_.trace, info);
      guard(GuardKind::kTensor, source, ir::kNone, type.meta);
      if (info.isOpen()) roles_.sizes.guardRanges(source, tensor);
    }
    if (known && !fromStep && ops_.expiredLevel(*known) != torchapi::MetaLevel::kUnknown) {
      // The guard has said anew what is known of it, unless that has changed in this run.
      if (document_.trace.values[*known].meta == type.meta)
        ops_.setLevel(*known, ops_.expiredLevel(*known));
      else
        roles_.sizes.forgetMeta(*known);
    }
    if (known) return pinSameTensor(source, *known) ? Shadow::value(*known) : Shadow::constant();
    if (info.requiresGrad && facts_.gradients.rest == 0) facts_.gradients = activeBuckets();
    size_t at = roles_.writer.emit(ir::Op::kInput, {ir::Operand::source(source)}, {type}, ir::kNone);
    ir::ValueId value = document_.trace.code[at].firstResult;
    using torchapi::MetaLevel;
    ops_.bind(tensor, value,
              fromStep        ? MetaLevel::kUnknown
              : info.isOpen() ? MetaLevel::kRank
                              : MetaLevel::kFull);
    return Shadow::value(value);
  }
  if (torchapi::isWrapper(tensor)) {  // it has no meaning outside its transform
    roles_.breaks.abort(diag::Code::KTG0109, {"a tensor of a transform"});
    return Shadow::constant();
  }
  KINTSUGI_CHECK(known.has_value(), "a tensor without a value");
  return Shadow::value(*known);
}

Shadow Guards::pinnedRoot(PyObject* object) {
  return readSource(SourceKind::kPinned, ir::kNone, object, 0, object);
}

ir::SourceId Guards::sourceOf(Shadow& shadow, PyObject* object) {
  if (shadow.isSource()) return shadow.sourceId();
  KINTSUGI_CHECK(shadow.isConst(), "no source for a shadow of kind ", int(shadow.kind()));
  const auto known = sources_.of(object);
  if (known && sources_.node(*known).kind == SourceKind::kPinned) return *known;
  // A pinned source of its own, even if the object has another path too: describeSource() has guarded the
  // alias.
  readSource(SourceKind::kPinned, ir::kNone, object, 0, object);
  return sources_.find({SourceKind::kPinned, ir::kNone, object, 0}, blocks_.root()).id;
}

void Guards::guard(GuardKind kind, ir::SourceId source, ir::ConstId key, int64_t number, ir::SourceId other) {
  writer_.write({kind, source, key, number, other});
}

void Guards::guardType(Shadow shadow, PyObject* object) {
  if (!shadow.isSource()) return;
  if (Virtual* cls = virtuals_.classOf(Py_TYPE(object)); cls != nullptr && cls->value != ir::kNone) {
    readSource(SourceKind::kType, shadow.sourceId(), nullptr, 0,
               reinterpret_cast<PyObject*>(Py_TYPE(object)));
    return;
  }
  guard(GuardKind::kType, shadow.sourceId(), constId(reinterpret_cast<PyObject*>(Py_TYPE(object))));
  // What C code does with the object follows from the class that there is by then: it may get a `__len__`.
  if (!torchapi::isTensor(object)) guardTypeVersion(Py_TYPE(object));
}

namespace {

// torch's own compiler counts calls in an attribute of this class, and each new module reads it. A program
// sees nothing of this, so the class's version is not guarded.
bool isForeignCounter(PyTypeObject* type) {
  return pyapi::isKnown(type, torchapi::Known::kGenerationTracker);
}

}  // namespace

void Guards::guardTypeVersion(PyTypeObject* type) {
  if (isForeignCounter(type)) return;
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return;  // static types do not change
  if (roles_.classes.guardBases(type)) return;
  if (!pyapi::ensureTypeVersion(type)) {  // since CPython 3.13, when a class has changed a thousand times
    roles_.breaks.abort(diag::Code::KTG0303,
                        {std::string(pyapi::typeName(type)) + ", a class that was changed too often"});
    return;
  }
  guard(GuardKind::kTypeVersion, ir::kNone, constId(reinterpret_cast<PyObject*>(type)),
        static_cast<int64_t>(*pyapi::typeVersionWord(type)));
}

void Guards::keepTypeVersions(const std::function<void()>& change) {
  const auto versionOf = [&](const guard::Guard& g) {
    PyTypeObject* type = constants_.typeAt(g.key);
    pyapi::ensureTypeVersion(type);
    return static_cast<int64_t>(*pyapi::typeVersionWord(type));
  };
  std::vector<guard::Guard*> held;
  for (guard::Guard& g : document_.guards.guards) {
    if (g.kind == GuardKind::kTypeVersion && g.number == versionOf(g)) held.push_back(&g);
  }
  change();
  constexpr int64_t kNone = 1;  // no class that can change has this version
  for (guard::Guard* g : held) g->number = std::max(versionOf(*g), kNone);
}

void Guards::guardLength(Shadow shadow, PyObject* object, Py_ssize_t length) {
  if (!shadow.isSource()) return;
  guardType(shadow, object);
  guard(GuardKind::kLength, shadow.sourceId(), ir::kNone, length);
}

bool Guards::pin(Shadow& shadow, PyObject* object) {
  switch (shadow.kind()) {
    case ShadowKind::kNull:
    case ShadowKind::kConst:
      return true;
    case ShadowKind::kSource:
      if (!pyapi::holdsNan(object) &&
          (isPlainDeep(object) || pyapi::isNumpyNumber(object) || pyapi::isComparedByValue(object))) {
        guard(GuardKind::kEquals, shadow.sourceId(), constId(object));
      } else {
        guard(GuardKind::kIs, shadow.sourceId(), constId(object));
      }
      shadow = Shadow::constant();
      return true;
    case ShadowKind::kValue:
      if (torchapi::isTensor(object)) {
        roles_.breaks.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
        return false;
      }
      if (!guardScalar(shadow.valueId(), object)) return false;
      if (pyapi::holdsNan(object)) pinNan(shadow.valueId(), object);
      shadow = Shadow::constant();
      return true;
    case ShadowKind::kVirtual: {
      if (virtuals_[shadow].kind == VirtualKind::kRange) return true;
      if (!pinDeep(shadow, object)) return false;
      return true;
    }
  }
  return false;
}

// A slice that is older than the trace is pinned by its three parts, not by its identity.
bool Guards::pinSlice(Shadow shadow, PyObject* slice) {
  guardType(shadow, slice);
  for (const char* name : {"start", "stop", "step"}) {
    PyObject* member = PyDict_GetItemString(pyapi::dictOf(&PySlice_Type), name);
    pyapi::Ref<> value = pyapi::steal(PyObject_GetAttrString(slice, name));
    if (member == nullptr || !value) return pin(shadow, slice);
    Shadow part = readSource(SourceKind::kMember, shadow.sourceId(), member, 0, value.get());
    if (!roles_.breaks.isLive() || !pinDeep(part, value.get())) return false;
  }
  return roles_.breaks.isLive();
}

bool Guards::pinDeep(Shadow& shadow, PyObject* object) {
  if (shadow.isNull()) return true;
  if (torchapi::isTensor(object)) {
    if (shadow.isVirtual() && torchapi::isWrapper(object)) return true;
    shadow = tensorShadow(object, shadow);
    return roles_.breaks.isLive();
  }
  if (shadow.isVirtual()) return pinVirtual(shadow, object);
  bool sequence = PyTuple_Check(object) || PyList_Check(object);
  if (shadow.isSource() && sequence && (!isPlainDeep(object) || pyapi::holdsNan(object))) {
    auto elements = roles_.sequences.elementsOf(shadow, object);
    if (!elements) return false;
    for (size_t i = 0; i < elements->size(); ++i) {
      PyObject* item = PyList_Check(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i);
      if (!pinDeep((*elements)[i], item)) return false;
    }
    return true;
  }
  if (shadow.isSource() && PySlice_Check(object)) return pinSlice(shadow, object);
  if (shadow.isSource() && PyDict_Check(object)) {
    roles_.breaks.abort(diag::Code::KTG0302, {"dict"});
    return false;
  }
  guardTypeVersion(Py_TYPE(object));  // its class says how it compares and hashes
  return pin(shadow, object);
}

bool Guards::pinVirtual(Shadow& shadow, PyObject* object) {
  Virtual& v = virtuals_[shadow];
  switch (v.kind) {
    case VirtualKind::kTuple:
    case VirtualKind::kList:
      for (size_t i = 0; i < v.parts.size(); ++i) {
        PyObject* item = PyList_Check(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i);
        Shadow part = v.parts[i];
        if (!pinDeep(part, item)) return false;
        v.parts[i] = part;
      }
      return true;
    case VirtualKind::kSlice: {
      const pyapi::SliceParts slice = pyapi::partsOfSlice(object);
      PyObject* parts[] = {slice.start, slice.stop, slice.step};
      for (size_t i = 0; i < 3; ++i) {
        Shadow part = v.parts[i];
        if (!pinDeep(part, parts[i])) return false;
        v.parts[i] = part;
      }
      return true;
    }
    case VirtualKind::kSet:
      if (!v.parts.empty()) roles_.breaks.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
      return roles_.breaks.isLive();
    case VirtualKind::kRange:
      return true;
    case VirtualKind::kDict: {
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(object, &at, &key, &value)) {
        auto part = virtuals_.entryOf(v, key);
        if (!part || !pinDeep(*part, value)) return false;
        virtuals_.setEntry(v, key, *part);
      }
      return true;
    }
    default:
      // A model of a C function uses the parts of such an object, which are not known here, so it can't be
      // pinned.
      roles_.breaks.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
      return false;
  }
}

bool Guards::guardTruth(ir::ValueId value, bool truth) {
  ir::StateId snap = roles_.snapshots.stateBefore();
  if (!document_.trace.states[snap].rebuildable) {
    roles_.breaks.abort(diag::Code::KTG0103, {"a branch on a value known only at run time"});
    return false;
  }
  roles_.writer.emit(truth ? Op::kGuardTrue : Op::kGuardFalse, {Operand::value(value)}, {}, snap);
  return true;
}

bool Guards::guardScalar(ir::ValueId value, PyObject* number) {
  if (document_.trace.values[value].kind == TypeKind::kObject) {
    roles_.breaks.abort(diag::Code::KTG0302, {pyapi::typeNameOf(number)});
    return false;
  }
  ir::StateId snap = roles_.snapshots.stateBefore();
  if (!document_.trace.states[snap].rebuildable) {
    roles_.breaks.abort(diag::Code::KTG0103, {"a number known only at run time"});
    return false;
  }
  if (!torchCalls_.pinNumber(value)) return true;
  Operand expected;
  if (PyBool_Check(number)) {
    expected = Operand::boolean(number == Py_True);
  } else if (PyLong_Check(number)) {
    expected = Operand::integer(PyLong_AsLongLong(number));
  } else {
    expected = Operand::number(PyFloat_AsDouble(number));
  }
  roles_.writer.emit(Op::kGuardValue, {Operand::value(value), expected}, {}, snap);
  return true;
}

bool Guards::pinAnswer(const char* function, const std::vector<Operand>& args, PyObject* answer) {
  static constinit pyapi::Lazy<PyObject*> moduleSlot;
  PyObject* module = moduleSlot.get([] { return pyapi::importModule("_operator"); });
  pyapi::Ref<> callable = pyapi::steal(PyObject_GetAttrString(module, function));
  return pinAnswerOf(callable.get(), args, answer);
}

bool Guards::pinAnswerOf(PyObject* callable, const std::vector<Operand>& args, PyObject* answer) {
  // No snapshot can be made any more, or an operator of the instruction waits for its guard block.
  if (instruction_.isExecuted() || blocks_.isPending()) {
    roles_.breaks.abort(diag::Code::KTG0103, {"what " + pyapi::callableName(callable) + "() says"});
    return false;
  }
  return pinAnswerAt(roles_.snapshots.stateBefore(), callable, args, answer);
}

bool Guards::pinAnswerAt(ir::StateId snap, PyObject* callable, const std::vector<Operand>& args,
                         PyObject* answer) {
  std::vector<Operand> operands = {Operand::constant(constId(callable))};
  operands.insert(operands.end(), args.begin(), args.end());
  const size_t at = roles_.writer.emit(Op::kCallKnown, operands, {{TypeKind::kObject, ir::kNone}}, snap);
  blocks_.next();
  Shadow said =
      readSource(guard::SourceKind::kValue, ir::kNone, nullptr, document_.trace.code[at].firstResult, answer);
  if (!pin(said, answer)) return false;
  roles_.stale.flushBlockAt(snap);
  return roles_.breaks.isLive();
}

Shadow Guards::valueOfTensor(Shadow shadow, PyObject* object) {
  const bool described = torchapi::isTensor(object) && !shadow.isVirtual() && !isForeign(shadow, object);
  return described ? tensorShadow(object, shadow) : shadow;
}

void Guards::freeze(PyObject* object) {
  if (frozen_.add(object)) kept_.add(object);
}

Shadow Guards::adoptSource(ir::SourceId id, PyObject* object) {
  sources_.adoptObject(id, object);
  kept_.add(object);
  finalized_.add(object);
  sources_.name(object, id);
  finalizers_.track(object, Shadow::source(id));
  return Shadow::source(id);
}

// True if the object depends on something that is only known while the trace runs.
bool Guards::comesFromStep(Shadow shadow) const {
  if (shadow.isValue()) return true;
  if (shadow.isVirtual()) {
    const Virtual& v = virtuals_.at(shadow.virtualId());
    for (Shadow part : v.parts) {
      if (comesFromStep(part)) return true;
    }
    return v.kind == VirtualKind::kOpaque || v.kind == VirtualKind::kInstance || v.kind == VirtualKind::kDict;
  }
  if (!shadow.isSource()) return false;
  if (roles_.varying.isOpenText(shadow)) return true;
  const guard::SourceNode* node = &document_.sources.nodes[shadow.sourceId()];
  while (node->parent != ir::kNone) node = &document_.sources.nodes[node->parent];
  return node->kind == SourceKind::kValue;
}

// True for an argument of the call, and also for an object that a step has made or that was reached through
// one: both are different objects in each run.
bool Guards::isArgument(Shadow shadow) const {
  if (!shadow.isSource()) return false;
  const guard::SourceNode* node = &document_.sources.nodes[shadow.sourceId()];
  if (node->kind == SourceKind::kArg) return true;
  while (node->parent != ir::kNone) node = &document_.sources.nodes[node->parent];
  return node->kind == SourceKind::kValue;
}

}  // namespace kintsugi::capture
