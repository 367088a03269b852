// What a recording costs after it was recorded: its text form, the verifier and the passes, by length.
//
// The document has the shape of a transformer block repeated: two guards a parameter, an operation a line,
// and a snapshot for each operation. No GIL: nothing here needs Python.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "guard/document.h"
#include "ir/verifier.h"
#include "passes/pass_manager.h"

namespace kintsugi {
namespace {

std::string number(size_t n) { return std::to_string(n); }

std::string makeText(size_t operations) {
  std::string sources = "sources {\n", guards = "guards 0 {\n", code, snaps;
  code += "trace @f.py:3 f {\n  meta 0 tensor<f32,[2,3],cpu>\n  const #0 \"f\"\n  const #1 \"Tensor\"\n";
  for (size_t i = 0; i < operations; ++i) {
    sources += "  $" + number(i) + " = arg " + number(i) + "\n";
    guards += "  type $" + number(i) + " #1\n  tensor $" + number(i) + " 0\n";
    code += "  %" + number(i) + " = input $" + number(i) + " : tensor<0>\n";
  }
  for (size_t i = 0; i < operations; ++i) {
    code += "  %" + number(operations + i) + " = aten.mul.Tensor %" +
            number(i == 0 ? 0 : operations + i - 1) + ", %" + number(i) + " : tensor<0> snap !" + number(i) +
            "\n";
    snaps += "  snap !" + number(i) + " { parent=none code=#0 func=#0 pc=" + number(2 * i) + " locals=[%" +
             number(i) + ", %0] stack=[] }\n";
  }
  code += "  ret %" + number(2 * operations - 1) + " snap !" + number(operations - 1) + "\n";
  return sources + "}\n" + guards + "}\n" + code + snaps + "}\n";
}

guard::Document makeDocument(size_t operations) {
  auto document = guard::parse(makeText(operations));
  if (!document.ok()) {
    std::cerr << document.error().format() << "\n";
    std::abort();
  }
  return std::move(document).value();
}

void BM_Parse(benchmark::State& state) {
  const std::string text = makeText(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(guard::parse(text));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void BM_Print(benchmark::State& state) {
  const guard::Document document = makeDocument(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(guard::print(document));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void BM_Verify(benchmark::State& state) {
  const guard::Document document = makeDocument(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ir::verify(document.trace, ir::VerifierMode::kRecorded));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void BM_AllPasses(benchmark::State& state) {
  const guard::Document document = makeDocument(state.range(0));
  passes::PassManager manager;
  for (const passes::Pass& pass : passes::allPasses()) manager.add(pass);
  manager.setVerify(false);
  for (auto _ : state) {
    state.PauseTiming();
    guard::Document copy = document;
    state.ResumeTiming();
    manager.run(copy);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(BM_Parse)->Range(64, 4096);
BENCHMARK(BM_Print)->Range(64, 4096);
BENCHMARK(BM_Verify)->Range(64, 4096);
BENCHMARK(BM_AllPasses)->Range(64, 4096);

}  // namespace
}  // namespace kintsugi
