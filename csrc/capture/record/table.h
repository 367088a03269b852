// The table of record handlers. A family of opcodes is one file that defines one of these functions.
//
// A handler adds the guards that the instruction needs, executes it through RecordContext::execute exactly
// once, and brings the shadow stack to the depth of the real one. Guards and snapshots come before the
// execution.
#pragma once

#include <array>
#include <optional>

#include "capture/record_context.h"

namespace kintsugi::capture {

using RecordHandler = Flow (*)(RecordContext&, ShadowFrame&, Activation&, const Instr&);
// The table of record handlers by opcode; families register themselves (record/*.cc).
RecordHandler recordHandler(uint8_t op);
using RecordTable = std::array<RecordHandler, 256>;

// What a cell holds: of this trace, written by it, or old. Nothing: the trace can't tell.
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
