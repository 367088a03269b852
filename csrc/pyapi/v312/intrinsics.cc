// CPython 3.12's numbered intrinsics: each is called by a function whose code is just the instruction.
#include "pyapi/intrinsics.h"

#include <array>
#include <map>

#include "pyapi/opcodes.h"
#include "pyapi/v312/service.h"

namespace kintsugi::pyapi {

namespace {

// A function f(a) or f(a, b) for this number; made once.
PyObject* service(uint32_t number, bool two) {
  static auto* made = new std::map<std::pair<uint32_t, bool>, PyObject*>();
  PyObject*& function = (*made)[{number, two}];
  if (function == nullptr) {
    const uint8_t second = two ? raw::LOAD_FAST : raw::NOP;
    const uint8_t opcode = two ? raw::CALL_INTRINSIC_2 : raw::CALL_INTRINSIC_1;
    const std::array<uint8_t, 10> code = {raw::RESUME,
                                          0,
                                          raw::LOAD_FAST,
                                          0,
                                          second,
                                          two ? uint8_t{1} : uint8_t{0},
                                          opcode,
                                          static_cast<uint8_t>(number),
                                          raw::RETURN_VALUE,
                                          0};
    function = makeService(two ? 2 : 1, code);
  }
  return function;
}

}  // namespace

PyObject* callIntrinsic(uint32_t number, PyObject* value) {
  PyObject* function = service(number, false);
  return function != nullptr ? PyObject_CallOneArg(function, value) : nullptr;
}

PyObject* callIntrinsic(uint32_t number, PyObject* first, PyObject* second) {
  PyObject* function = service(number, true);
  return function != nullptr ? PyObject_CallFunctionObjArgs(function, first, second, nullptr) : nullptr;
}

}  // namespace kintsugi::pyapi
