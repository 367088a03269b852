// What a segment's native code does in one run: kernels, calls of operators and views, over one array of
// values, the slots.
//
//   slot 0, 1    inputs
//   slot 2       kernel 0 makes it from slot 0        y = relu(x) * 2
//   slot 3       call 0 makes it from slots 2 and 1   z = sort(y, w)          drops slot 2
//   slot 4       view of slot 3                       the output
//
// Ownership: a NativePlan owns its calls and holds the machine code of its kernels. Threads: constant; each
// run has a NativeFrame of its own (native_frame.h). GIL: not needed. Invalidation: none; whether a run fits
// is checked when it starts.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ir/result_version.h"
#include "runtime/native_device.h"
#include "support/target.h"
#include "torchapi/aten_call.h"
#include "torchapi/native_tensors.h"
#include "torchapi/products.h"
#include "torchapi/row_updates.h"
#include "torchapi/taped_call.h"

namespace kintsugi::runtime {

// Where a number of a plan varies from run to run: which of NativeFrame::sizes it is.
struct NativePatch {
  uint32_t at = 0;
  uint32_t from = 0;
};

// A layout of which some numbers vary from run to run.
struct NativeLayout : ir::TensorLayout {
  ir::Strided<NativePatch> varying;
  bool varies() const { return !varying.sizes.empty() || !varying.strides.empty(); }
};

// A sum of products of NativeFrame::sizes.
struct NativeSum {
  struct Term {
    int64_t factor = 0;
    std::vector<uint32_t> parts;
  };
  std::vector<Term> terms;
};

// Numbers that a run reads from tensors (sizes, strides), computes from these, and checks, once the tensors
// are there: at the start for inputs, after a call for its results. If a check fails, the run declines.
struct NativeBinding {
  struct Load {
    uint32_t dim = 0;
    bool stride = false;
    int64_t expected = kVaries;
    uint32_t to = ir::kNone;
    static constexpr int64_t kVaries = -1;  // a size: at least 2; a stride: anything
  };
  struct Tensor {
    uint32_t slot = 0;
    ir::DType dtype = ir::DType::kF32;
    uint32_t rank = 0;
    bool contiguous = false;  // it has to be
    std::vector<Load> loads;
  };
  struct Check {
    NativeSum difference;
    bool less = false, zero = false, more = false;  // the signs that it may have
  };
  std::vector<Tensor> tensors;
  std::vector<std::pair<uint32_t, NativeSum>> sums;  // which number, what it is
  std::vector<Check> checks;
};

// A tensor to make.
struct NativeMade {
  uint32_t slot = 0;
  NativeLayout layout;
  uint32_t place = ir::kNone;  // its memory is kept between runs, as this one of NativeFrame::kept
  uint32_t over = ir::kNone;   // a slot of the same layout, used last here: the result may take its memory
};

// A place in a tensor's memory.
struct NativeMemory {
  uint32_t slot = 0;
  int64_t offset = 0;  // bytes
};

struct NativeKernel {
  using Memory = NativeMemory;
  using Made = NativeMade;
  KernelFunction function = nullptr;
  std::shared_ptr<const void> code;
  std::vector<Memory> memory;
  std::vector<uint32_t> values;  // which of these are numbers, read from the frame
  std::vector<Made> made;        // tensors to make before
  std::vector<int64_t> numbers;  // the extent of the inner dimension first
  std::vector<NativePatch> patches;
  size_t outerRank = 0;  // the extents of the outer dimensions come next
  bool checks = false;   // it checks indices; if one is out of range the run declines
  bool flat = false;     // threads share the inner dimension, else the rows
  int64_t cost = 1;      // of an element
  // A product: threads share pieces of so many rows and columns, of which one costs `cost`. 0: none.
  int64_t chunk = 0;
  int64_t strip = 0;
  bool batched = false;  // many products: rows are the last outer dimension
};

// A matrix product of floats.
struct NativeProduct {
  NativeMemory left, right, result;
  std::vector<NativeMade> made;  // the result's tensor, unless it is there already
  torchapi::ProductShape shape;
  uint32_t rowsFrom = ir::kNone;  // where the number of rows varies
};

struct NativeView {
  uint32_t from = 0;
  uint32_t to = 0;
  NativeLayout layout;
  int64_t offset = 0;  // elements
};

// A number that is a size.
struct NativeNumber {
  uint32_t slot = 0;
  int64_t value = 0;
  uint32_t from = ir::kNone;  // kNone: the value
};

// A number that is the only element of a tensor.
struct NativeRead {
  enum class Type : uint8_t { kF32, kF64, kI32, kI64 };
  NativeMemory from;
  Type type = Type::kF32;
  uint32_t slot = 0;
};

// The grad mode that an operator runs in: that of the caller, or one that the segment has set.
enum class GradSetting : uint8_t { kOutside, kOff, kOn };

struct NativeCall {
  struct Result {
    uint32_t slot = 0;
    torchapi::TensorLayout layout;
  };
  std::unique_ptr<torchapi::AtenCall> call;
  // For an operator that copies a tensor and writes to the copy (`index_put`): its in-place form, and the
  // slot of the tensor. The in-place form is called on the tensor itself if `lastLook` (nothing reads the
  // tensor after this call) and the run holds the only reference to it.
  std::unique_ptr<torchapi::AtenCall> inPlace;
  uint32_t target = ir::kNone;
  bool lastLook = false;
  // The same write as a loop of our own, for plain tensors.
  struct Rows {
    torchapi::RowUpdate update;
    uint32_t index = 0, source = 0, result = 0;  // slots
  };
  std::optional<Rows> rows;
  // Instead of `call`: a convolution with the operators that follow it.
  std::unique_ptr<NativeConvolution> convolution;
  // Instead of `call`: an operator that runs with autograd, or the gradients of such an operator.
  std::unique_ptr<torchapi::TapedCall> taped;
  struct Tape {
    std::vector<uint32_t> results, leaves, gradients;  // slots
    std::vector<uint32_t> made;                        // by leaf: the slot of its gradient; kNone: unused
    uint32_t number = 0;                               // among the tapes of the segment
  };
  std::unique_ptr<Tape> tape;
  bool restride = false;        // a result with other strides than expected is copied
  std::vector<Result> results;  // the layout that kernels expect of each result
  bool whole = false;           // with autograd: the program sees the result, and of what it is a view
  GradSetting grad = GradSetting::kOutside;
  uint32_t binding = ir::kNone;  // of its results
};

enum class NativeStepKind : uint8_t {
  kKernel,
  kCall,
  kView,
  kProduct,
  kNumber,
  kRead,
  kScalar,  // scalar arithmetic: an instruction of `trace`
};

struct NativePlanStep {
  NativeStepKind kind = NativeStepKind::kKernel;
  uint32_t index = 0;
  uint32_t firstDrop = 0;  // into `drops`: slots that are used here last
  uint32_t dropCount = 0;
};

struct NativePlan {
  size_t slotCount = 0;
  NativeDevice* device = &processor();                         // of all kernels and what they make
  int64_t minWorkPerThread = target().costs.minWorkPerThread;  // so many cheap operations on elements
  struct Input {
    torchapi::ValueKind kind = torchapi::ValueKind::kTensor;
    bool known = false;  // else any ordinary tensor will do
    ir::TensorDesc info;
  };
  std::vector<Input> inputs;            // slots 0, 1 ...: what they have to be
  std::vector<NativeBinding> bindings;  // the first: of the inputs
  size_t keptCount = 0;                 // tensors of whose memory a frame keeps hold
  size_t sizeCount = 0;                 // numbers that vary
  std::vector<NativeNumber> values;
  std::vector<NativeRead> reads;
  ir::Trace trace;                // the segment on slots
  std::vector<uint32_t> outputs;  // slots; kNone: an undefined tensor
  std::vector<NativeKernel> kernels;
  std::vector<NativeCall> calls;
  std::vector<NativeView> views;
  std::vector<NativeProduct> products;
  std::vector<NativePlanStep> steps;
  size_t steadySteps = 0;             // how many of the first steps make the same in every run
  std::vector<uint32_t> steadySlots;  // the results of these, which stay with the frame
  std::vector<uint32_t> drops;
  // Inputs that the last steps write to, and how often the program does. No other input may share memory
  // with them, which each run checks before it starts.
  struct Written {
    uint32_t slot = 0;
    uint32_t times = 0;
  };
  std::vector<Written> written;
  // Results that native code makes in their last state, and what version counters say of them.
  std::vector<ir::ResultVersion> versions;
  // Slots of numbers that kernels take. A finite one beyond this, or one without an opposite, is ATen's to
  // refuse.
  std::vector<std::pair<uint32_t, double>> limits;
  bool inputsRequireGrad = false;
  bool gradOutside = false;  // some operator runs in the caller's grad mode
  bool gradOn = false;       // some operator runs with the grad mode on
  std::optional<bool> gradModeAfter;
};

}  // namespace kintsugi::runtime
