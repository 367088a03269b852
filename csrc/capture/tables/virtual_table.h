// The virtual objects of a recording: those that the trace makes, by number and by identity.
//
// A Virtual holds its real object, so no two live objects share an address. forgetIdentity() keeps the
// Virtual in the table, since shadows name it by number, but it is no longer found by its object.
//
// Recipes (see recipes.h) are cached until a virtual object that they name changes. So whoever changes one
// calls noteChange(). The number of changes is the *epoch*: what was made or checked in this epoch is valid.
// A change of one object leaves the recipes of those valid that don't hold it; noteChange() without an
// object, for changes that concern frames or several objects, leaves none.
//
// Owned by the Recorder; the recording thread, GIL held. A Virtual stays where it is until the table dies.
// Example:
//
//   const Shadow list = virtuals.add(VirtualKind::kList, object);
//   virtuals[list].parts.push_back(Shadow::constant());
//   virtuals.noteChange(virtuals[list]);
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "capture/shadow.h"
#include "pyapi/iterator_state.h"
#include "support/check.h"
#include "support/flat_map.h"

namespace kintsugi::capture {

// Encodes a shadow as a Python object, for the dicts in virtual objects and overlays. Returns a new
// reference, or null with an exception.
PyObject* encodeShadow(Shadow shadow);
Shadow decodeShadow(PyObject* encoded);

class VirtualTable {
 public:
  Shadow add(VirtualKind kind, PyObject* object);

  Virtual& operator[](Shadow shadow) const { return at(shadow.virtualId()); }
  Virtual& at(uint32_t id) const {
    KINTSUGI_CHECK(id < virtuals_.size(), "virtual ", id, " of ", virtuals_.size());
    return *virtuals_[id];
  }
  std::optional<uint32_t> find(PyObject* object) const;
  Virtual* findObject(PyObject* object) const;  // null: it is not among them
  bool contains(PyObject* object) const { return ids_.contains(object); }
  const std::vector<std::unique_ptr<Virtual>>& all() const { return virtuals_; }
  size_t size() const { return virtuals_.size(); }
  // Those whose object has not been dropped, the oldest first (a few others may be among them). A loop makes
  // and drops objects in each turn, so a walk that is made in each turn goes along these.
  const std::vector<Virtual*>& held();

  // The object may be changed by others, or it is dropped and its address may be reused.
  void forgetIdentity(const Virtual& v) { ids_.erase(v.object.get()); }
  // The program has dropped the object: drops the recorder's reference. If a shadow still named it, it could
  // not be rebuilt.
  void dropObject(Virtual& v);
  // Another object becomes the real one.
  void replaceObject(Shadow shadow, PyObject* object);
  // Called at the end of a recording: drops the references to all objects, the newest first, and forgets
  // their identities.
  void releaseObjects();

  // Iterators and enumerations that may still be asked for items, and what their objects looked like when
  // they were looked at last. Whoever walks the list erases those that are finished.
  struct Followed {
    uint32_t id = 0;
    pyapi::IteratorWords words{};
  };
  std::vector<Followed>& iterators() { return iterators_; }
  // Classes that the trace has made, the oldest first.
  const std::vector<uint32_t>& classes() const { return classes_; }
  void addClass(Shadow shadow) { classes_.push_back(shadow.virtualId()); }
  // See classes.h. The class among these; null: it is another one.
  Virtual* classOf(PyTypeObject* type) const;
  Virtual* classOfCell(Shadow cell);  // whose cell `__class__` this is; null: another cell
  PyObject* newestClassBody() const;  // the code of the newest class statement, or null
  // The shadow of a constant that turns out to be an object of this trace; else the shadow itself.
  Shadow shadowOf(Shadow shadow, PyObject* object) const;
  // The generator whose frame runs; null if the trace does not know it, because it has escaped.
  Virtual* ofRunningGenerator(const Activation& act) const;

  // True for an object of the trace that can be changed, or reaches such a one: a list, a tuple of lists, a
  // bound method of a list. It must stay one object for everybody who has it, so whoever may keep it is given
  // the object itself, not another one by the same recipe.
  bool isShared(Shadow shadow) const;

  uint64_t epoch() const { return epoch_; }
  uint64_t lastGeneralChange() const { return lastGeneralChange_; }  // the epoch that it has begun
  void noteChange();
  void noteChange(Virtual& v);
  void noteChange(Shadow shadow) { shadow.isVirtual() ? noteChange((*this)[shadow]) : noteChange(); }

  // Entries of dicts and attributes of instances, as far as the trace knows them. Setters return false if
  // memory runs out or the key can't be hashed.
  bool setEntry(Virtual& v, PyObject* key, Shadow value);
  std::optional<Shadow> entryOf(const Virtual& v, PyObject* key) const;
  bool setAttribute(Virtual& v, PyObject* name, Shadow value);

 private:
  std::vector<std::unique_ptr<Virtual>> virtuals_;
  FlatMap<PyObject*, uint32_t> ids_;
  std::vector<Virtual*> held_;
  size_t dropped_ = 0;  // of those in held_
  std::vector<Followed> iterators_;
  std::vector<uint32_t> classes_;
  uint64_t epoch_ = 1;
  uint64_t lastGeneralChange_ = 0;
};

}  // namespace kintsugi::capture
