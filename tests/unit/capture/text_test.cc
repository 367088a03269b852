#include "pyapi/text.h"

#include <gtest/gtest.h>

#include "unit/capture/python_objects.h"

namespace kintsugi::pyapi {
namespace {

using capture::test::value;

TEST(Text, NamesComeBackWhateverIsInThem) {
  for (const char* literal : {"'plain'", "''", "'a\\0b'", "'\\0'", "'gr\\xf6\\xdfe'", "'\\ud800'",
                              "'a\\udce9'", "'\\ud83d\\ude00'", "'\\U0001f600'"}) {
    const Ref<> name = value(literal);
    const Ref<> back = decoded(encoded(name.get()));
    ASSERT_TRUE(back) << literal;
    EXPECT_TRUE(PyUnicode_CheckExact(back.get()));
    EXPECT_EQ(PyUnicode_Compare(back.get(), name.get()), 0) << literal;
    EXPECT_NE(PyUnicode_CHECK_INTERNED(back.get()), 0) << literal;
  }
  EXPECT_NE(encoded(value("'a\\0'").get()), encoded(value("'a'").get()));
}

TEST(Text, IsNoNameIfItCanNotBeDecoded) {
  EXPECT_FALSE(decoded("\xff"));
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_UnicodeDecodeError));
  PyErr_Clear();
}

TEST(Text, IsEscapedForMessages) {
  EXPECT_EQ(utf8(value("'f\\udce9.py'").get()), "f\\udce9.py");
  EXPECT_EQ(utf8(value("'a\\0b'").get()), std::string("a\0b", 3));
  EXPECT_EQ(utf8(value("'gr\\xf6\\xdfe'").get()),
            "gr\xc3\xb6\xc3\x9f"
            "e");
  EXPECT_EQ(utf8(value("1").get()), "");
  EXPECT_EQ(utf8(nullptr), "");
}

TEST(Text, IsComparedWithAsciiNamesAlone) {
  const Ref<> plain = value("'__len__'"), zero = value("'a\\0b'"), accent = value("'\\xe9'"),
              lone = value("'\\udce9'");
  EXPECT_EQ(ascii(plain.get()), "__len__");
  EXPECT_EQ(ascii(zero.get()).size(), 3U);
  EXPECT_EQ(ascii(accent.get()), "");
  EXPECT_EQ(ascii(lone.get()), "");
  EXPECT_EQ(ascii(value("None").get()), "");
  EXPECT_EQ(ascii(nullptr), "");
}

TEST(Text, LeavesAPendingExceptionAsItIs) {
  const Ref<> name = value("'\\ud800'");
  PyErr_SetString(PyExc_KeyError, "the program's");
  utf8(name.get());
  encoded(name.get());
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_KeyError));
  PyErr_Clear();
}

}  // namespace
}  // namespace kintsugi::pyapi
