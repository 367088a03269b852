// The typed tensor graph that the native backend works on: a segment of a trace, decomposed into core
// operations.
//
//   %0 = input f32[2,16,64] value=0
//   %1 = reduce.sum(%0) f32[2,16,1] last=1
//   %2 = const 0.015625 f32
//   %3 = mul(%1, %2) f32[2,16,1] value=1
//   %4 = call aten.conv2d.default(%3, %0) at=3
//
// passes/graph_text.h prints and reads it.
//
// Nodes are in the order of execution, arguments before users. What is not in the core set is a call of the
// operator, or of scalar arithmetic (`kCall`), with one kResult for each of its results. A kView is other
// sizes and strides on the memory of its argument. A kJoin is the concatenation of its arguments; those that
// have a home are computed right where they belong in it. Values are never written to: in-place operators
// have become new nodes. What the memory of an input holds in the end is a Write, later on a node of its own
// whose home is the input (passes/order_writes.h).
//
// Plain data without torch, LLVM and Python; no state, no GIL. See docs/internals/native.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/trace.h"
#include "passes/size.h"

namespace kintsugi::passes {

using NodeId = uint32_t;

enum class Core : uint8_t {
#define KINTSUGI_CORE(name, text, arguments, cost) k##name,
#include "passes/core_ops.def"
  kCount
};

enum class CoreCost : uint8_t { kCheap, kCostly };

struct CoreInfo {
  std::string_view text;
  uint8_t arguments;
  CoreCost cost;
};
const CoreInfo& coreInfo(Core op);
inline bool isReduce(Core op) { return op >= Core::kReduceSum; }
inline bool isArgReduce(Core op) { return op == Core::kReduceArgMax || op == Core::kReduceArgMin; }
inline bool isCompare(Core op) { return op >= Core::kEq && op <= Core::kGe; }

// Types of elements that kernels compute with: some of ir::DType, by the same numbers. Tensors of others only
// pass through calls, as do those that are not on the CPU.
enum class Elem : int8_t {
#define KINTSUGI_ELEM(name, ...) k##name = static_cast<int8_t>(ir::DType::k##name),
#include "passes/elems.def"
  kOther = -1
};
std::string_view elemName(Elem elem);
Elem elemOf(ir::DType dtype);
Elem elemOf(std::string_view dtype);  // kOther: it is none, or another one
int64_t elemSize(Elem elem);
// Are there kernels for tensors of that device? What brings another device says so here
// (docs/adr/0015-targets.md).
inline bool compilesFor(const ir::Device& device) { return device.isCpu(); }
// The largest magnitude of a finite number that ATen takes for such an element.
double largestIn(Elem elem);
// Every value of `from`, zeros with their signs and infinities, is one of `to`.
bool holdsAll(Elem from, Elem to);
inline bool isSigned(Elem elem) { return elem >= Elem::kI8 && elem <= Elem::kI64; }  // integers
inline bool isFloat(Elem elem) { return (elem >= Elem::kF16 && elem <= Elem::kF64) || elem == Elem::kBF16; }
// Computed with in f32, rounded where they are stored or cast.
inline bool isSmallFloat(Elem elem) { return elem == Elem::kF16 || elem == Elem::kBF16; }

// Is there code for the operation, elements of that type being what it is computed with (of comparisons and
// reductions: what they take; of casts: what they give)?
bool computes(Core op, Elem elem);
inline bool isTranscendental(Core op) {
  return op == Core::kExp || op == Core::kLog || op == Core::kTanh || op == Core::kErf;
}

enum class NodeKind : uint8_t {
  kInput,
  kConst,
  kPoint,
  kReduce,
  kProduct,
  kAttention,
  kView,
  kJoin,
  kCall,
  kResult
};

// Indices along a dimension.
struct PartBound {
  uint32_t dim = 0;
  int64_t low = 0;   // the first
  int64_t high = 0;  // one past the last
  bool operator==(const PartBound&) const = default;
};

struct Kernel;

// An indexed dimension (Core::kTake): the index times `step` is an offset into memory.
struct IndexedDim {
  int64_t step = 0;    // elements from one index to the next
  int64_t count = 0;   // indices from 0; any other is an error, and the run declines
  bool wraps = false;  // negative indices count from the end
  bool operator==(const IndexedDim&) const = default;
};

// Its strides are where it is in memory; kConst and kCall have none.
struct Node : ir::Strided<Size> {
  NodeKind kind = NodeKind::kInput;
  Core op = Core::kAdd;      // kPoint, kReduce
  Elem elem = Elem::kOther;  // kCall: none
  bool fresh = false;        // kResult: `unaliased`, and the call may be dropped if it is unused
  bool unaliased = false;    // kResult: it surely shares memory with no other tensor
  bool checked = false;      // kResult: each run checks that its metadata is as expected
  // kResult: open, and sizes of other nodes depend on it. kCall: it may raise. The call stays even if its
  // results are unused.
  bool mustRun = false;
  bool open = false;          // kInput, kResult: its sizes are those of the tensor in each run
  bool metadataOnly = false;  // kCall: uses only dtype and device of its argument, not its elements
  bool product = false;       // kCall: a product without what is added (passes/products.h)
  bool byRows = false;        // of products: the second argument has a row for each column of the result
  bool packed = false;        // `open`, and it has to be contiguous: the strides follow from the sizes
  bool write = false;         // kPoint: it is stored to the memory of an input, its home
  std::vector<NodeId> args;   // kCall: the nodes that its operands name
  int64_t offset = 0;         // kView: first element, counted from the argument's first; else in `home`
  NodeId home = ir::kNone;    // the kJoin (a later node) whose memory it is computed into
  uint32_t dim = 0;           // kJoin: along which dimension; of `stacked` ones, arguments do not have it
  bool stacked = false;
  uint32_t reduced = 0;           // kReduce: over how many dimensions
  uint32_t trailing = 0;          // kReduce: how many dimensions follow those, and stay
  std::vector<PartBound> bounds;  // Core::kPart: of dimensions that are longer than 1
  IndexedDim indexed;             // Core::kTake
  double largest = 0;   // of a number that each run computes: the largest that kernels take; 0: none take it
  double number = 0;    // kConst of a float type
  int64_t integer = 0;  // kConst of other types
  uint32_t instruction = ir::kNone;  // kCall, kView, kJoin: in the trace
  uint32_t result = 0;               // kResult, kView: which result of the instruction
  ir::ValueId value = ir::kNone;     // the value of the trace that it is
  // kAttention: its kernel, but for whose memory the accesses are in; those before the last are `args`.
  std::shared_ptr<const Kernel> attention;
};

// Computed by kernels.
inline bool isCore(const Node& node) {
  return node.kind == NodeKind::kPoint || node.kind == NodeKind::kReduce || node.kind == NodeKind::kProduct ||
         node.kind == NodeKind::kAttention;
}

// A place in the memory of an input.
struct Write : ir::Strided<Size> {
  uint32_t input = 0;  // into TensorGraph::inputs
  int64_t offset = 0;  // elements, from its first
  Elem elem = Elem::kOther;
};

struct TensorGraph {
  std::vector<Node> nodes;
  std::vector<NodeId> inputs;   // as the segment names them
  std::vector<NodeId> outputs;  // kNone: an undefined tensor
  std::vector<Write> writes;    // in order; what is to be stored there are the last of `outputs`
  // Inputs that are written to, and by how many operators.
  std::vector<std::pair<uint32_t, uint32_t>> written;
  uint32_t instructions = 0;  // of the dispatcher, that it stands for

  NodeId add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<NodeId>(nodes.size() - 1);
  }
};

// The memory that a node is in: views are looked through.
struct MemoryPlace {
  NodeId base;
  int64_t offset;
};
MemoryPlace memoryOf(const TensorGraph& graph, NodeId id);
// Likewise with homes: whose tensor has the memory.
MemoryPlace tensorOf(const TensorGraph& graph, NodeId id);

std::vector<Size> contiguousStrides(const std::vector<Size>& sizes);
bool isContiguous(const std::vector<Size>& sizes, const std::vector<Size>& strides);
Size elementCount(const std::vector<Size>& sizes);
// Every element has a place of its own and none is left out.
bool isDense(const std::vector<Size>& sizes, const std::vector<Size>& strides);

// Of an operator, or of an instruction of scalar arithmetic.
std::string callName(const ir::Trace& trace, const ir::Instruction& ins);

}  // namespace kintsugi::passes
