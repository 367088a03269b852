#include "capture/generator_holders.h"

#include <algorithm>

#include "pyapi/errors.h"
#include "pyapi/functions.h"
#include "pyapi/generator.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

constexpr int kDepth = 64;   // from an exception by its tracebacks and a frame to a variable
constexpr int kMost = 1024;  // the number of objects that one search looks at

using ObjectList = std::vector<PyObject*>;

// Looks for some objects among those that an object holds by itself, or by others that it alone holds: these
// have one reference, so no search comes to one of them twice. A frame that is over is held by its traceback
// and by the frames that it has called.
struct Search {
  const ObjectList& wanted;
  bool all = false;  // else the first one is enough
  ObjectList found{};
  int depth = 0;
  int left = kMost;
};

int visit(PyObject* object, void* data);

void lookInto(PyObject* object, Search& search) {
  if (search.depth >= kDepth || search.left-- <= 0) return;
  ++search.depth;
  if (PyFunction_Check(object)) {  // without its globals
    auto* function = pyapi::asFunction(object);
    for (PyObject* part : {pyapi::defaultsOf(function), pyapi::keywordDefaultsOf(function),
                           pyapi::closureOf(function), pyapi::attributesOf(function)}) {
      if (part != nullptr) visit(part, &search);
    }
  } else if (PyObject_IS_GC(object) && pyapi::isTraversable(object)) {
    pyapi::traverse(object, visit, &search);
  }
  --search.depth;
}

// Not zero: no more is looked for.
int visit(PyObject* object, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (std::ranges::find(search.wanted, object) != search.wanted.end()) {
    search.found.push_back(object);
  } else if (PyObject_IS_GC(object) && (Py_REFCNT(object) == 1 || PyFrame_Check(object))) {
    lookInto(object, search);
  }
  return search.all || search.found.empty() ? 0 : 1;
}

bool holdsAny(PyObject* holder, const ObjectList& wanted) {
  Search search{wanted};
  lookInto(holder, search);
  return !search.found.empty();
}

}  // namespace

// True if there are fewer references to one of the objects, or if there are new generators.
bool GeneratorHolders::haveGone() {
  bool gone = false;
  const auto isKnown = [this](uint32_t id) {
    return std::ranges::any_of(held_, [id](const Held& held) { return held.id == id; });
  };
  for (const uint32_t id : watched_.ids()) {
    if (isKnown(id)) continue;
    PyObject* object = virtuals_.at(id).object.get();
    held_.push_back({id, object, object != nullptr ? Py_REFCNT(object) : 0});
    stale_ = gone = true;
  }
  std::erase_if(held_, [&](const Held& held) {
    const bool dropped = held.object == nullptr || virtuals_.at(held.id).object.get() != held.object;
    gone = gone || dropped;
    return dropped;
  });
  for (Held& held : held_) {
    const Py_ssize_t count = Py_REFCNT(held.object);
    gone = gone || count < held.count;
    stale_ = stale_ || count > held.count;
    held.count = count;
  }
  return gone;
}

// True if all of the generators are variables of running frames, or on their stacks.
bool GeneratorHolders::areInFrames() const {
  const auto isHeld = [this](uint32_t id) {
    const Shadow generator = Shadow::virt(id);
    return std::ranges::any_of(frames_.all(), [&](const std::unique_ptr<ShadowFrame>& frame) {
      return std::ranges::find(frame->locals, generator) != frame->locals.end() ||
             std::ranges::find(frame->stack, generator) != frame->stack.end();
    });
  };
  return std::ranges::all_of(watched_.ids(), isHeld);
}

// Newer objects mostly hold older ones, so one walk finds most of them.
void GeneratorHolders::findHolders() {
  ObjectList wanted;
  held_.clear();
  const auto add = [&](uint32_t id, PyObject* object) {
    held_.push_back({id, object, Py_REFCNT(object)});
    wanted.push_back(object);
  };
  for (const uint32_t id : watched_.ids()) {
    if (virtuals_.at(id).object) add(id, virtuals_.at(id).object.get());
  }
  for (bool more = true; more;) {
    more = false;
    for (const Virtual* v : virtuals_.held()) {
      PyObject* object = v->object.get();
      if (object == nullptr || !holdsAny(object, wanted) || std::ranges::find(wanted, object) != wanted.end())
        continue;
      const auto id = virtuals_.find(object);
      if (!id) continue;  // others have it as well
      add(*id, object);
      more = true;
    }
  }
  stale_ = false;
}

bool GeneratorHolders::mayDrop(const Held& held) const {
  const Virtual& v = virtuals_.at(held.id);
  const bool watched = watched_.contains(Shadow::virt(held.id));
  if (Py_REFCNT(held.object) != 1 || v.shared || v.value != ir::kNone || watched) return false;
  if (isWeaklyReferenced(held.object)) return false;
  if (!PyGen_CheckExact(held.object)) return !pyapi::hasAnyFinalizer(Py_TYPE(held.object));
  const auto state = pyapi::stateOf(pyapi::asGenerator(held.object));
  return state == pyapi::GeneratorState::kCreated || state == pyapi::GeneratorState::kFinished;
}

// How many watched generators an object holds, also by others that only the recorder and it hold.
size_t GeneratorHolders::generatorsIn(PyObject* holder) const {
  ObjectList wanted, reached{holder};
  for (const Held& held : held_) wanted.push_back(held.object);
  for (size_t at = 0; at < reached.size(); ++at) {
    Search search{wanted, true};
    lookInto(reached[at], search);
    for (PyObject* part : search.found) {
      const bool fresh = std::ranges::find(reached, part) == reached.end();
      if (Py_REFCNT(part) == 2 && fresh) reached.push_back(part);
    }
  }
  const auto isReached = [&](uint32_t id) {
    return std::ranges::find(reached, virtuals_.at(id).object.get()) != reached.end();
  };
  return static_cast<size_t>(std::ranges::count_if(watched_.ids(), isReached));
}

bool GeneratorHolders::dropOne() {
  tangled_ = false;
  if ((!haveGone() && !stale_) || areInFrames()) return false;
  if (stale_) findHolders();
  const auto found = std::ranges::find_if(held_, [this](const Held& held) { return mayDrop(held); });
  if (found == held_.end()) return false;
  if (generatorsIn(found->object) > 1) {
    tangled_ = true;
    return false;
  }
  const pyapi::PendingErrorScope kept;  // an exception may be on its way to a handler
  dead_.drop(virtuals_.at(found->id));
  stale_ = true;  // what it held may be held by others, as a traceback by its own Virtual
  return true;
}

}  // namespace kintsugi::capture
