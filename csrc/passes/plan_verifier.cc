#include "passes/plan_verifier.h"

#include <algorithm>
#include <string>

namespace kintsugi::passes {

namespace {

using ir::Problem;

constexpr size_t kMaxProblems = 20;
constexpr size_t kNever = static_cast<size_t>(-1);

class Verifier {
 public:
  explicit Verifier(const PlanFlow& plan) : plan_(plan) {}

  std::vector<Problem> run() {
    checkRanges();
    if (problems_.empty()) {
      findLives();
      for (size_t at = 0; at < plan_.steps.size(); ++at) {
        checkUses(at);
        checkOver(at);
      }
      checkEnds();
      checkPlaces();
      checkSteady();
    }
    return std::move(problems_);
  }

 private:
  enum class Slot : uint8_t { kEmpty, kThere, kDropped };

  void problem(size_t step, std::string message) {
    if (problems_.size() < kMaxProblems) {
      problems_.push_back({step == kNever ? "plan" : "step " + std::to_string(step), std::move(message)});
    }
  }
  static std::string named(uint32_t slot) { return "slot " + std::to_string(slot); }
  bool isInput(uint32_t slot) const { return slot < plan_.inputCount; }

  void checkRange(size_t step, uint32_t slot) {
    if (slot >= plan_.slotCount) {
      problem(step, "there is no " + named(slot));
    }
  }

  void checkRanges() {
    if (plan_.inputCount > plan_.slotCount || plan_.steadySteps > plan_.steps.size()) {
      problem(kNever, "more inputs than slots, or more steady steps than steps");
    }
    for (size_t at = 0; at < plan_.steps.size(); ++at) {
      const PlanStep& step = plan_.steps[at];
      for (const std::vector<uint32_t>* slots : {&step.reads, &step.writes, &step.drops}) {
        for (const uint32_t slot : *slots) {
          checkRange(at, slot);
        }
      }
      for (const PlanStep::Made& made : step.makes) {
        checkRange(at, made.slot);
        if (made.over != ir::kNone) {
          checkRange(at, made.over);
        }
      }
    }
    for (const uint32_t slot : plan_.outputs) {
      if (slot != ir::kNone) {
        checkRange(kNever, slot);
      }
    }
    for (const uint32_t slot : plan_.steadySlots) {
      checkRange(kNever, slot);
    }
    for (const auto& [from, to] : plan_.aliases) {
      checkRange(kNever, from);
      checkRange(kNever, to);
    }
    for (const uint32_t slot : plan_.written) {
      if (!isInput(slot)) {
        problem(kNever, named(slot) + " is written to, and is no input");
      }
    }
  }

  // Finds the slots that outlive the steps, and for each slot the last step that uses its memory.
  void findLives() {
    stays_.assign(plan_.slotCount, false);
    std::fill(stays_.begin(), stays_.begin() + static_cast<std::ptrdiff_t>(plan_.inputCount), true);
    for (const uint32_t slot : plan_.outputs) {
      if (slot != ir::kNone) {
        stays_[slot] = true;
      }
    }
    for (const uint32_t slot : plan_.steadySlots) {
      stays_[slot] = true;
    }
    until_.assign(plan_.slotCount, 0);
    for (size_t at = 0; at < plan_.steps.size(); ++at) {
      for (const std::vector<uint32_t>* slots : {&plan_.steps[at].reads, &plan_.steps[at].writes}) {
        for (const uint32_t slot : *slots) {
          until_[slot] = at;
        }
      }
    }
    for (uint32_t slot = 0; slot < plan_.slotCount; ++slot) {
      until_[slot] = stays_[slot] ? kNever : until_[slot];
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [from, to] : plan_.aliases) {
        changed = changed || until_[from] < until_[to];
        until_[from] = std::max(until_[from], until_[to]);
      }
    }
    slots_.assign(plan_.slotCount, Slot::kEmpty);
    std::fill(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(plan_.inputCount), Slot::kThere);
  }

  void checkThere(size_t at, uint32_t slot, const char* what) {
    if (slots_[slot] != Slot::kThere) {
      problem(at, std::string(what) + " " + named(slot) +
                      (slots_[slot] == Slot::kEmpty ? " before it is made" : " after it was dropped"));
    }
  }

  void checkUses(size_t at) {
    const PlanStep& step = plan_.steps[at];
    for (const uint32_t slot : step.reads) {
      checkThere(at, slot, "reads");
    }
    for (const PlanStep::Made& made : step.makes) {
      if (slots_[made.slot] != Slot::kEmpty) {
        problem(at, "makes " + named(made.slot) + " a second time");
      }
      slots_[made.slot] = Slot::kThere;
    }
    for (const uint32_t slot : step.writes) {
      checkThere(at, slot, "writes to");
      const bool told = std::find(plan_.written.begin(), plan_.written.end(), slot) != plan_.written.end();
      if (isInput(slot) && !told) {
        problem(at, "writes to " + named(slot) + ", an input that is not said to be written to");
      }
    }
    for (const uint32_t slot : step.drops) {
      checkThere(at, slot, "drops");
      if (stays_[slot]) {
        problem(at, "drops " + named(slot) + ", which is an input, an output or stays with the frame");
      }
      slots_[slot] = Slot::kDropped;
    }
  }

  void checkOver(size_t at) {
    const PlanStep& step = plan_.steps[at];
    std::vector<uint32_t> taken;
    for (const PlanStep::Made& made : step.makes) {
      if (made.over == ir::kNone) {
        continue;
      }
      if (std::find(step.drops.begin(), step.drops.end(), made.over) == step.drops.end()) {
        problem(at, named(made.slot) + " takes the memory of " + named(made.over) +
                        ", which is not dropped here");
      }
      if (std::find(taken.begin(), taken.end(), made.over) != taken.end()) {
        problem(at, named(made.over) + " is written over twice");
      }
      if (made.place != ir::kNone) {
        problem(at, named(made.slot) + " has kept memory, and takes that of another");
      }
      taken.push_back(made.over);
    }
  }

  void checkEnds() {
    for (uint32_t slot = 0; slot < plan_.slotCount; ++slot) {
      if (slots_[slot] == Slot::kThere && !stays_[slot]) {
        problem(kNever, named(slot) + " is never dropped");
      }
    }
    for (const uint32_t slot : plan_.outputs) {
      if (slot != ir::kNone && slots_[slot] != Slot::kThere) {
        problem(kNever, "the output " + named(slot) + " is not there in the end");
      }
    }
  }

  void checkPlaces() {
    std::vector<std::pair<uint32_t, uint32_t>> holders;  // place, slot
    for (size_t at = 0; at < plan_.steps.size(); ++at) {
      for (const PlanStep::Made& made : plan_.steps[at].makes) {
        if (made.place == ir::kNone) {
          continue;
        }
        for (const auto& [place, slot] : holders) {
          if (place == made.place && until_[slot] >= at) {
            problem(at,
                    named(made.slot) + " gets the memory of " + named(slot) + ", which is looked at later");
          }
        }
        if (until_[made.slot] == kNever) {
          problem(at, named(made.slot) + " has kept memory, and does not go");
        }
        holders.emplace_back(made.place, made.slot);
      }
    }
  }

  void checkSteady() {
    std::vector<bool> steady(plan_.slotCount, false);
    for (const uint32_t slot : plan_.steadySlots) {
      steady[slot] = true;
    }
    for (size_t at = 0; at < plan_.steps.size(); ++at) {
      const PlanStep& step = plan_.steps[at];
      const bool first = at < plan_.steadySteps;
      for (const uint32_t slot : step.writes) {
        if (steady[slot] != first) {
          problem(at, first ? "runs once, and makes " + named(slot) + ", which does not stay"
                            : "runs each time, and writes to " + named(slot) + ", which stays");
        }
      }
      for (const uint32_t slot : step.reads) {
        // Of an input a step that runs once takes no more than the type, which each run checks.
        if (first && !steady[slot] && !isInput(slot)) {
          problem(at, "runs once, and reads " + named(slot) + ", which does not stay");
        }
      }
    }
  }

  const PlanFlow& plan_;
  std::vector<Problem> problems_;
  std::vector<bool> stays_;
  std::vector<size_t> until_;  // by slot: the last step that uses its memory; kNever: it stays
  std::vector<Slot> slots_;
};

}  // namespace

std::vector<ir::Problem> verify(const PlanFlow& plan) { return Verifier(plan).run(); }

}  // namespace kintsugi::passes
