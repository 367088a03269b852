#include "capture/snapshots.h"

#include "unit/capture/fakes.h"

namespace kintsugi::capture {
namespace {

using ir::Op;
using ir::Operand;
using ir::OperandKind;
using test::inFrame;
using test::localOf;
using test::run;
using test::value;

// Snapshots at an instruction of a Python function.
struct Fixture {
  test::FakeBreaks breaks;
  test::FakeConstants constants;
  VirtualTable virtuals;
  test::FakeObjects objects{virtuals};
  guard::Document document;
  ExceptionLog exceptions;
  TraceFacts facts;
  FrameStack frames;
  CurrentInstruction instruction;
  test::FakeWriter writer{document.trace};
  Snapshots snapshots{
      {breaks, constants, objects, writer}, document, exceptions, facts, frames, instruction, virtuals};
  Instr instr;

  void begin(ShadowFrame& frame, int32_t start = 4) {
    frames.setCurrent(&frame);
    instr.start = start;
    instr.next = start + 2;
    instruction.begin(instr, frame.stack.size());
  }
  // A list of the trace, which is a local variable of the frame.
  Shadow listAt(ShadowFrame& frame, int index, Shadows parts) {
    const Shadow list = virtuals.add(VirtualKind::kList, localOf(frame, index));
    virtuals[list].parts = std::move(parts);
    return frame.locals[static_cast<size_t>(index)] = list;
  }
  const ir::FrameState& state(ir::StateId id) { return document.trace.states.at(id); }
  Operand local(ir::StateId id, size_t index) { return document.trace.localsOf(state(id))[index]; }
};

void define() {
  run("def here(a, b=None):\n  grab()\n"
      "def later():\n  grab()\n  gone = 1\n  return gone\n");
}

TEST(Snapshots, AreMadeOnceForAnInstruction) {
  define();
  Fixture f;
  inFrame("here([1])", [&](ShadowFrame& frame) {
    frame.locals = {Shadow::source(3), Shadow::constant()};
    f.begin(frame, 6);
    const ir::StateId first = f.snapshots.stateBefore();
    EXPECT_EQ(f.snapshots.stateBefore(), first);
    EXPECT_EQ(f.state(first).pc, 6);
    EXPECT_TRUE(f.state(first).rebuildable);
    EXPECT_EQ(f.state(first).parent, ir::kNone);
    EXPECT_EQ(f.local(first, 0).id, 3U);
    EXPECT_EQ(f.local(first, 1).kind, OperandKind::kConst);
    EXPECT_EQ(f.state(first).function.kind, OperandKind::kConst);
    f.begin(frame, 8);
    EXPECT_NE(f.snapshots.stateBefore(), first);
  });
}

#ifndef KINTSUGI_DEBUG  // there, a failed check aborts
TEST(Snapshots, CanNotBeMadeBehindTheInstruction) {
  define();
  Fixture f;
  inFrame("here(1)", [&](ShadowFrame& frame) {
    f.begin(frame);
    f.instruction.setExecuted(true);
    EXPECT_THROW(f.snapshots.stateBefore(), InternalError);
  });
}
#endif

TEST(Snapshots, NameAListInTwoVariablesByOneRecipe) {
  define();
  run("shared = [1]");
  Fixture f;
  inFrame("here(shared, shared)", [&](ShadowFrame& frame) {
    frame.locals[1] = f.listAt(frame, 0, {Shadow::value(2)});
    f.begin(frame);
    const ir::StateId made = f.snapshots.stateBefore();
    EXPECT_EQ(f.local(made, 0).kind, OperandKind::kRecipe);
    EXPECT_EQ(f.local(made, 0).id, f.local(made, 1).id);
    EXPECT_EQ(f.document.trace.recipes.size(), 1U);
  });
}

TEST(Snapshots, LeaveUnboundVariablesOut) {
  define();
  Fixture f;
  inFrame("later()", [&](ShadowFrame& frame) {
    frame.locals[0] = Shadow::source(1);  // a shadow that is out of date: the variable was deleted
    f.begin(frame);
    const ir::StateId made = f.snapshots.stateBefore();
    EXPECT_EQ(f.local(made, 0).kind, OperandKind::kNull);
    EXPECT_TRUE(f.state(made).rebuildable);
  });
}

TEST(Snapshots, SayWhereAFrameCanNotBeRebuilt) {
  define();
  Fixture f;
  inFrame("here(object())", [&](ShadowFrame& frame) {
    frame.locals[0] = f.virtuals.add(VirtualKind::kOpaque, localOf(frame, 0));
    f.begin(frame);
    const ir::StateId made = f.snapshots.stateBefore();
    EXPECT_FALSE(f.state(made).rebuildable);
    EXPECT_EQ(f.local(made, 0).kind, OperandKind::kNull);
  });
}

TEST(Snapshots, OfAnInnerFrameShareTheCallers) {
  define();
  run("def outer(x):\n  here(x)\n");
  Fixture f;
  inFrame("here([1])", [&](ShadowFrame& outer) {
    outer.stack = {};
    const Shadow list = f.listAt(outer, 0, {Shadow::value(0)});
    inFrame("here(2)", [&](ShadowFrame& inner) {
      Instr call;
      call.start = 10;
      call.next = 14;
      inner.caller = &outer;
      inner.site = f.snapshots.callSite(call, 0);
      inner.locals = {Shadow::value(1), Shadow::constant()};
      f.begin(inner);
      const ir::StateId parent = f.state(f.snapshots.stateBefore()).parent;
      EXPECT_EQ(f.state(parent).pc, 14);  // the call is under way
      f.begin(inner, 6);
      EXPECT_EQ(f.state(f.snapshots.stateBefore()).parent, parent);
      const pyapi::Ref<> made = value("[3]");
      Virtual& other = f.virtuals[f.virtuals.add(VirtualKind::kList, made.get())];
      other.recipe = 0;
      f.virtuals.noteChange(other);  // the caller's state does not name it
      f.begin(inner, 7);
      EXPECT_EQ(f.state(f.snapshots.stateBefore()).parent, parent);
      f.virtuals[list].parts[0] = Shadow::value(5);
      f.virtuals.noteChange(list);
      f.begin(inner, 8);
      const ir::StateId second = f.state(f.snapshots.stateBefore()).parent;
      EXPECT_NE(second, parent);
      f.virtuals.noteChange();  // anything may have changed
      f.begin(inner, 9);
      EXPECT_NE(f.state(f.snapshots.stateBefore()).parent, second);
    });
  });
}

TEST(Snapshots, OfAFrameUnderCCodeCanNotBeRebuilt) {
  define();
  Fixture f;
  inFrame("here(1)", [&](ShadowFrame& outer) {
    outer.rebuildable = false;
    inFrame("here(2)", [&](ShadowFrame& inner) {
      Instr call;
      inner.caller = &outer;
      inner.site = f.snapshots.callSite(call, 0);
      f.begin(inner);
      EXPECT_FALSE(f.state(f.snapshots.stateBefore()).rebuildable);
    });
  });
}

TEST(Snapshots, BuildAnObjectThatEscapes) {
  define();
  Fixture f;
  inFrame("here([1])", [&](ShadowFrame& frame) {
    Shadow list = f.listAt(frame, 0, {Shadow::source(2)});
    f.begin(frame);
    ASSERT_TRUE(f.snapshots.escape(list, localOf(frame, 0)));
    ASSERT_EQ(f.writer.written.size(), 1U);
    EXPECT_EQ(f.writer.written[0].op, Op::kBuild);
    EXPECT_EQ(f.writer.written[0].operands[0].kind, OperandKind::kRecipe);
    // The state of the build rebuilds the list; the one behind it names what was built.
    EXPECT_EQ(f.local(f.writer.written[0].snap, 0).kind, OperandKind::kRecipe);
    const ir::StateId behind = f.snapshots.stateBefore();
    EXPECT_EQ(f.local(behind, 0).kind, OperandKind::kValue);
    EXPECT_EQ(f.local(behind, 0).id, f.virtuals[list].value);
    ASSERT_TRUE(f.snapshots.escape(list, localOf(frame, 0)));  // it has escaped already
    EXPECT_EQ(f.writer.written.size(), 1U);
  });
}

TEST(Snapshots, BuildPartsFirst) {
  define();
  Fixture f;
  inFrame("here([[1]])", [&](ShadowFrame& frame) {
    PyObject* inside = PyList_GET_ITEM(localOf(frame, 0), 0);
    const Shadow part = f.virtuals.add(VirtualKind::kList, inside);
    f.virtuals[part].parts = {Shadow::source(2)};
    Shadow list = f.listAt(frame, 0, {part});
    f.begin(frame);
    ASSERT_TRUE(f.snapshots.escape(list, localOf(frame, 0)));
    ASSERT_EQ(f.writer.written.size(), 2U);
    EXPECT_LT(f.virtuals[part].value, f.virtuals[list].value);
    const ir::Recipe& outer = f.document.trace.recipes.at(f.writer.written[1].operands[0].id);
    EXPECT_EQ(outer.parts[0].kind, OperandKind::kValue);  // the part that everybody sees
    EXPECT_EQ(outer.parts[0].id, f.virtuals[part].value);
  });
}

TEST(Snapshots, DoNotFollowAnIteratorThatHasEscaped) {
  define();
  run("items = (1, 2)");
  Fixture f;
  inFrame("here(iter(items))", [&](ShadowFrame& frame) {
    Shadow iterator = f.virtuals.add(VirtualKind::kIterator, localOf(frame, 0));
    f.virtuals[iterator].parts = {Shadow::source(0)};
    f.virtuals[iterator].partObjects.push_back(value("items"));
    f.begin(frame);
    ASSERT_TRUE(f.snapshots.escape(iterator, localOf(frame, 0)));
    EXPECT_EQ(f.virtuals[iterator].kind, VirtualKind::kOpaque);  // its new owner may move it on
  });
}

TEST(Snapshots, EndTheRecordingWhereAnObjectCanNotBeBuilt) {
  define();
  run("loop = []\nloop.append(loop)");
  Fixture f;
  inFrame("here(loop)", [&](ShadowFrame& frame) {
    Shadow list = f.listAt(frame, 0, {});
    f.virtuals[list].parts = {list};
    f.begin(frame);
    EXPECT_FALSE(f.snapshots.escape(list, localOf(frame, 0)));
    EXPECT_EQ(f.breaks.ends, (std::vector<diag::Code>{diag::Code::KTG0302}));
    EXPECT_EQ(f.breaks.reasons[0], "list");
    EXPECT_TRUE(f.writer.written.empty());
    EXPECT_FALSE(f.virtuals[list].building);
  });
  run("loop.clear()");
}

TEST(Snapshots, KeepStandInsInside) {
  define();
  run("class Group: _kintsugi_stand_in = True");
  Fixture f;
  inFrame("here(Group())", [&](ShadowFrame& frame) {
    Shadow group = f.virtuals.add(VirtualKind::kInstance, localOf(frame, 0));
    f.begin(frame);
    EXPECT_FALSE(f.snapshots.escape(group, localOf(frame, 0)));
    EXPECT_EQ(f.breaks.reasons, (std::vector<std::string>{"Group"}));
  });
}

TEST(Snapshots, BuildExceptionsThatOuterFramesHandle) {
  define();
  Fixture f;
  inFrame("here(1)", [&](ShadowFrame& outer) {
    const pyapi::Ref<> error = value("KeyError()");
    outer.handled = f.virtuals.add(VirtualKind::kException, error.get());
    outer.handledObject = pyapi::newRef(error.get());
    inFrame("here(2)", [&](ShadowFrame& inner) {
      inner.caller = &outer;
      Instr call;
      inner.site = f.snapshots.callSite(call, 0);
      f.begin(inner);
      EXPECT_TRUE(f.snapshots.escapeHandled());
      ASSERT_EQ(f.writer.written.size(), 1U);
      EXPECT_EQ(f.virtuals[outer.handled].value, f.document.trace.code[0].firstResult);
    });
  });
}

TEST(Snapshots, NoteTheVersionOfAClassThatWasBuilt) {
  define();
  run("class Made: pass");
  Fixture f;
  inFrame("here(Made)", [&](ShadowFrame& frame) {
    const Shadow cls = f.virtuals.add(VirtualKind::kClass, localOf(frame, 0));
    f.virtuals[cls].value = 0;
    f.begin(frame);
    EXPECT_FALSE(f.snapshots.notedVersion(f.virtuals[cls]).has_value());
    f.snapshots.noteVersion(f.virtuals[cls]);
    ASSERT_EQ(f.writer.written.size(), 1U);
    EXPECT_EQ(f.writer.written[0].op, Op::kCallKnown);
    EXPECT_EQ(f.snapshots.notedVersion(f.virtuals[cls]), Shadow::value(f.document.trace.code[0].firstResult));
    EXPECT_STRNE(f.facts.bound, "");  // the version is a number of this process
  });
}

}  // namespace
}  // namespace kintsugi::capture
