// Plain constants, and dict and set look-ups that never run Python code.
//
// A plain constant is an immutable value of an exact built-in type (int, float, complex, bool, str, bytes,
// None, Ellipsis, and tuples of these) or of a type that another layer has registered: its hash and
// comparison are C code that calls no code of the program. Everything else is compared by identity here;
// where only a user's `__eq__` could tell, the answer is "unknown".
//
//   isPlain(("a", 1)): true;   isPlain(["a"]): false;   isPlain(MyInt(1)): false, a class of the program
//
// Ownership: all borrowed. Threads: the GIL is needed. Never leaves an exception pending.
#pragma once

#include "pyapi/known_objects.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

bool isPlain(PyObject* object);

// Types of other libraries whose objects are plain. Their types are static: nobody can subclass or patch
// them.
enum class PlainKind : uint8_t {
  kValue,  // compared by value
  kName,   // named constants: each is one object, compared and hashed by identity
  kTuple,  // a subclass of tuple, compared by value
};
// Called when the extension is loaded. Null: the library has no such type.
void addPlainType(PyTypeObject* type, PlainKind kind);
// True for an object of such a type that is no tuple.
bool isPlainOfLibrary(PyObject* object);

// The class of the classes of enumerations that a library binds in C++ (pybind11). Called as addPlainType().
void setBoundEnums(PyTypeObject* metaclass);
// Is it a named member of such an enumeration? It lives as long as the process.
bool isBoundEnumMember(PyObject* object);

// True for a plain constant that programs make anew where they need it: objects compared by value, and tuples
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

// Does a set, or an object of a subclass of it, have the element? As set.__contains__ finds it.
Lookup lookUpInSet(PyObject* set, PyObject* element);
// True if both sets have the same plain constants.
bool plainSetsEqual(PyObject* a, PyObject* b);

// A NaN, or a tuple with one. Containers find it by identity, which guards on values do not ask for.
bool holdsNan(PyObject* object);

}  // namespace kintsugi::pyapi
