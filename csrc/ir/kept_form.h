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
  // A node of eager mode's: it runs if one of these gradients arrives and one of these inputs is asked for.
  struct Node {
    uint64_t outputs = kAll;
    std::vector<bool> leads;  // as above
  };
  // An operator that uses an input, for these outputs.
  struct Use {
    uint32_t at = 0;
    uint64_t outputs = kAll;

    bool operator==(const Use&) const = default;
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
  std::vector<Node> tapes;       // graphs of autograd's own, in the order of the backward
  std::vector<Node> holders;     // those that keep any tensor, which is freed behind them
  std::vector<Leaf> leaves;
  bool isByOutput = true;           // there is a bit for each output
  std::vector<uint64_t> feeds;      // by `gets`: without a gradient of one of these, the input gets none
  std::vector<uint64_t> recompute;  // by input: the outputs whose gradients depend on its values, in any way
  // Eager mode's nodes run backwards in the order of the program. Numbers of operators, from 1: who makes an
  // output that autograd follows; who uses an input, by `gets`, each for more outputs than those before it;
  // who makes what the outside gets to see and is made behind the nodes.
  std::vector<uint32_t> madeAt;
  std::vector<std::vector<Use>> usedAt;
  std::vector<uint32_t> lookedAt;
  std::vector<uint32_t> lookedOf;  // at the memory of which of `gets`; as many as there are: of none
};

}  // namespace kintsugi::ir
