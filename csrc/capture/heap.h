// Reads of globals, and writes to dicts, cells and attributes: effects of the trace.
//
// A write to an object that the trace has made changes what is known of it. One to an older object, or to one
// that others hold, is an instruction of the trace besides, and what it stores escapes. All functions come
// before the instruction, which does the real write. False or nothing: the recording has ended.
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   if (!rec.heap.storeItem(dictShadow, dict, key, shadow, value)) return rec.execute(act, instr);
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/transforms.h"
#include "guard/document.h"

namespace kintsugi::capture {

struct RecordContext;

class Heap final {
 public:
  Heap(RecordContext& rec, guard::Document& document, Transforms& transforms)
      : rec_(rec), document_(document), transforms_(transforms) {}

  std::optional<Shadow> readGlobal(PyObject* globals, PyObject* builtins, PyObject* name);
  std::optional<Shadow> moduleAttribute(Shadow shadow, PyObject* module, PyObject* name);
  bool lacksKey(Shadow shadow, PyObject* dict,
                PyObject* key);  // it has no such key, now and at the beginning

  bool storeCell(Shadow cell, PyObject* object, Shadow value, PyObject* real);
  bool storeItem(Shadow shadow, PyObject* dict, PyObject* key, Shadow value, PyObject* real);
  bool deleteItem(Shadow shadow, PyObject* dict, PyObject* key);
  // object.name = value, and `del object.name`. `setter`: a Python function that will be entered; None: a
  // step; null: an ordinary write, which the caller executes.
  bool planStore(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                 PyObject*& setter);
  bool planDelete(Shadow shadow, PyObject* object, PyObject* name, PyObject*& deleter);
  // The same for object.__setattr__ and object.__delattr__, whatever the type overrides.
  bool storeGeneric(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                    PyObject*& setter);
  bool storeFunction(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                     PyObject*& setter);
  bool deleteGeneric(Shadow shadow, PyObject* object, PyObject* name);

  // An effect on something outside the trace: what it stores escapes.
  bool emitEffect(ir::Op op, const std::vector<std::pair<Shadow, PyObject*>>& parts,
                  PyObject* name = nullptr);
  // object.method(args...) as an effect, without a result.
  bool emitMethod(const char* method, Shadow shadow, PyObject* object,
                  const std::vector<std::pair<Shadow, PyObject*>>& args);
  // Later reads of an old dict see what an effect has written.
  bool noteWrite(PyObject* dict, PyObject* key, Shadow value);
  bool noteDelete(PyObject* dict, PyObject* key);

 private:
  RecordContext& rec_;
  guard::Document& document_;
  Transforms& transforms_;
};

}  // namespace kintsugi::capture
