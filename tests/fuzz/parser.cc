// Fuzzes the text form and the passes: random documents make the round trip, mutated texts never crash
// anything, and passes leave valid documents. KINTSUGI_FUZZ_N sets the number of rounds, KINTSUGI_FUZZ_SEED
// the first seed.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "fuzz/document_generator.h"
#include "guard/source_roots.h"
#include "guard/verifier.h"
#include "ir/liveness.h"
#include "passes/pass_manager.h"

namespace kintsugi::fuzz {
namespace {

uint64_t fromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

uint64_t seconds = 0;  // --seconds; 0: count rounds
constexpr uint64_t kTests = 3;

// The seeds of one test: a number of them, or as many as its share of the time allows.
class Seeds {
 public:
  bool next() {
    ++seed_;
    const bool inTime = Clock::now() - start_ < std::chrono::seconds(seconds) / kTests;
    return seconds != 0 ? inTime : seed_ < first_ + rounds_;
  }
  uint64_t seed() const { return seed_; }
  uint64_t count() const { return seed_ - first_; }

 private:
  using Clock = std::chrono::steady_clock;

  uint64_t first_ = fromEnvironment("KINTSUGI_FUZZ_SEED", 1);
  uint64_t rounds_ = fromEnvironment("KINTSUGI_FUZZ_N", 500);
  uint64_t seed_ = first_ - 1;
  Clock::time_point start_ = Clock::now();
};

void expectRoundTrip(const guard::Document& document) {
  const std::string text = guard::print(document);
  const diag::Result<guard::Document> again = guard::parse(text);
  ASSERT_TRUE(again.ok()) << again.error().format() << "\n" << text;
  ASSERT_TRUE(guard::equal(document, *again)) << text << guard::print(*again);
  ASSERT_EQ(text, guard::print(*again));
}

TEST(Fuzz, RoundTrip) {
  for (Seeds seeds; seeds.next();) {
    const uint64_t seed = seeds.seed();
    SCOPED_TRACE(seed);
    expectRoundTrip(DocumentGenerator(seed).valid());
    expectRoundTrip(DocumentGenerator(seed).wild());
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

passes::PassManager eachPass() {
  passes::PassManager manager;
  for (const passes::Pass& pass : passes::allPasses()) manager.add(pass);
  return manager.setVerify(true);
}

TEST(Fuzz, PassesLeaveValidDocuments) {
  for (Seeds seeds; seeds.next();) {
    const uint64_t seed = seeds.seed();
    SCOPED_TRACE(seed);
    guard::Document document = DocumentGenerator(seed).valid();
    const std::string before = guard::print(document);
    const auto recorded = guard::verify(document, ir::VerifierMode::kRecorded);
    ASSERT_TRUE(recorded.empty()) << ir::formatProblems(recorded) << before;
    eachPass().run(document);
    expectRoundTrip(document);
  }
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  void mutate(std::string& text) {
    static const std::vector<std::string> kTokens = {"%0",
                                                     "$0",
                                                     "#0",
                                                     "@0",
                                                     "!0",
                                                     "!1",
                                                     "none",
                                                     "null",
                                                     "[",
                                                     "]",
                                                     "{",
                                                     "}",
                                                     "\"",
                                                     "\\",
                                                     ",",
                                                     ":",
                                                     "=",
                                                     ";",
                                                     "\n",
                                                     "snap ",
                                                     "kw=",
                                                     "complex(",
                                                     "dtype:",
                                                     "nan",
                                                     "inf",
                                                     "-",
                                                     "1e",
                                                     "99999999999",
                                                     "4294967295",
                                                     "norebuild",
                                                     "then=",
                                                     "block=3",
                                                     "ret none snap !0\n",
                                                     "guards 1 {\n",
                                                     "tensor<0>",
                                                     "call",
                                                     "guard.block 1 snap !0\n",
                                                     "guard.true "};
    const size_t at = random_.below(text.size() + 1);
    const size_t length = std::min<size_t>(random_.below(20), text.size() - at);
    switch (random_.below(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, random_.pick(kTokens));
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.replace(at, length, random_.pick(kTokens));
        break;
      default:
        if (at < text.size()) {
          text[at] = random_.oneIn(2) ? static_cast<char>(random_.bits())
                                      : static_cast<char>('0' + random_.below(10));
        }
        break;
    }
  }

  size_t count() { return 1 + random_.below(6); }

 private:
  Random random_;
};

// Whatever parses has to survive everything that is done to documents.
void exercise(const std::string& text, size_t& parsed, size_t& valid) {
  diag::Result<guard::Document> document = guard::parse(text);
  if (!document.ok()) {
    EXPECT_EQ(document.error().code, diag::Code::KTG0001);
    return;
  }
  ++parsed;
  expectRoundTrip(*document);
  ir::computeLiveness(document->trace, guard::sourceRoots(document->sources));
  guard::verify(*document, ir::VerifierMode::kOptimized);
  if (guard::verify(*document, ir::VerifierMode::kRecorded).empty()) {
    ++valid;
    eachPass().run(*document);
  }
}

TEST(Fuzz, MutatedTexts) {
  size_t parsed = 0;
  size_t valid = 0;
  Seeds seeds;
  while (seeds.next()) {
    const uint64_t seed = seeds.seed();
    const std::string text = guard::print(DocumentGenerator(seed).valid());
    for (uint64_t variant = 0; variant < 10; ++variant) {
      Mutator mutator(seed * 1000 + variant);
      std::string mutated = text;
      for (size_t i = mutator.count(); i > 0; --i) {
        mutator.mutate(mutated);
      }
      SCOPED_TRACE(testing::Message() << "seed " << seed << " variant " << variant);
      exercise(mutated, parsed, valid);
      if (testing::Test::HasFailure()) {
        FAIL() << mutated;
      }
    }
  }
  RecordProperty("parsed", static_cast<int>(parsed));
  RecordProperty("valid", static_cast<int>(valid));
  // A mutator whose texts never get past the parser would test nothing else.
  EXPECT_GT(parsed, seeds.count() / 10);
  EXPECT_GT(valid, seeds.count() / 50);
}

}  // namespace
}  // namespace kintsugi::fuzz

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kSeconds = "--seconds=";
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(kSeconds)) {
      kintsugi::fuzz::seconds = std::strtoull(argv[i] + kSeconds.size(), nullptr, 10);
    }
  }
  return RUN_ALL_TESTS();
}
