#include "driver/package_data.h"

#include <array>
#include <utility>

#include "capture/attempt.h"
#include "capture/source_hash.h"
#include "driver/const_texts.h"
#include "driver/operand_objects.h"
#include "driver/package_checks.h"
#include "guard/kinds.h"
#include "ir/printer.h"
#include "pyapi/drop_reference.h"
#include "pyapi/lru_cache.h"
#include "pyapi/mapping_proxy.h"
#include "pyapi/name_fields.h"
#include "pyapi/text.h"
#include "pyapi/write_functions.h"

namespace kintsugi::driver {

using ir::TensorDesc;
using pyapi::Ref;

namespace {

Ref<> word(uint64_t value) { return pyapi::steal(PyLong_FromUnsignedLongLong(value)); }

// -- To data

Ref<> tensorData(const ir::TensorDesc& info) {
  auto* type = static_cast<PyObject*>(info.pyType);
  return tupleOf(
      pyapi::newRef(type != nullptr ? type : Py_None),
      tupleOf(word(info.keySet), numberObject(static_cast<int64_t>(info.dtype)),
              numberObject(info.device.type), numberObject(info.device.index), numberObject(info.layout),
              numberObject(info.requiresGrad), numberObject(info.isLeaf), numberObject(info.isParam),
              numberObject(info.isConj), numberObject(info.isNeg), numberObject(info.plain),
              numberObject(static_cast<int64_t>(info.contiguity))),
      listOf(info.sizes, numberObject), listOf(info.strides, numberObject),
      listOf(info.hints.sizes, numberObject), listOf(info.hints.strides, numberObject));
}

Ref<> placeData(const diag::SourceLoc& place) {
  return tupleOf(textObject(place.file), numberObject(place.line), textObject(place.function));
}

Ref<> breakData(const diag::Diagnostic& d) {
  return tupleOf(textObject(d.id()), listOf(d.args, [](const std::string& text) { return textObject(text); }),
                 placeData(d.location), listOf(d.stack, placeData));
}

std::string boundBecause(const runtime::CompiledTrace& trace) {
  const recording::Recording& recording = trace.recording();
  if (trace.dead) return "it has been dropped";
  if (recording.filtered) return "guards were taken out of it (guard_filter_fn)";
  for (const guard::Guard& g : recording.document.guards.guards) {
    if (g.kind == guard::GuardKind::kTypeVersion && g.number != 0)
      return "the recorded call has changed a class that it relies on";
  }
  return recording.bound;
}

Ref<> sidesData(const runtime::CompiledTrace& trace) {
  Ref<> list = pyapi::steal(PyList_New(0));
  bool good = static_cast<bool>(list);
  trace.sides().each([&](uint32_t guard, const runtime::SideLink& link) {
    good = good && appendTo(list.get(), tupleOf(numberObject(guard), packageData(*link.trace)));
  });
  return good ? std::move(list) : Ref<>();
}

// -- From data

// Reads the parts of the dict; the first thing that is not as it should be is the problem.
class Reader {
 public:
  Reader(PyObject* data, std::string& problem) : data_(data), problem_(problem) {}

  bool failed() const { return !problem_.empty(); }
  void fail(const char* what) {
    PyErr_Clear();
    if (problem_.empty()) problem_ = what;
  }

  PyObject* part(const char* name) {
    PyObject* found = PyDict_GetItemString(data_, name);
    if (found == nullptr) fail("a part of it is missing");
    return found;
  }

  std::string text(PyObject* object) {
    if (object == nullptr || !PyUnicode_Check(object)) {
      fail("a text is missing");
      return {};
    }
    return pyapi::encoded(object);
  }

  template <typename T>
  T integer(PyObject* object) {
    int overflow = 0;
    const bool given = object != nullptr && PyLong_Check(object);
    const long long value = given ? PyLong_AsLongLongAndOverflow(object, &overflow) : 0;
    if (!given || overflow != 0 || !std::in_range<T>(value)) {
      fail("a number is missing");
      return T{};
    }
    return static_cast<T>(value);
  }

  uint64_t wordOf(PyObject* object) {
    const uint64_t value = object != nullptr && PyLong_Check(object) ? PyLong_AsUnsignedLongLong(object) : 0;
    if (object == nullptr || !PyLong_Check(object) || PyErr_Occurred()) fail("a number is missing");
    return value;
  }

  // Calls use(item) for each item of a list or tuple, which has `count` of them, or any number (-1).
  template <typename Use>
  void each(PyObject* items, Py_ssize_t count, const Use& use) {
    if (items == nullptr || !(PyList_Check(items) || PyTuple_Check(items)) ||
        (count >= 0 && PySequence_Fast_GET_SIZE(items) != count))
      return fail("a list is missing");
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items) && !failed(); ++i)
      use(PySequence_Fast_GET_ITEM(items, i));
  }

  // The items of one that has `count`; empty otherwise.
  template <size_t count>
  std::array<PyObject*, count> fields(PyObject* items) {
    std::array<PyObject*, count> out{};
    size_t at = 0;
    each(items, count, [&](PyObject* item) { out[at++] = item; });
    return out;
  }

 private:
  PyObject* data_;
  std::string& problem_;
};

ir::TensorDesc tensorOf(Reader& in, PyObject* data) {
  ir::TensorDesc info;
  const auto [type, integers, sizes, strides, seenSizes, seenStrides] = in.fields<6>(data);
  const auto numbers = in.fields<12>(integers);
  if (in.failed()) return info;
  if (PyType_Check(type)) info.pyType = type;
  if (info.pyType != nullptr && !torchapi::isExactTensorType(torchapi::pyTypeOf(info)))
    in.fail("a tensor of another class");
  info.keySet = in.wordOf(numbers[0]);
  info.dtype = static_cast<ir::DType>(in.integer<int8_t>(numbers[1]));
  info.device = {in.integer<int8_t>(numbers[2]), in.integer<int16_t>(numbers[3])};
  info.layout = in.integer<int8_t>(numbers[4]);
  bool* const flags[] = {&info.requiresGrad, &info.isLeaf, &info.isParam,
                         &info.isConj,       &info.isNeg,  &info.plain};
  for (size_t i = 0; i < std::size(flags); ++i) *flags[i] = in.integer<int64_t>(numbers[5 + i]) != 0;
  info.contiguity = static_cast<ir::Contiguity>(in.integer<int8_t>(numbers[11]));
  const auto read = [&in](PyObject* items, std::vector<int64_t>& out) {
    in.each(items, -1, [&](PyObject* item) { out.push_back(in.integer<int64_t>(item)); });
  };
  read(sizes, info.sizes);
  read(strides, info.strides);
  read(seenSizes, info.hints.sizes);
  read(seenStrides, info.hints.strides);
  return info;
}

diag::SourceLoc placeOf(Reader& in, PyObject* data) {
  const auto [file, line, function] = in.fields<3>(data);
  diag::SourceLoc place;
  place.file = in.text(file);
  place.line = in.integer<int>(line);
  place.function = in.text(function);
  return place;
}

diag::Diagnostic breakOf(Reader& in, PyObject* data) {
  const auto [code, args, place, stack] = in.fields<4>(data);
  diag::Diagnostic d;
  const diag::CodeInfo* info = diag::findCode(in.text(code));
  if (info == nullptr) {
    in.fail("a break of an unknown kind");
    return {};
  }
  d.code = info->code;
  in.each(args, -1, [&](PyObject* item) { d.args.push_back(in.text(item)); });
  d.location = placeOf(in, place);
  in.each(stack, -1, [&](PyObject* item) { d.stack.push_back(placeOf(in, item)); });
  return d;
}

torchapi::GlobalState stateOf(Reader& in, PyObject* data) {
  torchapi::GlobalState state;
  size_t at = 0;
  in.each(data, static_cast<Py_ssize_t>(state.words.size()),
          [&](PyObject* item) { state.words[at++] = in.wordOf(item); });
  const auto here = state.inThisProcess();
  if (!here) in.fail("functions of torch's have been replaced, there or here");
  return here.value_or(state);
}

void readEntry(Reader& in, recording::Recording& recording) {
  const auto entry = in.fields<7>(in.part("entry"));
  recording.argCount = in.integer<uint32_t>(entry[0]);
  recording.recursion = in.integer<int>(entry[2]);
  recording.start = in.integer<uint32_t>(entry[3]);
  recording.firstBlock = in.integer<uint32_t>(entry[4]);
  recording.gradients = {in.integer<int64_t>(entry[5]), in.integer<int64_t>(entry[6])};
  if (in.failed() || entry[1] == Py_None) return;
  if (!PyTuple_CheckExact(entry[1])) return in.fail("the names of keywords are missing");
  in.each(entry[1], -1, [&](PyObject* item) { in.text(item); });
  recording.kwNames = pyapi::newRef(entry[1]);
}

void readLevels(Reader& in, recording::Recording& recording) {
  PyObject* levels = in.part("levels");
  if (levels == nullptr || !PyBytes_Check(levels)) return in.fail("a part of it is missing");
  const char* bytes = PyBytes_AS_STRING(levels);
  for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(levels); ++i) {
    const auto level = static_cast<uint8_t>(bytes[i]);
    if (level > static_cast<uint8_t>(torchapi::MetaLevel::kFull)) return in.fail("metadata of no kind");
    recording.metaLevels.push_back(static_cast<torchapi::MetaLevel>(level));
  }
}

// What the text does not say of tensors.
void readTensors(Reader& in, ir::Trace& trace) {
  size_t at = 0;
  in.each(in.part("tensors"), -1, [&](PyObject* item) {
    ir::TensorDesc desc = tensorOf(in, item);
    if (at >= trace.metas.size()) return in.fail("metadata of tensors is missing");
    if (!in.failed() && ir::printMeta(desc) != ir::printMeta(trace.metas[at]))
      return in.fail("the metadata of a tensor is not what the text says");
    trace.metas[at++] = std::move(desc);
  });
  if (at != trace.metas.size()) in.fail("metadata of tensors is missing");
}

// As the recorder makes them, from the keys of this process.
void hashSources(recording::Recording& recording) {
  const auto& nodes = recording.document.sources.nodes;
  for (const guard::SourceNode& node : nodes) {
    const guard::KindInfo& kind = guard::kindInfo(node.kind);
    const uint64_t parent = kind.has('p') ? recording.sourceHashes[node.parent] : capture::kNoParent;
    PyObject* key = kind.has('k') ? recording.consts[node.key].get() : nullptr;
    recording.sourceHashes.push_back(capture::sourceHash(parent, node.kind, key, node.index));
  }
}

}  // namespace

Ref<> packageData(const runtime::CompiledTrace& trace) {
  const recording::Recording& recording = trace.recording();
  Ref<> dict = pyapi::steal(PyDict_New());
  const auto& levels = recording.metaLevels;
  const std::string bytes(levels.size(), '\0');
  Ref<> packed = pyapi::steal(PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
  if (!dict || !packed) return {};
  for (size_t i = 0; i < levels.size(); ++i)
    PyBytes_AS_STRING(packed.get())[i] = static_cast<char>(levels[i]);
  const auto state = [](const torchapi::GlobalState& s) { return listOf(s.words, word); };
  const bool ok =
      setIn(dict.get(), "text", textObject(guard::print(recording.document))) &&
      setIn(dict.get(), "consts", listOf(recording.consts, [](const Ref<>& c) { return c.clone(); })) &&
      setIn(dict.get(), "tensors", listOf(recording.document.trace.metas, tensorData)) &&
      setIn(dict.get(), "states", listOf(recording.globalStates, state)) &&
      setIn(dict.get(), "levels", std::move(packed)) &&
      setIn(dict.get(), "breaks", listOf(recording.breaks, breakData)) &&
      setIn(dict.get(), "entry",
            tupleOf(numberObject(static_cast<int64_t>(recording.argCount)),
                    recording.kwNames ? recording.kwNames.clone() : pyapi::newRef(Py_None),
                    numberObject(recording.recursion), numberObject(recording.start),
                    numberObject(recording.firstBlock), numberObject(recording.gradients.first),
                    numberObject(recording.gradients.rest))) &&
      setIn(dict.get(), "bound", textObject(boundBecause(trace))) &&
      setIn(dict.get(), "sides", sidesData(trace));
  return ok ? std::move(dict) : Ref<>();
}

Ref<> packageRoots() {
  Ref<> dict = pyapi::steal(PyDict_New());
  bool ok = dict && setIn(dict.get(), "let_go", pyapi::newRef(pyapi::dropReferenceFunction())) &&
            setIn(dict.get(), "attempt", pyapi::newRef(capture::attemptFunction())) &&
            setIn(dict.get(), "write_attribute", pyapi::newRef(pyapi::attributeWriter())) &&
            setIn(dict.get(), "write_item", pyapi::newRef(pyapi::itemWriter())) &&
            setIn(dict.get(), "write_cell", pyapi::newRef(pyapi::cellWriter()));
  for (const auto& [text, descriptor] : pyapi::nameFields()) {
    ok = ok && descriptor != nullptr && setIn(dict.get(), text, pyapi::newRef(descriptor));
  }
  if (PyObject* field = pyapi::linkResultField())
    ok = ok && setIn(dict.get(), "link.result", pyapi::newRef(field));
  if (PyObject* field = ok ? pyapi::mappingField() : nullptr)
    ok = setIn(dict.get(), "proxy.mapping", pyapi::newRef(field));
  return ok ? std::move(dict) : Ref<>();
}

std::optional<recording::Recording> recordingOf(PyObject* data, PyObject* function, std::string& problem) {
  Reader in(data, problem);
  recording::Recording recording;
  auto document = guard::parse(in.text(in.part("text")));
  if (in.failed()) return std::nullopt;
  if (!document.ok()) {
    problem = document.error().format();
    return std::nullopt;
  }
  recording.document = std::move(document).value();
  in.each(in.part("consts"), -1, [&](PyObject* item) { recording.consts.push_back(pyapi::newRef(item)); });
  readTensors(in, recording.document.trace);
  in.each(in.part("states"), -1,
          [&](PyObject* item) { recording.globalStates.push_back(stateOf(in, item)); });
  in.each(in.part("breaks"), -1, [&](PyObject* item) { recording.breaks.push_back(breakOf(in, item)); });
  readEntry(in, recording);
  readLevels(in, recording);
  if (!in.failed()) problem = problemOf(recording);
  if (in.failed()) return std::nullopt;
  hashSources(recording);
  describeConstants(recording, function);
  return recording;
}

}  // namespace kintsugi::driver
