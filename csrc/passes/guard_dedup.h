// Pass guard-dedup: drops guards that another guard of the same block on the same source implies.
//
//   type                  by equals, tensor, tensorrank (each of them pins the type)
//   length                by keys, set, equals
//   lacks                 by keys
//   equals k              by is k
//   tensorrank m          by tensor m
//   same, notsame         by themselves with the sources exchanged
//   is k on `pinned k`    always true
//
// All guards of one block are about the same moment, so their order makes no difference to what they mean. If
// the stronger guard comes later, it takes the place of the weaker one, so that parents stay before children.
// Guards of different blocks are never compared, as an opaque step lies between them. `is` does not imply
// `type`: the class of an object can be assigned. `function` would, but the runtime skips more for a function
// whose type is guarded.
// The accepted calls stay exactly the same. No GIL.
#pragma once

#include "guard/document.h"

namespace kintsugi::passes {

void deduplicateGuards(guard::Document& document);

// Does `a` holding mean that `b` holds? Both of one block, both true when they were recorded.
bool implies(const guard::Guard& a, const guard::Guard& b);

}  // namespace kintsugi::passes
