// What runners of file tests share: a file is split, its test looked up, the result compared.
//
//   ; test: pass=segments
//   ; What this file shows, in a sentence.
//   trace @f.py:1 f { ... }
//   ; expect:
//   ... what comes out, to the end of the file
//
// Where what comes out is long, and not all of it matters, `; check:` stands in place of `; expect:`: each
// line behind it is part of a line of what comes out, in this order; `not: ` before it: no line up to the
// next one that is found has it.
//
// docs/internals/ir.md lists the tests. With KINTSUGI_BLESS=1 in the environment a test that differs rewrites
// what it expects instead of failing; the diff is then reviewed like code.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "diag/diagnostic.h"

namespace kintsugi::filetests {

// Gets the argument behind `=` and the input, and returns what the expectation is compared with. A problem
// that no expectation may contain starts with `!`.
using Mode = std::string (*)(std::string_view argument, std::string_view input);

struct ModeRow {
  std::string_view name;
  Mode run;
};

std::string unexpected(const std::string& what);
// `line:column: message`
std::string syntaxError(const diag::Diagnostic& diagnostic);

// A main(): runs all files under the folder that the command line names, or else `root`, but for those in
// folders of the names `skipped`.
int runFileTests(int argc, char** argv, const char* root, std::span<const ModeRow> modes,
                 std::span<const std::string_view> skipped = {});

}  // namespace kintsugi::filetests
