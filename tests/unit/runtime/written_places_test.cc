#include "runtime/written_places.h"

#include "unit/runtime/recordings.h"

namespace kintsugi::runtime::test {
namespace {

// $0 is an object, $2 its attribute n, $3 its attribute m, and $4 an entry of what m is.
std::string textOf(const std::string& effect) {
  return "sources {\n args \"self\", \"box\"\n $0 = arg 0\n $1 = dict $0\n $2 = item $1 #0\n $3 = item $1 "
         "#1\n"
         " $4 = list $3 0\n $5 = arg 1\n $6 = cell $5\n}\nguards 0 {\n type $2 #2\n nodict $0\n type $4 "
         "#2\n}\n"
         "trace @f.py:3 f {\n const #0 \"'n'\"\n const #1 \"'m'\"\n const #2 \"int\"\n" +
         effect + "  ret none\n  snap !0 { parent=none code=#0 func=#0 pc=0 locals=[] stack=[] }\n}\n";
}
recording::Recording with(const std::string& effect) {
  return recordingOf(textOf(effect), {"'n'", "'m'", "int"});
}

TEST(WrittenPlaces, NoEffectWritesNothing) {
  const recording::Recording recording = with("");
  const WrittenPlaces written(recording, 0, recording.document.trace.code.size());
  for (guard::SourceId source = 0; source < 7; ++source) EXPECT_FALSE(written.covers(source)) << source;
  for (const guard::Guard& guard : recording.document.guards.guards) EXPECT_FALSE(written.concerns(guard));
}

TEST(WrittenPlaces, AnAttributeThatIsSetIsOneAndItsNeighbourIsNot) {
  const recording::Recording recording = with("  effect.setattr $0, \"n\", 1 snap !0\n");
  const WrittenPlaces written(recording, 0, recording.document.trace.code.size());
  EXPECT_TRUE(written.covers(2));
  EXPECT_FALSE(written.covers(0));
  EXPECT_FALSE(written.covers(3));
  EXPECT_FALSE(written.covers(4));
}

TEST(WrittenPlaces, WhatIsReadFromAWrittenPlaceIsOneToo) {
  const recording::Recording recording = with("  effect.setattr $0, \"m\", 1 snap !0\n");
  const WrittenPlaces written(recording, 0, recording.document.trace.code.size());
  EXPECT_TRUE(written.covers(3));
  EXPECT_TRUE(written.covers(4));
  EXPECT_FALSE(written.covers(2));
}

TEST(WrittenPlaces, OnlyTheInstructionsThatAreAskedForCount) {
  const recording::Recording recording =
      with("  effect.setattr $0, \"n\", 1 snap !0\n  effect.setattr $0, \"m\", 1 snap !0\n");
  const WrittenPlaces first(recording, 0, 1), second(recording, 1, 2), none(recording, 1, 1);
  EXPECT_TRUE(first.covers(2));
  EXPECT_FALSE(first.covers(3));
  EXPECT_FALSE(second.covers(2));
  EXPECT_TRUE(second.covers(3));
  EXPECT_FALSE(none.covers(2));
  EXPECT_FALSE(none.covers(3));
}

TEST(WrittenPlaces, AKeyThatIsSetIsOne) {
  const recording::Recording recording = with("  effect.setitem $1, #0, 1 snap !0\n");
  const WrittenPlaces written(recording, 0, recording.document.trace.code.size());
  EXPECT_TRUE(written.covers(2));
  EXPECT_FALSE(written.covers(3));
}

TEST(WrittenPlaces, ACellThatIsSetIsOne) {
  const recording::Recording recording = with("  effect.setcell $5, 1 snap !0\n");
  const WrittenPlaces written(recording, 0, recording.document.trace.code.size());
  EXPECT_TRUE(written.covers(6));
  EXPECT_FALSE(written.covers(2));
}

TEST(WrittenPlaces, AListCountsAsAWhole) {
  const recording::Recording recording = with("  effect.setitem $3, 1, 1 snap !0\n");
  const WrittenPlaces written(recording, 0, recording.document.trace.code.size());
  EXPECT_TRUE(written.covers(4)) << "element 0, though element 1 is set";
}

TEST(WrittenPlaces, GuardsOfAChangedObjectCountButForItsType) {
  const recording::Recording recording = with("  effect.setattr $0, \"n\", 1 snap !0\n");
  const WrittenPlaces written(recording, 0, recording.document.trace.code.size());
  const auto& guards = recording.document.guards.guards;
  EXPECT_TRUE(written.concerns(guards[0]));  // the type of self.n
  EXPECT_TRUE(written.concerns(guards[1]));  // self has no dict
  guard::Guard type = guards[1];
  type.kind = guard::GuardKind::kType;
  EXPECT_FALSE(written.concerns(type));  // the type of self
  EXPECT_FALSE(written.concerns(guards[2]));
}

}  // namespace
}  // namespace kintsugi::runtime::test
