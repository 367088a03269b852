// The text form of a kernel (passes/kernel.h).
//
//   kernel rows {
//     over [64,16]
//     in %0 f32 strides=[16,1] unit
//     out %3 f32 strides=[1,0] zero
//     0 = load 0 f32
//     1 = reduce.sum(0) f32
//     store 1 to 1
//   }
//
// What is printed reads back as the same kernel. Numbers of ops and accesses are checked to be there, nothing
// else. Both ways need a SizeScope. No state, no GIL.
#pragma once

#include <string>

#include "ir/text.h"
#include "passes/kernel.h"

namespace kintsugi::passes {

// Ends with the closing brace; lines but the first begin with `indent`.
void appendKernel(std::string& out, const Kernel& kernel, const std::string& indent = "");
Kernel readKernel(ir::Cursor& cursor);

// Parts that nodes of the tensor graph have as well.
void appendElem(std::string& out, Elem elem);
Elem readElem(ir::Cursor& cursor);
// ` bounds=[0:1:4]`: of dimension 0 from 1 to 3; ` take=64:100:wraps`. Nothing where there are none.
void appendPlaces(std::string& out, const std::vector<PartBound>& bounds, const IndexedDim& indexed);
bool readPlaces(ir::Cursor& cursor, std::vector<PartBound>& bounds, IndexedDim& indexed);
// kCount: there is no such operation.
Core coreOf(std::string_view text);

}  // namespace kintsugi::passes
