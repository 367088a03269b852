#include "support/target.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "support/host_machine.h"

namespace kintsugi {

namespace {

constexpr auto kLevels = std::to_array<VectorLevelInfo>({
#define KTG_VECTOR_LEVEL(id, name, triple, processor, floats, registers, fma, halves) \
  {VectorLevel::k##id, name, triple, processor, floats, registers, fma, halves},
#include "support/vector_levels.def"
#undef KTG_VECTOR_LEVEL
});

constexpr int64_t kFloat = 4;  // bytes

int64_t clampTo(int64_t value, int64_t least, int64_t most, int64_t step) {
  return std::clamp(value / step * step, least, most);
}

void describeVectors(Target& t, const VectorLevelInfo& level) {
  // Two registers at a time, so that two chains of instructions are under way; more than 16 lanes spill.
  t.lanes = std::min(16U, 2 * level.registerFloats);
  // Narrow reads of long memory: four times as wide.
  t.columnLanes = 4 * t.lanes;
  // Rows of a square are as long as there are rows of them, and take half of the registers at most.
  t.square = level.registerFloats;
  while (2 * t.square * (2 * t.square / level.registerFloats) <= level.registers / 2) {
    t.square *= 2;
  }
  // Half a line is as much as is read of each row.
  t.transposeSquare = std::min<unsigned>(t.square, static_cast<unsigned>(t.machine.lineBytes / 2 / kFloat));
  t.transposeRows = 16;
  // The block takes half of the first cache.
  const auto columns = static_cast<unsigned>(t.machine.l1Bytes / 2 / (t.transposeRows * kFloat));
  t.transposeColumns = std::clamp(std::bit_floor(columns), 64U, 512U);
}

// Sums take three quarters of the registers; the rest is for a row of the right operand and an element of the
// left one. A tile whose right operand takes `right` registers has as many rows as the sums allow.
ProductTile tileOf(const VectorLevelInfo& level, unsigned lanes, unsigned right) {
  const unsigned sums = level.registers * 3 / 4;
  return {sums / right, std::max(1U, right * level.registerFloats / lanes)};
}

void describeProducts(Target& t, const VectorLevelInfo& level) {
  Target::Products& p = t.products;
  p.tall = tileOf(level, t.lanes, 2);
  p.wide = tileOf(level, t.lanes, 4);
  // Rows of the left operand are read where they lie. Where they are a power of two apart, as in many models,
  // those of a tile share a set of the first cache, and more of them than it has ways throw each other out
  // (93 instead of 105 GFLOP/s with twelve rows and eight ways).
  p.preferWide = p.tall.rows > t.machine.l1Ways;
  const auto l2 = static_cast<int64_t>(t.machine.l2Bytes);
  const int64_t columns = p.wide.vectors * t.lanes;
  // The packed panel takes an eighth of the second cache. Deeper ones than 512 gain nothing: sums are loaded
  // and stored once for that many steps.
  p.depth = clampTo(l2 / 8 / (columns * kFloat), 128, 512, 128);
  // Panel, sums and the rows that are multiplied with it take four fifths of the second cache.
  p.rowStep = 2 * p.tall.rows;
  const int64_t room = l2 * 4 / 5 - p.depth * columns * kFloat;
  p.rows = clampTo(room / ((p.depth + columns) * kFloat), p.rowStep, 40 * p.rowStep, p.rowStep);
  // To pack the right operand takes about as long as the rows of a tile do; half a vector of columns is the
  // least that is faster than BLAS.
  p.fewestRows = p.tall.rows;
  p.fewestColumns = t.lanes / 2;
}

void describeAttention(Target& t) {
  Target::Attention& a = t.attention;
  const auto l1 = static_cast<int64_t>(t.machine.l1Bytes);
  const int64_t columns = t.products.tall.vectors * t.lanes;
  // Scores of a block take three eighths of the first cache; queries and sums, the rest.
  a.keysOfMany = clampTo(l1 * 3 / 8 / (columns * kFloat), 48, 192, t.products.rowStep);
  // Keys of a block, with heads of 64 elements, take the first cache: all queries of a group read them.
  a.keysOfFew = clampTo(l1 / (64 * kFloat), 64, 256, t.lanes);
  // A register for each key of a group, and as many for what is left: as in a square.
  a.fewLanes = t.square;
  // More than half a vector of queries: each of a few takes an eighth or so of what a vector of them takes
  // (12 heads of 64 and 512 keys: 29 to 36 us, and 253 to 280 us for sixteen).
  a.fewQueries = t.lanes / 2 + 1;
}

// Shares of a convolution's work, from times of oneDNN's code for both layouts (docs/internals/native.md,
// "Convolutions", has four pairs). The counts of channels follow from its code: it computes with blocks of
// 16 channels, a register of 512 bits, and keeps four of them for the sums of a window.
void describeConvolutions(Target& t) {
  constexpr int64_t kBlock = 16;
  Target::ChannelsLast& c = t.channelsLast;
  // The library moves input and result of a transposed convolution in each call, about half of its work.
  c.plain = 0.5;
  // Folded convolutions have the layout in any case: this is what a neighbour with it saves.
  c.folded = 0.1;
  // Without the layout, blocks of channels by rows of the image are too small to fill the registers.
  c.fewChannels = 0.3;
  c.fewerThan = 4 * kBlock;
  // There is no blocked code for an image with the channels first.
  c.image = 4;
  c.imageChannels = kBlock / 4;
  // Windows of one element are a product. With less than a block of channels no register is filled.
  c.narrowProduct = -0.5;
  c.narrowerThan = kBlock;
}

// The machine computes a register of cheap operations in a nanosecond, about. What else takes time was
// measured, and is rounded to powers of two: a launch of a kernel 100 to 200 ns, an allocation with its
// tensor about 1 us, waking threads some us.
void describeCosts(Target& t, const VectorLevelInfo& level) {
  constexpr int64_t kLaunch = 256, kAllocate = 1024, kWake = 4096;
  constexpr double kMemoryBytes = 15, kCacheBytes = 48;  // a nanosecond, of one core
  Target::Costs& c = t.costs;
  const int64_t each = level.registerFloats;
  const auto line = static_cast<int64_t>(t.machine.lineBytes);
  const auto l1 = static_cast<int64_t>(t.machine.l1Bytes), l2 = static_cast<int64_t>(t.machine.l2Bytes);
  c.minWorkPerThread = kWake * each;
  c.updateGrain = kWake * 8;  // eight a nanosecond, whatever the vectors: bound by memory
  c.smallKernel = kLaunch * each;
  c.smallTensor = kAllocate * each;
  c.keptElements = l2 / kFloat;  // as much as the second cache holds
  c.narrowRun = line / 2 / kFloat;
  c.narrowTensor = l1 / 4 / kFloat;
  // Twice the first cache, so that the second one gives them back, but no more: stacks of threads are small.
  c.longestRow = std::min<int64_t>(2 * l1, 65536) / kFloat;
  c.longestColumn = c.longestRow / t.lanes;
  c.fewestRows = t.lanes / 4;
  c.mostRepeats = t.lanes / 2;
  // Two multiply-adds a cycle of half a vector, or one of a whole one, at 3.1 GHz; without them, half of
  // that. The library chooses its own instructions, so this is of the machine.
  const VectorLevelInfo& own = levelInfo(t.machine.level);
  c.flopsPerNanosecond = own.fma && own.registerFloats > 4 ? 100 : 50;
  // To move an element or to pass over it once more, a float is read, and another is fetched and written
  // back: 12 bytes. Measured with moves 0.8 ns, and 0.25 ns with passes, whose reads are in the caches: the
  // rates above.
  c.moveNanoseconds = 3 * kFloat / kMemoryBytes;
  c.passNanoseconds = 3 * kFloat / kCacheBytes;
  // A core has ten to sixteen misses of the first cache under way: a kernel that walks along more places
  // waits for each. With fewer, less is merged, and what a merge would share is loaded again. Tensors of a
  // small kernel are in the caches, so that the sixteen registers for addresses are the bound.
  c.streams = 12;
  c.smallStreams = 16;
  // In registers a nanosecond, as above: multiply-adds run two a cycle at 3.1 GHz, six, rounded to a power of
  // two. An exponential is about eight sums. A score's maximum and exponential count as two: they are neither
  // loaded nor stored. If these are too large, threads are woken for work that they do not speed up; if they
  // are too small, one thread does what several would share. Results do not depend on them.
  c.costlyOperation = 8;
  c.fusedMultiplies = 8;
  c.scoreOperations = 2;
  c.pooledBytes = 8 * t.machine.pageBytes;  // glibc keeps smaller ones, and few page faults are cheap
  c.hashedBytes = std::max<size_t>(t.machine.l2Bytes / 4 / 64 * 64, 4096);
}

std::atomic<const Target*>& current() {
  static std::atomic<const Target*> pointer = nullptr;
  return pointer;
}

constinit thread_local const Target* scoped = nullptr;

}  // namespace

std::span<const VectorLevelInfo> vectorLevels() { return kLevels; }

const VectorLevelInfo& levelInfo(VectorLevel level) { return kLevels[static_cast<size_t>(level)]; }

std::optional<VectorLevel> levelNamed(std::string_view name) {
  const auto found = std::find_if(kLevels.begin(), kLevels.end(),
                                  [name](const VectorLevelInfo& info) { return info.name == name; });
  return found != kLevels.end() ? std::optional(found->level) : std::nullopt;
}

bool includesLevel(VectorLevel machine, VectorLevel level) {
  return level <= machine && levelInfo(level).triple == levelInfo(machine).triple;
}

Target describeTarget(const Machine& machine) {
  Target out;
  out.machine = machine;
  const VectorLevelInfo& level = levelInfo(machine.level);
  describeVectors(out, level);
  describeProducts(out, level);
  describeAttention(out);
  describeConvolutions(out);
  describeCosts(out, level);
  return out;
}

const Target& target() {
  if (scoped != nullptr) {
    return *scoped;
  }
  const Target* found = current().load(std::memory_order_acquire);
  if (found == nullptr) {
    limitTarget(std::nullopt);
    found = current().load(std::memory_order_acquire);
  }
  return *found;
}

void limitTarget(std::optional<VectorLevel> level) {
  // One for each level, made once: whoever holds one keeps a valid one.
  static const auto* all = [] {
    auto* made = new std::array<Target, kLevels.size()>();
    for (const VectorLevelInfo& info : kLevels) {
      Machine machine = hostMachine();
      machine.level = includesLevel(machine.level, info.level) ? info.level : machine.level;
      (*made)[static_cast<size_t>(info.level)] = describeTarget(machine);
    }
    return made;
  }();
  const VectorLevel wanted = level.value_or(hostMachine().level);
  current().store(&(*all)[static_cast<size_t>(wanted)], std::memory_order_release);
}

std::string targetKey(const Target& target) {
  const Machine& m = target.machine;
  std::string out(levelInfo(m.level).name);
  for (const size_t number : {m.l1Bytes, m.l1Ways, m.l2Bytes, m.lineBytes}) {
    out += "-" + std::to_string(number);
  }
  return out;
}

TargetScope::TargetScope(const Target& target) : target_(target), outer_(scoped) { scoped = &target_; }
TargetScope::~TargetScope() { scoped = outer_; }

}  // namespace kintsugi
