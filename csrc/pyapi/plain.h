// Plain constants, and dict and set look-ups that never run Python code.
//
// A plain constant is an immutable value of an exact built-in type (int, float, complex, bool, str, bytes,
// None, Ellipsis, torch.device, and tuples of these): its hash and comparison are C code that calls no code
// of the program. Everything else is compared by identity here; where only a user's `__eq__` could tell, the
// answer is "unknown".
//
//   isPlain(("a", 1)): true;   isPlain(["a"]): false;   isPlain(MyInt(1)): false, a class of the program
//
// Ownership: all borrowed. Threads: the GIL is needed. Never leaves an exception pending.
#pragma once

#include "pyapi/known_objects.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

bool isPlain(PyObject* object);

// A dtype, device, layout or memory format of torch's: immutable, of a static type.
bool isTorchConstant(PyObject* object);
// Is it a named member of an enumeration that torch binds? It lives as long as the process.
bool isBoundEnumMember(PyObject* object);

// True for a plain constant that programs make anew where they need it: a torch.device, a torch.Size, tuples
// of these. A guard on such an object compares its value.
bool isComparedByValue(PyObject* object);

// A number of one of numpy's scalar types: not plain (it has methods of its own), but immutable.
bool isNumpyNumber(PyObject* object);

// The same type and the same value; floats bitwise (nan equals itself, -0.0 differs from 0.0). Objects that
// are neither plain nor numpy's numbers equal only themselves.
bool plainEquals(PyObject* a, PyObject* b);

// The hash of a dict key, where computing it runs no Python code: plain constants, and objects hashed by
// identity. False: unknown.
bool plainHash(PyObject* key, Py_hash_t* hash);

enum class Lookup : unsigned char {
  kFound,
  kMissing,
  kUnknown,  // an equal hash, but only a user's `__eq__` could tell
};

// The raw entry of a dict (or dict subclass), as dict.__getitem__ finds it.
Lookup lookUp(PyObject* dict, PyObject* key, Py_hash_t hash, PyObject** value);

// True if only an `__eq__` of the program's tells whether the dict has the key. What asks such a dict calls
// it.
bool needsProgram(PyObject* dict, PyObject* key);

// True if the dict has exactly the keys of the tuple, in its order of iteration.
bool keysAre(PyObject* dict, PyObject* tuple);

// True if all items of the list or tuple are plain constants. holdsPlainFunction() is a C function that
// returns this; borrowed.
bool holdsPlain(PyObject* sequence);
PyObject* holdsPlainFunction();

// True if both sets have the same plain constants.
bool plainSetsEqual(PyObject* a, PyObject* b);

}  // namespace kintsugi::pyapi
