// KeptForm: what the autograd node of a compiled segment saves for its backward. passes/split_gradients.h
// decides it, torchapi/grad_node.h carries it out.
//
// A set of outputs is a 64-bit mask. Bit k is the k-th output that autograd differentiates, which is the
// order in which gradients arrive. With more than 64 such outputs, every set stands for all of them.
#pragma once

#include <cstdint>
#include <vector>

namespace kintsugi::ir {

// A tensor of a segment.
struct SegmentPlace {
  enum class From : uint8_t {
    kInput,
    kOutput,  // of the node
    kOwn,     // made besides: for the backward, or after the node
  };
  From from = From::kOwn;
  uint32_t index = 0;

  bool operator==(const SegmentPlace&) const = default;
};

struct KeptForm {
  static constexpr uint64_t kAll = ~uint64_t{0};

  // What the backward takes, in its order.
  struct Kept {
    SegmentPlace place;
    // Eager mode keeps the tensor itself: other memory that it was given (`weight.data = other`) is followed.
    // Else the memory of the forward is taken.
    bool now = false;
    uint64_t outputs = kAll;  // whose gradients need it
  };
  // What eager mode keeps: a write to it between forward and backward is an error.
  struct Checked {
    SegmentPlace place;
    uint64_t outputs = kAll;  // the gradients with which eager mode looks at it
    std::vector<bool> leads;  // by `gets`: the inputs whose gradients come from there
  };
  // A graph of autograd's own, in the order of the backward: when it has to be run.
  struct Tape {
    uint64_t outputs = kAll;
    std::vector<bool> leads;  // as above
  };
  // A leaf of a graph of autograd's own, which stands for a tensor of the segment.
  struct Leaf {
    uint32_t kept = 0;
    SegmentPlace place;
  };

  std::vector<bool> follows;   // by output: autograd follows it
  std::vector<uint32_t> gets;  // by result of the backward: which input's gradient it is
  std::vector<Kept> kept;
  std::vector<Checked> checked;  // in the order in which eager mode looks
  std::vector<Tape> tapes;
  std::vector<Leaf> leaves;
  std::vector<uint64_t> feeds;     // by `gets`: without a gradient of one of these, the input gets none
  std::vector<uint64_t> together;  // by output: those that share what is kept; it is released with them
  uint64_t held = 0;  // those for whose gradients eager mode keeps any tensor, which it frees after them
  std::vector<uint64_t> recompute;  // by input: the outputs whose gradients depend on its values, in any way
  // Eager mode's nodes run backwards in the order of the program. Numbers of operators, from 1: who makes an
  // output that autograd follows; who uses an input first, by `gets`; who makes what the outside gets to see
  // and is made behind the nodes.
  std::vector<uint32_t> madeAt, usedAt, lookedAt;
};

}  // namespace kintsugi::ir
