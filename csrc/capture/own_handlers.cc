#include "capture/own_handlers.h"

#include "capture/interpreter.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/opcodes.h"

namespace kintsugi::capture {

bool hasOwnHandlers(PyCodeObject* code) {
  if (!pyapi::hasHandlers(code)) return false;
  const CodeInfo* info = pyapi::isGeneratorCode(code) ? CodeInfo::of(code) : nullptr;
  if (info == nullptr) return true;
  for (int32_t at = 0; at < info->size(); at = info->at(at).next) {
    const pyapi::Handler handler = pyapi::findHandler(code, at);
    if (handler.target < 0) continue;
    const uint8_t first = info->at(handler.target).op;
    if (first != op::STOPITERATION_ERROR && first != op::CLEANUP_THROW) return true;
  }
  return false;
}

}  // namespace kintsugi::capture
