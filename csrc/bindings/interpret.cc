// Python's view of interpret-everything mode.
#include <nanobind/nanobind.h>

#include "bindings/interpret.h"
#include "driver/interpret_all.h"

namespace kintsugi {

void bindInterpreter(nanobind::module_& m) {
  m.def("_set_interpret_all", &driver::setInterpretAll, nanobind::arg("on"),
        "Run every Python frame of the process through kintsugi's interpreter, or stop doing so.");
  m.def("_interpret_all", &driver::interpretAll,
        "Whether every Python frame runs through kintsugi's interpreter.");
  m.def("_interpreted_frames", &driver::interpretedFrames,
        "How many frames have been evaluated in interpret-everything mode.");
}

}  // namespace kintsugi
