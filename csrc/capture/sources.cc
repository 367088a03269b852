// Recorder: constants, sources and guards (DESIGN rules 1 and 2).
#include "capture/recorder.h"

#include <algorithm>
#include <string_view>

#include "capture/classes.h"
#include "capture/foreign.h"
#include "capture/gradient_buckets.h"
#include "capture/numbers.h"
#include "capture/open_values.h"
#include "capture/sizes.h"
#include "capture/source_hash.h"
#include "pyapi/number.h"
#include "pyapi/object_layout.h"
#include "pyapi/plain.h"
#include "pyapi/slices.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;

namespace {

// A step, or an object that it has changed, gives a tensor that the trace has made. The next time it may be
// another one.
bool pinSameTensor(Recorder& rec, ir::SourceId source, ir::ValueId known) {
  const auto& code = rec.trace().code;
  auto maker = std::find_if(code.rbegin(), code.rend(), [&](const ir::Instruction& ins) {
    return known - ins.firstResult < ins.resultCount;
  });
  if (rec.known().sameTensors_.contains(source)) return rec.live();
  if (maker != code.rend() && maker->op == ir::Op::kInput) {
    const ir::SourceId own = rec.trace().operandsOf(*maker)[0].id;
    if (own != source) rec.guard(GuardKind::kSame, source, ir::kNone, 0, own);
    return rec.live();
  }
  if (!rec.pinAnswer("is_", {ir::Operand::source(source), ir::Operand::value(known)}, Py_True)) return false;
  rec.known().sameTensors_.insert(source);
  return true;
}

// What the source is to be called until the guard that says so is written: see aliases.h.
Shadow aliasOf(Recorder& rec, ir::SourceId source, Shadow known) {
  if (!rec.known().blocks_.isPending()) return known;
  rec.known().aliases_.emplace_back(source, known);
  return Shadow::source(source);
}

}  // namespace

ir::ConstId Recorder::constId(PyObject* object) {
  const auto [id, isNew] = constants_.add(object);
  if (isNew && (!virtuals_.classes().empty() || PyFunction_Check(object))) refuseOwn(*this, object);
  return id;
}

Shadow Recorder::readSource(SourceKind kind, ir::SourceId parent, PyObject* key, int64_t index,
                            PyObject* object) {
  const guard::BlockId block =
      blocks_.ofSource(kind, parent == ir::kNone ? guard::BlockId{0} : sources_.node(parent).block);
  const KnownSources::Found found = sources_.find({kind, parent, key, index}, block);
  const ir::SourceId id = found.id;
  if (!found.isNew) {
    if (sources_.objectOf(id) != object) {
      if (isPlain(object)) {  // equal, but another object: an attribute that C code computes, say
        kept_.add(object);
        return Shadow::source(id);
      }
      abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
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

// A source was read for the first time: aliases, tensors and numbers that vary get their shadows.
Shadow Recorder::describeSource(ir::SourceId id, SourceKind kind, PyObject* object) {
  if (isPlain(object)) {
    if (isOpenText(*this, Shadow::source(id))) guardType(Shadow::source(id), object);
    bool number = PyLong_CheckExact(object) || PyFloat_CheckExact(object);
    if (number && opensNumbers(*this, id)) {
      if (PyFloat_CheckExact(object) || pyapi::fitsInt64(object)) {
        return blocks_.isPending() ? aliasOf(*this, id, Shadow::null()) : numberInput(*this, id, object);
      }
    }
    return Shadow::source(id);
  }
  if (const auto made = virtuals_.find(object)) {
    const uint32_t virt = *made;
    ir::ValueId built = virtuals_.at(virt).value;
    if (built != ir::kNone) {
      // What a step gives back, or is found in what it has kept, was handed out: it is to be that object
      // again.
      sources_.name(object, id);
      Shadow original = readSource(SourceKind::kValue, ir::kNone, nullptr, built, Py_None);
      guard(GuardKind::kSame, id, ir::kNone, 0, original.sourceId());
      const Shadow same = Shadow::virt(virt);
      return kind == SourceKind::kValue ? aliasOf(*this, id, same) : same;
    }
    if (PyTuple_Check(object) && isPlainTuple(object))
      return Shadow::source(id);  // another one would do as well
    // An object of this trace is found in the old heap, where nothing that we know of has put it.
    abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
    return Shadow::constant();
  }
  const bool fresh = sources_.name(object, id);
  Shadow result = Shadow::source(id);
  if (!fresh) {
    const ir::SourceId first = *sources_.of(object);
    guard(GuardKind::kSame, id, ir::kNone, 0, first);
    result = Shadow::source(first);
    if (kind == SourceKind::kValue) result = aliasOf(*this, id, result);
  }
  if (torchapi::isTensor(object) && kind != SourceKind::kValue) {
    if (!isForeign(result, object)) return tensorShadow(object, Shadow::source(id));
    guardType(result, object);
  }
  if (fresh && !overlays_.empty()) guardDistinct(id, object);
  return result;
}

// Two sources that are different objects now must stay so where the trace writes to one of them.
void Recorder::guardDistinct(ir::SourceId id, PyObject* object) {
  overlays_.eachObject([&](PyObject* written) {
    if (written == object || Py_TYPE(written) != Py_TYPE(object)) return;
    if (const auto source = sources_.of(written)) guard(GuardKind::kNotSame, id, ir::kNone, 0, *source);
  });
}

Shadow Recorder::tensorShadow(PyObject* tensor, Shadow shadow) {
  if (shadow.isValue()) return shadow;
  auto known = ops_.valueOf(tensor);
  if (shadow.isSource() || shadow.isConst()) {
    ir::SourceId source = sourceOf(shadow, tensor);
    bool fromStep = document_.sources.nodes[source].kind == SourceKind::kValue;
    ir::TensorDesc info = torchapi::describe(tensor);
    guardType(Shadow::source(source), tensor);
    if (!info.plain || !torchapi::isExactTensorType(Py_TYPE(tensor))) {
      abort(diag::Code::KTG0301, {pyapi::typeNameOf(tensor)});
      return Shadow::constant();
    }
    ir::Type type{ir::TypeKind::kTensor, ir::kNone};
    if (!fromStep) {
      info = torchapi::opened(std::move(info),
                              known ? openSizesOf(*this, *known) : openSizes(*this, source, tensor));
      type.meta = ops_.internMeta(document_.trace, info);
      guard(GuardKind::kTensor, source, ir::kNone, type.meta);
      if (info.isOpen()) guardRanges(*this, source, tensor);
    }
    if (known) return pinSameTensor(*this, source, *known) ? Shadow::value(*known) : Shadow::constant();
    if (info.requiresGrad && gradients_.rest == 0) gradients_ = activeBuckets();
    size_t at = emit(ir::Op::kInput, {ir::Operand::source(source)}, {type}, ir::kNone);
    ir::ValueId value = document_.trace.code[at].firstResult;
    using torchapi::MetaLevel;
    ops_.bind(tensor, value,
              fromStep        ? MetaLevel::kUnknown
              : info.isOpen() ? MetaLevel::kRank
                              : MetaLevel::kFull);
    return Shadow::value(value);
  }
  if (torchapi::isWrapper(tensor)) {  // it means nothing outside of its transform
    abort(diag::Code::KTG0109, {"a tensor of a transform"});
    return Shadow::constant();
  }
  KINTSUGI_CHECK(known.has_value(), "a tensor without a value");
  return Shadow::value(*known);
}

Shadow Recorder::pinnedRoot(PyObject* object) {
  return readSource(SourceKind::kPinned, ir::kNone, object, 0, object);
}

ir::SourceId Recorder::sourceOf(Shadow& shadow, PyObject* object) {
  if (shadow.isSource()) return shadow.sourceId();
  KINTSUGI_CHECK(shadow.isConst(), "no source for a shadow of kind ", int(shadow.kind()));
  const auto known = sources_.of(object);
  if (known && sources_.node(*known).kind == SourceKind::kPinned) return *known;
  // The node itself, even where the object is known by another path too (describeSource has guarded that).
  readSource(SourceKind::kPinned, ir::kNone, object, 0, object);
  return sources_.find({SourceKind::kPinned, ir::kNone, object, 0}, blocks_.root()).id;
}

void Recorder::guard(GuardKind kind, ir::SourceId source, ir::ConstId key, int64_t number,
                     ir::SourceId other) {
  guards_.write({kind, source, key, number, other});
}

void Recorder::guardType(Shadow shadow, PyObject* object) {
  if (!shadow.isSource()) return;
  if (Virtual* cls = ownClass(*this, Py_TYPE(object)); cls != nullptr && cls->value != ir::kNone) {
    readSource(SourceKind::kType, shadow.sourceId(), nullptr, 0,
               reinterpret_cast<PyObject*>(Py_TYPE(object)));
    return;
  }
  guard(GuardKind::kType, shadow.sourceId(), constId(reinterpret_cast<PyObject*>(Py_TYPE(object))));
}

namespace {

// torch's own compiler counts its calls in an attribute of this class, and has each new module look at it: of
// what it does there nothing is seen by a program.
bool isForeignCounter(PyTypeObject* type) { return pyapi::isKnown(type, pyapi::Known::kGenerationTracker); }

}  // namespace

void Recorder::guardTypeVersion(PyTypeObject* type) {
  if (isForeignCounter(type)) return;
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return;  // static types do not change
  if (guardOwnClass(*this, type)) return;
  if (!pyapi::ensureTypeVersion(type)) {  // from CPython 3.13 on, after a thousand changes of one class
    abort(diag::Code::KTG0303, {std::string(pyapi::typeName(type)) + ", a class that was changed too often"});
    return;
  }
  guard(GuardKind::kTypeVersion, ir::kNone, constId(reinterpret_cast<PyObject*>(type)),
        static_cast<int64_t>(*pyapi::typeVersionWord(type)));
}

void Recorder::guardLength(Shadow shadow, PyObject* object, Py_ssize_t length) {
  if (!shadow.isSource()) return;
  guardType(shadow, object);
  guard(GuardKind::kLength, shadow.sourceId(), ir::kNone, length);
}

bool Recorder::pin(Shadow& shadow, PyObject* object) {
  switch (shadow.kind()) {
    case ShadowKind::kNull:
    case ShadowKind::kConst:
      return true;
    case ShadowKind::kSource:
      if (isPlainDeep(object) || pyapi::isNumpyNumber(object) || pyapi::isMadeAnew(object)) {
        guard(GuardKind::kEquals, shadow.sourceId(), constId(object));
      } else {
        guard(GuardKind::kIs, shadow.sourceId(), constId(object));
      }
      shadow = Shadow::constant();
      return true;
    case ShadowKind::kValue:
      if (torchapi::isTensor(object)) {
        abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
        return false;
      }
      if (!guardScalar(shadow.valueId(), object)) return false;
      shadow = Shadow::constant();
      return true;
    case ShadowKind::kVirtual: {
      if (virtualOf(shadow).kind == VirtualKind::kRange) return true;
      if (!pinDeep(shadow, object)) return false;
      return true;
    }
  }
  return false;
}

namespace {

// An old slice: its three parts, whichever object it is.
bool pinSlice(Recorder& rec, Shadow shadow, PyObject* slice) {
  rec.guardType(shadow, slice);
  for (const char* name : {"start", "stop", "step"}) {
    PyObject* member = PyDict_GetItemString(pyapi::dictOf(&PySlice_Type), name);
    pyapi::Ref<> value = pyapi::steal(PyObject_GetAttrString(slice, name));
    if (member == nullptr || !value) return rec.pin(shadow, slice);
    Shadow part = rec.readSource(SourceKind::kMember, shadow.sourceId(), member, 0, value.get());
    if (!rec.live() || !rec.pinDeep(part, value.get())) return false;
  }
  return rec.live();
}

}  // namespace

bool Recorder::pinDeep(Shadow& shadow, PyObject* object) {
  if (shadow.isNull()) return true;
  if (torchapi::isTensor(object)) {
    if (shadow.isVirtual() && torchapi::isWrapper(object)) return true;
    shadow = tensorShadow(object, shadow);
    return live();
  }
  if (shadow.isVirtual()) return pinVirtual(shadow, object);
  bool sequence = PyTuple_Check(object) || PyList_Check(object);
  if (shadow.isSource() && sequence && !isPlainDeep(object)) {
    auto elements = elementsOf(shadow, object);
    if (!elements) return false;
    for (size_t i = 0; i < elements->size(); ++i) {
      PyObject* item = PyList_Check(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i);
      if (!pinDeep((*elements)[i], item)) return false;
    }
    return true;
  }
  if (shadow.isSource() && PySlice_Check(object)) return pinSlice(*this, shadow, object);
  if (shadow.isSource() && PyDict_Check(object)) {
    abort(diag::Code::KTG0302, {"dict"});
    return false;
  }
  return pin(shadow, object);
}

bool Recorder::pinVirtual(Shadow& shadow, PyObject* object) {
  Virtual& v = virtualOf(shadow);
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
      if (!v.parts.empty()) abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
      return live();
    case VirtualKind::kRange:
      return true;
    case VirtualKind::kDict: {
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(object, &at, &key, &value)) {
        auto part = entryOf(v, key);
        if (!part || !pinDeep(*part, value)) return false;
        setEntry(v, key, *part);
      }
      return true;
    }
    default:
      // The identity of an object made here means nothing to a C function that we model; its parts might.
      abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
      return false;
  }
}

}  // namespace kintsugi::capture
