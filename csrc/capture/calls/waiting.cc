// Models: C functions that wait for another thread, a file or a device, or that tell how far another thread
// is. Whoever it is may have changed anything before, so everything is read again behind the call, in a
// replay too. These calls are no graph breaks: the program asked for them.
#include "capture/calls/model.h"
#include "capture/calls/table.h"

namespace kintsugi::capture {

namespace {

// A stream may be a pipe, and what is below it may be Python code.
constexpr Facts kReadsText = waits().runsAnyPython().gives("str").raises("ValueError OSError");
constexpr Facts kReadsBytes = waits().runsAnyPython().gives("bytes None").raises("ValueError OSError");

// From CPython 3.12 on the truth of any object says whether to wait.
constexpr Facts kAcquires = waits().gives("bool").raises("RuntimeError ValueError");

constexpr ModelRow kRows[] = {
    {"_thread.LockType.acquire", blockingModel, kAcquires},
    {"_thread.LockType.__enter__", blockingModel, kAcquires},
    {"_thread.LockType.locked", blockingModel, waits().gives("bool").runsNoPython()},
    {"_thread.LockType.release", knownModel, gives("None").runsNoPython().raises("RuntimeError")},
    {"_thread.LockType.__exit__", knownModel, gives("None").runsNoPython().raises("RuntimeError")},
    {"_thread.RLock.acquire", blockingModel, kAcquires},
    {"_thread.RLock.__enter__", blockingModel, kAcquires},
    {"_thread.RLock.release", knownModel, gives("None").raises("RuntimeError")},
    {"_thread.RLock.__exit__", knownModel, gives("None").raises("RuntimeError")},
    {"_queue.SimpleQueue.get", blockingModel,
     waits().gives(kAnItem).raises("_queue.Empty OverflowError ValueError")},
    {"_queue.SimpleQueue.get_nowait", blockingModel,
     waits().gives(kAnItem).raises("_queue.Empty OverflowError ValueError")},
    {"_queue.SimpleQueue.empty", blockingModel, waits().gives("bool").runsNoPython()},
    {"_queue.SimpleQueue.qsize", blockingModel, waits().gives("int").runsNoPython()},
    {"_io.TextIOWrapper.read", blockingModel, kReadsText},
    {"_io.TextIOWrapper.readline", blockingModel, kReadsText},
    {"_io.BufferedReader.read", blockingModel, kReadsBytes},
    {"_io.BufferedReader.read1", blockingModel, kReadsBytes},
    {"_io.BufferedReader.readline", blockingModel, kReadsBytes},
    {"_io.BufferedReader.peek", blockingModel, kReadsBytes},
    {"_io.BufferedReader.readinto", blockingModel,
     waits().runsAnyPython().gives("int None").raises("ValueError OSError")},
    {"_io.BufferedRandom.read", blockingModel, kReadsBytes},
    {"_io.BufferedRandom.readline", blockingModel, kReadsBytes},
    {"_io.FileIO.read", blockingModel, kReadsBytes},
    {"_io.FileIO.readall", blockingModel, kReadsBytes},
    {"_io.FileIO.readinto", blockingModel, waits().gives("int None").raises("ValueError OSError")},
    {"_io._IOBase.readlines", blockingModel,
     waits().runsAnyPython().gives("list").raises("ValueError OSError")},
};

}  // namespace

void registerWaitingModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
