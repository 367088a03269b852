#include "driver/guard_filter.h"

#include <algorithm>

#include "guard/kinds.h"
#include "pyapi/text.h"
#include "runtime/guard_explain.h"

namespace kintsugi::driver {

using guard::Guard;
using guard::GuardKind;
using pyapi::Ref;

namespace {

// It only says what another guard leaves out.
bool isOffered(const recording::Recording& recording, const Guard& g) {
  return g.kind != GuardKind::kOpenAttribute && g.block >= recording.firstBlock;
}

Ref<> textOf(std::string_view text) {
  return pyapi::steal(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

class Describer {
 public:
  Describer(const recording::Recording& recording, const pyapi::Arguments& args)
      : recording_(recording), objects_(runtime::resolveSources(recording, args)) {}

  // (kind, key or None, path, description)
  Ref<> describe(const Guard& g) const {
    Ref<> kind = textOf(guard::kindInfo(g.kind).text);
    Ref<> path = pathTo(g.source);
    Ref<> text = textOf(guard::print(recording_.document, g));
    PyObject* key = g.key == ir::kNone ? Py_None : recording_.consts[g.key].get();
    return kind && path && text ? pyapi::steal(PyTuple_Pack(4, kind.get(), key, path.get(), text.get()))
                                : Ref<>();
  }

 private:
  // From the root on: (kind, key or None, index[, object]).
  Ref<> pathTo(guard::SourceId id) const {
    const auto& nodes = recording_.document.sources.nodes;
    Ref<> list = pyapi::steal(PyList_New(0));
    for (; list && id != ir::kNone; id = nodes[id].parent) {
      const guard::SourceNode& node = nodes[id];
      const guard::KindInfo& info = guard::kindInfo(node.kind);
      Ref<> kind = textOf(info.text);
      PyObject* key = node.key == ir::kNone ? Py_None : recording_.consts[node.key].get();
      Ref<> name = info.has('i') && node.parent == ir::kNone ? textOf(argumentName(node.index)) : Ref<>();
      PyObject* shown = name ? name.get() : key;
      Ref<> step = pyapi::steal(
          objects_[id] ? Py_BuildValue("(OOLO)", kind.get(), shown, static_cast<long long>(node.index),
                                       objects_[id].get())
                       : Py_BuildValue("(OOL)", kind.get(), shown, static_cast<long long>(node.index)));
      if (!kind || !step || PyList_Append(list.get(), step.get()) < 0) return {};
    }
    if (list && PyList_Reverse(list.get()) < 0) return {};
    return list;
  }

  std::string argumentName(int64_t index) const {
    const auto& names = recording_.document.sources.argNames;
    const auto at = static_cast<size_t>(index);
    PyObject* keywords = recording_.kwNames.get();
    if (at >= recording_.argCount && keywords != nullptr)
      return pyapi::utf8(PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(at - recording_.argCount)));
    return at < names.size() ? names[at] : "arg" + std::to_string(index);
  }

  const recording::Recording& recording_;
  std::vector<Ref<>> objects_;
};

// Null: an exception is pending.
Ref<> ask(const recording::Recording& recording, PyObject* filter, const pyapi::Arguments& args) {
  const Describer describer(recording, args);
  Ref<> rows = pyapi::steal(PyList_New(0));
  for (const Guard& g : recording.document.guards.guards) {
    if (!isOffered(recording, g)) continue;
    Ref<> row = describer.describe(g);
    if (!rows || !row || PyList_Append(rows.get(), row.get()) < 0) return {};
  }
  return pyapi::steal(rows ? PyObject_CallOneArg(filter, rows.get()) : nullptr);
}

}  // namespace

bool filterGuards(recording::Recording& recording, PyObject* filter, const pyapi::Arguments& args) {
  const Ref<> answers = ask(recording, filter, args);
  if (!answers) return false;
  std::vector<Guard> kept;
  Py_ssize_t at = 0;
  for (const Guard& g : recording.document.guards.guards) {
    const bool keep = !isOffered(recording, g) ||
                      (at < PyList_GET_SIZE(answers.get()) && PyList_GET_ITEM(answers.get(), at) == Py_True);
    at += isOffered(recording, g) ? 1 : 0;
    if (keep) {
      kept.push_back(g);
      continue;
    }
    recording.filtered = true;
    recording.unguarded.push_back(g);
  }
  recording.document.guards.guards = std::move(kept);
  return true;
}

}  // namespace kintsugi::driver
