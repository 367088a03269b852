#include "capture/heap.h"

#include "unit/capture/fakes.h"

namespace kintsugi::capture {
namespace {

using guard::GuardKind;
using ir::Op;
using ir::Operand;
using ir::OperandKind;
using test::run;
using test::value;

struct FakeFilter final : StoreFilter {
  PyObject* transient = nullptr;  // stores of this object are left out
  std::optional<bool> storeTransient(PyObject*, PyObject*, Shadow, PyObject* real) override {
    return real == transient ? std::optional(true) : std::nullopt;
  }
};

struct FakeWriteSteps final : WriteSteps {
  PyObject* step = nullptr;  // for all writes
  PyObject* stepFor(Op, PyObject*, PyObject*, ir::StateId) override { return step; }
};

struct Fixture {
  test::FakeBreaks breaks;
  test::FakeGuards guards;
  Overlays overlays;
  VirtualTable virtuals;
  ir::Trace trace;
  test::FakeContainers containers{overlays};
  test::FakeWriter writer{trace};
  test::FakeSnapshots snapshots{virtuals, trace};
  FakeFilter filter;
  FakeWriteSteps writes;
  Heap heap{{breaks, guards, containers, writer, snapshots, filter, writes}, trace, overlays, virtuals};
  pyapi::Ref<> key = value("'key'");
  pyapi::Ref<> item = value("object()");

  const test::FakeWriter::Written& only() {
    EXPECT_EQ(writer.written.size(), 1U);
    return writer.written.at(0);
  }
  bool isDeferrable() { return trace.code.at(0).deferrable; }
};

TEST(Heap, StoresIntoAnOldDictAsAnEffect) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}");
  ASSERT_TRUE(f.heap.storeItem(Shadow::source(2), dict.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_EQ(f.only().op, Op::kSetItem);
  ASSERT_EQ(f.only().operands.size(), 3U);
  EXPECT_EQ(f.only().operands[0].kind, OperandKind::kSource);
  EXPECT_EQ(f.only().operands[0].id, 2U);
  EXPECT_EQ(f.snapshots.constants.pool.at(f.only().operands[1].id), f.key.get());
  EXPECT_EQ(f.only().operands[2].id, 9U);
  EXPECT_TRUE(f.isDeferrable());
  EXPECT_EQ(f.guards.guards, (std::vector<std::pair<GuardKind, ir::SourceId>>{{GuardKind::kType, 2}}));
  const Overlay* overlay = f.overlays.find(dict.get());
  ASSERT_NE(overlay, nullptr);
  EXPECT_EQ(overlay->entries.find(f.key.get())->shadow, Shadow::value(9));
  EXPECT_TRUE(overlay->lengthUnknown());      // no guard says that the key was missing
  EXPECT_EQ(PyDict_GET_SIZE(dict.get()), 0);  // the caller executes the store
}

TEST(Heap, StoresAsAStepWhereTheWriteEndsAnObject) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}"), function = value("len");
  f.writes.step = function.get();
  ASSERT_TRUE(f.heap.storeItem(Shadow::source(2), dict.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_EQ(f.only().op, Op::kCall);
  ASSERT_EQ(f.only().operands.size(), 4U);
  EXPECT_EQ(f.only().operands[1].id, 2U);
  EXPECT_EQ(f.snapshots.constants.pool.at(f.only().operands[2].id), f.key.get());
  EXPECT_EQ(f.only().operands[3].id, 9U);
  EXPECT_FALSE(f.isDeferrable());
}

TEST(Heap, StoresIntoADictOfTheTraceInItsShadowsAlone) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}");
  const Shadow made = f.virtuals.add(VirtualKind::kDict, dict.get());
  ASSERT_TRUE(f.heap.storeItem(made, dict.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_TRUE(f.writer.written.empty());
  EXPECT_EQ(f.virtuals.entryOf(f.virtuals[made], f.key.get()), Shadow::value(9));
  EXPECT_EQ(f.overlays.find(dict.get()), nullptr);
}

TEST(Heap, StoresIntoADictThatWasBuiltInBoth) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}");
  const Shadow made = f.virtuals.add(VirtualKind::kDict, dict.get());
  f.virtuals[made].value = 4;
  ASSERT_TRUE(f.heap.storeItem(made, dict.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_EQ(f.only().operands[0].kind, OperandKind::kValue);
  EXPECT_EQ(f.only().operands[0].id, 4U);
  EXPECT_EQ(f.virtuals.entryOf(f.virtuals[made], f.key.get()), Shadow::value(9));
}

TEST(Heap, StoresIntoTheDictOfAnInstanceThatWasBuilt) {
  Fixture f;
  run("class Holder: pass\nholder = Holder()");
  const Shadow holder = f.virtuals.add(VirtualKind::kInstance, value("holder").get());
  const pyapi::Ref<> vars = value("vars(holder)");
  const Shadow dict = f.virtuals.add(VirtualKind::kDict, vars.get());
  f.virtuals[dict].shared = true;
  f.virtuals[dict].parts = {holder};
  ASSERT_TRUE(f.heap.storeItem(dict, vars.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_TRUE(f.writer.written.empty());  // nobody else sees the instance
  f.virtuals[holder].value = 4;
  ASSERT_TRUE(f.heap.storeItem(dict, vars.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_EQ(f.only().op, Op::kSetItem);
}

TEST(Heap, BuildsWhatItStores) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}"), list = value("[]");
  const Shadow made = f.virtuals.add(VirtualKind::kList, list.get());
  ASSERT_TRUE(f.heap.storeItem(Shadow::source(2), dict.get(), f.key.get(), made, list.get()));
  EXPECT_EQ(f.virtuals[made].value, 40U);
  EXPECT_EQ(f.only().operands[2].id, 40U);
}

TEST(Heap, WritesNothingIfAnObjectCanNotEscape) {
  Fixture f;
  f.snapshots.canEscape = false;
  const pyapi::Ref<> dict = value("{}");
  EXPECT_FALSE(f.heap.storeItem(Shadow::source(2), dict.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_TRUE(f.writer.written.empty());
  EXPECT_EQ(f.overlays.find(dict.get()), nullptr);
}

TEST(Heap, LeavesStoresOfATransformOut) {
  Fixture f;
  f.filter.transient = f.item.get();
  const pyapi::Ref<> dict = value("{}");
  EXPECT_TRUE(f.heap.storeItem(Shadow::source(2), dict.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_TRUE(f.writer.written.empty());
}

TEST(Heap, RefusesADictThatUnknownCodeMayHaveChanged) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}");
  const Shadow made = f.virtuals.add(VirtualKind::kDict, dict.get());
  f.virtuals[made].kind = VirtualKind::kOpaque;
  EXPECT_FALSE(f.heap.storeItem(made, dict.get(), f.key.get(), Shadow::value(9), f.item.get()));
  EXPECT_EQ(f.breaks.ends, (std::vector<diag::Code>{diag::Code::KTG0303}));
}

TEST(Heap, DeletesAnEntryOfAnOldDict) {
  Fixture f;
  const pyapi::Ref<> dict = value("{'key': 1}");
  ASSERT_TRUE(f.heap.deleteItem(Shadow::source(2), dict.get(), f.key.get()));
  EXPECT_EQ(f.only().op, Op::kDelItem);
  EXPECT_EQ(f.only().operands.size(), 2U);
  EXPECT_EQ(f.containers.read.size(), 1U);  // guards that the key is there
  const Overlay* overlay = f.overlays.find(dict.get());
  EXPECT_TRUE(overlay->isDeleted(f.key.get()));
  EXPECT_EQ(overlay->grown, -1);
}

TEST(Heap, GuardsThatAKeyToBeDeletedIsMissing) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}");
  ASSERT_TRUE(f.heap.deleteItem(Shadow::source(2), dict.get(), f.key.get()));
  EXPECT_TRUE(f.writer.written.empty());
  EXPECT_EQ(f.guards.guards.back(), (std::pair<GuardKind, ir::SourceId>{GuardKind::kLacksKey, 2}));
}

TEST(Heap, KnowsThatADeletedKeyIsMissing) {
  Fixture f;
  pyapi::Ref<> dict = value("{'key': 1}");
  ASSERT_TRUE(f.heap.deleteItem(Shadow::source(2), dict.get(), f.key.get()));
  PyDict_DelItem(dict.get(), f.key.get());
  f.guards.guards.clear();
  EXPECT_TRUE(f.heap.lacksKey(Shadow::source(2), dict.get(), f.key.get()));
  EXPECT_TRUE(f.guards.guards.empty());
}

TEST(Heap, SaysNothingOfKeysOfADirtyDict) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}");
  f.overlays.make(dict.get()).overlay.dirty = true;
  EXPECT_FALSE(f.heap.lacksKey(Shadow::source(2), dict.get(), f.key.get()));
  EXPECT_FALSE(f.breaks.live);
}

TEST(Heap, DeletesFromADictOfTheTrace) {
  Fixture f;
  const pyapi::Ref<> dict = value("{'key': 1}");
  const Shadow made = f.virtuals.add(VirtualKind::kDict, dict.get());
  f.virtuals.setEntry(f.virtuals[made], f.key.get(), Shadow::value(1));
  f.virtuals[made].recipe = 0;
  const uint64_t epoch = f.virtuals.epoch();
  ASSERT_TRUE(f.heap.deleteItem(made, dict.get(), f.key.get()));
  EXPECT_TRUE(f.writer.written.empty());
  EXPECT_FALSE(f.virtuals.entryOf(f.virtuals[made], f.key.get()).has_value());
  EXPECT_GT(f.virtuals[made].changed, epoch);  // its recipe is stale
}

TEST(Heap, TakesAnItemWhereARunMayLeaveTheTrace) {
  Fixture f;
  const pyapi::Ref<> dict = value("{'key': 1}");
  ASSERT_TRUE(f.heap.takeItem(Shadow::source(2), dict.get(), f.key.get(), false));
  EXPECT_EQ(f.only().op, Op::kTakeItem);
  ASSERT_EQ(f.only().operands.size(), 3U);
  EXPECT_EQ(f.only().operands[2].id, test::kEntry);  // a run in which another item is there leaves
}

TEST(Heap, DeletesWhatItTakesWhereNoRunMayLeave) {
  Fixture f;
  f.snapshots.rebuildable = false;
  const pyapi::Ref<> dict = value("{'key': 1}");
  ASSERT_TRUE(f.heap.takeItem(Shadow::source(2), dict.get(), f.key.get(), true));
  EXPECT_EQ(f.only().op, Op::kDelItem);
}

TEST(Heap, EndsWhereAnotherThreadMayDeleteTheKeyFirst) {
  Fixture f;
  f.snapshots.rebuildable = false;
  const pyapi::Ref<> dict = value("{'key': 1}");
  EXPECT_FALSE(f.heap.takeItem(Shadow::source(2), dict.get(), f.key.get(), false));
  EXPECT_EQ(f.breaks.ends, (std::vector<diag::Code>{diag::Code::KTG0103}));
  EXPECT_TRUE(f.writer.written.empty());
}

TEST(Heap, StoresIntoCells) {
  Fixture f;
  run("def outer():\n  x = 1\n  return lambda: x\ncell = outer().__closure__[0]");
  const pyapi::Ref<> cell = value("cell");
  ASSERT_TRUE(f.heap.storeCell(Shadow::source(2), cell.get(), Shadow::value(9), f.item.get()));
  EXPECT_EQ(f.only().op, Op::kSetCell);
  EXPECT_TRUE(f.isDeferrable());
  EXPECT_EQ(f.overlays.find(cell.get())->entries.find(Py_None)->shadow, Shadow::value(9));
  const Shadow made = f.virtuals.add(VirtualKind::kCell, value("outer().__closure__[0]").get());
  f.virtuals[made].parts = {Shadow::constant()};
  ASSERT_TRUE(f.heap.storeCell(made, f.virtuals[made].object.get(), Shadow::value(9), f.item.get()));
  EXPECT_EQ(f.writer.written.size(), 1U);
  EXPECT_EQ(f.virtuals[made].parts[0], Shadow::value(9));
}

TEST(Heap, CallsAMethodForItsEffect) {
  Fixture f;
  const pyapi::Ref<> list = value("[]"), descriptor = value("list.append");
  ASSERT_TRUE(f.heap.emitMethod("append", Shadow::source(2), list.get(), {{Shadow::value(9), f.item.get()}}));
  EXPECT_EQ(f.only().op, Op::kCallKnown);
  ASSERT_EQ(f.only().operands.size(), 3U);
  EXPECT_EQ(f.guards.constants.pool.at(f.only().operands[0].id), descriptor.get());
  EXPECT_EQ(f.only().operands[1].id, 2U);
  EXPECT_EQ(f.only().operands[2].id, 9U);
  EXPECT_TRUE(f.isDeferrable());
}

TEST(Heap, DoesNotPutOffAMethodThatMayCallOthers) {
  Fixture f;
  const pyapi::Ref<> list = value("[]");
  ASSERT_TRUE(f.heap.emitMethod("extend", Shadow::source(2), list.get(), {{Shadow::value(9), f.item.get()}}));
  EXPECT_FALSE(f.isDeferrable());
  EXPECT_FALSE(f.heap.emitMethod("no_such", Shadow::source(2), list.get(), {}));
  EXPECT_FALSE(f.breaks.live);
}

TEST(Heap, PutsOffAttributesThatAreStoredPlainly) {
  run("class Plain: pass\n"
      "class Careful:\n"
      "  @property\n"
      "  def key(self): return 1\n"
      "  @key.setter\n"
      "  def key(self, value): pass\n");
  Fixture f;
  const pyapi::Ref<> plain = value("Plain()"), careful = value("Careful()");
  for (PyObject* object : {plain.get(), careful.get()}) {
    ASSERT_TRUE(f.heap.emitEffect(
        Op::kSetAttr, {{Shadow::source(2), object}, {Shadow::value(9), f.item.get()}}, f.key.get()));
  }
  const ir::Trace& trace = f.trace;
  EXPECT_EQ(f.writer.written[0].operands[1].kind, OperandKind::kStr);
  EXPECT_EQ(trace.strings.at(f.writer.written[0].operands[1].id), "key");
  EXPECT_TRUE(trace.code[0].deferrable);
  EXPECT_FALSE(trace.code[1].deferrable);
}

TEST(Heap, TakesAnElementOfAList) {
  Fixture f;
  const pyapi::Ref<> list = value("[1]"), index = value("0");
  ASSERT_TRUE(
      f.heap.takeElement(Shadow::source(2), list.get(), index.get(), Shadow::source(3), f.item.get()));
  EXPECT_EQ(f.only().op, Op::kTakeItem);
  EXPECT_EQ(f.only().operands[2].id, 3U);
  EXPECT_EQ(f.guards.guards.back(), (std::pair<GuardKind, ir::SourceId>{GuardKind::kType, 2}));
}

TEST(Heap, ReadsGlobalsBeforeBuiltins) {
  Fixture f;
  const pyapi::Ref<> globals = value("{'mine': 1}"), mine = value("'mine'"), len = value("'len'");
  PyObject* builtins = PyEval_GetBuiltins();
  EXPECT_EQ(f.heap.readGlobal(globals.get(), builtins, mine.get()), Shadow::source(test::kEntry));
  EXPECT_TRUE(f.guards.guards.empty());
  EXPECT_EQ(f.heap.readGlobal(globals.get(), builtins, len.get()), Shadow::source(test::kEntry));
  EXPECT_EQ(f.guards.guards.back().first, GuardKind::kLacksKey);  // a global of that name would be another
  EXPECT_FALSE(f.heap.readGlobal(globals.get(), builtins, f.key.get()).has_value());
  EXPECT_TRUE(f.breaks.live);  // NameError is the program's
}

TEST(Heap, ReadsAttributesOfModulesInTheirDicts) {
  Fixture f;
  const pyapi::Ref<> module = value("__import__('math')"), pi = value("'pi'");
  EXPECT_EQ(f.heap.moduleAttribute(Shadow::source(1), module.get(), pi.get()), Shadow::source(test::kEntry));
  EXPECT_EQ(f.containers.read, (std::vector<PyObject*>{pi.get()}));
  EXPECT_FALSE(f.heap.moduleAttribute(Shadow::source(1), module.get(), f.key.get()).has_value());
  EXPECT_FALSE(f.heap.moduleAttribute(Shadow::source(1), f.item.get(), pi.get()).has_value());
}

}  // namespace
}  // namespace kintsugi::capture
