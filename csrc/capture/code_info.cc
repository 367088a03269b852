// Decodes code objects, and stores the result in a code object's extra slot.
#include <memory>
#include <new>

#include "capture/handlers/handlers.h"
#include "capture/interpreter.h"
#include "pyapi/code.h"
#include "pyapi/opcodes.h"
#include "pyapi/ref.h"
#include "support/check.h"

namespace kintsugi::capture {

struct CodeInfoBuilder {
  static CodeInfo* build(PyCodeObject* code);
  static void destroy(void* info);
};

// Each unit of an instruction gets the same decoded entry, the units of its inline cache and of EXTENDED_ARG
// included. Nothing jumps to those.
CodeInfo* CodeInfoBuilder::build(PyCodeObject* code) {
  auto bytes = pyapi::Ref<>::steal(PyCode_GetCode(code));
  if (!bytes) {
    return nullptr;
  }
  const auto* raw = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes.get()));
  const auto size = static_cast<int32_t>(PyBytes_GET_SIZE(bytes.get()) / 2);
  std::unique_ptr<Instr[]> instrs(new (std::nothrow) Instr[size]);
  if (!instrs) {
    PyErr_NoMemory();
    return nullptr;
  }
  int32_t callStart = -1;  // unit of the first KW_NAMES or PRECALL before the next CALL
  int32_t globals = 0;
  int32_t attributes = 0;
  for (int32_t unit = 0; unit < size;) {
    const pyapi::Decoded word = pyapi::decode(raw, unit);
    KINTSUGI_DCHECK(word.next > unit && word.index >= unit, "unit ", unit, " is followed by ", word.next);
    int32_t start = unit;
    if (word.op == op::KW_NAMES || word.op == op::PRECALL) {
      callStart = callStart < 0 ? unit : callStart;
    } else {
      start = word.op == op::CALL && callStart >= 0 ? callStart : unit;
      callStart = -1;
    }
    int32_t cache = -1;
    if (word.op == op::LOAD_GLOBAL) {
      cache = globals++;
    } else if (word.op == op::LOAD_ATTR || word.op == op::STORE_ATTR || word.op == op::LOAD_METHOD ||
               word.op == op::LOAD_SUPER_ATTR) {
      cache = attributes++;
    }
    for (int32_t i = unit; i < word.next && i < size; i++) {
      instrs[i] =
          Instr{word.op, word.arg, start, word.index, word.next, word.target, cache, handlerOf(word.op)};
    }
    unit = word.next;
  }
  std::unique_ptr<GlobalCache[]> globalCaches(new (std::nothrow) GlobalCache[globals]);
  std::unique_ptr<pyapi::AttributeCache[]> attributeCaches(new (std::nothrow)
                                                               pyapi::AttributeCache[attributes]);
  std::unique_ptr<CodeInfo> info(new (std::nothrow) CodeInfo);
  if (!globalCaches || !attributeCaches || !info) {
    PyErr_NoMemory();
    return nullptr;
  }
  info->instrs_ = instrs.release();
  info->size_ = size;
  info->globalCaches_ = globalCaches.release();
  info->attributeCaches_ = attributeCaches.release();
  return info.release();
}

void CodeInfoBuilder::destroy(void* info) {
  auto* codeInfo = static_cast<CodeInfo*>(info);
  if (codeInfo != nullptr) {
    delete[] codeInfo->instrs_;
    delete[] codeInfo->globalCaches_;
    delete[] codeInfo->attributeCaches_;
    delete codeInfo;
  }
}

const CodeInfo* CodeInfo::of(PyCodeObject* code) {
  static const Py_ssize_t index = pyapi::requestCodeExtra(&CodeInfoBuilder::destroy);
  if (void* info = pyapi::codeExtra(code, index)) [[likely]] {
    return static_cast<const CodeInfo*>(info);
  }
  if (index < 0) {
    PyErr_SetString(PyExc_RuntimeError, "no extra slot of code objects is free");
    return nullptr;
  }
  CodeInfo* info = CodeInfoBuilder::build(code);
  if (info != nullptr && !pyapi::setCodeExtra(code, index, info)) {
    CodeInfoBuilder::destroy(info);
    return nullptr;
  }
  return info;
}

}  // namespace kintsugi::capture
