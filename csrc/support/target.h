// What code is made for: a machine, and all that follows from it. Every number that depends on the machine,
// in passes, code generation, plans and run time, is a field here and is derived in target.cc.
//
// A Machine says what there is: the vector instructions, the caches, the size of a page. describeTarget()
// makes a Target of it, so that tests can ask for any target on any machine. The process has one target,
// target(), which is the machine's own (support/host_machine.h) unless limitTarget() has set a smaller level
// (`KINTSUGI_TARGET`). Kernel caches keep code of different targets apart by targetKey().
//
// Ownership: a target lives as long as the process. Threads: any; a new limit counts for what is compiled
// from then on, and what was compiled before stays valid. Invalidation: none.
//
//   const int64_t depth = target().products.depth;
//   const TargetScope scope(describeTarget({.level = VectorLevel::kAvx2}));  // in a test, for this thread
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kintsugi {

enum class VectorLevel : uint8_t {
#define KTG_VECTOR_LEVEL(id, ...) k##id,
#include "support/vector_levels.def"
#undef KTG_VECTOR_LEVEL
};
inline constexpr size_t kVectorLevels = 0
#define KTG_VECTOR_LEVEL(...) +1
#include "support/vector_levels.def"
#undef KTG_VECTOR_LEVEL
    ;

struct VectorLevelInfo {
  VectorLevel level;
  std::string_view name;
  std::string_view triple;  // LLVM's names of the smallest machine that has the level
  std::string_view processor;
  unsigned registerFloats;  // floats in a vector register
  unsigned registers;
  bool fma;
  bool halves;  // instructions that convert f16
};
std::span<const VectorLevelInfo> vectorLevels();
const VectorLevelInfo& levelInfo(VectorLevel level);
// Nothing: no level has this name.
std::optional<VectorLevel> levelNamed(std::string_view name);
// Does a machine with the level `machine` run code of `level`?
bool includesLevel(VectorLevel machine, VectorLevel level);

// What there is. The defaults are what a processor has at least where the system does not tell.
struct Machine {
  VectorLevel level = VectorLevel::kSse4;
  size_t l1Bytes = size_t{32} << 10;  // the first cache for data
  size_t l1Ways = 8;                  // lines that a set of it holds
  size_t l2Bytes = size_t{256} << 10;
  size_t l3Bytes = 0;  // 0: there is none, or it is not known
  size_t lineBytes = 64;
  size_t pageBytes = 4096;
  unsigned cores = 1;
  bool operator==(const Machine&) const = default;
};

// What is computed in registers, of a product or of scores: rows by vectors of `lanes` floats.
struct ProductTile {
  unsigned rows = 6;
  unsigned vectors = 1;
  bool operator==(const ProductTile&) const = default;
};

struct Target {
  Machine machine;

  // Shapes of vectors in code.
  unsigned lanes = 8;            // floats handled at once
  unsigned columnLanes = 32;     // floats handled at once by cheap kernels whose vectors run across rows
  unsigned square = 4;           // elements that are transposed in registers, each way
  unsigned transposeSquare = 4;  // the same, where memory is moved from one dimension to another
  unsigned transposeRows = 16, transposeColumns = 256;  // the block that is moved at once

  struct Products {
    ProductTile tall, wide;
    bool preferWide = false;  // the rows of a tall tile may throw each other out of the first cache
    int64_t depth = 512;      // of k that is packed at once, at most
    int64_t rows = 288;       // that share the packing, at most; a multiple of rowStep
    int64_t rowStep = 24;
    int64_t fewestRows = 12, fewestColumns = 8;  // smaller ones go to BLAS
  } products;

  struct Attention {
    int64_t keysOfMany = 96;  // keys in a block, where vectors run along queries
    int64_t keysOfFew = 128;  // keys in a block, where vectors run along the elements of a key
    unsigned fewLanes = 8;
    int64_t fewQueries = 9;  // so many and more fill vectors of queries
  } attention;

  // What the layout with the channels last gains a convolution, as a share of the time that it computes
  // (2 * multiply-adds / costs.flopsPerNanosecond); negative: it loses. A larger share puts more segments
  // into the layout, whose moves cost more than they gain where the library is better than that; a smaller
  // one leaves segments as they are. target.cc says where the numbers are from.
  struct ChannelsLast {
    double plain = 0;        // of a transposed convolution, which is not folded
    double folded = 0;       // of most folded convolutions
    double fewChannels = 0;  // of windows of more than one element that read fewer channels than
    int64_t fewerThan = 0;   // this
    double image = 0;        // of the first convolution of an image, which reads at most so many channels
    int64_t imageChannels = 0;
    double narrowProduct = 0;  // of windows of one element with fewer channels on either side than
    int64_t narrowerThan = 0;  // this
  } channelsLast;

  // What is worth doing; in elements, if nothing else is said.
  struct Costs {
    int64_t minWorkPerThread = 65536;  // cheap operations on elements that are worth waking a thread
    int64_t updateGrain = 32768;       // elements written at places that integers name, likewise
    int64_t smallKernel = 4096;        // takes as long as to launch it
    int64_t smallTensor = 16384;       // takes less time to compute than to allocate
    int64_t keptElements = 262144;     // of small tensors that a plan keeps between runs
    int64_t narrowRun = 8;             // shorter runs use less than half of the lines that they touch
    int64_t narrowTensor = 2048;       // in tensors of this size or less, narrow runs do not matter
    int64_t longestRow = 16384;        // whose values are kept on the stack
    int64_t longestColumn = 1024;      // the same, where one vector handles as many rows as it has lanes
    int64_t fewestRows = 4;            // for vectors across rows
    int64_t mostRepeats = 8;           // neighbours that take the same element
    size_t streams = 12, smallStreams = 16;  // places in memory that a kernel walks along at once
    // What an operation costs a thread, in cheap operations on an element.
    int64_t costlyOperation = 8;      // an exponential and its like
    int64_t fusedMultiplies = 8;      // multiply-adds of a product, that take as long as one cheap operation
    int64_t scoreOperations = 2;      // the maximum and the exponential of a score of attention
    double flopsPerNanosecond = 100;  // of the library's convolutions
    double moveNanoseconds = 0.8;     // to move an element to another layout
    double passNanoseconds = 0.25;    // to read and write an element once more
    size_t pooledBytes = size_t{32} << 10;   // of tensors that run memory takes care of
    size_t hashedBytes = size_t{256} << 10;  // that a thread hashes at once
  } costs;
};

Target describeTarget(const Machine& machine);

// Of this process, and on this thread: that of the innermost TargetScope, or else the machine's.
const Target& target();
// Code is made for no more than this level, and never for more than the machine has; nothing: no limit.
void limitTarget(std::optional<VectorLevel> level);
// All that machine code depends on, as part of a cache's key.
std::string targetKey(const Target& target);

class TargetScope {
 public:
  explicit TargetScope(const Target& target);
  ~TargetScope();
  TargetScope(const TargetScope&) = delete;

 private:
  const Target target_;
  const Target* outer_;
};

}  // namespace kintsugi
