#include "capture/tensor_attributes.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "capture/foreign.h"
#include "capture/recorder_tables.h"
#include "ir/value_maker.h"
#include "pyapi/object_layout.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "torchapi/dispatched.h"
#include "torchapi/known_torch.h"
#include "torchapi/torch_patches.h"

namespace kintsugi::capture {

using guard::GuardKind;

namespace {

constexpr std::string_view kTensorMetadata[] = {
    "shape",  "dtype",     "device",        "layout",  "ndim",      "requires_grad", "is_leaf", "is_cuda",
    "is_cpu", "is_sparse", "is_quantized",  "is_meta", "is_nested", "itemsize",      "nbytes",  "is_mps",
    "is_xpu", "is_mkldnn", "is_sparse_csr", "is_mtia", "is_ipu",    "is_xla",        "is_maia", "is_vulkan"};

bool isDict(PyObject* name) { return pyapi::ascii(name) == "__dict__"; }

// True if code that is not in the trace has run behind the instruction: it may have got hold of any tensor
// that there was.
bool isBeforeUnknownCode(RecordContext& rec, const ir::Instruction& instruction) {
  const GuardBlocks& blocks = rec.tables.blocks;
  if (blocks.isPending()) return true;
  const ir::Trace& trace = rec.trace();
  for (const ir::Instruction* later = &trace.code.back(); later != &instruction; --later) {
    if (later->op == ir::Op::kGuardBlock && blocks.validFrom() > 0 &&
        trace.operandsOf(*later)[0].i == int64_t{blocks.validFrom()})
      return true;
  }
  return false;
}

// True for a tensor that an operator of this trace has made and that no step has seen since. Nobody can have
// given it attributes.
bool isUntouched(RecordContext& rec, Shadow shadow, PyObject* tensor) {
  constexpr auto kUnknown = torchapi::MetaLevel::kUnknown;
  if (!shadow.isValue() ||
      (rec.ops().level(shadow.valueId()) == kUnknown && rec.ops().expiredLevel(shadow.valueId()) == kUnknown))
    return false;
  PyObject** dict = pyapi::materializedDictSlot(tensor);
  if (dict == nullptr || (*dict != nullptr && PyDict_GET_SIZE(*dict) != 0)) return false;
  const ir::Instruction* maker = ir::makerOf(rec.trace(), shadow.valueId());
  return maker != nullptr && maker->op == ir::Op::kAten && !isBeforeUnknownCode(rec, *maker);
}

// Nothing: the trace has made the tensor.
std::optional<ir::SourceId> sourceOfTensor(RecordContext& rec, Shadow shadow, PyObject* tensor) {
  if (const auto known = rec.tables.sources.of(tensor)) return *known;
  if (!shadow.isSource() && !shadow.isConst()) return std::nullopt;
  return rec.guards.sourceOf(shadow, tensor);
}

// True if the tensor has an attribute of its own that hides the class's method of that name. Otherwise a
// guard says that it has none: any later call may bring a tensor that does.
bool hidesMethod(RecordContext& rec, Shadow shadow, PyObject* tensor, PyObject* name) {
  if (pyapi::hasInstanceAttributes(tensor) && PyDict_Contains(pyapi::instanceDict(tensor), name) != 0)
    return true;
  const auto source = sourceOfTensor(rec, shadow, tensor);
  if (!source) return false;
  rec.guards.guard(GuardKind::kNoAttribute, *source, rec.guards.constId(name));
  // The guard is about the tensor as it is before the trace writes to another one: it has to be another one.
  for (const ir::SourceId written : rec.tables.openTensors)
    if (written != *source) rec.guards.guard(GuardKind::kNotSame, *source, ir::kNone, 0, written);
  return false;
}

// True if the class has a `__getattr__`.
bool hasHook(PyObject* tensor) {
  static PyObject* hook = PyUnicode_InternFromString("__getattr__");
  return pyapi::lookUpInType(Py_TYPE(tensor), hook) != nullptr;
}

}  // namespace

AttributePlan planTensor(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name) {
  PyObject* d = pyapi::lookUpInType(Py_TYPE(object), name);
  AttributePlan plan;
  const bool plain = pyapi::getsAttributesPlainly(Py_TYPE(object));
  const bool foreign = isForeign(shadow, object);
  if (foreign) rec.guards.guardType(shadow, object);
  if (foreign && !torchapi::isExactTensorType(Py_TYPE(object)))
    rec.guards.guardTypeVersion(Py_TYPE(object));  // it may get a `__getattribute__`
  if (foreign && (!plain || (d == nullptr ? hasHook(object) : !pyapi::isMethodLike(d)))) {
    plan.how = AttributePlan::kTorch;  // runs the Python code of the tensor's own class
    return plan;
  }
  if (isDict(name)) noteWriteToTensor(rec, shadow, object, name);  // the trace may write to the dict
  if (d == nullptr) {
    if (plain && !hasHook(object) && isUntouched(rec, shadow, object)) {
      rec.guards.guardTypeVersion(Py_TYPE(object));
      plan.how = AttributePlan::kRaises;
    }
    return plan;
  }
  if (pyapi::isMethodLike(d)) {
    if (hidesMethod(rec, shadow, object, name)) return plan;
    // Guards on the global state cover what torch itself has put into torch.Tensor.
    if (!pyapi::isA(object, torchapi::Known::kTensor) || (PyFunction_Check(d) && !torchapi::isTorchMethod(d)))
      rec.guards.guardTypeVersion(Py_TYPE(object));
    plan.how = AttributePlan::kMethod;
    plan.function = d;
    return plan;
  }
  if (Py_TYPE(d) != &PyGetSetDescr_Type) return plan;
  // `grad` and `_base` are state of the tensor. Each run has to ask for them, even if the tensor that is
  // found is one that the trace knows.
  plan.how = pyapi::ascii(name) == "grad" || pyapi::ascii(name) == "_base" ? AttributePlan::kStep
                                                                           : AttributePlan::kTorch;
  if (pyapi::isKnown(d, torchapi::Known::kTensorData)) plan.dispatchedCall = torchapi::dataOf;
  for (std::string_view m : kTensorMetadata)
    plan.onlyReadsMetadata = plan.onlyReadsMetadata || m == pyapi::ascii(name);
  return plan;
}

void noteWriteToTensor(RecordContext& rec, Shadow shadow, PyObject* tensor, PyObject* name) {
  PyObject* d = pyapi::lookUpInType(Py_TYPE(tensor), name);
  if (!isDict(name) && (d == nullptr || !pyapi::isMethodLike(d))) return;  // it hides nothing
  if (const auto source = sourceOfTensor(rec, shadow, tensor)) rec.tables.openTensors.insert(*source);
}

}  // namespace kintsugi::capture
