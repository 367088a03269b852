#include "passes/plan_verifier.h"

#include <gtest/gtest.h>

#include <functional>

namespace kintsugi::passes {
namespace {

// Slots: 0 and 1 are inputs, 1 is written to; 2 stays with the frame; 3 and 5 share kept memory; 4 is the
// output, and takes over 6, of which 7 is a view.
PlanFlow base() {
  PlanFlow plan;
  plan.slotCount = 8;
  plan.inputCount = 2;
  plan.outputs = {4, ir::kNone};
  plan.written = {1};
  plan.aliases = {{6, 7}};
  plan.steadySteps = 1;
  plan.steadySlots = {2};
  plan.steps = {
      {.reads = {}, .writes = {2}, .makes = {{2}}, .drops = {}},
      {.reads = {0, 2}, .writes = {3}, .makes = {{3, 0}}, .drops = {}},
      {.reads = {3}, .writes = {6}, .makes = {{6}}, .drops = {3}},
      {.reads = {6}, .writes = {7}, .makes = {{7}}, .drops = {}},
      {.reads = {7}, .writes = {5}, .makes = {{5, 0}}, .drops = {7}},
      {.reads = {5, 6}, .writes = {4}, .makes = {{4, ir::kNone, 6}}, .drops = {5, 6}},
      {.reads = {4}, .writes = {1}, .makes = {}, .drops = {}},
  };
  return plan;
}

std::string problemsAfter(const std::function<void(PlanFlow&)>& change) {
  PlanFlow plan = base();
  change(plan);
  return ir::formatProblems(verify(plan));
}

TEST(PlanVerifier, AcceptsTheBase) {
  EXPECT_EQ(problemsAfter([](PlanFlow&) {}), "");
}

struct Broken {
  const char* says;
  std::function<void(PlanFlow&)> change;
};

TEST(PlanVerifier, RejectsWhatBreaksARule) {
  const Broken table[] = {
      {"more inputs than slots", [](PlanFlow& p) { p.inputCount = 9; }},
      {"more inputs than slots, or more steady steps", [](PlanFlow& p) { p.steadySteps = 8; }},
      {"step 1: there is no slot 8", [](PlanFlow& p) { p.steps[1].reads.push_back(8); }},
      {"step 5: there is no slot 9", [](PlanFlow& p) { p.steps[5].makes[0].over = 9; }},
      {"there is no slot 8", [](PlanFlow& p) { p.outputs[0] = 8; }},
      {"there is no slot 8", [](PlanFlow& p) { p.aliases.emplace_back(0, 8); }},
      {"slot 3 is written to, and is no input",
       [](PlanFlow& p) {
         p.written = {1, 3};
       }},
      {"step 1: reads slot 6 before it is made", [](PlanFlow& p) { p.steps[1].reads.push_back(6); }},
      {"step 4: reads slot 3 after it was dropped", [](PlanFlow& p) { p.steps[4].reads.push_back(3); }},
      {"step 3: writes to slot 5 before it is made", [](PlanFlow& p) { p.steps[3].writes.push_back(5); }},
      {"step 6: makes slot 4 a second time", [](PlanFlow& p) { p.steps[6].makes.push_back({4}); }},
      {"step 1: makes slot 0 a second time", [](PlanFlow& p) { p.steps[1].makes.push_back({0}); }},
      {"step 1: writes to slot 0, an input", [](PlanFlow& p) { p.steps[1].writes.push_back(0); }},
      {"step 6: writes to slot 1, an input", [](PlanFlow& p) { p.written.clear(); }},
      {"step 6: drops slot 4, which is an input", [](PlanFlow& p) { p.steps[6].drops.push_back(4); }},
      {"step 1: drops slot 0, which is an input", [](PlanFlow& p) { p.steps[1].drops.push_back(0); }},
      {"step 1: drops slot 2, which is an input", [](PlanFlow& p) { p.steps[1].drops.push_back(2); }},
      {"step 6: drops slot 5 after it was dropped", [](PlanFlow& p) { p.steps[6].drops.push_back(5); }},
      {"slot 7 is never dropped", [](PlanFlow& p) { p.steps[4].drops.clear(); }},
      {"slot 6, which is not dropped here", [](PlanFlow& p) { p.steps[5].drops = {5}; }},
      {"slot 6 is written over twice",
       [](PlanFlow& p) {
         p.steps[5].makes.push_back({4, ir::kNone, 6});
       }},
      {"has kept memory, and takes that of another", [](PlanFlow& p) { p.steps[5].makes[0].place = 1; }},
      {"slot 5 gets the memory of slot 3", [](PlanFlow& p) { p.aliases.emplace_back(3, 7); }},
      {"slot 4 has kept memory, and does not go", [](PlanFlow& p) { p.steps[5].makes[0].place = 1; }},
      {"the output slot 4 is not there", [](PlanFlow& p) { p.steps[5].makes.clear(); }},
      {"step 0: runs once, and makes slot 2", [](PlanFlow& p) { p.steadySlots.clear(); }},
      {"step 6: runs each time, and writes to slot 2", [](PlanFlow& p) { p.steps[6].writes.push_back(2); }},
      {"step 1: runs once, and makes slot 3", [](PlanFlow& p) { p.steadySteps = 2; }},
      {"step 2: runs once, and reads slot 3",
       [](PlanFlow& p) {
         p.steadySteps = 3;
         p.steadySlots = {2, 6};
       }},
  };
  for (const Broken& broken : table) {
    const std::string problems = problemsAfter(broken.change);
    EXPECT_NE(problems.find(broken.says), std::string::npos) << broken.says << "\n" << problems;
  }
}

}  // namespace
}  // namespace kintsugi::passes
