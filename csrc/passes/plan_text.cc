#include "passes/plan_text.h"

#include <limits>

#include "ir/text.h"

namespace kintsugi::passes {

namespace {

constexpr int64_t kMostNumber = std::numeric_limits<int32_t>::max();

std::string named(uint32_t slot) { return slot == ir::kNone ? "none" : std::to_string(slot); }

void appendSlots(std::string& out, const std::vector<uint32_t>& slots) {
  out += '[';
  for (size_t k = 0; k < slots.size(); ++k) {
    out += (k == 0 ? "" : ", ") + named(slots[k]);
  }
  out += ']';
}

void appendStep(std::string& out, const PlanStep& step) {
  out += "  step";
  const auto put = [&out](std::string_view name, const std::vector<uint32_t>& slots) {
    if (!slots.empty()) {
      appendSlots(out += " " + std::string(name) + "=", slots);
    }
  };
  put("reads", step.reads);
  put("writes", step.writes);
  for (size_t k = 0; k < step.makes.size(); ++k) {
    const PlanStep::Made& made = step.makes[k];
    out += (k == 0 ? " makes=[" : ", ") + named(made.slot);
    out += made.place != ir::kNone ? " place=" + named(made.place) : "";
    out += made.over != ir::kNone ? " over=" + named(made.over) : "";
  }
  out += step.makes.empty() ? "" : "]";
  put("drops", step.drops);
  out += '\n';
}

class Reader {
 public:
  explicit Reader(ir::Cursor& cursor) : cursor_(cursor) {}

  PlanFlow plan() {
    cursor_.expectWord("plan");
    plan_.slotCount = keyed("slots");
    plan_.inputCount = keyed("inputs");
    plan_.steadySteps = keyed("steady");
    cursor_.expect('{');
    while (!cursor_.failed() && !cursor_.eat('}')) {
      row();
    }
    return std::move(plan_);
  }

 private:
  void row() {
    if (cursor_.eatWord("step")) {
      step();
    } else if (cursor_.eatWord("alias")) {
      const uint32_t from = slot();
      plan_.aliases.emplace_back(from, slot());
    } else if (cursor_.eatWord("written")) {
      plan_.written = slots();
    } else if (cursor_.eatWord("stays")) {
      plan_.steadySlots = slots();
    } else if (cursor_.eatWord("outputs")) {
      plan_.outputs = slots();
    } else {
      cursor_.fail("expected '}', 'step', 'alias', 'written', 'stays' or 'outputs'");
    }
  }

  void step() {
    PlanStep step;
    while (!cursor_.failed() && !cursor_.lineEndsHere()) {
      const size_t at = cursor_.here();
      const std::string_view word = cursor_.word();
      cursor_.expect('=');
      if (word == "makes") {
        makes(step);
      } else if (word == "reads") {
        step.reads = slots();
      } else if (word == "writes") {
        step.writes = slots();
      } else if (word == "drops") {
        step.drops = slots();
      } else {
        cursor_.failAt(at, "expected 'reads', 'writes', 'makes' or 'drops'");
      }
    }
    plan_.steps.push_back(std::move(step));
  }

  void makes(PlanStep& step) {
    cursor_.expect('[');
    do {
      PlanStep::Made made;
      made.slot = slot();
      made.place = cursor_.eatWord("place") ? assigned() : ir::kNone;
      made.over = cursor_.eatWord("over") ? assigned() : ir::kNone;
      step.makes.push_back(made);
    } while (!cursor_.failed() && cursor_.eat(','));
    cursor_.expect(']');
  }

  uint32_t slot() {
    return cursor_.eatWord("none") ? ir::kNone : static_cast<uint32_t>(cursor_.integer(0, kMostNumber));
  }
  uint32_t assigned() {
    cursor_.expect('=');
    return slot();
  }
  size_t keyed(std::string_view name) {
    cursor_.expectWord(name);
    cursor_.expect('=');
    return static_cast<size_t>(cursor_.integer(0, kMostNumber));
  }
  std::vector<uint32_t> slots() {
    std::vector<uint32_t> out;
    cursor_.expect('[');
    if (cursor_.eat(']')) {
      return out;
    }
    do {
      out.push_back(slot());
    } while (!cursor_.failed() && cursor_.eat(','));
    cursor_.expect(']');
    return out;
  }

  ir::Cursor& cursor_;
  PlanFlow plan_;
};

}  // namespace

std::string print(const PlanFlow& plan) {
  std::string out = "plan slots=" + std::to_string(plan.slotCount) +
                    " inputs=" + std::to_string(plan.inputCount) +
                    " steady=" + std::to_string(plan.steadySteps) + " {\n";
  if (!plan.written.empty()) {
    appendSlots(out += "  written ", plan.written);
    out += '\n';
  }
  if (!plan.steadySlots.empty()) {
    appendSlots(out += "  stays ", plan.steadySlots);
    out += '\n';
  }
  for (const auto& [from, to] : plan.aliases) {
    out += "  alias " + named(from) + " " + named(to) + "\n";
  }
  for (const PlanStep& step : plan.steps) {
    appendStep(out, step);
  }
  appendSlots(out += "  outputs ", plan.outputs);
  return out + "\n}\n";
}

diag::Result<PlanFlow> parsePlan(std::string_view text) {
  ir::Cursor cursor(text);
  PlanFlow plan = Reader(cursor).plan();
  if (!cursor.failed() && !cursor.atEnd()) {
    cursor.fail("expected the end of the text");
  }
  if (cursor.failed()) {
    return cursor.diagnostic();
  }
  return plan;
}

}  // namespace kintsugi::passes
