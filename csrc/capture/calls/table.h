// Tables of rows, which are checked when they are compiled: a row that contradicts its model does not build.
//
// Owner of the rows: the file that registers them; they are constants. Thread: the recording one, GIL held.
// Example:
//
//   constexpr ModelRow kRows[] = {{"math.*", foldModel, gives("float int")}};
//   void registerMathModels() { addTable<kRows>(); }
#pragma once

#include <iterator>

#include "capture/calls/model.h"

namespace kintsugi::capture {

// True if the model only holds where the result follows from pinned arguments and guarded state.
constexpr bool isFolding(CallModel model) {
  return model == foldModel || model == identityModel || model == formatModel || model == arithmeticModel;
}

// True if everything is read again behind any call of the model.
constexpr bool readsAgain(CallModel model) {
  return model == blockingModel || model == opaqueModel || model == outputModel;
}

// What a row says against its model, or null.
constexpr const char* contradictionOf(const ModelRow& row) {
  const Facts& facts = row.facts;
  const bool constant = row.model == constantModel;
  const bool keepsReads = constant || isFolding(row.model) || row.model == knownModel ||
                          row.model == keepModel || row.model == torchMetaModel;
  if (facts.results == nullptr || facts.results[0] == '\0') return "it does not name its results";
  if (facts.errors == nullptr) return "it does not name its exceptions";
  if (constant && facts.state == StateWord::kUnnamed) return "a constant names the state that it depends on";
  if ((constant || isFolding(row.model)) && facts.reads != Reads::kArguments)
    return "a constant reads what no guard has";
  if (constant && facts.python != Python::kNone) return "a constant runs no Python code";
  if (isFolding(row.model) && facts.writes != Writes::kArguments) return "what is folded changes nothing";
  if (keepsReads && facts.python == Python::kAny)
    return "what any Python code may change has to be read again";
  if (facts.waits == Waits::kThreads && !readsAgain(row.model))
    return "what others did while it waited has to be read again";
  if (row.model == blockingModel && facts.waits != Waits::kThreads) return "it does not say that it waits";
  if (facts.waits == Waits::kProcesses && facts.writes != Writes::kOtherProcesses)
    return "who waits for other processes changes them";
  return nullptr;
}

// The index of the first row that contradicts its model; the number of rows if none does.
template <size_t N>
consteval size_t firstContradiction([[maybe_unused]] const ModelRow (&rows)[N]) {
  // In builds with sanitizers, compilers can't compare functions at compile time. All of these are debug
  // builds, which check rows when they are registered.
#ifndef KINTSUGI_DEBUG
  for (size_t i = 0; i < N; ++i) {
    if (contradictionOf(rows[i]) != nullptr) return i;
  }
#endif
  return N;
}

template <const auto& kTable>
void addTable() {
  static_assert(firstContradiction(kTable) == std::size(kTable),
                "the row with this index contradicts its model: see contradictionOf()");
  addModels(kTable, std::size(kTable));
}

}  // namespace kintsugi::capture
