#include "capture/record/table.h"

namespace kintsugi::capture {

RecordHandler recordHandler(uint8_t op) {
  static const RecordTable table = [] {
    RecordTable t{};
    registerStackRecords(t);
    registerBranchRecords(t);
    registerAttributeRecords(t);
    registerOperatorRecords(t);
    registerContainerRecords(t);
    registerIterationRecords(t);
    registerCallRecords(t);
    registerFunctionRecords(t);
    registerExceptionRecords(t);
    registerMatchRecords(t);
    registerNameRecords(t);
    return t;
  }();
  return table[op];
}

}  // namespace kintsugi::capture
