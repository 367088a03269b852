# LLVM 19, linked statically. Its symbols stay inside: other libraries of the process may have an LLVM of their own.

find_program(KINTSUGI_LLVM_CONFIG NAMES llvm-config-19 llvm-config HINTS /usr/lib/llvm-19/bin)
if(NOT KINTSUGI_LLVM_CONFIG)
  message(FATAL_ERROR "LLVM 19 is missing: install the package llvm-19-dev.")
endif()

function(kintsugi_llvm variable)
  execute_process(COMMAND ${KINTSUGI_LLVM_CONFIG} ${ARGN}
    OUTPUT_VARIABLE out OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${KINTSUGI_LLVM_CONFIG} ${ARGN} failed")
  endif()
  set(${variable} "${out}" PARENT_SCOPE)
endfunction()

kintsugi_llvm(version --version)
if(NOT version MATCHES "^19\\.")
  message(FATAL_ERROR "Kintsugi needs LLVM 19, found ${version}: install the package llvm-19-dev.")
endif()
kintsugi_llvm(include --includedir)
kintsugi_llvm(directory --libdir)
kintsugi_llvm(libraries --link-static --libs orcjit native passes)
kintsugi_llvm(system --link-static --system-libs)
separate_arguments(libraries UNIX_COMMAND "${libraries}")
separate_arguments(system UNIX_COMMAND "${system}")
# For analyses of C++ code, and for manifests of Windows: nothing here runs them.
list(FILTER system EXCLUDE REGEX "z3|xml2")
# Said now, not by the linker at the end of a build.
set(names z zstd)
set(packages zlib1g-dev libzstd-dev)
foreach(library package IN ZIP_LISTS names packages)
  if("-l${library}" IN_LIST system)
    find_library(KINTSUGI_LIBRARY_${library} ${library})
    if(NOT KINTSUGI_LIBRARY_${library})
      message(FATAL_ERROR "lib${library}, which LLVM asks for, is missing: install the package ${package}.")
    endif()
  endif()
endforeach()
if(KINTSUGI_LINK_STUBS)
  list(TRANSFORM system REPLACE "^-l(z|zstd)$" "-l:lib\\1.a")
endif()

add_library(kintsugi_llvm INTERFACE)
target_include_directories(kintsugi_llvm SYSTEM INTERFACE ${include})
# LLVM 19 includes a header that newer compilers' libraries warn of by a directive.
target_compile_options(kintsugi_llvm INTERFACE -Wno-cpp)
target_link_directories(kintsugi_llvm INTERFACE ${directory})
target_link_libraries(kintsugi_llvm INTERFACE ${libraries} ${system})
target_link_options(kintsugi_llvm INTERFACE -Wl,--exclude-libs,ALL -Wl,--gc-sections)

# Every architecture that code is made for, for tests of what is generated: what is shipped has the machine's own alone.
kintsugi_llvm(every --link-static --libs orcjit native passes x86 aarch64)
separate_arguments(every UNIX_COMMAND "${every}")
add_library(kintsugi_llvm_all_targets INTERFACE)
target_link_libraries(kintsugi_llvm_all_targets INTERFACE ${every} ${system})

# Kernels on disk are those of one emitter: its sources are part of their keys.
file(GLOB emitter CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/codegen/*.cc ${CMAKE_SOURCE_DIR}/csrc/codegen/*.h)
list(APPEND emitter ${CMAKE_SOURCE_DIR}/csrc/passes/kernel.h ${CMAKE_SOURCE_DIR}/csrc/passes/core_ops.def
     ${CMAKE_SOURCE_DIR}/csrc/support/target.h ${CMAKE_SOURCE_DIR}/csrc/support/target.cc
     ${CMAKE_SOURCE_DIR}/csrc/support/vector_levels.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${emitter})
set(hashes "")
foreach(source ${emitter})
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 version "${hashes}")
string(SUBSTRING ${version} 0 16 version)
set_source_files_properties(${CMAKE_SOURCE_DIR}/csrc/codegen/object_code.cc PROPERTIES
  COMPILE_DEFINITIONS "KINTSUGI_EMITTER_VERSION=\"${version}\"")
