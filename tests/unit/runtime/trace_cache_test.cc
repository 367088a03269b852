#include "runtime/trace_cache.h"

#include "unit/runtime/recordings.h"

namespace kintsugi::runtime::test {
namespace {

using Trace = std::shared_ptr<CompiledTrace>;

// For calls with one argument of the type.
Trace traceFor(const char* type, const char* function = "f") {
  recording::Recording recording =
      recordingOf("sources {\n args \"x\"\n $0 = arg 0\n}\nguards 0 {\n type $0 #0\n}\ntrace @f.py:3 " +
                      std::string(function) + " {\n const #0 \"" + type + "\"\n ret none\n}\n",
                  {type});
  recording.argCount = 1;
  return std::make_shared<CompiledTrace>(std::move(recording));
}

class Cache : public testing::Test {
 protected:
  Trace lookup(const char* argument) {
    const pyapi::Ref<> object = capture::test::value(argument);
    PyObject* data[] = {object.get()};
    return cache.lookup(pyapi::Arguments(data, 1, nullptr), slots);
  }
  const std::vector<MissReason>& missOf(const char* argument) {
    const pyapi::Ref<> object = capture::test::value(argument);
    PyObject* data[] = {object.get()};
    return cache.explainMiss(pyapi::Arguments(data, 1, nullptr));
  }
  TraceCache cache{3};
  SlotBuffer slots;
};

TEST_F(Cache, FindsTheTraceWhoseGuardsHold) {
  const Trace ints = traceFor("int"), texts = traceFor("str");
  EXPECT_EQ(lookup("1"), nullptr);
  cache.insert(ints);
  cache.insert(texts);
  EXPECT_EQ(lookup("1"), ints);
  EXPECT_EQ(lookup("'a'"), texts);
  EXPECT_EQ(lookup("1.5"), nullptr);
  const CacheStats stats = cache.stats();
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.recompiles, 1u) << "the first trace is none";
  EXPECT_EQ(stats.traces, 2u);
}

TEST_F(Cache, ACallOfAnotherShapeMisses) {
  cache.insert(traceFor("int"));
  const pyapi::Ref<> object = capture::test::value("1");
  PyObject* data[] = {object.get(), object.get()};
  EXPECT_EQ(cache.lookup(pyapi::Arguments(data, 2, nullptr), slots), nullptr);
  const auto& reasons = cache.explainMiss(pyapi::Arguments(data, 2, nullptr));
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].failure.expected, "1 positional arguments");
  EXPECT_EQ(reasons[0].failure.seen, "2 positional arguments");
}

TEST_F(Cache, TracesThatHitMoreOftenAreTriedFirst) {
  const Trace ints = traceFor("int"), texts = traceFor("str");
  cache.insert(ints);
  cache.insert(texts);
  lookup("'a'");
  EXPECT_EQ(cache.traces(), (std::vector<Trace>{texts, ints}));
  lookup("1");
  EXPECT_EQ(cache.traces(), (std::vector<Trace>{texts, ints})) << "as often is not more often";
  lookup("1");
  EXPECT_EQ(cache.traces(), (std::vector<Trace>{ints, texts}));
}

TEST_F(Cache, TheLeastRecentlyUsedGoesAtTheLimit) {
  const Trace ints = traceFor("int"), texts = traceFor("str"), floats = traceFor("float");
  for (const Trace& trace : {ints, texts, floats}) EXPECT_TRUE(cache.insert(trace).empty());
  lookup("1");
  lookup("1.5");
  EXPECT_EQ(cache.insert(traceFor("list")), std::vector<Trace>{texts});
  EXPECT_EQ(lookup("'a'"), nullptr);
  EXPECT_EQ(lookup("1"), ints);
  EXPECT_EQ(cache.stats().evictions, 1u);
  EXPECT_EQ(cache.stats().traces, 3u);
  cache.setLimit(0);
  EXPECT_EQ(cache.limit(), 1u) << "one trace always has room";
  EXPECT_EQ(cache.insert(traceFor("set")).size(), 3u);
}

TEST_F(Cache, DeadTracesDoNotServeAndAreRemovedByAMiss) {
  const Trace ints = traceFor("int");
  cache.insert(ints);
  ints->dead = true;
  const auto& reasons = missOf("1");
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].failure.seen, "one of them is gone");
  EXPECT_EQ(lookup("1"), nullptr);
  EXPECT_EQ(cache.stats().traces, 0u);
}

TEST_F(Cache, SaysWhichGuardFailed) {
  cache.insert(traceFor("int", "forward"));
  const auto& reasons = missOf("'a'");
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].trace, "f.py:3 forward");
  EXPECT_EQ(reasons[0].failure.guard, 0u);
  EXPECT_NE(reasons[0].failure.expected.find("int"), std::string::npos) << reasons[0].failure.expected;
  EXPECT_NE(reasons[0].failure.seen.find("str"), std::string::npos) << reasons[0].failure.seen;
  EXPECT_EQ(cache.lastMiss().size(), 1u);
  cache.clear();
  EXPECT_TRUE(cache.lastMiss().empty());
}

TEST_F(Cache, OneRecordsAtATime) {
  {
    const RecordingScope first(cache);
    EXPECT_TRUE(static_cast<bool>(first));
    EXPECT_FALSE(static_cast<bool>(RecordingScope(cache)));
    EXPECT_TRUE(cache.isRecording()) << "the second one has not ended the first one's";
    EXPECT_EQ(cache.stats().busy, 1u);
  }
  EXPECT_FALSE(cache.isRecording());
  EXPECT_TRUE(cache.beginRecording());
  TraceCache::forgetRecordings();  // in the child of a fork
  EXPECT_FALSE(cache.isRecording());
}

TEST_F(Cache, ATraceOutlivesItsEvictionWhileACallHoldsIt) {
  cache.insert(traceFor("int"));
  const Trace held = lookup("1");
  TraceCache::clearAll();
  EXPECT_TRUE(cache.traces().empty());
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(held->trace().function, "f");
}

TEST_F(Cache, AFinalizerOfItsConstantsMayClearIt) {
  static TraceCache* cleared = nullptr;
  cleared = &cache;
  recording::Recording recording =
      recordingOf("trace @f.py:3 f {\n const #0 \"object\"\n ret none\n}\n", {"None"});
  recording.consts[0] = pyapi::steal(PyCapsule_New(cleared, nullptr, [](PyObject*) { cleared->clear(); }));
  cache.insert(std::make_shared<CompiledTrace>(std::move(recording)));
  cache.insert(traceFor("int"));
  cache.clear();
  EXPECT_TRUE(cache.traces().empty());
}

}  // namespace
}  // namespace kintsugi::runtime::test
