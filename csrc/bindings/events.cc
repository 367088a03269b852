#include "bindings/events.h"

#include <nanobind/stl/string.h>

#include <unordered_map>

#include "bindings/text.h"
#include "capture/breaks.h"
#include "diag/events.h"
#include "runtime/run_events.h"

namespace nb = nanobind;

namespace kintsugi::bindings {

namespace events = diag::events;

namespace {

// Each text is made a Python string once a drain.
class Texts {
 public:
  nb::object of(events::TextId id) {
    nb::object& text = made_[id];
    if (!text.is_valid()) {
      const std::string raw = events::textOf(id);
      text = nb::steal(PyUnicode_DecodeUTF8(raw.data(), static_cast<Py_ssize_t>(raw.size()), "replace"));
    }
    return text;
  }

 private:
  std::unordered_map<events::TextId, nb::object> made_;
};

// ([(kind, start_ns, duration_ns, extra, thread, trace, stack, name, text, more), ...], dropped)
nb::tuple drain() {
  const events::Drained drained = events::drain();
  Texts texts;
  nb::list rows;
  std::vector<nb::object> kinds;
  for (std::size_t i = 0; i < events::kindCount(); ++i) {
    const auto name = events::kindName(static_cast<events::Kind>(i));
    kinds.push_back(strOf(name));
  }
  for (const events::Event& event : drained.events) {
    rows.append(nb::make_tuple(kinds[static_cast<std::size_t>(event.kind)], event.startNs, event.durationNs,
                               event.extra, event.thread, event.trace, texts.of(event.stack),
                               texts.of(event.name), texts.of(event.text), texts.of(event.more)));
  }
  return nb::make_tuple(rows, drained.dropped);
}

// Nanoseconds of the check that stands before every event, while nobody looks; with or without asking torch's
// profiler, too.
double benchEventsOff(size_t checks, bool profiler) {
  const uint64_t start = events::nowNs();
  for (size_t i = 0; i < checks; ++i) {
    bool observed = profiler ? runtime::isObserved() : events::on();
    asm volatile("" : "+r"(observed));  // so that the loop is not thrown away
  }
  return static_cast<double>(events::nowNs() - start) / static_cast<double>(checks);
}

}  // namespace

void bindEvents(nb::module_& module) {
  module.def("events_start", &events::start, nb::arg("capacity") = events::kDefaultCapacity);
  module.def("events_stop", &events::stop);
  module.def("events_on", &events::on);
  module.def("events_now", &events::nowNs);
  module.def("events_drain", &drain);
  module.def("bench_events_off", &benchEventsOff, nb::arg("checks"), nb::arg("profiler"));
  module.def("is_library", &capture::isLibrary, nb::arg("file"));
}

}  // namespace kintsugi::bindings
