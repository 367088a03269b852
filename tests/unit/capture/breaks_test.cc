#include "capture/breaks.h"

#include "capture/record_breaks.h"
#include "unit/capture/fakes.h"

namespace kintsugi::capture {
namespace {

using diag::Code;
using test::run;
using test::value;

struct FakeLog final : OperatorLog {
  int discarded = 0;
  void discardOperators() override { ++discarded; }
};

struct Fixture {
  FakeLog operators;
  BreakLog log;
  FrameStack frames;
  CurrentInstruction instruction;
  RecorderOptions options;
  VirtualTable virtuals;
  Breaks breaks{operators, log, frames, instruction, options, virtuals};

  // A frame of the function of this name, called by the innermost frame.
  ShadowFrame& enter(const char* function) {
    auto frame = std::make_unique<ShadowFrame>();
    frame->code = codeOf(function);
    frame->caller = frames.current();
    return frames.enter(std::move(frame));
  }
  static PyCodeObject* codeOf(const char* function) {
    return reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(value(function).get()));
  }
  static PyObject* codeObject(const char* function) { return reinterpret_cast<PyObject*>(codeOf(function)); }
};

// What breaks.cc asks Python for: where the libraries are, and how an error is made.
void define() {
  run("import sys, types\n"
      "def module(name, file):\n"
      "  made = types.ModuleType(name)\n"
      "  made.__file__ = file\n"
      "  sys.modules.setdefault(name, made)\n"
      "module('torch', '/lib/torch/__init__.py')\n"
      "module('kintsugi', '/lib/kintsugi/__init__.py')\n"
      "errors = types.ModuleType('kintsugi._errors')\n"
      "class Refused(Exception): pass\n"
      "errors.graph_break_error = lambda why, *rest: Refused(why, *rest)\n"
      "sys.modules['kintsugi._errors'] = errors\n"
      "exec(compile('def outer(): pass\\ndef inner(): pass', '/home/me/program.py', 'exec'))\n"
      "exec(compile('def library(): pass', '/lib/torch/nn.py', 'exec'))\n");
}

TEST(Breaks, EndTheRecordingOnce) {
  define();
  Fixture f;
  f.enter("outer");
  EXPECT_TRUE(f.breaks.isLive());
  f.breaks.abort(Code::KTG0302, {"list"});
  f.breaks.abort(Code::KTG0303, {"dict"});
  EXPECT_FALSE(f.breaks.isLive());
  EXPECT_EQ(f.log.failure()->code, Code::KTG0302);
  EXPECT_EQ(f.log.failure()->args, (std::vector<std::string>{"list"}));
  EXPECT_EQ(f.operators.discarded, 1);
  EXPECT_EQ(f.log.failedIn(), nullptr);  // the entry function itself
}

TEST(Breaks, BlameTheInnermostFunction) {
  define();
  Fixture f;
  f.enter("outer");
  f.enter("inner");
  f.breaks.abort(Code::KTG0302, {"list"});
  EXPECT_EQ(f.log.failedIn(), Fixture::codeObject("inner"));
  f.breaks.failWhole();
  EXPECT_EQ(f.log.failedIn(), nullptr);
}

TEST(Breaks, BlameATransformAsAWhole) {
  define();
  Fixture f;
  f.enter("outer");
  f.enter("library").transform = true;
  f.enter("inner");
  f.breaks.abort(Code::KTG0302, {"list"});
  EXPECT_EQ(f.log.failedIn(), Fixture::codeObject("library"));
}

TEST(Breaks, BlameTheNewestClassStatementOfTheEntry) {
  define();
  Fixture f;
  f.enter("outer");
  const Shadow cls = f.virtuals.add(VirtualKind::kClass, value("int").get());
  f.virtuals[cls].partObjects.push_back(pyapi::newRef(Fixture::codeObject("inner")));
  f.virtuals.addClass(cls);
  f.breaks.abort(Code::KTG0302, {"list"});
  EXPECT_EQ(f.log.failedIn(), Fixture::codeObject("inner"));
}

TEST(Breaks, ShowTheLineOfTheProgramThatCalledALibrary) {
  define();
  Fixture f;
  f.enter("outer");
  f.enter("library");
  f.breaks.abort(Code::KTG0302, {"list"});
  const diag::Diagnostic& why = *f.log.failure();
  EXPECT_EQ(why.location.file, "/home/me/program.py");
  ASSERT_EQ(why.stack.size(), 2U);
  EXPECT_EQ(why.stack[0].function, "outer");  // outermost first
  EXPECT_EQ(why.stack[1].function, "library");
}

TEST(Breaks, AreNotedWhereTheyAreNoErrors) {
  define();
  Fixture f;
  f.enter("outer");
  f.breaks.noteBreak(Code::KTG0101, {"print"});
  EXPECT_TRUE(f.breaks.isLive());
  EXPECT_FALSE(f.log.isRefused());
  ASSERT_NE(f.log.last(), nullptr);
  EXPECT_EQ(f.log.last()->code, Code::KTG0101);
}

TEST(Breaks, AreRefusedWhereTheyAreErrors) {
  define();
  Fixture f;
  f.options.fullgraph = true;
  f.enter("outer");
  f.breaks.noteBreak(Code::KTG0101, {"print"});
  f.breaks.noteBreak(Code::KTG0102, {"exec"});  // the first one is the error
  const pyapi::Ref<> refused = value("Refused");
  EXPECT_EQ(f.log.last(), nullptr);
  EXPECT_TRUE(f.log.isToBeRaised());
  EXPECT_EQ(f.breaks.raiseRefused(), Flow::kRaise);
  EXPECT_TRUE(f.instruction.isExecuted());
  EXPECT_FALSE(f.breaks.isLive());
  EXPECT_EQ(f.operators.discarded, 1);
  EXPECT_FALSE(f.log.isToBeRaised());
  EXPECT_TRUE(PyErr_ExceptionMatches(refused.get()));
  PyErr_Clear();
  EXPECT_EQ(f.log.failure()->code, Code::KTG0101);
}

TEST(Breaks, AskTheSettingWhenTheyHappen) {
  static bool strict = false;
  Fixture f;
  f.options.errorOnBreak = [] { return strict; };
  EXPECT_FALSE(f.breaks.isStrict());
  strict = true;
  EXPECT_TRUE(f.breaks.isStrict());
}

TEST(Breaks, EndOfAStrictRecordingIsRefusedUnlessTheProgramRaises) {
  define();
  Fixture f;
  f.options.fullgraph = true;
  f.enter("outer");
  f.breaks.abort(Code::KTG0111, {"ValueError"});
  EXPECT_FALSE(f.log.isRefused());
  Fixture g;
  g.options.fullgraph = true;
  g.enter("outer");
  g.breaks.abort(Code::KTG0303, {"dict"});
  EXPECT_TRUE(g.log.isToBeRaised());
}

TEST(Breaks, RaiseAnAssertionInPlaceOfTheInstruction) {
  define();
  Fixture f;
  f.enter("outer");
  EXPECT_EQ(f.breaks.raiseAssertion("not in a graph"), Flow::kRaise);
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_AssertionError));
  PyErr_Clear();
  EXPECT_TRUE(f.instruction.isExecuted());
  EXPECT_FALSE(f.breaks.isLive());
  EXPECT_TRUE(f.log.isRefused());      // it is raised again at the end of the call
  EXPECT_FALSE(f.log.isToBeRaised());  // and not before
}

}  // namespace
}  // namespace kintsugi::capture
