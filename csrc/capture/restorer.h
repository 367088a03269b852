// Turns a snapshot back into shadow frames and virtual objects: the inverse of snapshots.h. Inside capture
// only.
//
// Each operand of the snapshot has become a real object. Its shadow follows from the kind of the operand: a
// constant, a source, a value, or a recipe, which becomes a virtual object again. A recipe is one virtual
// object in all frames.
//
// Ownership: borrows the recorder and the start; lives during the recorder's construction. GIL held.
#pragma once

#include <optional>
#include <unordered_map>

#include "capture/record_context.h"
#include "capture/side_start.h"

namespace kintsugi::capture {

class Restorer {
 public:
  Restorer(RecordContext& rec, const SideStart& start) : rec_(rec), start_(start) {}

  Shadow shadow(const ir::Operand& operand);
  // The real object of an operand; null for an empty slot. Borrowed.
  PyObject* object(const ir::Operand& operand);

 private:
  Shadow value(const ir::Operand& operand);
  Shadow source(const ir::Operand& operand);
  void keepIdentity(PyObject* object, ir::SourceId source);
  ir::SourceId inputSource(ir::ValueId value) const;
  Shadow fromStep(ir::ValueId value, PyObject* object);
  Shadow recipe(ir::RecipeId id);
  VirtualKind kindOf(const ir::Recipe& recipe, PyObject* object) const;
  void fill(Shadow made, const ir::Recipe& recipe, PyObject* object);
  void fillCalled(Shadow made, const ir::Recipe& recipe, PyObject* object);
  void fillIterator(Shadow made, const ir::Recipe& recipe);
  void fillParts(Shadow made, const ir::Recipe& recipe, size_t first, bool withObjects);
  void fillPairs(Shadow made, const ir::Recipe& recipe, size_t first, size_t end, bool attributes);
  void fillFunction(Shadow made, const ir::Recipe& recipe);
  void fillGenerator(Shadow made, const ir::Recipe& recipe);
  void fillException(Shadow made, const ir::Recipe& recipe);
  void fillClass(Shadow made, const ir::Recipe& recipe);
  void restoreClass(const ir::Operand& operand);
  void fillSharedDict(Shadow made, const ir::Recipe& recipe);

  RecordContext& rec_;
  const SideStart& start_;
  std::unordered_map<ir::RecipeId, Shadow> made_;
  std::unordered_map<PyObject*, ir::SourceId> sourceOf_;
};

}  // namespace kintsugi::capture
