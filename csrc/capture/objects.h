// The virtual objects of the trace, and the shadows of items in containers and of items that iterators give.
//
// All containers are asked in the same way. A container that the trace has made answers from its shadows. An
// older one is read under guards, after its overlay (tables/overlays.h). A result of nothing means that the
// item is not known or the recording has ended.
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   auto elements = rec.objects.elementsOf(shadow, list);  // guards the length of an old one
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/context_roles.h"
#include "capture/dead_objects.h"
#include "capture/frame_roles.h"
#include "capture/roles.h"
#include "capture/tables/known_sources.h"
#include "capture/tables/overlays.h"
#include "capture/tables/trace_facts.h"
#include "capture/tables/virtual_table.h"
#include "pyapi/gil.h"
#include "torchapi/op_recorder.h"

namespace kintsugi::capture {

class Objects final : public KnownObjects, public ContainerReads, public SequenceReads, public FrameObjects {
 public:
  // The recorder makes some of these parts after this one.
  struct Roles {
    BreakSink& breaks;
    SourceGuards& guards;
    ValuePins& values;
    ContainerPins& containers;
    FrameCalls& frames;
    VaryingValues& varying;
    FrozenParts& frozen;
  };
  Objects(const Roles& roles, DeadObjects& dead, TraceFacts& facts, torchapi::OpRecorder& ops,
          Overlays& overlays, KnownSources& sources, VirtualTable& virtuals)
      : roles_(roles),
        dead_(dead),
        facts_(facts),
        ops_(ops),
        overlays_(overlays),
        sources_(sources),
        virtuals_(virtuals),
        gilSwitches_(pyapi::gilSwitches(PyThreadState_Get())) {}

  // Virtual objects: see tables/virtual_table.h.
  Shadow newVirtual(VirtualKind kind, PyObject* object) override;
  Shadow newCell(PyObject* cell, Shadow content) override;
  // `sized`: what it is made of has the same size there in each run.
  Shadow newIterator(PyObject* iterator, Shadow shadow, PyObject* object, bool sized = true);
  // A constant if all parts are.
  Shadow tupleOf(PyObject* tuple, Shadows parts) override;
  Virtual& virtualOf(Shadow shadow) { return virtuals_[shadow]; }
  // A virtual object that unknown code may have changed is read like an older one.
  Shadow current(Shadow shadow) override;
  void addClass(Shadow cls) { virtuals_.addClass(cls); }
  const std::vector<uint32_t>& classes() const { return virtuals_.classes(); }  // that the trace has made
  void replaceObject(Shadow shadow, PyObject* object) { virtuals_.replaceObject(shadow, object); }
  // What the trace knows of an object, by its identity.
  std::optional<Shadow> knownObject(PyObject* object) override;
  // A virtual object has changed, so recipes that name it have to be made again.
  void noteChange() { virtuals_.noteChange(); }
  void noteChange(Virtual& v) { virtuals_.noteChange(v); }
  void noteChange(Shadow shadow) { virtuals_.noteChange(shadow); }
  bool setEntry(Virtual& v, PyObject* key, Shadow value) { return virtuals_.setEntry(v, key, value); }
  std::optional<Shadow> entryOf(const Virtual& v, PyObject* key) { return virtuals_.entryOf(v, key); }
  bool setAttrShadow(Virtual& v, PyObject* n, Shadow value) { return virtuals_.setAttribute(v, n, value); }

  // Parts of containers. Elements of a list or tuple: guards the length of a source.
  std::optional<Shadows> elementsOf(Shadow shadow, PyObject* sequence) override;
  std::optional<Shadow> elementOf(Shadow shadow, PyObject* sequence, Py_ssize_t index) override;
  Shadow dictEntry(Shadow shadow, PyObject* dict, PyObject* key, PyObject* value) override;
  std::optional<Shadows> dictParts(Shadow shadow, PyObject* dict, int64_t what);
  std::optional<Shadow> closureCell(ShadowFrame& frame, int index, PyObject* cell) override;
  bool plainIteration(PyObject* dict);   // a dict, or a subclass that does not override iteration
  bool plainMembership(PyObject* dict);  // a dict, or a subclass that does not override `in`
  bool plainDict(PyObject* dict);        // a dict, or a subclass that does not override look-up
  bool orderIsKnown(Shadow shadow, PyObject* set);
  // What the trace has written to an old object: see tables/overlays.h.
  Overlay* overlayOf(PyObject* object) { return overlays_.find(object); }
  Overlay& makeOverlay(PyObject* object) override;
  // False: another thread has changed the length of a list that the trace has changed. Ends the recording.
  bool fitsList(const Overlay& overlay) override;
  // Likewise for an element of a list that others may see, where another thread has run since the recording
  // began: is `found` what the shadow stands for?
  bool fitsElement(Shadow shadow, PyObject* sequence, PyObject* found);
  // The shadow of what the trace has written to `holder`, where `found` is what is there now; nothing: it was
  // not written. Ends the recording if another thread has written there since.
  std::optional<Shadow> readBack(const WrittenEntries& written, PyObject* key, PyObject* holder,
                                 PyObject* found) override;
  bool isDirty(PyObject* container);  // changed in a way that is not tracked, or of a length that varies

  // Iteration. The shadows of all items that iterating over an object would give; nothing is consumed.
  std::optional<Shadows> iterated(Shadow shadow, PyObject* object);
  Shadow itemOf(Shadow iterable, Shadow part, PyObject* item);  // the shadow of one item
  // Before an iterator is asked for its next item, and after it has given one.
  bool prepareNext(Shadow iterator, CallSite site = {});  // the site of a generator's frame
  std::optional<Shadow> advance(Shadow iterator, PyObject* item);
  std::optional<Shadow> advanceView(Shadow view, int64_t at, PyObject* item);
  bool exhausted(Shadow iterator);
  bool isItemsView(Shadow shadow);
  // Before an instruction: moves the iterators of the trace to where the real ones are.
  void syncIterators();

 private:
  bool pinAgain(Virtual& v);
  void follow(Virtual& v);
  std::optional<Shadow> advanceSequence(Virtual& v, PyObject* container, PyObject* item);
  std::optional<Shadows> itemsLeft(const Virtual& v);

  const Roles& roles_;
  DeadObjects& dead_;
  TraceFacts& facts_;
  torchapi::OpRecorder& ops_;
  Overlays& overlays_;
  KnownSources& sources_;
  VirtualTable& virtuals_;
  const uint64_t gilSwitches_;  // when the recording began
};

}  // namespace kintsugi::capture
