// What a segment's native code does in one run: kernels, calls of operators and views, over one array of
// values.
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
#include "torchapi/folded_convolution.h"
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

// What is read off tensors, computed and checked once they are there. A run whose sizes are not of the kind
// that the plan was made for declines.
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
  uint32_t over = ir::kNone;  // a slot whose tensor lies the same, is used last here, and may be written over
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
  std::vector<Made> made;        // tensors to make before
  std::vector<int64_t> numbers;  // the extent of the inner dimension first
  std::vector<NativePatch> patches;
  size_t outerRank = 0;  // the extents of the outer dimensions come next
  bool checks = false;   // it may find that a place looked up is not there: the run declines
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
  // Of an operator that copies a tensor and then writes to the copy: the form that writes, and the tensor's
  // slot. It works on the tensor itself where that is looked at here last and nobody else holds it.
  std::unique_ptr<torchapi::AtenCall> inPlace;
  uint32_t target = ir::kNone;
  bool lastLook = false;
  // What that form does to plain tensors.
  struct Rows {
    torchapi::RowUpdate update;
    uint32_t index = 0, source = 0, result = 0;  // slots
  };
  std::optional<Rows> rows;
  // Instead: a convolution with what is made of it.
  std::unique_ptr<torchapi::FoldedConvolution> convolution;
  // Instead: an operator that autograd differentiates, or the gradients of such a one.
  std::unique_ptr<torchapi::TapedCall> taped;
  struct Tape {
    std::vector<uint32_t> results, leaves, gradients;  // slots
    std::vector<uint32_t> made;                        // by leaf; kNone: nobody uses it
    uint32_t number = 0;                               // among the tapes of the segment
  };
  std::unique_ptr<Tape> tape;
  bool restride = false;        // results that lie otherwise are copied
  std::vector<Result> results;  // how they have to lie, for kernels to read them
  bool whole = false;           // with autograd's part: the outside sees whose view the result is
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
  size_t steadySteps = 0;             // the first ones: what they make is the same in every run, ...
  std::vector<uint32_t> steadySlots;  // ... and stays with the frame
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
