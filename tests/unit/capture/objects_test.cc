#include "capture/objects.h"

#include "unit/capture/fakes.h"

namespace kintsugi::capture {
namespace {

using guard::GuardKind;
using guard::SourceKind;
using test::run;
using test::value;

struct FakeFrozen final : FrozenParts {
  Shadow frozenPart(PyObject*) override { return Shadow::source(90); }
};

struct Fixture {
  test::FakeBreaks breaks;
  test::FakeGuards guards;
  test::FakeFrames frames;
  test::FakeVarying varying;
  FakeFrozen frozen;
  Pauses pauses;
  VirtualTable virtuals;
  DeadObjects dead{virtuals, pauses};
  TraceFacts facts;
  torchapi::OpRecorder ops;
  Overlays overlays;
  std::vector<guard::SourceNode> nodes;
  KnownSources sources{nodes};
  Objects::Roles roles{breaks, guards, guards, guards, frames, varying, frozen};
  Objects objects{roles, dead, facts, ops, overlays, sources, virtuals};

  // As the guards do when they read an old object.
  ir::SourceId read(PyObject* object, int64_t index, SourceKind kind = SourceKind::kArg) {
    const KnownSources::Found found = sources.find({kind, ir::kNone, nullptr, index}, 0);
    sources.append(found, {kind, ir::kNone, ir::kNone, index, 0}, object);
    sources.name(object, found.id);
    return found.id;
  }
  Shadow list(PyObject* object, Shadows parts) {
    const Shadow made = virtuals.add(VirtualKind::kList, object);
    virtuals[made].parts = std::move(parts);
    return made;
  }
  bool endedWith(diag::Code code) const { return breaks.ends == std::vector<diag::Code>{code}; }
};

TEST(Objects, KnowAnObjectOfTheTraceBeforeItsSource) {
  Fixture f;
  const pyapi::Ref<> object = value("[]");
  EXPECT_FALSE(f.objects.knownObject(object.get()).has_value());
  const ir::SourceId id = f.read(object.get(), 0);
  EXPECT_EQ(f.objects.knownObject(object.get()), Shadow::source(id));
  f.sources.setShadow(id, Shadow::value(8));  // a number, or a tensor
  EXPECT_EQ(f.objects.knownObject(object.get()), Shadow::value(8));
  const Shadow made = f.objects.newVirtual(VirtualKind::kList, object.get());
  EXPECT_EQ(f.objects.knownObject(object.get()), made);
}

TEST(Objects, TakeATupleOfConstantsForAConstant) {
  Fixture f;
  const Shadow constant = Shadow::constant();
  EXPECT_TRUE(f.objects.tupleOf(value("()").get(), {}).isConst());
  EXPECT_TRUE(f.objects.tupleOf(value("(1, ('a', 2.0))").get(), {constant, constant}).isConst());
  const pyapi::Ref<> varying = value("(1, 2)"), holding = value("(1, [])");
  const Shadow made = f.objects.tupleOf(varying.get(), {constant, Shadow::value(3)});
  ASSERT_TRUE(made.isVirtual());
  EXPECT_EQ(f.virtuals[made].parts[1], Shadow::value(3));
  EXPECT_TRUE(f.objects.tupleOf(holding.get(), {constant, constant}).isVirtual());  // the list may change
}

TEST(Objects, ReadElementsOfOldSequencesUnderGuards) {
  Fixture f;
  const pyapi::Ref<> list = value("[object()]"), tuple = value("(object(),)");
  EXPECT_TRUE(f.objects.elementOf(Shadow::source(2), list.get(), 0)->isSource());
  EXPECT_TRUE(f.objects.elementOf(Shadow::source(3), tuple.get(), 0)->isSource());
  EXPECT_EQ(f.guards.reads, (std::vector<SourceKind>{SourceKind::kListItem, SourceKind::kTupleItem}));
  EXPECT_EQ(f.guards.guards,
            (std::vector<std::pair<GuardKind, ir::SourceId>>{{GuardKind::kType, 2}, {GuardKind::kType, 3}}));
}

TEST(Objects, ReadNothingOfAConstantTuple) {
  Fixture f;
  EXPECT_EQ(f.objects.elementOf(Shadow::constant(), value("(1, len)").get(), 0), Shadow::constant());
  EXPECT_EQ(f.objects.elementOf(Shadow::constant(), value("(1, len)").get(), 1), Shadow::constant());
  EXPECT_TRUE(f.guards.reads.empty());
}

TEST(Objects, GuardTheLengthThatAListHadAtEntry) {
  Fixture f;
  const pyapi::Ref<> list = value("[object(), object(), object()]");
  f.overlays.make(list.get()).overlay.tail = {Shadow::value(7)};  // the last one was appended
  const auto parts = f.objects.elementsOf(Shadow::source(2), list.get());
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->back(), Shadow::value(7));
  EXPECT_EQ(f.guards.lengths, (std::vector<std::pair<PyObject*, Py_ssize_t>>{{list.get(), 2}}));
  EXPECT_EQ(f.guards.reads.size(), 2U);
}

TEST(Objects, AnswerFromTheElementsThatTheTraceHasWritten) {
  Fixture f;
  const pyapi::Ref<> list = value("[1, 2]");
  f.overlays.make(list.get()).overlay.parts = Shadows{Shadow::value(4), Shadow::constant()};
  EXPECT_EQ(f.objects.elementsOf(Shadow::source(2), list.get()),
            (Shadows{Shadow::value(4), Shadow::constant()}));
  EXPECT_EQ(f.objects.elementOf(Shadow::source(2), list.get(), 0), Shadow::value(4));
  EXPECT_TRUE(f.guards.reads.empty());
  EXPECT_TRUE(f.guards.lengths.empty());
}

TEST(Objects, EndWhereAnotherThreadHasChangedTheLength) {
  Fixture f;
  const pyapi::Ref<> list = value("[1]");
  f.overlays.make(list.get()).overlay.parts = Shadows{Shadow::value(4), Shadow::constant()};
  EXPECT_FALSE(f.objects.elementsOf(Shadow::source(2), list.get()).has_value());
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Objects, KnowNoElementsBehindTheEndOfAListOfTheTrace) {
  Fixture f;
  const pyapi::Ref<> list = value("[1, 2]");
  const Shadow made = f.list(list.get(), {Shadow::value(4)});
  EXPECT_EQ(f.objects.elementOf(made, list.get(), 0), Shadow::value(4));
  EXPECT_FALSE(f.objects.elementOf(made, list.get(), 1).has_value());
  EXPECT_TRUE(f.breaks.live);
}

TEST(Objects, ReadEntriesOfADict) {
  Fixture f;
  const pyapi::Ref<> dict = value("{'key': object()}"), key = value("'key'");
  PyObject* item = PyDict_GetItem(dict.get(), key.get());
  EXPECT_TRUE(f.objects.dictEntry(Shadow::source(2), dict.get(), key.get(), item).isSource());
  EXPECT_EQ(f.guards.reads, (std::vector<SourceKind>{SourceKind::kDictItem}));
  f.overlays.make(dict.get()).overlay.entries.note(key.get(), Shadow::value(5), item);
  EXPECT_EQ(f.objects.dictEntry(Shadow::source(2), dict.get(), key.get(), item), Shadow::value(5));
  EXPECT_EQ(f.guards.reads.size(), 1U);
}

TEST(Objects, EndWhereAnotherThreadHasWrittenTheEntry) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}"), key = value("'key'"), ours = value("object()"),
                     theirs = value("object()");
  f.overlays.make(dict.get()).overlay.entries.note(key.get(), Shadow::value(5), ours.get());
  f.objects.dictEntry(Shadow::source(2), dict.get(), key.get(), theirs.get());
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Objects, EndWhereADictMayHaveBeenChangedAnyhow) {
  Fixture f;
  const pyapi::Ref<> dict = value("{'key': 1}"), key = value("'key'");
  f.overlays.make(dict.get()).overlay.dirty = true;
  f.objects.dictEntry(Shadow::source(2), dict.get(), key.get(), PyDict_GetItem(dict.get(), key.get()));
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Objects, EndWhereADictOfTheTraceLacksAKeyThatIsThere) {
  Fixture f;
  const pyapi::Ref<> dict = value("{'key': 1}"), key = value("'key'");
  const Shadow made = f.virtuals.add(VirtualKind::kDict, dict.get());
  f.objects.dictEntry(made, dict.get(), key.get(), Py_None);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Objects, GuardThatWhatIsWrittenToIsNoOtherObject) {
  Fixture f;
  const pyapi::Ref<> written = value("[1]"), other = value("[2]"), dict = value("{}"), root = value("[3]");
  f.read(written.get(), 0);
  const ir::SourceId same = f.read(other.get(), 1);
  f.read(dict.get(), 2);
  f.read(root.get(), 3, SourceKind::kPinned);  // pinned by its identity
  f.objects.makeOverlay(written.get());
  EXPECT_EQ(f.guards.guards, (std::vector<std::pair<GuardKind, ir::SourceId>>{{GuardKind::kNotSame, same}}));
  f.objects.makeOverlay(written.get());
  EXPECT_EQ(f.guards.guards.size(), 1U);
}

TEST(Objects, GiveAllItemsOfAnIterableWithoutMovingIt) {
  Fixture f;
  const pyapi::Ref<> list = value("[1, 2, 3]"), iterator = value("iter([])"), text = value("'ab'"),
                     dict = value("{'a': 1}");
  const Shadow made = f.list(list.get(), {Shadow::value(1), Shadow::value(2), Shadow::value(3)});
  const Shadow moving = f.objects.newIterator(iterator.get(), made, list.get());
  f.virtuals[moving].index = 1;
  EXPECT_EQ(f.objects.iterated(moving, iterator.get()), (Shadows{Shadow::value(2), Shadow::value(3)}));
  EXPECT_EQ(f.virtuals[moving].index, 1);
  EXPECT_EQ(f.objects.iterated(Shadow::source(1), text.get())->size(), 2U);
  EXPECT_EQ(f.objects.iterated(Shadow::source(2), dict.get()), (Shadows{Shadow::constant()}));
  EXPECT_EQ(f.guards.pinned, (std::vector<PyObject*>{text.get(), dict.get()}));
  EXPECT_FALSE(f.objects.iterated(Shadow::source(3), iterator.get()).has_value());  // an old iterator
  EXPECT_TRUE(f.breaks.live);
}

TEST(Objects, PinWhatAnIteratorGivesAgainWhereItsContainerMayHaveChanged) {
  Fixture f;
  const pyapi::Ref<> dict = value("{'a': 1}");
  const pyapi::Ref<> iterator = pyapi::steal(PyObject_GetIter(dict.get()));
  const Shadow made =
      f.objects.newIterator(iterator.get(), Shadow::source(f.read(dict.get(), 0)), dict.get());
  ASSERT_TRUE(f.objects.prepareNext(made));
  EXPECT_TRUE(f.guards.pinned.empty());
  f.virtuals[made].unpinned = true;
  ASSERT_TRUE(f.objects.prepareNext(made));
  EXPECT_EQ(f.guards.pinned, std::vector<PyObject*>{dict.get()});
  ASSERT_TRUE(f.objects.prepareNext(made));  // pinned where it is
  EXPECT_EQ(f.guards.pinned.size(), 1U);
}

TEST(Objects, TakeTheOrderOfASetForPartOfTheTrace) {
  Fixture f;
  EXPECT_TRUE(f.objects.orderIsKnown(Shadow::source(1), value("{'a'}").get()));
  EXPECT_STREQ(f.facts.bound, "");
  EXPECT_FALSE(f.objects.orderIsKnown(Shadow::source(1), value("{'a', 'b'}").get()));
  EXPECT_TRUE(f.objects.orderIsKnown(Shadow::constant(), value("{'a', 'b'}").get()));
  EXPECT_STRNE(f.facts.bound, "");  // another process has another order
}

TEST(Objects, FollowAnIterator) {
  Fixture f;
  const pyapi::Ref<> list = value("[object(), object()]"), iterator = value("enumerate([])"),
                     pair = pyapi::steal(Py_BuildValue("(iO)", 0, PyList_GET_ITEM(list.get(), 0)));
  const Shadow made = f.list(list.get(), {Shadow::value(1), Shadow::value(2)});
  const Shadow inner = f.objects.newIterator(value("[]").get(), made, list.get());
  const Shadow counted = f.virtuals.add(VirtualKind::kEnumerate, iterator.get());
  f.virtuals[counted].parts = {inner};
  const auto item = f.objects.advance(counted, pair.get());
  ASSERT_TRUE(item && item->isVirtual());
  EXPECT_EQ(f.virtuals[*item].parts, (Shadows{Shadow::constant(), Shadow::value(1)}));
  EXPECT_EQ(f.objects.advance(inner, PyList_GET_ITEM(list.get(), 1)), Shadow::value(2));
  EXPECT_TRUE(f.objects.exhausted(counted));
  EXPECT_FALSE(f.objects.advance(Shadow::source(1), Py_None).has_value());
}

TEST(Objects, DoNotTakeAnotherItemForTheNextOne) {
  Fixture f;
  const pyapi::Ref<> list = value("[object()]"), other = value("object()");
  const Shadow made = f.list(list.get(), {Shadow::value(1)});
  const Shadow iterator = f.objects.newIterator(value("[]").get(), made, list.get());
  EXPECT_FALSE(f.objects.advance(iterator, other.get()).has_value());
}

TEST(Objects, AnnounceTheFrameOfAGenerator) {
  Fixture f;
  run("def count(): yield 1");
  const pyapi::Ref<> generator = value("count()");
  const Shadow made = f.virtuals.add(VirtualKind::kGenerator, generator.get());
  ASSERT_TRUE(f.objects.prepareNext(made));
  ASSERT_EQ(f.frames.expected.size(), 1U);
  EXPECT_EQ(f.frames.expected[0].generator, &f.virtuals[made]);
  EXPECT_FALSE(f.frames.expected[0].rebuildable);  // C code asks for the item
  f.frames.result = Shadow::value(6);
  EXPECT_EQ(f.objects.advance(made, Py_None), Shadow::value(6));
}

TEST(Objects, EndAtIteratorsThatAreOlderOrMayTangle) {
  Fixture f;
  EXPECT_FALSE(f.objects.prepareNext(Shadow::source(1)));
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0101));
  Fixture two;
  run("def count(): yield 1");
  const pyapi::Ref<> a = value("count()"), b = value("count()"), zip = value("zip()");
  const Shadow zipped = two.virtuals.add(VirtualKind::kZip, zip.get());
  two.virtuals[zipped].parts = {two.virtuals.add(VirtualKind::kGenerator, a.get()),
                                two.virtuals.add(VirtualKind::kGenerator, b.get())};
  EXPECT_FALSE(two.objects.prepareNext(zipped));  // two frames of one instruction
  EXPECT_EQ(two.breaks.reasons, (std::vector<std::string>{"zip"}));
}

TEST(Objects, SeeThatCCodeHasMovedAnIterator) {
  Fixture f;
  const pyapi::Ref<> list = value("[1, 2, 3]");
  const pyapi::Ref<> real = pyapi::steal(PyObject_GetIter(list.get()));
  const Shadow made = f.list(list.get(), {Shadow::value(1), Shadow::value(2), Shadow::value(3)});
  const Shadow iterator = f.objects.newIterator(real.get(), made, list.get());
  for (int i = 0; i < 2; ++i) pyapi::steal(PyIter_Next(real.get()));
  f.objects.syncIterators();
  EXPECT_EQ(f.virtuals[iterator].index, 2);
  for (int i = 0; i < 2; ++i) pyapi::steal(PyIter_Next(real.get()));  // it drops its list at the end
  f.objects.syncIterators();
  EXPECT_EQ(f.virtuals[iterator].partObjects[0].get(), Py_None);
  EXPECT_TRUE(f.objects.exhausted(iterator));
}

TEST(Objects, ReadAnewWhatUnknownCodeMayHaveChanged) {
  Fixture f;
  const pyapi::Ref<> list = value("[]");
  const Shadow made = f.list(list.get(), {});
  EXPECT_EQ(f.objects.current(made), made);
  f.virtuals[made].value = 4;
  f.virtuals[made].forgotten = true;
  EXPECT_TRUE(f.objects.current(made).isSource());
  EXPECT_EQ(f.guards.reads, (std::vector<SourceKind>{SourceKind::kValue}));
}

TEST(Objects, TellDictsWhoseMethodsArePython) {
  run("class Counting(dict): pass\n"
      "class Own(dict):\n"
      "  def __getitem__(self, key): return 1\n"
      "class Walks(dict):\n"
      "  def __iter__(self): return iter(())\n");
  Fixture f;
  EXPECT_TRUE(f.objects.plainDict(value("{}").get()));
  EXPECT_TRUE(f.guards.versions.empty());
  EXPECT_TRUE(f.objects.plainDict(value("Counting()").get()));
  EXPECT_EQ(f.guards.versions, (std::vector<PyTypeObject*>{test::typeNamed("Counting")}));
  EXPECT_FALSE(f.objects.plainDict(value("Own()").get()));
  EXPECT_TRUE(f.objects.plainIteration(value("Own()").get()));
  EXPECT_FALSE(f.objects.plainIteration(value("Walks()").get()));
}

TEST(Objects, CallAContainerDirtyIfNobodyKnowsItsLength) {
  Fixture f;
  const pyapi::Ref<> list = value("[]"), varying = value("[]");
  EXPECT_FALSE(f.objects.isDirty(list.get()));
  f.varying.container = varying.get();
  EXPECT_TRUE(f.objects.isDirty(varying.get()));
  f.overlays.make(list.get()).overlay.dirty = true;
  EXPECT_TRUE(f.objects.isDirty(list.get()));
}

TEST(VirtualTable, TellsObjectsThatAreOneForAllWhoHaveThem) {
  Fixture f;
  const pyapi::Ref<> items = value("[]"), tuple = value("((),)"), append = value("[].append");
  const pyapi::Ref<> frozen = value("frozenset()"), set = value("set()");
  EXPECT_FALSE(f.virtuals.isShared(Shadow::constant()));
  const Shadow list = f.list(items.get(), {Shadow::value(1)});
  EXPECT_TRUE(f.virtuals.isShared(list));
  const Shadow nested = f.virtuals.add(VirtualKind::kTuple, tuple.get());
  EXPECT_FALSE(f.virtuals.isShared(nested));
  f.virtuals[nested].parts = {Shadow::value(1), list};
  EXPECT_TRUE(f.virtuals.isShared(nested));
  const Shadow method = f.virtuals.add(VirtualKind::kMethod, append.get());
  f.virtuals[method].parts = {Shadow::constant(), Shadow::constant()};
  EXPECT_FALSE(f.virtuals.isShared(method));
  f.virtuals[method].parts = {Shadow::constant(), list};
  EXPECT_TRUE(f.virtuals.isShared(method));
  EXPECT_FALSE(f.virtuals.isShared(f.virtuals.add(VirtualKind::kSet, frozen.get())));
  EXPECT_TRUE(f.virtuals.isShared(f.virtuals.add(VirtualKind::kSet, set.get())));
}

}  // namespace
}  // namespace kintsugi::capture
