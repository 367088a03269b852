#include "diag/diagnostic.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kintsugi::diag {
namespace {

// The highest {N} of a template, or -1.
int highestPlaceholder(std::string_view text) {
  int highest = -1;
  for (std::size_t i = 0; i + 2 < text.size(); ++i) {
    if (text[i] == '{' && text[i + 2] == '}') {
      highest = std::max(highest, text[i + 1] - '0');
    }
  }
  return highest;
}

TEST(Codes, EveryMessageAndCureFormats) {
  for (const CodeInfo& row : allCodes()) {
    std::vector<std::string> args;
    for (int i = 0; i <= highestPlaceholder(row.message); ++i) {
      args.push_back("arg" + std::to_string(i));
    }
    // A cure may not ask for more than the message has.
    EXPECT_LE(highestPlaceholder(row.cure), highestPlaceholder(row.message)) << row.id;
    const Diagnostic diagnostic(row.code, args, SourceLoc{"f.py", 3, "f"});
    for (const std::string& text : {diagnostic.format(), diagnostic.cure()}) {
      EXPECT_FALSE(text.empty()) << row.id;
      EXPECT_EQ(text.find('{'), std::string::npos) << text;
      EXPECT_EQ(text.find('?'), std::string::npos) << text;
    }
    for (const std::string& arg : args) {
      EXPECT_NE(diagnostic.message().find(arg), std::string::npos) << row.id << " does not show " << arg;
    }
  }
}

TEST(Codes, IdsAndNamesAreUniqueAndInOrder) {
  std::set<std::string_view> names;
  std::string_view previous;
  for (const CodeInfo& row : allCodes()) {
    EXPECT_LT(previous, row.id);
    previous = row.id;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(findCode(row.id), &row);
    EXPECT_EQ(&info(row.code), &row);
  }
  EXPECT_EQ(findCode("KTG9999"), nullptr);
}

TEST(Diagnostic, FormatsOnOneLineWithThePlace) {
  const Diagnostic diagnostic(Code::KTG0106, {"SEND"}, SourceLoc{"f.py", 44, "forward"});
  EXPECT_EQ(
      diagnostic.format(),
      "KTG0106 unsupported-bytecode: bytecode SEND is not supported by the recorder at f.py:44 (forward)");
}

TEST(Diagnostic, AMissingArgumentIsShownAsSuch) {
  EXPECT_EQ(Diagnostic(Code::KTG0107, {"f"}).message(), "disabled function f runs as one opaque step: ?");
}

TEST(Diagnostic, TravelsInAResult) {
  const Result<int> failed = Diagnostic(Code::KTG0302, {"socket"});
  EXPECT_EQ(failed.error().id(), "KTG0302");
}

}  // namespace
}  // namespace kintsugi::diag
