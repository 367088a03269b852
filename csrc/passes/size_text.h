// Sizes of the tensor graph as text: `16`, `s0`, `4*s0-1`, lists of them in brackets, and the rows that say
// what the symbols are:
//
//   size s0 = 10           varies from run to run, was 10 while recording
//   stride s1 = 40
//   require 4*s0-s1 = 0    what each run checks
//
// Reading fails as ir::Cursor does. Both ways need a SizeScope (passes/size.h); rows are read into a table
// without symbols. No state, no GIL.
#pragma once

#include <string>
#include <vector>

#include "ir/text.h"
#include "passes/size.h"

namespace kintsugi::passes {

void appendSizes(std::string& out, const std::vector<Size>& sizes);  // `[2,s0,16]`
Size readSize(ir::Cursor& cursor);
std::vector<Size> readSizes(ir::Cursor& cursor);

// Each row begins with `indent` and ends its line.
void appendSizeRows(std::string& out, const SizeTable& table, std::string_view indent);
// Takes the row, if it is one of those.
bool readSizeRow(ir::Cursor& cursor);

}  // namespace kintsugi::passes
