#include "bindings/call_models.h"

#include "capture/calls/model.h"

namespace nb = nanobind;

namespace kintsugi::bindings {

namespace {

nb::dict describe(const capture::ModelEntry& entry) {
  nb::list objects;
  for (const pyapi::Ref<>& object : entry.objects) objects.append(nb::borrow(object.get()));
  nb::dict row;
  row["callable"] = entry.callable.c_str();
  row["objects"] = objects;
  row["kind"] = capture::kindOf(entry.model);
  row["state"] = capture::nameOf(entry.facts.state);
  row["reads"] = capture::nameOf(entry.facts.reads);
  row["writes"] = capture::nameOf(entry.facts.writes);
  row["waits"] = capture::nameOf(entry.facts.waits);
  row["python"] = capture::nameOf(entry.facts.python);
  row["results"] = entry.facts.results;
  row["errors"] = entry.facts.errors;
  row["reads_world"] = entry.facts.reads == capture::Reads::kWorld;
  row["writes_process"] = entry.facts.writes != capture::Writes::kArguments;
  return row;
}

nb::list callModels() {
  nb::list rows;
  for (const capture::ModelEntry& entry : capture::modelEntries()) rows.append(describe(entry));
  return rows;
}

nb::object callModel(nb::handle callable) {
  const capture::ModelEntry* entry = capture::entryBehind(callable.ptr());
  return entry == nullptr ? nb::none() : nb::object(describe(*entry));
}

}  // namespace

void bindCallModels(nb::module_& m) {
  m.def("_call_models", &callModels);
  m.def("_call_model", &callModel);
}

}  // namespace kintsugi::bindings
