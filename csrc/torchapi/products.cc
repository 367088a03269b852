#include "torchapi/products.h"

#include <ATen/CPUFunctions.h>
#include <ATen/Context.h>
#include <dlfcn.h>
#include <link.h>

#include <limits>

#include "support/check.h"

namespace kintsugi::torchapi {

namespace {

using Sgemm = void (*)(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc);

// The file of the library that an address lies in; null: there is none. dladdr() also looks for the nearest
// of the library's symbols, one by one, and torch has more than 70,000.
const char* libraryAt(const void* address) {
  struct Search {
    uintptr_t address;
    const char* file;
  } search{reinterpret_cast<uintptr_t>(address), nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        for (int i = 0; i < library->dlpi_phnum; ++i) {
          const auto& part = library->dlpi_phdr[i];
          if (part.p_type == PT_LOAD && wanted->address - library->dlpi_addr - part.p_vaddr < part.p_memsz)
            wanted->file = library->dlpi_name;
        }
        return wanted->file != nullptr ? 1 : 0;
      },
      &search);
  return search.file;
}

// Finds sgemm in torch's own library. Other libraries may use another integer type.
Sgemm findSgemm() {
  auto* known = static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&)>(&at::cpu::mm);
  const char* file = libraryAt(reinterpret_cast<void*>(known));
  void* library = file != nullptr ? dlopen(file, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  void* found = library != nullptr && at::hasMKL() ? dlsym(library, "sgemm_") : nullptr;
  return reinterpret_cast<Sgemm>(found);
}

Sgemm sgemm() {
  static const Sgemm found = findSgemm();
  return found;
}

}  // namespace

bool hasFloatProducts() {
  return sgemm() != nullptr &&
         at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
}

void multiplyFloats(const ProductShape& shape, const float* left, const float* right, float* result) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  KINTSUGI_CHECK(shape.n <= kMost && shape.m <= kMost && shape.k <= kMost, "a product of ", shape.m,
                 " rows, ", shape.n, " columns and depth ", shape.k);
  // BLAS stores matrices by columns, so it has to compute right^T * left^T.
  const int n = static_cast<int>(shape.n), m = static_cast<int>(shape.m), k = static_cast<int>(shape.k);
  const int lda = static_cast<int>(shape.rightStride), ldb = static_cast<int>(shape.leftStride),
            ldc = static_cast<int>(shape.resultStride);
  const float one = 1, zero = 0;
  const char transa = shape.rightByColumns ? 't' : 'n', transb = 'n';
  sgemm()(&transa, &transb, &n, &m, &k, &one, right, &lda, left, &ldb, &zero, result, &ldc);
}

}  // namespace kintsugi::torchapi
