#include "capture/generator_holders.h"

#include <algorithm>
#include <unordered_set>

#include "pyapi/errors.h"
#include "pyapi/functions.h"
#include "pyapi/generator.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

constexpr int kDepth = 64;   // from an exception by its traceback and a frame to a variable
constexpr int kMost = 1024;  // the number of objects that one search looks at

// Looks for some objects among those that an object holds by itself, or by others that it alone holds.
struct Search {
  const std::unordered_set<PyObject*>& wanted;
  std::unordered_set<PyObject*> found{};
  std::unordered_set<PyObject*> seen{};
  int depth = 0;
};

int visit(PyObject* object, void* data);

void lookInto(PyObject* object, Search& search) {
  if (search.depth >= kDepth || static_cast<int>(search.seen.size()) >= kMost) return;
  ++search.depth;
  if (PyFunction_Check(object)) {  // without its globals
    auto* function = pyapi::asFunction(object);
    for (PyObject* part : {pyapi::defaultsOf(function), pyapi::keywordDefaultsOf(function),
                           pyapi::closureOf(function), pyapi::attributesOf(function)}) {
      if (part != nullptr) visit(part, &search);
    }
  } else if (pyapi::isTraversable(object) && PyObject_IS_GC(object)) {
    pyapi::traverse(object, visit, &search);
  }
  --search.depth;
}

int visit(PyObject* object, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (search.wanted.contains(object)) {
    search.found.insert(object);
  } else if (Py_REFCNT(object) == 1 && PyObject_IS_GC(object) && search.seen.insert(object).second) {
    lookInto(object, search);
  }
  return 0;
}

std::unordered_set<PyObject*> heldBy(PyObject* holder, const std::unordered_set<PyObject*>& wanted) {
  Search search{wanted};
  lookInto(holder, search);
  return std::move(search.found);
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
  std::unordered_set<PyObject*> wanted;
  held_.clear();
  const auto add = [&](uint32_t id, PyObject* object) {
    held_.push_back({id, object, Py_REFCNT(object)});
    wanted.insert(object);
  };
  for (const uint32_t id : watched_.ids()) {
    if (virtuals_.at(id).object) add(id, virtuals_.at(id).object.get());
  }
  for (bool more = true; more;) {
    more = false;
    for (const Virtual* v : virtuals_.held()) {
      PyObject* object = v->object.get();
      if (object == nullptr || wanted.contains(object) || heldBy(object, wanted).empty()) continue;
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
  std::unordered_set<PyObject*> wanted, reached{holder};
  for (const Held& held : held_) wanted.insert(held.object);
  std::vector<PyObject*> open{holder};
  while (!open.empty()) {
    PyObject* object = open.back();
    open.pop_back();
    for (PyObject* part : heldBy(object, wanted)) {
      if (Py_REFCNT(part) == 2 && reached.insert(part).second) open.push_back(part);
    }
  }
  return static_cast<size_t>(std::ranges::count_if(
      watched_.ids(), [&](uint32_t id) { return reached.contains(virtuals_.at(id).object.get()); }));
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
  return true;
}

}  // namespace kintsugi::capture
