#include "ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "fuzz/document_generator.h"
#include "ir/dtype.h"

namespace kintsugi::ir {
namespace {

std::string inQuotes(std::string_view text) {
  std::string out;
  appendQuoted(out, text);
  return out;
}

TEST(Text, EveryByteMakesTheRoundTrip) {
  std::string all;
  for (int c = 0; c < 256; ++c) {
    all += static_cast<char>(c);
  }
  const std::string text = inQuotes(all);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  Cursor cursor(text);
  EXPECT_EQ(cursor.string(), all);
  EXPECT_FALSE(cursor.failed());
}

TEST(Text, OnlyValidUtf8StaysReadable) {
  EXPECT_EQ(inQuotes("caf\xc3\xa9 \xf0\x9f\x90\x8d"), "\"caf\xc3\xa9 \xf0\x9f\x90\x8d\"");
  EXPECT_EQ(inQuotes("\xc0\x80"), "\"\\xc0\\x80\"");                    // overlong
  EXPECT_EQ(inQuotes("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"");           // a surrogate
  EXPECT_EQ(inQuotes("\xf4\x90\x80\x80"), "\"\\xf4\\x90\\x80\\x80\"");  // past the last code point
  EXPECT_EQ(inQuotes("\xe4\xb8"), "\"\\xe4\\xb8\"");                    // cut short
}

TEST(Text, FloatsMakeTheRoundTripBitByBit) {
  fuzz::Random random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random.bits();
    std::string text;
    appendFloat(text, std::bit_cast<double>(bits));
    Cursor cursor(text);
    ASSERT_TRUE(cursor.peekNumber()) << text;
    const Cursor::Number number = cursor.number();
    ASSERT_TRUE(number.isFloat && !cursor.failed() && cursor.atEnd()) << text;
    ASSERT_EQ(std::bit_cast<uint64_t>(number.f), bits) << text;
  }
}

TEST(Text, ErrorsHaveLineAndColumn) {
  Cursor cursor("one ; comment\n  two three");
  EXPECT_TRUE(cursor.eatWord("one"));
  EXPECT_TRUE(cursor.lineEndsHere());
  EXPECT_FALSE(cursor.eatWord("one"));
  EXPECT_TRUE(cursor.lineEndsHere()) << "what was not taken must not move the cursor";
  EXPECT_TRUE(cursor.eatWord("two"));
  cursor.expect('(');
  EXPECT_TRUE(cursor.failed());
  EXPECT_TRUE(cursor.atEnd());
  cursor.fail("a later error is not kept");
  EXPECT_EQ(cursor.diagnostic().args, (std::vector<std::string>{"2", "7", "expected '('"}));
  EXPECT_EQ(cursor.diagnostic().id(), "KTG0001");
}

TEST(Text, IdsStopBeforeNone) {
  EXPECT_EQ(Cursor("%4294967294").id('%'), kNone - 1);
  Cursor tooBig("%4294967295");
  tooBig.id('%');
  EXPECT_TRUE(tooBig.failed());
  EXPECT_EQ(Cursor("%none").id('%'), kNone);
}

TEST(Dtype, NamesAndNumbersMatch) {
  for (int64_t i = 0; !dtypeName(i).empty(); ++i) {
    EXPECT_EQ(dtypeOf(dtypeName(i)), static_cast<DType>(i));
  }
  EXPECT_EQ(dtypeName(6), "f32");
  EXPECT_EQ(dtypeName(15), "bf16");
  EXPECT_EQ(dtypeName(45), "f4e2m1x2");
  EXPECT_EQ(dtypeName(-1), "");
  EXPECT_EQ(dtypeName(DType::kF4E2M1x2), "f4e2m1x2");
  EXPECT_EQ(dtypeOf("f17"), std::nullopt);
}

TEST(Device, NamesAndNumbersMatch) {
  EXPECT_EQ(deviceName({}), "cpu");
  EXPECT_EQ(deviceName({1, 12}), "cuda:12");
  for (int8_t type = 0; type <= 20; ++type) {
    for (const int16_t index : {-1, 0, 127}) {
      EXPECT_EQ(deviceOf(deviceName({type, index})), (Device{type, index}));
    }
  }
  for (const char* name : {"", "cup", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999", ":0"}) {
    EXPECT_EQ(deviceOf(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace kintsugi::ir
