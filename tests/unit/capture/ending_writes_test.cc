#include "capture/ending_writes.h"

#include "pyapi/replaced.h"
#include "pyapi/write_functions.h"
#include "unit/capture/fakes.h"
#include "unit/capture/python_objects.h"
#include "unit/capture/read_fakes.h"

namespace kintsugi::capture {
namespace {

using ir::Op;
using test::holds;
using test::run;
using test::value;

struct Fixture {
  test::FakeBreaks breaks;
  test::FakeReads reads;
  guard::Document document;
  ConstantPool constants;
  KnownSources sources{document.sources.nodes};
  KeptObjects kept;
  Overlays overlays;
  GuardBlocks blocks;
  AttributeLog log{nullptr};
  ClassVersions versions{document, constants, log};
  Pauses pauses;
  EndingPlaces places;
  EndingWrites writes{
      breaks, {&places, document.trace, constants, sources, kept, overlays, blocks, versions, pauses}};
  ir::StateId before = stateAt(7);
  pyapi::Ref<> name = value("__import__('sys').intern('held')");

  Fixture() {
    run("ends = []\n"
        "class Ends:\n"
        "  def __del__(self): ends.append(1)\n"
        "class Holder: pass\n"
        "holder = Holder()\n"
        "holder.held = None\n");
  }
  ir::StateId stateAt(int32_t unit) {
    ir::FrameState state;
    state.code = constants.add(value("(lambda: 0).__code__").get()).id;
    state.pc = unit;
    return document.trace.addState(state, {}, {});
  }
  PyObject* step() { return writes.stepFor(Op::kSetAttr, value("holder").get(), name.get(), before); }
};

TEST(EndingWrites, LeaveAWriteThatRunsNoCodeAlone) {
  Fixture f;
  for (const char* held : {"1", "[1, 'a', (2.5,)]", "Holder()", "{'a': [Holder()]}", "(i for i in [1])"}) {
    run((std::string("holder.held = ") + held).c_str());
    EXPECT_EQ(f.step(), nullptr) << held;
  }
  run("other = Ends(); holder.held = [other]");  // somebody else holds it
  EXPECT_EQ(f.step(), nullptr);
  EXPECT_FALSE(f.writes.isPending());
  run("holder.held = None; del other");
}

TEST(EndingWrites, AreStepsWhereCodeOfTheProgramRuns) {
  Fixture f;
  run("def waits():\n"
      "  try: yield\n"
      "  finally: ends.append(2)\n"
      "def waiting():\n"
      "  made = waits(); next(made); return made\n"
      "import weakref\n"
      "def watched():\n"
      "  made = Holder(); made.ref = weakref.ref(made, lambda ref: None); return made\n");
  for (const char* held : {"Ends()", "[1, (Ends(),)]", "waiting()", "(lambda e: (e, e))(Ends())"}) {
    run((std::string("holder.held = ") + held).c_str());
    EXPECT_EQ(f.step(), pyapi::attributeWriter()) << held;
    EXPECT_TRUE(f.writes.isPending());
    f.writes.finish(f.reads);
    EXPECT_FALSE(f.writes.isPending());
  }
  EXPECT_EQ(f.reads.calls.substr(0, 18), "invalidate forget ");
  run("holder.held = None");
}

TEST(EndingWrites, LetGoOfWhatTheRecorderHoldsAlone) {
  Fixture f;
  run("ends.clear(); holder.held = [Ends()]");
  f.kept.add(value("holder.held[0]").get());
  EXPECT_NE(f.step(), nullptr);
  run("holder.held = None");
  EXPECT_TRUE(holds("ends == []"));
  f.writes.finish(f.reads);
  EXPECT_TRUE(holds("ends == [1]"));
}

TEST(EndingWrites, LetGoOfAllThatEnds) {
  Fixture f;
  run("ends.clear(); holder.held = [Ends(), Ends()]");
  f.kept.add(value("holder.held[0]").get());
  f.kept.add(value("holder.held[1]").get());
  EXPECT_NE(f.step(), nullptr);
  run("holder.held = None");
  f.writes.finish(f.reads);
  EXPECT_TRUE(holds("ends == [1, 1]"));
}

TEST(EndingWrites, AreNoStepsWhereOnlyAWeakReferenceIsEmptied) {
  Fixture f;
  run("holder.held = Holder(); ref = weakref.ref(holder.held)");
  f.kept.add(value("holder.held").get());
  EXPECT_EQ(f.step(), nullptr);
  EXPECT_TRUE(f.writes.isPending());
  run("holder.held = None");
  f.writes.finish(f.reads);
  EXPECT_TRUE(holds("ref() is None"));
  EXPECT_EQ(f.reads.calls, "");
}

TEST(EndingWrites, LeaveWhatIsTakenAndWhatIsAddedAlone) {
  Fixture f;
  PyObject* code = f.constants.at(f.document.trace.states[f.before].code);
  f.places.add(code, 7);
  const pyapi::Ref<> dict = value("{'held': Ends()}");
  EXPECT_EQ(f.writes.stepFor(Op::kTakeItem, dict.get(), f.name.get(), f.before), nullptr);
  EXPECT_EQ(f.writes.stepFor(Op::kAddItem, dict.get(), f.name.get(), f.before), nullptr);
}

TEST(EndingWrites, AreStepsWhereARunWasLeftBefore) {
  Fixture f;
  PyObject* code = f.constants.at(f.document.trace.states[f.before].code);
  EXPECT_TRUE(f.places.add(code, 7));
  EXPECT_FALSE(f.places.add(code, 7));
  EXPECT_EQ(f.step(), pyapi::attributeWriter());
  f.writes.finish(f.reads);
  f.before = f.stateAt(8);
  EXPECT_EQ(f.step(), nullptr);
}

TEST(EndingWrites, KnowWeakReferencesOfALibrary) {
  Fixture f;
  run("library = {'__name__': 'library'}\n"
      "exec('def remove(ref): pass', library)\n"
      "held = Holder()\n"
      "ref = weakref.ref(held, library['remove'])\n"
      "box = [held]\n"
      "del held\n");
  static PyObject* globals = PyDict_GetItemString(test::names(), "library");
  const pyapi::OwnReferences none;
  PyObject* held = PyList_GET_ITEM(PyDict_GetItemString(test::names(), "box"), 0);
  const pyapi::EndRules knows{[](PyObject* of) { return of == globals; }, none};
  EXPECT_EQ(pyapi::endOf(held, knows), pyapi::End::kLibrary);
  EXPECT_EQ(pyapi::endOf(held, {nullptr, none}), pyapi::End::kRuns);
  run("ref = weakref.ref(box[0])");
  EXPECT_EQ(pyapi::endOf(held, knows), pyapi::End::kEmpties);
}

TEST(EndingWrites, FindWhatIsReplaced) {
  Fixture f;
  run("class Slotted:\n"
      "  __slots__ = ('held',)\n"
      "slotted = Slotted(); slotted.held = 5\n"
      "holder.held = 6\n"
      "items = [1, 2, 3, 4]\n"
      "table = {'held': 7}\n");
  PyObject* held = f.name.get();
  EXPECT_EQ(PyLong_AsLong(pyapi::replacedAttribute(value("slotted").get(), held)), 5);
  EXPECT_EQ(PyLong_AsLong(pyapi::replacedAttribute(value("holder").get(), held)), 6);
  EXPECT_EQ(PyLong_AsLong(pyapi::replacedItem(value("table").get(), held)), 7);
  EXPECT_EQ(PyLong_AsLong(pyapi::replacedItem(value("items").get(), value("-1").get())), 4);
  EXPECT_EQ(pyapi::replacedItem(value("items").get(), value("4").get()), nullptr);
  run("class Key: __hash__ = lambda self: 1\n"
      "key = Key()\n"
      "keyed = {Key(): 1, key: 8}\n");
  EXPECT_EQ(PyLong_AsLong(pyapi::replacedItem(value("keyed").get(), value("key").get())), 8);
  EXPECT_EQ(pyapi::replacedItems(value("items").get(), value("slice(0, 9, 2)").get()).size(), 2U);
  run("del holder.held");
  EXPECT_EQ(pyapi::replacedAttribute(value("holder").get(), held), nullptr);
}

}  // namespace
}  // namespace kintsugi::capture
