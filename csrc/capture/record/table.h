// The table of record handlers. Each family of opcodes has one file, which defines one of these functions.
//
// A handler adds the guards that the instruction needs, executes it exactly once through
// RecordContext::execute, and brings the shadow stack to the depth of the real one. Guards and snapshots come
// before the execution.
#pragma once

#include <array>
#include <optional>

#include "capture/record_context.h"

namespace kintsugi::capture {

using RecordHandler = Flow (*)(RecordContext&, ShadowFrame&, Activation&, const Instr&);
// The table of record handlers by opcode; families register themselves (record/*.cc).
RecordHandler recordHandler(uint8_t op);
using RecordTable = std::array<RecordHandler, 256>;

// The shadow of a cell's content, for a cell of the trace, one that the trace has written, or an older one.
// Nothing: not known.
std::optional<Shadow> cellContent(RecordContext& rec, Shadow cell, PyObject* object);

void registerStackRecords(RecordTable& table);
void registerBranchRecords(RecordTable& table);
void registerAttributeRecords(RecordTable& table);
void registerOperatorRecords(RecordTable& table);
void registerContainerRecords(RecordTable& table);
void registerIterationRecords(RecordTable& table);
void registerCallRecords(RecordTable& table);
void registerFunctionRecords(RecordTable& table);
void registerExceptionRecords(RecordTable& table);
void registerMatchRecords(RecordTable& table);
void registerNameRecords(RecordTable& table);

}  // namespace kintsugi::capture
