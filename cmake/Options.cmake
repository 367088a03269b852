# What every target of ours is compiled with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# -O2, not CMake's -O3: it is as fast here and builds sooner.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# The sanitizer builds: fast enough to be used every day.
set(CMAKE_CXX_FLAGS_CHECKED "-O1")

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(KINTSUGI_CCACHE ccache)
  if(KINTSUGI_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${KINTSUGI_CCACHE})
  endif()
endif()

# Linked by every target of ours.
add_library(kintsugi_options INTERFACE)
target_include_directories(kintsugi_options INTERFACE ${CMAKE_SOURCE_DIR}/csrc)
target_compile_options(kintsugi_options INTERFACE
  -Wall -Wextra
  # PyMethodDef, PyTypeObject and our own option structs are meant to be filled in partly.
  -Wno-missing-field-initializers
  # Messages of failed checks must not depend on where the tree lies.
  -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(KINTSUGI_WERROR)
  target_compile_options(kintsugi_options INTERFACE -Werror)
endif()
if(KINTSUGI_DEBUG OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(kintsugi_options INTERFACE KINTSUGI_DEBUG=1)
endif()
if(KINTSUGI_SANITIZE)
  target_compile_options(kintsugi_options INTERFACE
    -fsanitize=${KINTSUGI_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  if(KINTSUGI_SANITIZE MATCHES "undefined")
    # The vptr check needs RTTI across libtorch's boundary, where types are hidden on purpose.
    target_compile_options(kintsugi_options INTERFACE -fno-sanitize=vptr)
  endif()
  target_link_options(kintsugi_options INTERFACE -fsanitize=${KINTSUGI_SANITIZE})
  # g++ 12 reports variables as maybe uninitialized that only its own instrumentation makes so.
  target_compile_options(kintsugi_options INTERFACE -Wno-maybe-uninitialized)
  if(KINTSUGI_SANITIZE MATCHES "thread")
    # torch's headers have fences, which ThreadSanitizer does not follow.
    target_compile_options(kintsugi_options INTERFACE -Wno-tsan)
  endif()
endif()
