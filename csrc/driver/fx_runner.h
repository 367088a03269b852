// Runs the graph of one segment by what an FX backend has made of it.
//
// Ownership: belongs to the trace; holds the backend, and the description of its segment until that is not
// needed any longer. Functions of stops hold it weakly. Threads: GIL. Invalidation: with the trace.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diag/source_loc.h"
#include "ir/segments.h"
#include "passes/write_counts.h"
#include "pyapi/ref.h"
#include "runtime/segment_runner.h"
#include "torchapi/value.h"
#include "torchapi/write_versions.h"

namespace kintsugi::driver {

// What goes into a stop of a graph, and how many tensors come out.
struct StopKinds {
  std::vector<torchapi::ValueKind> given;
  // By what is given: was it made of numbers (`torch.zeros()`)? A graph that calls such a function may count
  // a write, where eager mode counts none.
  std::vector<bool> ofNothing;
  size_t made = 0;
};

std::vector<StopKinds> kindsOfStops(const ir::Trace& trace, const ir::SegmentRange& range);

class FxRunner final : public runtime::SegmentRunner {
 public:
  // `place`: of the trace's entry.
  FxRunner(PyObject* backend, std::vector<torchapi::ValueKind> outputs, std::vector<StopKinds> stops,
           diag::SourceLoc place)
      : backend_(pyapi::newRef(backend)),
        outputs_(std::move(outputs)),
        stops_(std::move(stops)),
        place_(std::move(place)) {}
  // How eager mode counts the writes of the graph.
  void setWriteCounts(std::optional<passes::WriteCounts> counts) { writeCounts_ = std::move(counts); }
  // Before it is compiled.
  void describe(pyapi::Ref<> description) { description_ = std::move(description); }

  // The graph has come to a stop. Null: an exception is pending.
  pyapi::Ref<> stop(size_t number, std::span<PyObject* const> given);

  bool needsGil() const override { return true; }
  void noteSideExit() override { ++sideExits_; }
  size_t graphs() const override;

  // The same, before the segment has run. `promised`: the examples that were made up, and None for others,
  // for the first run to look at; null: there are none.
  bool compileAhead(pyapi::Ref<> examples, pyapi::Ref<> promised) {
    examples_ = std::move(promised);
    return compile(std::move(examples));
  }

  // False: the backend's exception is pending. `examples`: list of the inputs.
  bool compile(pyapi::Ref<> examples);

  Status run(std::span<const torchapi::Value> inputs, std::span<torchapi::Value> outputs) override;

 private:
  void countWrites(const torchapi::WriteVersions& before, std::span<const torchapi::Value> outputs) const;
  bool take(PyObject* results, std::span<torchapi::Value> outputs);
  std::string backendName() const;

  pyapi::Ref<> backend_;
  pyapi::Ref<> description_;  // until it is compiled, and the examples have been compared with a run's inputs
  pyapi::Ref<> examples_;     // that a first run is to be compared with
  std::vector<torchapi::ValueKind> outputs_;
  std::vector<StopKinds> stops_;
  std::optional<passes::WriteCounts> writeCounts_;
  diag::SourceLoc place_;
  pyapi::Ref<> compiled_;
  bool compiling_ = false;  // GIL
  // Runs before the graph is judged by how many of them left it. More keep a graph that hardly ever ends;
  // with fewer, a bad beginning decides.
  static constexpr uint64_t kMeasuredRuns = 8;
  uint64_t runs_ = 0;       // GIL
  uint64_t sideExits_ = 0;  // how many of these left the trace at a guard inside the graph
};

// What a graph calls at a stop, as a Python function. Null: an exception is pending.
pyapi::Ref<> makeStop(std::weak_ptr<FxRunner> runner, size_t number);

}  // namespace kintsugi::driver
