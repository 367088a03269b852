#include "capture/stores.h"

#include "pyapi/types.h"
#include "unit/capture/fakes.h"

namespace kintsugi::capture {
namespace {

using guard::GuardKind;
using guard::SourceKind;
using ir::Op;
using test::run;
using test::value;

struct FakeEffects final : EffectWriter {
  struct Effect {
    Op op;
    std::string name;
    Shadow target;
    size_t parts;
  };
  std::vector<Effect> effects;
  std::vector<PyObject*> written, deleted, lacking;  // keys
  bool works = true;

  bool emitEffect(Op op, const std::vector<std::pair<Shadow, PyObject*>>& parts, PyObject* name) override {
    effects.push_back({op, name != nullptr ? PyUnicode_AsUTF8(name) : "", parts[0].first, parts.size()});
    return works;
  }
  bool noteWrite(PyObject*, PyObject* key, Shadow, PyObject*) override {
    written.push_back(key);
    return works;
  }
  bool noteDelete(PyObject*, PyObject* key) override {
    deleted.push_back(key);
    return works;
  }
  bool lacksKey(Shadow, PyObject*, PyObject* key) override {
    lacking.push_back(key);
    return works;
  }
};

// Classes as CPython has them; a test may say that stores in them are known.
struct FakeClasses final : ClassAttributes {
  std::optional<bool> inClass, open;
  std::vector<PyObject*> renamed;

  TypeEntry typeEntry(PyTypeObject* type, PyObject* name) override {
    return {pyapi::lookUpInType(type, name), false, {}};
  }
  std::optional<bool> storeInClass(Shadow, PyObject*, PyObject*, Shadow, PyObject*) override {
    return inClass;
  }
  std::optional<bool> storeOpen(Shadow, PyObject*, PyObject*, Shadow, PyObject*) override { return open; }
  void noteRename(PyObject* object, PyObject*) override { renamed.push_back(object); }
};

struct Fixture {
  test::FakeBreaks breaks;
  test::FakeGuards guards;
  Overlays overlays;
  VirtualTable virtuals;
  FrameStack frames;
  test::FakeObjects known{virtuals};
  test::FakeContainers containers{overlays};
  FakeEffects effects;
  FakeClasses classes;
  Stores stores{{breaks, guards, guards, known, containers, effects, classes}, frames, virtuals};
  pyapi::Ref<> key = value("'key'");
  pyapi::Ref<> item = value("object()");
  PyObject* setter = nullptr;

  bool store(Shadow shadow, PyObject* object) { return store(shadow, object, "key"); }
  bool store(Shadow shadow, PyObject* object, const char* name) {
    const pyapi::Ref<> text = pyapi::steal(PyUnicode_InternFromString(name));
    return stores.planStore(shadow, object, text.get(), Shadow::value(9), item.get(), setter);
  }
  bool remove(Shadow shadow, PyObject* object) {
    return stores.planDelete(shadow, object, key.get(), setter);
  }
  Shadow instance(PyObject* object) { return virtuals.add(VirtualKind::kInstance, object); }
};

TEST(Stores, WriteToAnOldObjectAsAnEffectOnItsDict) {
  run("class Plain: pass\nplain = Plain()\nplain.other = 1");
  Fixture f;
  ASSERT_TRUE(f.store(Shadow::source(2), value("plain").get()));
  EXPECT_EQ(f.setter, nullptr);  // the instruction does it
  ASSERT_EQ(f.effects.effects.size(), 1U);
  EXPECT_EQ(f.effects.effects[0].op, Op::kSetAttr);
  EXPECT_EQ(f.effects.effects[0].name, "key");
  EXPECT_EQ(f.effects.effects[0].target, Shadow::source(2));
  EXPECT_EQ(f.guards.reads, (std::vector<SourceKind>{SourceKind::kDict}));
  EXPECT_EQ(f.effects.written.size(), 1U);  // later reads in the trace see it
  EXPECT_EQ(f.guards.guards.front(), (std::pair<GuardKind, ir::SourceId>{GuardKind::kType, 2}));
  EXPECT_EQ(f.guards.versions, (std::vector<PyTypeObject*>{test::typeNamed("Plain")}));
}

TEST(Stores, NoteNothingIfTheEffectCanNotBeWritten) {
  run("class Plain: pass\nplain = Plain()");
  Fixture f;
  f.effects.works = false;
  EXPECT_FALSE(f.store(Shadow::source(2), value("plain").get()));
  EXPECT_TRUE(f.effects.written.empty());
}

TEST(Stores, WriteToASlotOfAnOldObject) {
  run("class Slotted: __slots__ = ('key',)\nslotted = Slotted()");
  Fixture f;
  const pyapi::Ref<> object = value("slotted");
  ASSERT_TRUE(f.store(Shadow::source(2), object.get()));
  EXPECT_EQ(f.effects.effects.size(), 1U);
  EXPECT_TRUE(f.effects.written.empty());  // there is no dict
  const auto entry = f.overlays.find(object.get())->attrs.find(f.key.get());
  EXPECT_EQ(entry->shadow, Shadow::value(9));
}

TEST(Stores, EnterWhatAPropertyOrADescriptorInPythonDoes) {
  run("class Set:\n"
      "  def __set__(self, owner, value): pass\n"
      "class Careful:\n"
      "  @property\n"
      "  def key(self): return 1\n"
      "  @key.setter\n"
      "  def key(self, value): pass\n"
      "  other = Set()\n"
      "  @property\n"
      "  def fixed(self): return 1\n"
      "careful = Careful()\n");
  Fixture f;
  const pyapi::Ref<> object = value("careful");
  ASSERT_TRUE(f.store(Shadow::source(2), object.get()));
  EXPECT_EQ(f.setter, value("Careful.key.fset").get());
  ASSERT_TRUE(f.store(Shadow::source(2), object.get(), "other"));
  EXPECT_EQ(f.setter, value("Set.__set__").get());
  EXPECT_EQ(f.guards.versions.back(), test::typeNamed("Set"));  // what __set__ is hangs on it
  ASSERT_TRUE(f.store(Shadow::source(2), object.get(), "fixed"));
  EXPECT_EQ(f.setter, Py_None);  // a step, which raises
  EXPECT_TRUE(f.effects.effects.empty());
}

TEST(Stores, EnterSetattrOfTheClass) {
  run("class Hooked:\n"
      "  def __setattr__(self, name, value): pass\n"
      "  def __delattr__(self, name): pass\n"
      "hooked = Hooked()\n");
  Fixture f;
  ASSERT_TRUE(f.store(Shadow::source(2), value("hooked").get()));
  EXPECT_EQ(f.setter, value("Hooked.__setattr__").get());
  ASSERT_TRUE(f.remove(Shadow::source(2), value("hooked").get()));
  EXPECT_EQ(f.setter, value("Hooked.__delattr__").get());
  EXPECT_TRUE(f.effects.effects.empty());
}

TEST(Stores, LeaveClassesToThoseWhoKnowThem) {
  run("class Plain: pass");
  Fixture f;
  const pyapi::Ref<> cls = value("Plain");
  ASSERT_TRUE(f.store(Shadow::source(2), cls.get()));
  EXPECT_EQ(f.setter, Py_None);  // a step
  f.classes.inClass = true;
  ASSERT_TRUE(f.store(Shadow::source(2), cls.get()));
  EXPECT_EQ(f.setter, nullptr);
  f.classes.inClass = false;
  EXPECT_FALSE(f.store(Shadow::source(2), cls.get()));
  f.classes.inClass.reset();
  f.classes.open = true;
  f.setter = Py_None;
  ASSERT_TRUE(f.store(Shadow::source(2), cls.get()));
  EXPECT_EQ(f.setter, nullptr);
  EXPECT_TRUE(f.effects.effects.empty());
}

TEST(Stores, SayWhichOldObjectsAreRenamed) {
  run("class Plain: pass\nplain = Plain()");
  Fixture f;
  const pyapi::Ref<> object = value("plain");
  ASSERT_TRUE(f.store(Shadow::source(2), object.get()));
  EXPECT_EQ(f.classes.renamed, (std::vector<PyObject*>{object.get()}));
  ASSERT_TRUE(f.store(f.instance(object.get()), object.get()));
  EXPECT_EQ(f.classes.renamed.size(), 1U);
}

TEST(Stores, ChangeTheShadowsOfAnInstanceOfTheTrace) {
  run("class Plain: pass\nplain = Plain()");
  Fixture f;
  const pyapi::Ref<> object = value("plain");
  const Shadow made = f.instance(object.get());
  ASSERT_TRUE(f.store(made, object.get()));
  EXPECT_TRUE(f.effects.effects.empty());  // nobody else has it
  PyObject* encoded = PyDict_GetItem(f.virtuals[made].attrs.get(), f.key.get());
  ASSERT_NE(encoded, nullptr);
  EXPECT_EQ(decodeShadow(encoded), Shadow::value(9));
  f.virtuals[made].value = 3;  // built
  ASSERT_TRUE(f.store(made, object.get()));
  EXPECT_EQ(f.effects.effects.size(), 1U);
  EXPECT_TRUE(f.guards.reads.empty());
}

TEST(Stores, RefuseAttributesOfOtherObjectsOfTheTrace) {
  run("class MyList(list): pass\nitems = MyList()");
  Fixture f;
  const pyapi::Ref<> object = value("items");
  EXPECT_FALSE(f.store(f.virtuals.add(VirtualKind::kList, object.get()), object.get()));
  EXPECT_EQ(f.breaks.ends, (std::vector<diag::Code>{diag::Code::KTG0303}));
}

TEST(Stores, GuardThatThereWasNoDictBeforeTheFirstAttribute) {
  run("class Wrong(ValueError): pass\nwrong = Wrong()");
  Fixture f;
  const pyapi::Ref<> object = value("wrong");
  ASSERT_TRUE(f.store(Shadow::source(2), object.get()));
  EXPECT_EQ(f.guards.guards.back(), (std::pair<GuardKind, ir::SourceId>{GuardKind::kNoDict, 2}));
  const pyapi::Ref<> dict = value("wrong.__dict__");
  const Overlay* overlay = f.overlays.find(dict.get());
  ASSERT_NE(overlay, nullptr);
  EXPECT_TRUE(overlay->dirty);  // what else is in it is not known
  EXPECT_EQ(overlay->entries.find(f.key.get())->shadow, Shadow::value(9));
}

TEST(Stores, DeleteAnAttributeThatIsThere) {
  run("class Plain: pass\nplain = Plain()\nplain.key = 1\nempty = Plain()\nempty.other = 1");
  Fixture f;
  ASSERT_TRUE(f.remove(Shadow::source(2), value("plain").get()));
  EXPECT_EQ(f.effects.effects.at(0).op, Op::kDelAttr);
  EXPECT_EQ(f.effects.deleted.size(), 1U);
  EXPECT_EQ(f.containers.read.size(), 1U);  // a guard that it is there
  ASSERT_TRUE(f.remove(Shadow::source(3), value("empty").get()));
  EXPECT_EQ(f.effects.effects.size(), 1U);
  EXPECT_EQ(f.effects.lacking.size(), 1U);  // AttributeError in each run
}

TEST(Stores, DeleteFromAnInstanceOfTheTrace) {
  run("class Plain: pass\nplain = Plain()");
  Fixture f;
  const pyapi::Ref<> object = value("plain");
  const Shadow made = f.instance(object.get());
  ASSERT_TRUE(f.store(made, object.get()));
  const uint64_t epoch = f.virtuals.epoch();
  ASSERT_TRUE(f.remove(made, object.get()));
  EXPECT_EQ(PyDict_Size(f.virtuals[made].attrs.get()), 0);
  EXPECT_GT(f.virtuals.epoch(), epoch);       // recipes of it are stale
  ASSERT_TRUE(f.remove(made, object.get()));  // AttributeError, the program's
  EXPECT_TRUE(f.effects.effects.empty());
}

TEST(Stores, RefuseToDeleteWhatCCodeWouldDelete) {
  run("class Slotted: __slots__ = ('key',)\nslotted = Slotted()\nslotted.key = 1");
  Fixture f;
  EXPECT_FALSE(f.remove(Shadow::source(2), value("slotted").get()));
  EXPECT_EQ(f.breaks.ends, (std::vector<diag::Code>{diag::Code::KTG0303}));
}

struct FunctionFixture : Fixture {
  FunctionFixture() {
    run("def made(): pass\ndef other(): return 1");
    function = value("made");
    shadow = virtuals.add(VirtualKind::kFunction, function.get());
  }
  pyapi::Ref<> function;
  Shadow shadow;
};

TEST(Stores, PinTheNameOfAFunctionOfTheTrace) {
  FunctionFixture f;
  ASSERT_TRUE(f.store(f.shadow, f.function.get(), "__name__"));
  EXPECT_TRUE(f.virtuals[f.shadow].renamed);
  EXPECT_EQ(f.guards.pinned, (std::vector<PyObject*>{f.item.get()}));  // reading it gives a constant
  f.guards.canPin = false;
  EXPECT_FALSE(f.store(f.shadow, f.function.get(), "__name__"));
  EXPECT_FALSE(f.breaks.live);
}

TEST(Stores, ReplaceTheCodeOfAFunctionThatDoesNotRun) {
  FunctionFixture f;
  const pyapi::Ref<> code = value("other.__code__"), name = value("'__code__'");
  ASSERT_TRUE(
      f.stores.planStore(f.shadow, f.function.get(), name.get(), Shadow::constant(), code.get(), f.setter));
  EXPECT_TRUE(f.virtuals[f.shadow].renamed);
  auto frame = std::make_unique<ShadowFrame>();
  frame->function = pyapi::newRef(f.function.get());
  f.frames.add(std::move(frame));
  EXPECT_FALSE(
      f.stores.planStore(f.shadow, f.function.get(), name.get(), Shadow::constant(), code.get(), f.setter));
  EXPECT_EQ(f.breaks.reasons, (std::vector<std::string>{"__code__"}));
}

TEST(Stores, KnowWhenAGeneratorStillHasTheOldCode) {
  FunctionFixture f;
  const pyapi::Ref<> code = value("other.__code__"), name = value("'__code__'"), generator = value("[]");
  Virtual& waiting = f.virtuals[f.virtuals.add(VirtualKind::kGenerator, generator.get())];
  waiting.frame = std::make_unique<ShadowFrame>();
  waiting.frame->function = pyapi::newRef(f.function.get());
  EXPECT_FALSE(
      f.stores.planStore(f.shadow, f.function.get(), name.get(), Shadow::constant(), code.get(), f.setter));
}

TEST(Stores, RefuseAttributesOfAFunctionThatOthersMayHaveChanged) {
  FunctionFixture f;
  ASSERT_TRUE(f.store(f.shadow, f.function.get()));
  f.virtuals[f.shadow].exposed = true;
  EXPECT_FALSE(f.store(f.shadow, f.function.get()));
  EXPECT_EQ(f.breaks.ends, (std::vector<diag::Code>{diag::Code::KTG0303}));
}

TEST(Stores, NoteThatTheProgramHasSetTheContextOfAnException) {
  run("error = ValueError()");
  Fixture f;
  const pyapi::Ref<> error = value("error"), name = value("'__context__'");
  const Shadow made = f.virtuals.add(VirtualKind::kException, error.get());
  f.virtuals[made].index = 1;
  f.setter = nullptr;
  ASSERT_TRUE(f.stores.planStore(made, error.get(), name.get(), Shadow::constant(), Py_None, f.setter));
  EXPECT_EQ(f.setter, nullptr);
  EXPECT_EQ(f.virtuals[made].index, 0);
  EXPECT_TRUE(f.effects.effects.empty());  // its recipe reads the field
  // An older object as its context has to be written by a step.
  ASSERT_TRUE(f.stores.planStore(made, error.get(), name.get(), Shadow::source(5), f.item.get(), f.setter));
  EXPECT_EQ(f.setter, Py_None);
}

}  // namespace
}  // namespace kintsugi::capture
