// Pass compact-snapshots: makes equal frame states one, and drops those that no instruction can leave
// through.
//
// The recorder writes a state whenever it might need one, and again after each call returns; an outer frame
// is often the same in many of them. Two states are equal when code, pc, slots and (compacted) parent are.
// Recipes are compared by number, since a recipe is an object's identity within one exit. No GIL.
#pragma once

#include "guard/document.h"

namespace kintsugi::passes {

void compactSnapshots(guard::Document& document);

}  // namespace kintsugi::passes
