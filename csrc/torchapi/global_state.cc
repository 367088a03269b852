#include "torchapi/global_state.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include "pyapi/abc_registry.h"
#include "pyapi/int_text.h"
#include "pyapi/ref.h"
#include "torchapi/op_log.h"
#include "torchapi/torch_patches.h"

namespace kintsugi::torchapi {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// The words of the state. describe() prints them under these names.
enum Word {
  kIncluded,
  kExcluded,
  kFlags,
  kAutocast,
  kModes,
  kDefaultDevice,
  kBackends,
  kPatches,
  kWordCount
};

enum Flag : uint64_t {
  kGradMode = 1u << 0,
  kInferenceMode = 1u << 1,
  kForwardGradMode = 1u << 2,
  kViewReplay = 1u << 3,
  kAutocastCache = 1u << 4,
  kDeterministic = 1u << 5,
  kDeterministicWarnOnly = 1u << 6,
  kDeterministicFill = 1u << 7,
  kUnsafeModes = 1u << 8,  // a function mode other than the default device's
  kAnomalies = 1u << 9,    // anomaly detection: autograd notes where each operator was called
};
// Bits in the word of patches.
constexpr uint64_t kPatchedOperators = uint64_t{1} << 63;
constexpr uint64_t kEpoch = 0xffffffff;
constexpr int kAbcShift = 32;
constexpr uint64_t kAbcs = uint64_t{0x7fffffff} << kAbcShift;
constexpr int kDtypeShift = 16;
constexpr int kFunctionStateShift = 24;
constexpr int kIntDigitsShift = 32;

// Dispatch keys of modes, transforms and tracers. These have to see each operator.
DispatchKeySet interceptors() {
  static const DispatchKeySet keys(
      {DispatchKey::FuncTorchDynamicLayerFrontMode, DispatchKey::FuncTorchVmapMode, DispatchKey::VmapMode,
       DispatchKey::Tracer, DispatchKey::Functionalize, DispatchKey::PythonDispatcher,
       DispatchKey::PreDispatch, DispatchKey::DeferredInit, DispatchKey::Python});
  return keys;
}

// torch.set_default_device() works through a function mode on the stack. The dispatcher sees the device that
// the mode fills in, so such a mode does no harm; its device is part of the state. 0: it is another mode.
uint64_t defaultDeviceOf(PyObject* mode) {
  static PyObject* moduleName = PyUnicode_InternFromString("torch.utils._device");
  pyapi::Ref<> module = pyapi::steal(PyImport_GetModule(moduleName));
  if (!module) {
    PyErr_Clear();
    return 0;
  }
  pyapi::Ref<> type = pyapi::steal(PyObject_GetAttrString(module.get(), "DeviceContext"));
  if (!type || reinterpret_cast<PyObject*>(Py_TYPE(mode)) != type.get()) {
    PyErr_Clear();
    return 0;
  }
  pyapi::Ref<> device = pyapi::steal(PyObject_GetAttrString(mode, "device"));
  if (!device || !THPDevice_Check(device.get())) {
    PyErr_Clear();
    return 0;
  }
  const c10::Device d = reinterpret_cast<THPDevice*>(device.get())->device;
  return 0x10000u | static_cast<uint64_t>(static_cast<uint8_t>(d.type())) << 8 |
         static_cast<uint8_t>(d.index());
}

// Not inlined, since there is almost never a mode.
[[gnu::noinline]] void readFunctionModes(int64_t count, GlobalState& state) {
  for (int64_t k = 0; k < count; ++k) {
    const auto& mode = at::impl::PythonTorchFunctionTLS::get_stack_at(k);
    const uint64_t device = defaultDeviceOf(mode->ptr(getPyInterpreter()));
    if (device == 0) {
      state.words[kFlags] |= kUnsafeModes;
    }
    state.words[kDefaultDevice] = state.words[kDefaultDevice] * 1000003 + device;
  }
}

uint64_t autocastWord(DispatchKeySet excluded) {
  // Autocast for a device is on if its key is not excluded; torch itself keeps it this way. While it is off,
  // its dtype has no effect, but a program may ask for it.
  uint64_t word = static_cast<uint64_t>(at::autocast::get_autocast_dtype(c10::kCPU)) << 8 |
                  static_cast<uint64_t>(at::autocast::get_autocast_dtype(c10::kCUDA)) << 24;
  word |= excluded.has(DispatchKey::AutocastCPU) ? 0 : 0x1;
  word |= excluded.has(DispatchKey::AutocastCUDA) ? 0 : 0x10000;
  return word;
}

// Flags of torch.backends. Kernels read them when they run. What the getters in Python return is a constant
// of a trace (capture/calls/torch.cc).
uint64_t backendsWord(at::Context& context) {
  uint64_t word = 0;
  for (const bool flag :
       {context.userEnabledMkldnn(), context.deterministicMkldnn(), context.userEnabledCuDNN(),
        context.deterministicCuDNN(), context.benchmarkCuDNN(), context.userEnabledNNPACK(),
        context.userEnabledMathSDP(), context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(),
        context.userEnabledCuDNNSDP(), context.userEnabledOverrideableSDP()}) {
    word = word << 1 | static_cast<uint64_t>(flag);
  }
  constexpr int kBackendBits = 4;  // of a kernel of attention: small, and -1
  for (const at::SDPBackend kernel : context.sDPPriorityOrder()) {
    word = word << kBackendBits | (static_cast<uint64_t>(kernel) & 0xf);
  }
  return word;
}

// The nesting depth can only be read by changing it.
uint64_t autocastNesting() {
  at::autocast::increment_nesting();
  return static_cast<uint64_t>(at::autocast::decrement_nesting());
}

}  // namespace

GlobalState GlobalState::current() {
  GlobalState state;
  // The recorder's own key is included while recording, and not in a replay of the same call.
  const auto& keys = c10::impl::raw_local_dispatch_key_set;
  static const uint64_t kOwn = DispatchKeySet(kRecorderKey).raw_repr();
  state.words[kIncluded] = keys.included().raw_repr() & ~kOwn;
  state.words[kExcluded] = keys.excluded().raw_repr() & ~kOwn;

  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  at::Context& context = at::globalContext();
  uint64_t flags = 0;
  auto set = [&flags](bool on, Flag flag) { flags |= on ? static_cast<uint64_t>(flag) : 0; };
  set(autograd.get_grad_mode(), kGradMode);
  set(autograd.get_inference_mode(), kInferenceMode);
  set(autograd.get_fw_grad_mode(), kForwardGradMode);
  set(autograd.get_view_replay_enabled(), kViewReplay);
  set(at::autocast::is_autocast_cache_enabled(), kAutocastCache);
  set(torch::autograd::AnomalyMode::is_enabled(), kAnomalies);
  set(context.deterministicAlgorithms(), kDeterministic);
  set(context.deterministicAlgorithmsWarnOnly(), kDeterministicWarnOnly);
  set(context.deterministicFillUninitializedMemory(), kDeterministicFill);
  flags |= static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << kDtypeShift;
  flags |= static_cast<uint64_t>(at::impl::PythonTorchFunctionTLS::get_disabled_state())
           << kFunctionStateShift;
  flags |= static_cast<uint64_t>(static_cast<uint32_t>(pyapi::maxIntDigits())) << kIntDigitsShift;
  state.words[kFlags] = flags;

  state.words[kBackends] = backendsWord(context);
  state.words[kAutocast] = autocastWord(keys.excluded());
  const int64_t functionModes = at::impl::PythonTorchFunctionTLS::stack_len();
  // Any dispatch mode includes this key.
  const bool anyMode = keys.included().has(DispatchKey::Python);
  const int64_t dispatchModes = anyMode ? c10::impl::TorchDispatchModeTLS::stack_len() : 0;
  state.words[kModes] = static_cast<uint64_t>(functionModes) | static_cast<uint64_t>(dispatchModes) << 16;
  if (functionModes != 0) [[unlikely]] {
    readFunctionModes(functionModes, state);
  }
  state.words[kModes] |= autocastNesting() << 32;
  const TorchPatches& patches = torchPatches();
  state.words[kPatches] = (patches.epoch & kEpoch) | (pyapi::abcRegistrations() << kAbcShift & kAbcs) |
                          (patches.operators ? kPatchedOperators : 0);
  return state;
}

bool GlobalState::equalsExceptGradMode(GlobalState other) const {
  other.words[kFlags] ^= (other.words[kFlags] ^ words[kFlags]) & kGradMode;
  return *this == other;
}

std::optional<GlobalState> GlobalState::inThisProcess() const {
  const uint64_t here = current().words[kPatches];
  if (((here | words[kPatches]) & (kEpoch | kPatchedOperators)) != 0) return std::nullopt;
  GlobalState state = *this;
  state.words[kPatches] = here;
  return state;
}

bool GlobalState::recordable() const {
  const DispatchKeySet included(DispatchKeySet::RAW, words[kIncluded]);
  const bool dispatchModes = ((words[kModes] >> 16) & 0xffff) != 0;
  return !included.has_any(interceptors()) && !dispatchModes &&
         (words[kFlags] & (kUnsafeModes | kAnomalies)) == 0 && (words[kPatches] & kPatchedOperators) == 0;
}

bool mayUseOwnKernels() {
  return !c10::impl::tls_local_dispatch_key_set().included_.has_any(interceptors()) &&
         !at::autocast::is_autocast_enabled(at::kCPU);
}

bool hasFunctionModes() {
  const int64_t count = at::impl::PythonTorchFunctionTLS::stack_len();
  if (count == 0) [[likely]] {
    return false;
  }
  GlobalState state;
  readFunctionModes(count, state);
  return (state.words[kFlags] & kUnsafeModes) != 0;
}

bool operatorsCallPython() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

bool hasModes() { return c10::impl::TorchDispatchModeTLS::any_modes_set() || hasFunctionModes(); }

std::string GlobalState::describe() const {
  const uint64_t flags = words[kFlags];
  auto flag = [flags](Flag f) { return (flags & f) != 0 ? "on" : "off"; };
  std::string text = std::string("grad=") + flag(kGradMode) + " inference=" + flag(kInferenceMode);
  text += std::string(" default_dtype=") +
          c10::toString(static_cast<c10::ScalarType>((flags >> kDtypeShift) & 0xff));
  text += std::string(" deterministic=") + flag(kDeterministic);
  text += (flags & kAnomalies) != 0 ? " detect_anomaly=on" : "";
  const uint64_t autocast = words[kAutocast];
  for (const auto& [name, shift] : {std::pair{"cpu", 0}, std::pair{"cuda", 16}}) {
    if (((autocast >> shift) & 1) != 0) {
      text += std::string(" autocast(") + name +
              ")=" + c10::toString(static_cast<c10::ScalarType>((autocast >> (shift + 8)) & 0xff));
    }
  }
  if ((words[kModes] & 0xffff) != 0) {
    text += " function_modes=" + std::to_string(words[kModes] & 0xffff);
  }
  if (((words[kModes] >> 16) & 0xffff) != 0) {
    text += " dispatch_modes=" + std::to_string((words[kModes] >> 16) & 0xffff);
  }
  if ((words[kPatches] & kEpoch) != 0) {
    text += " replaced_functions_of_torch=" + std::to_string(words[kPatches] & kEpoch);
  }
  if ((words[kPatches] & kAbcs) != 0) {
    text += " classes_registered_with_abcs=" + std::to_string((words[kPatches] & kAbcs) >> kAbcShift);
  }
  const DispatchKeySet included(DispatchKeySet::RAW,
                                words[kIncluded] & ~c10::default_included_set.raw_repr());
  if (!included.empty()) {
    text += " keys=" + c10::toString(included);
  }
  return text;
}

}  // namespace kintsugi::torchapi
