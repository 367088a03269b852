// Rebuilding a document after a pass has decided what stays: tables are packed, and every reference follows.
//
// Constants and metadata keep their numbers: the runtime holds Python objects and tensor descriptions beside
// them. The Renumbering is the caller's. No GIL.
#pragma once

#include <vector>

#include "guard/document.h"

namespace kintsugi::passes {

// The new number of each row, or ir::kNone where it goes. Several frame states may share a new number (they
// are equal); otherwise kept rows have new numbers of their own, ascending as the old ones. What is kept
// needs only what is kept.
struct Renumbering {
  std::vector<bool> instructions;  // kept?
  std::vector<ir::ValueId> values;
  std::vector<ir::RecipeId> recipes;
  std::vector<ir::StateId> states;
  std::vector<ir::SourceId> sources;

  // Everything stays as it is.
  static Renumbering identity(const guard::Document& document);
};

// Numbers the marked rows from 0.
std::vector<uint32_t> numberKept(const std::vector<bool>& kept);

void renumber(guard::Document& document, const Renumbering& to);

}  // namespace kintsugi::passes
