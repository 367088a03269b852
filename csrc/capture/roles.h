// What the parts of a recording ask of one another: small abstract classes.
//
// A part takes the roles that it needs in its constructor, and the tables that it works on. So a unit test
// can make the part alone, with fakes in the place of the others (tests/unit/capture/fakes.h). The part that
// plays a role in a recording is named beside it; such a part is final, and its callers hold it by its own
// type.
//
// Owned by the Recorder; the recording thread, GIL held. Example:
//
//   struct NoEnd final : BreakSink { ... };          // a fake that notes which code it is given
//   Snapshots snapshots(noEnd, constants, ...);      // asks noEnd.isLive(), not the whole recording
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/shadow.h"
#include "capture/tables/overlays.h"
#include "diag/diagnostic.h"
#include "guard/document.h"

namespace kintsugi::capture {

// Whether the recording goes on, its end, and graph breaks. Played by Breaks.
class BreakSink {
 public:
  virtual bool isLive() const = 0;
  virtual void abort(diag::Code code, std::vector<std::string> args) = 0;  // the call goes on unrecorded
  virtual void noteBreak(diag::Code code, std::vector<std::string> args) = 0;
  virtual bool isStrict() const = 0;  // a break is an error here

 protected:
  ~BreakSink() = default;
};

// Breaks that are errors. Played by Breaks.
class BreakErrors {
 public:
  virtual void refuse(const diag::Diagnostic& diagnostic) = 0;
  virtual Flow raiseRefused() = 0;  // instead of the next instruction

 protected:
  ~BreakErrors() = default;
};

// The log of torch's operators that the instruction has called. Played by Steps.
class OperatorLog {
 public:
  virtual void discardOperators() = 0;  // a recording that has ended does not need them

 protected:
  ~OperatorLog() = default;
};

// Constants of the trace, by identity. Played by Guards.
class ConstantIds {
 public:
  virtual ir::ConstId constId(PyObject* object) = 0;

 protected:
  ~ConstantIds() = default;
};

// Sources that are read, and guards on them. Played by Guards (guards.h says what each function does).
class SourceGuards : public ConstantIds {
 public:
  virtual Shadow readSource(guard::SourceKind kind, ir::SourceId parent, PyObject* key, int64_t index,
                            PyObject* object) = 0;
  virtual Shadow pinnedRoot(PyObject* object) = 0;
  virtual ir::SourceId sourceOf(Shadow& shadow, PyObject* object) = 0;
  virtual void guard(guard::GuardKind kind, ir::SourceId source, ir::ConstId key = ir::kNone,
                     int64_t number = 0, ir::SourceId other = ir::kNone) = 0;
  virtual void guardType(Shadow shadow, PyObject* object) = 0;
  virtual bool pin(Shadow& shadow, PyObject* object) = 0;
  // The value of a tensor that the trace can describe; the shadow itself for other objects.
  virtual Shadow valueOfTensor(Shadow shadow, PyObject* object) = 0;

 protected:
  ~SourceGuards() = default;
};

// Guards on classes, and pins of all that an object holds. Played by Guards.
class ValuePins {
 public:
  virtual void guardTypeVersion(PyTypeObject* type) = 0;
  virtual bool tryPinDeep(Shadow& shadow, PyObject* object) = 0;

 protected:
  ~ValuePins() = default;
};

// Guards on what is used of containers. Played by Guards.
class ContainerPins {
 public:
  virtual void guardLength(Shadow shadow, PyObject* object, Py_ssize_t length) = 0;
  virtual bool pinLength(Shadow shadow, PyObject* container) = 0;
  virtual bool pinKeys(Shadow shadow, PyObject* dict) = 0;
  virtual bool pinContainer(Shadow& shadow, PyObject* container) = 0;
  virtual bool isFrozen(PyObject* object) const = 0;

 protected:
  ~ContainerPins() = default;
};

// Guards on functions that are called. Played by Guards.
class FunctionPins {
 public:
  virtual void pinFunction(PyObject* function) = 0;
  virtual bool isArgument(Shadow shadow) const = 0;  // another object in each call

 protected:
  ~FunctionPins() = default;
};

// Arguments of steps. Played by Guards.
class StepArguments {
 public:
  virtual Shadow tensorShadow(PyObject* tensor, Shadow shadow) = 0;
  virtual bool comesFromStep(Shadow shadow) const = 0;

 protected:
  ~StepArguments() = default;
};

// Guards on arguments, and on what is known only at run time. Played by Guards.
class RunTimePins {
 public:
  virtual bool pinDeep(Shadow& shadow, PyObject* object) = 0;
  virtual bool guardTruth(ir::ValueId value, bool truth) = 0;
  virtual bool guardScalar(ir::ValueId value, PyObject* number) = 0;
  // The same, for a number that hardly ever varies.
  virtual bool guardAsRead(ir::ValueId value, PyObject* number) = 0;

 protected:
  ~RunTimePins() = default;
};

// Objects that the trace knows by identity. Played by Objects.
class KnownObjects {
 public:
  virtual std::optional<Shadow> knownObject(PyObject* object) = 0;
  virtual Shadow newVirtual(VirtualKind kind, PyObject* object) = 0;

 protected:
  ~KnownObjects() = default;
};

// Entries of containers, and what the trace has written to old ones. Played by Objects.
class ContainerReads {
 public:
  virtual Shadow current(Shadow shadow) = 0;
  virtual Shadow dictEntry(Shadow shadow, PyObject* dict, PyObject* key, PyObject* value) = 0;
  virtual std::optional<Shadow> readBack(const WrittenEntries& written, PyObject* key, PyObject* holder,
                                         PyObject* found) = 0;
  virtual Overlay& makeOverlay(PyObject* object) = 0;

 protected:
  ~ContainerReads() = default;
};

// Elements of lists and tuples. Played by Objects.
class SequenceReads {
 public:
  virtual std::optional<Shadows> elementsOf(Shadow shadow, PyObject* sequence) = 0;
  virtual bool fitsList(const Overlay& overlay) = 0;

 protected:
  ~SequenceReads() = default;
};

// Writes to objects that are older than the trace. Played by Heap.
class EffectWriter {
 public:
  virtual bool emitEffect(ir::Op op, const std::vector<std::pair<Shadow, PyObject*>>& parts,
                          PyObject* name = nullptr) = 0;
  virtual bool noteWrite(PyObject* dict, PyObject* key, Shadow value, PyObject* real) = 0;
  virtual bool noteDelete(PyObject* dict, PyObject* key) = 0;
  virtual bool lacksKey(Shadow shadow, PyObject* dict, PyObject* key) = 0;

 protected:
  ~EffectWriter() = default;
};

// Writes that end an object of the program. Played by EndingWrites.
class WriteSteps {
 public:
  // Before an instruction that writes. The function to be called as a step in place of the effect; null: the
  // write runs no code. `key`: the attribute's name or the key of the item. `before`: the state in front of
  // the write.
  virtual PyObject* stepFor(ir::Op op, PyObject* target, PyObject* key, ir::StateId before) = 0;

 protected:
  ~WriteSteps() = default;
};

// Instructions of the trace. Played by Steps.
class TraceWriter {
 public:
  // Returns the index of the instruction.
  virtual size_t emit(ir::Op op, const std::vector<ir::Operand>& operands,
                      const std::vector<ir::Type>& results, ir::StateId snap) = 0;

 protected:
  ~TraceWriter() = default;
};

// What follows a step that may have changed anything. Played by Steps.
class StaleReads {
 public:
  virtual void invalidateReads() = 0;               // everything has to be read again
  virtual void forgetEscapedObjects() = 0;          // objects that were built are like older ones
  virtual void flushBlock() = 0;                    // writes the pending guard block
  virtual void flushBlockAt(ir::StateId snap) = 0;  // the same, with another state to leave at
  // Behind an operator that has run Python code of the program, which may change anything in another run.
  virtual void readAgain() = 0;

 protected:
  ~StaleReads() = default;
};

// Snapshots, operands, and objects that are built. Played by Snapshots.
class SnapshotMaker {
 public:
  virtual ir::StateId stateBefore() = 0;  // of the instruction that is being recorded
  virtual bool operandOf(Shadow shadow, PyObject* object, ir::Operand& out) = 0;
  virtual bool escape(Shadow& shadow, PyObject* object) = 0;  // false: the recording has ended
  // Before an opaque step, which may ask for the handled exceptions: they escape.
  virtual bool escapeHandled() = 0;

 protected:
  ~SnapshotMaker() = default;
};

// Stores that are left out because a transform of torch takes them back. Played by TransientStores.
class StoreFilter {
 public:
  // Nothing: it is a store like any other. False: the recording has ended.
  virtual std::optional<bool> storeTransient(PyObject* dict, PyObject* key, Shadow value, PyObject* real) = 0;

 protected:
  ~StoreFilter() = default;
};

}  // namespace kintsugi::capture
