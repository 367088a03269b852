// C functions of the standard library that compute, or change only the object that they belong to: steps
// behind which all that is known stays so. An argument that could run code of the program's makes the call an
// opaque step.
#include "capture/calls/model.h"

namespace kintsugi::capture {

namespace {

bool isBytes(PyObject* object) { return PyBytes_CheckExact(object) || PyByteArray_CheckExact(object); }

// `first`: the first argument that code of the program's could be reached through.
Flow plainStep(CallContext& ctx, size_t first, Shadow& result) {
  bool plain = true;
  for (size_t i = first; i < ctx.total(); ++i) {
    plain = plain && (Recorder::isPlainDeep(ctx.args[i]) || isBytes(ctx.args[i]));
  }
  return plain ? knownModel(ctx, result) : opaqueModel(ctx, result);
}

Flow functionModel(CallContext& ctx, Shadow& result) { return plainStep(ctx, 0, result); }
Flow methodModel(CallContext& ctx, Shadow& result) { return plainStep(ctx, 1, result); }

constexpr ModelRow kRows[] = {
    {"_random.Random.random", methodModel},
    {"_random.Random.getrandbits", methodModel},
    {"_random.Random.seed", methodModel},
    {"_random.Random.getstate", methodModel},
    {"_random.Random.setstate", methodModel},
    {"_struct.pack", functionModel},
    {"_struct.unpack", functionModel},
    {"_struct.unpack_from", functionModel},
    {"_struct.calcsize", functionModel},
    {"_struct.Struct.pack", methodModel},
    {"_struct.Struct.unpack", methodModel},
    {"_io.BytesIO", functionModel},
    {"_io.BytesIO.write", methodModel},
    {"_io.BytesIO.read", methodModel},
    {"_io.BytesIO.readline", methodModel},
    {"_io.BytesIO.seek", methodModel},
    {"_io.BytesIO.tell", methodModel},
    {"_io.BytesIO.truncate", methodModel},
    {"_io.BytesIO.getvalue", methodModel},
    {"_hashlib.openssl_md5", functionModel},
    {"_hashlib.openssl_sha1", functionModel},
    {"_hashlib.openssl_sha256", functionModel},
    {"_hashlib.openssl_sha512", functionModel},
    {"_hashlib.HASH.update", methodModel},
    {"_hashlib.HASH.digest", methodModel},
    {"_hashlib.HASH.hexdigest", methodModel},
    {"posix.getpid", functionModel},
    {"posix.getcwd", functionModel},
    {"posix.urandom", functionModel},
    {"posix.cpu_count", functionModel},
    {"posix.fspath", functionModel},
    {"posix.stat", functionModel},
    {"time.process_time", functionModel},
    {"time.process_time_ns", functionModel},
    {"time.thread_time", functionModel},
    {"time.monotonic_ns", functionModel},
    {"time.localtime", functionModel},
    {"time.gmtime", functionModel},
    {"time.strftime", functionModel},
    {"_thread.allocate_lock", functionModel},
    {"_thread.get_ident", functionModel},
    {"_thread.get_native_id", functionModel},
    {"sys.is_finalizing", functionModel},
    {"sys.getrecursionlimit", functionModel},
    // What a class says for a property that is computed once: an object that only its class is asked of.
    {"torch.distributions.utils._lazy_property_and_property", knownModel},
};

}  // namespace

void registerStandardLibraryModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
