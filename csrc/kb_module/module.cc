// The extension module `kintsugi._kb`: the matcher of the knowledge base. Apart from `_C`, so that nothing
// but matching needs RE2's shared library.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "kb/matcher.h"

namespace nb = nanobind;

namespace kintsugi::kb {

namespace {

// A scan keeps its matcher alive.
struct PythonScan {
  explicit PythonScan(nb::object owner)
      : owner(std::move(owner)), scan(nb::cast<const Matcher&>(this->owner)) {}
  nb::object owner;
  Scan scan;
};

// Logs hold whatever bytes a program wrote.
nb::str decode(const std::string& text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

void construct(Matcher* self, const std::vector<std::string>& patterns) {
  new (self) Matcher(patterns);
  if (self->error()) {
    const std::string text =
        "pattern " + std::to_string(self->error()->pattern) + ": " + self->error()->message;
    self->~Matcher();
    throw nb::value_error(text.c_str());
  }
}

void feed(PythonScan& self, nb::bytes piece) {
  const std::string_view view(piece.c_str(), piece.size());
  nb::gil_scoped_release released;
  self.scan.feed(view);
}

nb::list finish(PythonScan& self) {
  std::vector<Hit> hits;
  {
    nb::gil_scoped_release released;
    hits = self.scan.finish();
  }
  nb::list out;
  for (const Hit& hit : hits) {
    nb::dict row;
    row["pattern"] = hit.pattern;
    row["count"] = hit.count;
    row["line"] = hit.line;
    row["text"] = decode(hit.text);
    nb::dict groups;
    for (const auto& [name, value] : hit.groups) groups[decode(name)] = decode(value);
    row["groups"] = groups;
    out.append(row);
  }
  return out;
}

}  // namespace

}  // namespace kintsugi::kb

NB_MODULE(_kb, m) {
  using namespace kintsugi::kb;
  nb::set_leak_warnings(false);
  nb::class_<Matcher>(m, "Matcher")
      .def("__init__", &construct, nb::arg("patterns"))
      .def("__len__", &Matcher::size)
      .def("scan", [](nb::handle self) { return new PythonScan(nb::borrow(self)); });
  nb::class_<PythonScan>(m, "Scan").def("feed", &feed, nb::arg("piece")).def("finish", &finish);
}
