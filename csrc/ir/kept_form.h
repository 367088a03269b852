// KeptForm: what the autograd node of a compiled segment saves for its backward. passes/split_gradients.h
// decides it, torchapi/grad_node.h carries it out.
//
// A set of outputs is a 64-bit mask. Bit k is the k-th output that autograd differentiates, which is the
// order in which gradients arrive. With more than 64 such outputs, every set stands for all of them.
//
//   segment [%0, %1]                     ; both require a gradient
//   %2 = aten.sin.default %0             ; output 0
//   %3 = aten.mul.Tensor %2, %1
//   %4 = aten.exp.default %3             ; output 1
//   segment.end [%2, %4]
//
// Here `follows` is {true, true} and `gets` is {0, 1}: the backward gives the gradients of %0 and %1. `kept`
// has %0 for both outputs (the derivative of sin), and %1, %2 and %4 for output 1. `checked` has %4, %1, %2
// and %0, in the order in which eager mode's nodes of exp, mul and sin run. `feeds` is {0b11, 0b10}: %1 gets
// a gradient only if output 1 has one. `madeAt` is {1, 3}, `usedAt` {1, 2}.
//
// Plain data, no GIL.
#pragma once

#include <cstdint>
#include <vector>

namespace kintsugi::ir {

// A tensor of a segment.
struct SegmentPlace {
  enum class From : uint8_t {
    kInput,
    kOutput,  // of the node
    kOwn,     // neither: an intermediate value that the backward needs, or a result of the epilogue
  };
  From from = From::kOwn;
  uint32_t index = 0;

  bool operator==(const SegmentPlace&) const = default;
};

struct KeptForm {
  static constexpr uint64_t kAll = ~uint64_t{0};

  // A saved tensor: an argument of the backward, in the order of its arguments.
  struct Kept {
    SegmentPlace place;
    // True: eager mode saves the tensor object, so the backward reads the memory that the tensor has by then
    // (the program may have set `weight.data = other`). False: it reads the memory of the forward.
    bool now = false;
    uint64_t outputs = kAll;  // the outputs whose gradients need it
  };
  // A tensor that a node of eager mode saves. It is an error if the program has written to it when that node
  // runs, which it does if one of `outputs` has a gradient and one of the inputs of `leads` is asked for.
  struct Checked {
    SegmentPlace place;
    uint64_t outputs = kAll;
    std::vector<bool> leads;  // by `gets`: the inputs that the operator was computed from
  };
  // A node of eager mode's: it runs if one of these gradients arrives and one of these inputs is asked for.
  struct Node {
    uint64_t outputs = kAll;
    std::vector<bool> leads;  // as above
  };
  // An operator that uses an input, and the outputs that are computed from that use.
  struct Use {
    uint32_t at = 0;
    uint64_t outputs = kAll;

    bool operator==(const Use&) const = default;
  };
  // A leaf of a tape. It stands for a tensor of the segment, and is the `kept`-th of what is saved.
  struct Leaf {
    uint32_t kept = 0;
    SegmentPlace place;
  };

  std::vector<bool> follows;   // by output: it requires a gradient
  std::vector<uint32_t> gets;  // by result of the backward: the input whose gradient it is
  std::vector<Kept> kept;
  std::vector<Checked> checked;  // in the order in which eager mode checks
  std::vector<Node> tapes;       // in the order of the backward
  std::vector<Node> holders;     // nodes that save any tensor, which eager mode frees after they have run
  std::vector<Leaf> leaves;
  bool isByOutput = true;           // there is a bit for each output
  std::vector<uint64_t> feeds;      // by `gets`: without a gradient of one of these, the input gets none
  std::vector<uint64_t> recompute;  // by input: the outputs whose gradients depend on its values, in any way
  // Eager mode runs its nodes in the reverse order of the program. Operators are numbered from 1 in program
  // order. By output that requires a gradient: the operator that made it.
  std::vector<uint32_t> madeAt;
  // By `gets`: operators that use the input, each for outputs that those before it do not lead to.
  std::vector<std::vector<Use>> usedAt;
  // By result of the epilogue: the operator that made it, and the input that it is a view of, as an index
  // into `gets` (or their number, if it is a view of none of them).
  std::vector<uint32_t> epilogueAt, epilogueOf;
};

}  // namespace kintsugi::ir
