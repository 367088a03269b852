// What a recording knows of attributes of classes that the program sets while it runs (class_attributes.h),
// and of functions and classes that the program renames.
//
// An attribute is *open* or *closed* for the whole recording. If it is open, guards on the class leave it
// out, and each look-up reads the dict of the class. If it is closed, it was looked up before the recording
// saw a write to it, and the guard on the class's version covers it. Written attributes are remembered for
// the next recording, which opens them from the start.
//
// Ownership: borrows what earlier recordings have found; holds names and open classes, borrows closed classes
// (they are constants of the trace). Owned by the Recorder; the recording thread, GIL held. Example:
//
//   log.noteWritten(type, name);
//   if (!log.isClosed(type, name)) log.open(type, name);
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/open_attributes.h"

namespace kintsugi::capture {

class AttributeLog {
 public:
  // `before`: the attributes that earlier recordings have seen written; may be null.
  explicit AttributeLog(const OpenAttributes* before) : before_(before) {}

  bool isOpen(PyTypeObject* type, PyObject* name) const {
    return opened_.contains(type, name) || (before_ != nullptr && before_->contains(type, name));
  }
  bool hasOpen(PyTypeObject* type) const {
    return opened_.has(type) || (before_ != nullptr && before_->has(type));
  }
  bool isAnythingOpen() const { return !opened_.empty() || (before_ != nullptr && !before_->empty()); }
  void open(PyTypeObject* type, PyObject* name) { opened_.add(type, name); }
  OpenAttributes allOpen() const;

  // True if the name was looked up in the class before, and the guard on the class's version covers the
  // answer.
  bool isClosed(PyTypeObject* type, PyObject* name) const;
  void close(PyTypeObject* type, PyObject* name);
  // Closes all names of the class. False if some of them are open or have been written.
  bool closeAll(PyTypeObject* type);

  void noteWritten(PyTypeObject* type, PyObject* name) { written_.add(type, name); }
  OpenAttributes takeWritten() { return std::exchange(written_, {}); }

  // Objects whose fields (names, and what else C code keeps in them) the trace sets by steps.
  bool isRenamed(PyObject* object) const { return renamed_.contains(object); }
  void noteRenamed(PyObject* object) { renamed_.insert(object); }

  // True while an open attribute is being read. A number in such an attribute varies from run to run.
  bool isReadingOpen() const { return readingOpen_; }
  class ReadingOpen {
   public:
    explicit ReadingOpen(AttributeLog& log) : log_(log) { log_.readingOpen_ = true; }
    ~ReadingOpen() { log_.readingOpen_ = false; }
    ReadingOpen(const ReadingOpen&) = delete;

   private:
    AttributeLog& log_;
  };

 private:
  struct Closed {
    pyapi::Ref<> name;
    std::vector<PyTypeObject*> types;
  };

  const OpenAttributes* before_;
  OpenAttributes opened_;                              // by this recording
  OpenAttributes written_;                             // by this recording
  std::unordered_map<PyObject*, Closed> closedNames_;  // key: the interned name
  std::unordered_set<PyTypeObject*> closedClasses_;
  std::unordered_set<PyObject*> renamed_;
  bool readingOpen_ = false;
};

}  // namespace kintsugi::capture
