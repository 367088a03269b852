#include "runtime/exit_report.h"

#include "diag/diagnostic.h"
#include "diag/log.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/text.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

void reportSideExit(const CompiledTrace& trace, ir::StateId state) {
  if (!diag::log::enabled(diag::log::Channel::kGraphBreaks) || state == ir::kNone) {
    return;
  }
  const ir::FrameState& frame = trace.trace().states[state];
  auto* code = reinterpret_cast<PyCodeObject*>(trace.recording().consts[frame.code].get());
  const diag::SourceLoc place{pyapi::utf8(pyapi::fileOf(code)), pyapi::lineAt(code, frame.pc),
                              pyapi::utf8(pyapi::nameOf(code))};
  const diag::Diagnostic report(diag::Code::KTG0203,
                                {"a value is not what it was when the call was recorded"}, place);
  diag::log::emit(diag::log::Channel::kGraphBreaks, report.format());
}

}  // namespace kintsugi::runtime
