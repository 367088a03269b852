#include "capture/tables/break_log.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/expected_frames.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/pauses.h"
#include "capture/tables/size_reads.h"
#include "capture/tables/torch_calls.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture {
namespace {

TEST(FrameStack, HandsOutTheFrameThatIsLeft) {
  FrameStack frames;
  ShadowFrame& outer = frames.enter(std::make_unique<ShadowFrame>());
  auto made = std::make_unique<ShadowFrame>();
  made->caller = &outer;
  ShadowFrame& inner = frames.enter(std::move(made));
  EXPECT_EQ(frames.current(), &inner);
  EXPECT_EQ(frames.leave(inner).get(), &inner);
  EXPECT_EQ(frames.current(), &outer);
  EXPECT_EQ(frames.all().size(), 1U);
  ShadowFrame stranger;
  EXPECT_EQ(frames.leave(stranger), nullptr);
}

PendingFrame named(size_t positional) {
  PendingFrame pending;
  pending.positional = positional;
  return pending;
}

TEST(ExpectedFrames, CollectTheResultsOfFramesInTurn) {
  ExpectedFrames expected;
  ShadowFrame first, second;
  expected.expect(named(1), nullptr);
  expected.expectNext(named(2));
  EXPECT_TRUE(expected.pending().active);
  expected.entered(first);
  EXPECT_FALSE(expected.pending().active);
  EXPECT_FALSE(expected.isIdle());
  expected.setResult(Shadow::value(7));
  EXPECT_TRUE(expected.frameExited(first, Flow::kReturn, false));
  EXPECT_EQ(expected.pending().positional, 2U);
  expected.entered(second);
  expected.setResult(Shadow::value(8));
  EXPECT_FALSE(expected.frameExited(second, Flow::kReturn, false));
  EXPECT_EQ(expected.results(), (Shadows{Shadow::value(7)}));
  EXPECT_EQ(expected.result(), Shadow::value(8));
}

TEST(ExpectedFrames, ForgetLaterOnesWhenOneRaises) {
  ExpectedFrames expected;
  ShadowFrame frame;
  expected.expect(named(1), nullptr);
  expected.expectNext(named(2));
  expected.entered(frame);
  EXPECT_FALSE(expected.frameExited(frame, Flow::kRaise, false));
  EXPECT_TRUE(expected.raised());
  EXPECT_FALSE(expected.gaveItem());
  EXPECT_TRUE(expected.isIdle());
}

// What is called inside an announced frame announces its own frames; the outer ones stay.
TEST(ExpectedFrames, KeepLaterOnesWhileInnerFramesRun) {
  ExpectedFrames expected;
  ShadowFrame owner, inner;
  inner.caller = &owner;
  expected.expect(named(1), nullptr);
  expected.expectNext(named(2));
  expected.entered(owner);
  expected.expect(named(3), &inner);
  EXPECT_TRUE(expected.isEntered(&inner));
  expected.cancel();
  EXPECT_TRUE(expected.frameExited(owner, Flow::kReturn, false));
  EXPECT_EQ(expected.pending().positional, 2U);
}

TEST(ExpectedFrames, OfGeneratorsGiveItemsWhenTheyYield) {
  ExpectedFrames expected;
  ShadowFrame frame;
  expected.frameExited(frame, Flow::kYield, true);
  EXPECT_TRUE(expected.gaveItem());
  expected.frameExited(frame, Flow::kReturn, true);  // it is over
  EXPECT_FALSE(expected.gaveItem());
}

TEST(ExpectedFrames, CollectItemsOfTheInnermostGenerator) {
  ExpectedFrames expected;
  Virtual outer, inner;
  expected.collectFrom(outer);
  expected.addItem(Shadow::value(1));
  expected.collectFrom(inner);
  EXPECT_EQ(expected.collected(), &inner);
  expected.addItem(Shadow::value(2));
  EXPECT_EQ(expected.takeItems(), (Shadows{Shadow::value(2)}));
  EXPECT_EQ(expected.takeItems(), (Shadows{Shadow::value(1)}));
  EXPECT_EQ(expected.collected(), nullptr);
}

TEST(CurrentInstruction, GoesOnAfterFramesHaveRunInside) {
  CurrentInstruction current;
  Instr outer, inner;
  current.begin(outer, 3);
  current.setState(9);
  const auto saved = current.save();
  current.begin(inner, 1);
  current.setExecuted(true);
  current.setFlow(Flow::kRaise);
  current.restore(saved);
  EXPECT_EQ(current.instr(), &outer);
  EXPECT_FALSE(current.isExecuted());
  EXPECT_EQ(current.flow(), Flow::kNext);
  EXPECT_EQ(current.state(), ir::StateId{ir::kNone});  // objects may have changed meanwhile
  EXPECT_TRUE(current.isUntouched(3));
  EXPECT_FALSE(current.isUntouched(2));
}

TEST(BreakLog, KeepsARefusedBreakUntilItIsRaised) {
  BreakLog breaks;
  breaks.refuse(diag::Diagnostic{}, true);
  EXPECT_TRUE(breaks.isRefused());
  EXPECT_TRUE(breaks.isToBeRaised());
  breaks.noteRaised();
  EXPECT_FALSE(breaks.isToBeRaised());
  EXPECT_TRUE(breaks.isRefused());
  EXPECT_TRUE(breaks.isLive());
  breaks.end(diag::Diagnostic{});
  EXPECT_FALSE(breaks.isLive());
  EXPECT_TRUE(breaks.takeFailure().has_value());
}

TEST(Pauses, Nest) {
  Pauses pauses;
  {
    const Paused outer(pauses);
    { const Paused inner(pauses); }
    EXPECT_TRUE(pauses.isPaused());
    pauses.noteCallback();
  }
  EXPECT_FALSE(pauses.isPaused());
  EXPECT_TRUE(pauses.calledBack());
  pauses.expectNoCalls();
  EXPECT_FALSE(pauses.calledBack());
}

TEST(SizeReads, AreOneValueUntilSomethingMayHaveResizedATensor) {
  SizeReads reads;
  reads.add(4, ir::Op::kSize, 1, 10);
  EXPECT_EQ(reads.find(4, ir::Op::kSize, 1), ir::ValueId{10});
  EXPECT_FALSE(reads.find(4, ir::Op::kSize, 0).has_value());
  EXPECT_FALSE(reads.find(5, ir::Op::kSize, 1).has_value());
  reads.noteResized(5);
  EXPECT_FALSE(reads.find(4, ir::Op::kSize, 1).has_value());
  EXPECT_TRUE(reads.mayBeResized(5));
  EXPECT_FALSE(reads.mayBeResized(4));
}

TEST(TorchCalls, ForgetATaintWhenTheNextOneBegins) {
  TorchCalls calls;
  calls.begin();
  calls.setTainted(true);
  EXPECT_TRUE(calls.isInside());
  calls.end();
  EXPECT_TRUE(calls.isTainted());  // asked when the call is over
  calls.begin();
  EXPECT_FALSE(calls.isTainted());
  calls.end();
  EXPECT_TRUE(calls.pinNumber(3));
  EXPECT_FALSE(calls.pinNumber(3));
  calls.addNumber(5, Py_True);
  EXPECT_EQ(calls.numberOf(5), Py_True);
  calls.clearNumbers();
  EXPECT_EQ(calls.numberOf(5), nullptr);
}

}  // namespace
}  // namespace kintsugi::capture
