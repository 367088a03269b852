// Interfaces to free functions that need the whole RecordContext: each class here says where its functions
// are.
//
// Parts call them through these roles, so that a part does not hold the context itself and a unit test can
// put a fake there. ContextRoles forwards each call, with the context.
//
// Owned by the Recorder; the recording thread, GIL held. Example:
//
//   if (roles_.varying.hasVaryingLength(list)) return false;
#pragma once

#include <optional>

#include "capture/roles.h"

namespace kintsugi::capture {

struct RecordContext;
struct TorchCall;

// The result of a look-up in a class.
struct TypeEntry {
  PyObject* value = nullptr;  // borrowed; null: nothing
  bool open = false;          // `shadow` describes it, and it is no descriptor
  Shadow shadow;
};

// Attributes that are looked up in classes or stored in them: class_attributes.h, classes.h, shown.h.
class ClassAttributes {
 public:
  virtual TypeEntry typeEntry(PyTypeObject* type, PyObject* name) = 0;
  virtual std::optional<bool> storeInClass(Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                                           PyObject* real) = 0;
  virtual std::optional<bool> storeOpen(Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                                        PyObject* real) = 0;
  virtual void noteRename(PyObject* object, PyObject* attribute) = 0;

 protected:
  ~ClassAttributes() = default;
};

// What differs from call to call: open_values.h, and opensNumbers() of sizes.h.
class VaryingValues {
 public:
  virtual bool isOpenText(Shadow shadow) const = 0;
  virtual bool isVaryingText(Shadow shadow, PyObject* object) const = 0;
  virtual bool hasVaryingLength(PyObject* container) const = 0;
  virtual bool opensNumbers(ir::SourceId source) const = 0;
  virtual Shadow numberInput(ir::SourceId source, PyObject* number) = 0;

 protected:
  ~VaryingValues() = default;
};

// Sizes of tensors that differ from call to call: sizes.h.
class OpenSizes {
 public:
  virtual uint64_t openSizes(ir::SourceId source, PyObject* tensor) = 0;
  virtual uint64_t openSizesOf(ir::ValueId tensor) = 0;
  virtual void guardRanges(ir::SourceId source, PyObject* tensor) = 0;
  virtual bool pinMeta(Shadow tensor, PyObject* object) = 0;
  virtual void forgetMeta(ir::ValueId tensor) = 0;

 protected:
  ~OpenSizes() = default;
};

// What torch's bindings decide on such sizes before they call the dispatcher: sizes.h.
class BindingSizes {
 public:
  virtual bool pinLikely(Shadow tensor, PyObject* object) = 0;
  virtual bool pinGivenBack(ir::StateId snap) = 0;
  virtual bool pinForBinding(const TorchCall& call, Shadow tensor, PyObject* object) = 0;
  virtual bool decidesOnSlices(const TorchCall& call) const = 0;

 protected:
  ~BindingSizes() = default;
};

// Numbers that steps have returned: promoted() of numbers.h.
class StepNumbers {
 public:
  virtual Shadow promoted(Shadow shadow, PyObject* object) = 0;

 protected:
  ~StepNumbers() = default;
};

// Calls of torch that are recorded in other ways than by the log of their operators: calls/function_modes.h,
// calls/open_lists.h, sizes.h. Nothing: it is not such a call.
class TorchDetours {
 public:
  virtual std::optional<Flow> underFunctionModes(const TorchCall& call, Shadow& result) = 0;
  virtual std::optional<Flow> joinOpenList(const TorchCall& call, Shadow& result) = 0;
  virtual std::optional<Flow> readSizes(const TorchCall& call, Shadow& result) = 0;

 protected:
  ~TorchDetours() = default;
};

// Classes that the trace makes: classes.h.
class TraceClasses {
 public:
  virtual void refuseConstant(PyObject* object) = 0;
  virtual bool guardBases(PyTypeObject* type) = 0;

 protected:
  ~TraceClasses() = default;
};

// What is read from frozen objects: frozenPart() of calls/model.h.
class FrozenParts {
 public:
  virtual Shadow frozenPart(PyObject* object) = 0;

 protected:
  ~FrozenParts() = default;
};

// What happens around a step: transforms.h, aliases.h, exceptions.h.
class StepSurroundings {
 public:
  virtual bool isInTransform() const = 0;
  virtual bool leavesTransforms(PyCodeObject* code) const = 0;  // its handlers do nothing else
  virtual void applyAliases() = 0;
  virtual void noteRaised(PyObject* exception) = 0;  // by the step

 protected:
  ~StepSurroundings() = default;
};

class ContextRoles final : public ClassAttributes,
                           public VaryingValues,
                           public OpenSizes,
                           public BindingSizes,
                           public StepNumbers,
                           public TorchDetours,
                           public TraceClasses,
                           public FrozenParts,
                           public StepSurroundings {
 public:
  explicit ContextRoles(RecordContext& rec) : rec_(rec) {}

  TypeEntry typeEntry(PyTypeObject* type, PyObject* name) override;
  std::optional<bool> storeInClass(Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                                   PyObject* real) override;
  std::optional<bool> storeOpen(Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                                PyObject* real) override;
  void noteRename(PyObject* object, PyObject* attribute) override;
  bool isOpenText(Shadow shadow) const override;
  bool isVaryingText(Shadow shadow, PyObject* object) const override;
  bool hasVaryingLength(PyObject* container) const override;
  bool opensNumbers(ir::SourceId source) const override;
  Shadow numberInput(ir::SourceId source, PyObject* number) override;
  uint64_t openSizes(ir::SourceId source, PyObject* tensor) override;
  uint64_t openSizesOf(ir::ValueId tensor) override;
  void guardRanges(ir::SourceId source, PyObject* tensor) override;
  bool pinMeta(Shadow tensor, PyObject* object) override;
  void forgetMeta(ir::ValueId tensor) override;
  bool pinLikely(Shadow tensor, PyObject* object) override;
  bool pinGivenBack(ir::StateId snap) override;
  bool pinForBinding(const TorchCall& call, Shadow tensor, PyObject* object) override;
  bool decidesOnSlices(const TorchCall& call) const override;
  Shadow promoted(Shadow shadow, PyObject* object) override;
  std::optional<Flow> underFunctionModes(const TorchCall& call, Shadow& result) override;
  std::optional<Flow> joinOpenList(const TorchCall& call, Shadow& result) override;
  std::optional<Flow> readSizes(const TorchCall& call, Shadow& result) override;
  void refuseConstant(PyObject* object) override;
  bool guardBases(PyTypeObject* type) override;
  Shadow frozenPart(PyObject* object) override;
  bool isInTransform() const override;
  bool leavesTransforms(PyCodeObject* code) const override;
  void applyAliases() override;
  void noteRaised(PyObject* exception) override;

 private:
  RecordContext& rec_;
};

}  // namespace kintsugi::capture
