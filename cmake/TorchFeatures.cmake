# What this torch has: a few lines are compiled for each feature, and kintsugi_torch_features.h says 0 or 1 of it. Only
# csrc/torchapi/ includes that file. Included by cmake/Torch.cmake, when KINTSUGI_TORCH_DIR and `version` are known.

include(CheckCXXSourceCompiles)

set(KINTSUGI_TORCH_FEATURES "")

# kintsugi_torch_has(NAME header code): KINTSUGI_TORCH_HAS_NAME is 1 if the statements `code` compile behind `header`. A
# result is kept for as long as the build has this release.
function(kintsugi_torch_has name header code)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # nothing is linked
  set(CMAKE_REQUIRED_QUIET ON)
  set(CMAKE_REQUIRED_INCLUDES ${KINTSUGI_TORCH_DIR}/include ${KINTSUGI_TORCH_DIR}/include/torch/csrc/api/include)
  string(MAKE_C_IDENTIFIER "KINTSUGI_FOUND_${name}_${KINTSUGI_TORCH_RELEASE}" result)
  if(NOT DEFINED ${result})
    message(STATUS "torch ${KINTSUGI_TORCH_RELEASE}: looking for ${name}")
  endif()
  check_cxx_source_compiles("#include <${header}>\nvoid f() { ${code}; }\n" ${result})
  set(value 0)
  if(${result})
    set(value 1)
  endif()
  set(KINTSUGI_TORCH_FEATURES
    "${KINTSUGI_TORCH_FEATURES}#define KINTSUGI_TORCH_HAS_${name} ${value}\n" PARENT_SCOPE)
endfunction()

# A header that has been there always: without it the other answers mean that nothing compiles.
kintsugi_torch_has(HEADERS c10/core/GradMode.h "c10::GradMode::set_enabled(true)")
if(NOT KINTSUGI_TORCH_FEATURES MATCHES "HEADERS 1")
  message(FATAL_ERROR "The headers of torch in ${KINTSUGI_TORCH_DIR} don't compile: see CMakeFiles/CMakeConfigureLog.yaml "
    "in ${CMAKE_BINARY_DIR}.")
endif()
set(KINTSUGI_TORCH_FEATURES "")

# What follows is missing from torch 2.11, and there from 2.13 on.
kintsugi_torch_has(FLOAT32_PRECISION_DEFAULT ATen/Context.h "(void)at::Float32Precision::DEFAULT")
kintsugi_torch_has(INTRUSIVE_NODES torch/csrc/autograd/function.h
  "static_assert(std::is_base_of_v<c10::intrusive_ptr_target, torch::autograd::Node>)")
kintsugi_torch_has(SEQUENCE_NUMBERS torch/csrc/autograd/function.h
  "(void)&torch::autograd::Node::set_sequence_nr")

set(generated "// Written by cmake/TorchFeatures.cmake.\n#pragma once\n\n${KINTSUGI_TORCH_FEATURES}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_features/kintsugi_torch_features.h CONTENT "${generated}" @ONLY)
target_include_directories(kintsugi_torch SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/torch_features)
