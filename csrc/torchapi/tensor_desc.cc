#include "torchapi/tensor_desc.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "torchapi/tensor_access.h"
#include "torchapi/tensor_stamp.h"
#include "torchapi/value.h"

namespace kintsugi::torchapi {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Dispatch keys of tensors that are not strided tensors with one storage of their own, or that are dispatched
// differently.
const DispatchKeySet kNotPlain = DispatchKeySet(
    {DispatchKey::Sparse, DispatchKey::SparseCsr, DispatchKey::Quantized, DispatchKey::NestedTensor,
     DispatchKey::BatchedNestedTensor, DispatchKey::Python, DispatchKey::PythonTLSSnapshot,
     DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched,
     DispatchKey::Functionalize, DispatchKey::ZeroTensor, DispatchKey::MkldnnCPU});

bool isLeaf(const at::TensorImpl& impl) {
  const auto* meta =
      static_cast<const torch::autograd::AutogradMeta*>(const_cast<at::TensorImpl&>(impl).autograd_meta());
  return meta == nullptr || meta->grad_fn_ == nullptr;
}

bool requiresGrad(const at::TensorImpl& impl) {
  auto* meta = const_cast<at::TensorImpl&>(impl).autograd_meta();
  return meta != nullptr && meta->requires_grad();
}

// Tensors without strides (sparse, quantized by channel, opaque) still have sizes. The sizes of nested
// tensors, functorch wrappers and subclasses that dispatch to Python must not be asked for here.
bool hasPlainSizes(const at::TensorImpl& impl) {
  static const DispatchKeySet kNoSizes({DispatchKey::NestedTensor, DispatchKey::BatchedNestedTensor,
                                        DispatchKey::Python, DispatchKey::FuncTorchBatched,
                                        DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched,
                                        DispatchKey::Functionalize});
  return !impl.has_symbolic_sizes_strides() && !impl.key_set().has_any(kNoSizes);
}

}  // namespace

bool isTensor(PyObject* object) {
  if (THPVariableClass == nullptr) {
    return false;
  }
  // Uses the real type. `__class__` may be a property that lies, and reading it may run Python code.
  return isExactTensorType(Py_TYPE(object)) ||
         PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

bool isRandomGenerator(PyObject* object) {
  // THPGenerator_Check() calls isinstance(), which a metaclass in Python answers.
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == THPGeneratorClass;
}

bool isExactTensorType(PyTypeObject* t) {
  return THPVariableClass != nullptr && THPVariable_CheckTypeExact(t);
}

const void* tensorImplOf(PyObject* tensor) { return THPVariable_Unpack(tensor).unsafeGetTensorImpl(); }

bool isPlain(const at::TensorImpl& impl) {
  return !impl.key_set().has_any(kNotPlain) && impl.layout() == c10::kStrided &&
         !impl.has_symbolic_sizes_strides();
}

size_t metaStamp(const at::TensorImpl& impl) {
  size_t h = impl.key_set().raw_repr();
  const auto mix = [&h](uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15ull + (h >> 29); };
  mix(static_cast<uint64_t>(c10::typeMetaToScalarType(impl.dtype())) << 32 |
      static_cast<uint64_t>(requiresGrad(impl)) << 1 | static_cast<uint64_t>(isLeaf(impl)));
  const bool plain = isPlain(impl);
  if (plain || hasPlainSizes(impl)) {
    for (const int64_t size : impl.sizes()) {
      mix(static_cast<uint64_t>(size));
    }
  }
  mix(0x51ce);
  if (plain) {
    for (const int64_t stride : impl.strides()) {
      mix(static_cast<uint64_t>(stride));
    }
  }
  return h;
}

ir::TensorDesc describe(const at::TensorImpl& impl) {
  ir::TensorDesc info;
  info.keySet = impl.key_set().raw_repr();
  info.dtype = dtypeOf(impl);
  info.device = deviceOf(impl);
  info.layout = static_cast<int8_t>(impl.layout());
  info.requiresGrad = requiresGrad(impl);
  info.isLeaf = isLeaf(impl);
  info.isConj = impl.key_set().has(DispatchKey::Conjugate);
  info.isNeg = impl.key_set().has(DispatchKey::Negative);
  info.plain = isPlain(impl);
  if (info.plain) {
    info.sizes = impl.sizes().vec();
    info.strides = impl.strides().vec();
  } else if (hasPlainSizes(impl)) {
    info.sizes = impl.sizes().vec();
  }
  return info;
}

ir::TensorDesc describe(PyObject* tensor) {
  ir::TensorDesc info = describe(*THPVariable_Unpack(tensor).unsafeGetTensorImpl());
  info.pyType = Py_TYPE(tensor);
  info.isParam = ParameterClass != nullptr &&
                 PyType_IsSubtype(Py_TYPE(tensor), reinterpret_cast<PyTypeObject*>(ParameterClass)) != 0;
  return info;
}

ir::TensorDesc describeImpl(const void* impl) { return describe(*static_cast<const at::TensorImpl*>(impl)); }

bool sizesMatch(const at::TensorImpl& impl, const ir::TensorDesc& info) {
  const c10::IntArrayRef sizes = impl.sizes();
  if (sizes.size() != info.sizes.size()) {
    return false;
  }
  bool open = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    open = open || info.sizes[d] == ir::kAnySize;
    if (info.sizes[d] != sizes[d] && info.sizes[d] != ir::kAnySize) {
      return false;
    }
  }
  if (open) {
    return info.contiguity == ir::Contiguity::kEither ||
           impl.is_contiguous() == (info.contiguity == ir::Contiguity::kContiguous);
  }
  return impl.strides() == c10::IntArrayRef(info.strides);
}

bool implMatches(const void* pointer, const ir::TensorDesc& info, bool sizes) {
  const auto& impl = *static_cast<const at::TensorImpl*>(pointer);
  if (impl.key_set().raw_repr() != info.keySet || dtypeOf(impl) != info.dtype) {
    return false;
  }
  if (deviceOf(impl) != info.device || requiresGrad(impl) != info.requiresGrad ||
      isLeaf(impl) != info.isLeaf) {
    return false;
  }
  if (!info.plain) {
    // If no sizes could be read, nothing can be compared, and the guard always fails.
    return hasPlainSizes(impl) && static_cast<int8_t>(impl.layout()) == info.layout &&
           (sizes ? impl.sizes() == c10::IntArrayRef(info.sizes)
                  : impl.dim() == static_cast<int64_t>(info.sizes.size()));
  }
  if (impl.has_symbolic_sizes_strides() || static_cast<int8_t>(impl.layout()) != info.layout) {
    return false;
  }
  return !sizes ? impl.dim() == static_cast<int64_t>(info.sizes.size()) : sizesMatch(impl, info);
}

ir::TensorDesc withOpenSizes(ir::TensorDesc info, uint64_t dims) {
  const bool fixed = info.isFixed();
  const ir::Strided<int64_t> seen{info.sizes, info.strides};
  for (size_t d = 0; d < info.sizes.size() && d < 64; ++d) {
    if ((dims >> d & 1) != 0) {
      info.sizes[d] = ir::kAnySize;
    }
  }
  if (fixed && info.isOpen()) {
    info.hints = seen;
    info.strides.clear();
  }
  return info;
}

ir::TensorDesc atLevel(const ir::TensorDesc& info, MetaLevel level) {
  return level == MetaLevel::kFull ? info : withOpenSizes(info, ~uint64_t{0});
}

ir::TensorDesc comparedLike(ir::TensorDesc info, const ir::TensorDesc& model) {
  if (!model.isOpen()) {
    return info;
  }
  const bool contiguous = info.isContiguous();
  info = withOpenSizes(std::move(info), ~uint64_t{0});
  if (info.isOpen() && model.contiguity != ir::Contiguity::kEither) {
    info.contiguity = contiguous ? ir::Contiguity::kContiguous : ir::Contiguity::kStrided;
  }
  return info;
}

uint64_t changedSizes(PyObject* tensor, const ir::TensorDesc& info) {
  if (Py_TYPE(tensor) != info.pyType || !info.plain || info.sizes.size() > 64) {
    return 0;
  }
  const at::TensorImpl& impl = *THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  if (!implMatches(&impl, info, false)) {
    return 0;
  }
  uint64_t dims = 0;
  for (size_t d = 0; d < info.sizes.size(); ++d) {
    dims |= uint64_t{info.sizes[d] != ir::kAnySize && info.sizes[d] != impl.sizes()[d]} << d;
  }
  return dims;
}

bool sizeIsBetween(PyObject* object, PyObject* range) {
  if (!isTensor(object)) return false;
  int64_t numbers[3];
  for (Py_ssize_t i = 0; i < 3; ++i) numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(range, i));
  const auto sizes = THPVariable_Unpack(object).sizes();
  const auto dim = static_cast<size_t>(numbers[0]);
  return dim < sizes.size() && sizes[dim] >= numbers[1] && sizes[dim] <= numbers[2];
}

bool isContiguous(PyObject* tensor) { return THPVariable_Unpack(tensor).is_contiguous(); }

bool matches(PyObject* tensor, const ir::TensorDesc& info, bool sizes) {
  // The exact type decides whether it is a tensor, so the unpacking below is safe.
  return Py_TYPE(tensor) == info.pyType &&
         implMatches(THPVariable_Unpack(tensor).unsafeGetTensorImpl(), info, sizes);
}

}  // namespace kintsugi::torchapi
