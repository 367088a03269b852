// Reads of globals, and writes to dicts, lists and cells: effects of the trace.
//
// A write to an object that the trace has made only changes its shadows. A write to an older object, or to
// one that is held outside the trace, is also an instruction of the trace, and the stored object escapes. All
// functions are called before the instruction, which does the real write. A result of false or nothing means
// that the recording has ended.
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   if (!rec.heap.storeItem(dictShadow, dict, key, shadow, value)) return rec.execute(act, instr);
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/roles.h"
#include "capture/tables/overlays.h"
#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

class Heap final : public EffectWriter {
 public:
  struct Roles {
    BreakSink& breaks;
    SourceGuards& guards;
    ContainerReads& reads;
    TraceWriter& writer;
    SnapshotMaker& snapshots;
    StoreFilter& filter;
    WriteSteps& writes;
  };
  Heap(const Roles& roles, ir::Trace& trace, Overlays& overlays, VirtualTable& virtuals)
      : breaks_(roles.breaks),
        guards_(roles.guards),
        reads_(roles.reads),
        writer_(roles.writer),
        snapshots_(roles.snapshots),
        filter_(roles.filter),
        writes_(roles.writes),
        trace_(trace),
        overlays_(overlays),
        virtuals_(virtuals) {}

  std::optional<Shadow> readGlobal(PyObject* globals, PyObject* builtins, PyObject* name);
  std::optional<Shadow> moduleAttribute(Shadow shadow, PyObject* module, PyObject* name);
  // Guards that the key is missing, now and at entry.
  bool lacksKey(Shadow shadow, PyObject* dict, PyObject* key) override;

  bool storeCell(Shadow cell, PyObject* object, Shadow value, PyObject* real);
  // `op` is kAddItem for a call that adds what is missing.
  bool storeItem(Shadow shadow, PyObject* dict, PyObject* key, Shadow value, PyObject* real,
                 ir::Op op = ir::Op::kSetItem);
  // Another thread may delete the key before a run gets here: then the run executes the instruction itself.
  // Where frames can't be rebuilt it raises KeyError. `raisesKeyError`: so would the instruction.
  bool deleteItem(Shadow shadow, PyObject* dict, PyObject* key, bool raisesKeyError = true);
  // For a call that also returns the item: a run in which another is there executes the instruction itself.
  bool takeItem(Shadow shadow, PyObject* dict, PyObject* key, bool raisesKeyError);
  // True if a run may leave the trace in front of the current instruction.
  bool canLeave();
  // Emits the effect for an element of a list.
  bool takeElement(Shadow list, PyObject* object, PyObject* index, Shadow item, PyObject* real);

  // Emits an effect on something older than the trace, or a step where the write ends an object of the
  // program (ending_writes.h). The stored objects escape.
  bool emitEffect(ir::Op op, const std::vector<std::pair<Shadow, PyObject*>>& parts,
                  PyObject* name = nullptr) override;
  // Emits `object.method(args...)` as an effect; the result is not used.
  bool emitMethod(const char* method, Shadow shadow, PyObject* object,
                  const std::vector<std::pair<Shadow, PyObject*>>& args);
  // Notes what an effect has written, for later reads of an older dict.
  bool noteWrite(PyObject* dict, PyObject* key, Shadow value, PyObject* real) override;
  bool noteDelete(PyObject* dict, PyObject* key) override;

 private:
  struct Deletion {
    Shadow dictShadow;
    PyObject* dict;
    PyObject* key;
    bool raisesKeyError;  // where the key is missing
    bool takes;           // the item is returned
  };
  bool deleteEntry(const Deletion& deletion);
  bool emitWriteStep(const std::vector<ir::Operand>& operands, PyObject* target, const char* method);
  bool emitDelete(Shadow target, const Deletion& deletion, Shadow item, PyObject* real);

  // True if the dict, or the instance that it belongs to, has been built and others may see it.
  bool isOutside(const Virtual& v) const;

  BreakSink& breaks_;
  SourceGuards& guards_;
  ContainerReads& reads_;
  TraceWriter& writer_;
  SnapshotMaker& snapshots_;
  StoreFilter& filter_;
  WriteSteps& writes_;
  ir::Trace& trace_;
  Overlays& overlays_;
  VirtualTable& virtuals_;
};

}  // namespace kintsugi::capture
