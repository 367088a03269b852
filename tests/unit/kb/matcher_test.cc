#include "kb/matcher.h"

#include <gtest/gtest.h>

namespace kintsugi::kb {
namespace {

const std::vector<std::string> kPatterns = {R"(function '(?P<function>[^']+)' failed with a graph break)",
                                            R"(^Unsupported: Data-dependent branching$)", R"(图断裂)"};

std::vector<Hit> scanAll(const Matcher& matcher, std::string_view log, std::size_t step) {
  Scan scan(matcher);
  for (std::size_t at = 0; at < log.size(); at += step) scan.feed(log.substr(at, step));
  return scan.finish();
}

TEST(Matcher, FindsEveryPatternWhereverTheLogIsCut) {
  const Matcher matcher(kPatterns);
  ASSERT_FALSE(matcher.error());
  const std::string log =
      "first\nfunction 'a.b' failed with a graph break\r\n\nx Unsupported: Data-dependent branching\n"
      "Unsupported: Data-dependent branching\n函数 'f' 因图断裂\nfunction 'c' failed with a graph break";
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, log.size()}) {
    const std::vector<Hit> hits = scanAll(matcher, log, step);
    ASSERT_EQ(hits.size(), 3u) << step;
    EXPECT_EQ(hits[0].pattern, 0u);
    EXPECT_EQ(hits[0].count, 2u);
    EXPECT_EQ(hits[0].line, 2u);
    EXPECT_EQ(hits[0].groups.at(0), (std::pair<std::string, std::string>{"function", "a.b"}));
    EXPECT_EQ(hits[1].pattern, 1u);
    EXPECT_EQ(hits[1].count, 1u);
    EXPECT_EQ(hits[1].line, 5u);
    EXPECT_EQ(hits[2].line, 6u);
  }
}

TEST(Matcher, NamesThePatternThatIsBroken) {
  const Matcher matcher({"fine", "(unclosed"});
  ASSERT_TRUE(matcher.error());
  EXPECT_EQ(matcher.error()->pattern, 1u);
}

TEST(Matcher, HugeLinesAndJunk) {
  const Matcher matcher(kPatterns);
  std::string log(1 << 20, 'x');
  log.replace(500'000, 10, std::string(10, '\0'));
  const std::string message = "function 'deep' failed with a graph break";
  log.replace(65536 - 10, message.size(), message);
  const std::vector<Hit> hits = scanAll(matcher, log + "\n\xff\xfe\x80\n" + message, 8192);
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].count, 2u);
  EXPECT_EQ(hits[0].line, 1u);
  EXPECT_EQ(hits[0].groups.at(0).second, "deep");
  EXPECT_NE(hits[0].text.find(message), std::string::npos);
}

TEST(Matcher, NothingToLookForOrIn) {
  EXPECT_TRUE(scanAll(Matcher({}), "text\n", 2).empty());
  EXPECT_TRUE(scanAll(Matcher(kPatterns), "", 1).empty());
}

}  // namespace
}  // namespace kintsugi::kb
