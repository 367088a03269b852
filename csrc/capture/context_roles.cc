#include "capture/context_roles.h"

#include "capture/aliases.h"
#include "capture/calls/function_modes.h"
#include "capture/calls/model.h"
#include "capture/calls/open_lists.h"
#include "capture/class_attributes.h"
#include "capture/classes.h"
#include "capture/exceptions.h"
#include "capture/numbers.h"
#include "capture/open_values.h"
#include "capture/record_context.h"
#include "capture/shown.h"
#include "capture/sizes.h"
#include "capture/transforms.h"

namespace kintsugi::capture {

TypeEntry ContextRoles::typeEntry(PyTypeObject* type, PyObject* name) {
  return capture::typeEntry(rec_, type, name);
}
std::optional<bool> ContextRoles::storeInClass(Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                                               PyObject* real) {
  return capture::storeInClass(rec_, shadow, object, name, value, real);
}
std::optional<bool> ContextRoles::storeOpen(Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                                            PyObject* real) {
  return capture::storeOpen(rec_, shadow, object, name, value, real);
}
void ContextRoles::noteRename(PyObject* object, PyObject* attribute) {
  return capture::noteRename(rec_, object, attribute);
}
bool ContextRoles::isOpenText(Shadow shadow) const { return capture::isOpenText(rec_, shadow); }
bool ContextRoles::isVaryingText(Shadow shadow, PyObject* object) const {
  return capture::isVaryingText(rec_, shadow, object);
}
bool ContextRoles::hasVaryingLength(PyObject* container) const {
  return capture::hasVaryingLength(rec_, container);
}
bool ContextRoles::opensNumbers(ir::SourceId source) const { return capture::opensNumbers(rec_, source); }
Shadow ContextRoles::numberInput(ir::SourceId source, PyObject* number) {
  return capture::numberInput(rec_, source, number);
}
uint64_t ContextRoles::openSizes(ir::SourceId source, PyObject* tensor) {
  return capture::openSizes(rec_, source, tensor);
}
uint64_t ContextRoles::openSizesOf(ir::ValueId tensor) { return capture::openSizesOf(rec_, tensor); }
void ContextRoles::guardRanges(ir::SourceId source, PyObject* tensor) {
  return capture::guardRanges(rec_, source, tensor);
}
bool ContextRoles::pinMeta(Shadow tensor, PyObject* object) { return capture::pinMeta(rec_, tensor, object); }
void ContextRoles::forgetMeta(ir::ValueId tensor) { return capture::forgetMeta(rec_, tensor); }
bool ContextRoles::pinLikely(Shadow tensor, PyObject* object) {
  return capture::pinLikely(rec_, tensor, object);
}
bool ContextRoles::pinGivenBack(ir::StateId snap) { return capture::pinGivenBack(rec_, snap); }
bool ContextRoles::pinForBinding(const TorchCall& call, Shadow tensor, PyObject* object) {
  CallContext ctx(rec_, call);
  return capture::pinForBinding(ctx, tensor, object);
}
bool ContextRoles::decidesOnSlices(const TorchCall& call) const { return capture::decidesOnSlices(call); }
Shadow ContextRoles::promoted(Shadow shadow, PyObject* object) {
  return capture::promoted(rec_, shadow, object);
}
std::optional<Flow> ContextRoles::underFunctionModes(const TorchCall& call, Shadow& result) {
  CallContext ctx(rec_, call);
  return capture::underFunctionModes(ctx, result);
}
std::optional<Flow> ContextRoles::joinOpenList(const TorchCall& call, Shadow& result) {
  CallContext ctx(rec_, call);
  return capture::joinOpenList(ctx, result);
}
std::optional<Flow> ContextRoles::readSizes(const TorchCall& call, Shadow& result) {
  CallContext ctx(rec_, call);
  return capture::readSizes(ctx, result);
}
void ContextRoles::refuseConstant(PyObject* object) { return refuseVirtualConstant(rec_, object); }
bool ContextRoles::guardBases(PyTypeObject* type) { return guardBasesOfVirtual(rec_, type); }
Shadow ContextRoles::frozenPart(PyObject* object) { return capture::frozenPart(rec_, object); }
bool ContextRoles::isInTransform() const { return rec_.transforms.isInside(); }
bool ContextRoles::leavesTransforms(PyCodeObject* code) const { return capture::leavesTransforms(code); }
void ContextRoles::applyAliases() { return capture::applyAliases(rec_); }
void ContextRoles::noteRaised(PyObject* exception) { capture::noteRaised(rec_, exception, true); }

}  // namespace kintsugi::capture
