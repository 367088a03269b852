# What a wheel is linked with, so that it loads on systems older than this one (scripts/wheels.py sets the options).

set(KINTSUGI_LINK_STUBS "" CACHE PATH "What scripts/link_stubs.py wrote: modules need no newer symbols than those")
set(KINTSUGI_RE2_SOURCE "" CACHE PATH "RE2's source, which is compiled into the module; empty: the library of the system")
set(KINTSUGI_BUILT "" CACHE PATH "A folder that is installed as it is, instead of building anything")

# Linked by the core and by each module.
add_library(kintsugi_system INTERFACE)
if(KINTSUGI_LINK_STUBS)
  kintsugi_layer(manylinux)
  # What the stub of C++'s library lacks is taken from its archive. Threads and dlopen() were in libraries of their own.
  target_link_directories(kintsugi_system INTERFACE ${KINTSUGI_LINK_STUBS})
  target_link_libraries(kintsugi_system INTERFACE kintsugi_manylinux $<TARGET_OBJECTS:kintsugi_manylinux> -lstdc++ -l:libstdc++.a
    -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state)
endif()

# kintsugi_re2(): the target kintsugi_re2, if there is an RE2.
function(kintsugi_re2)
  if(KINTSUGI_RE2_SOURCE)
    file(GLOB sources ${KINTSUGI_RE2_SOURCE}/re2/*.cc)
    add_library(kintsugi_re2_objects STATIC ${sources} ${KINTSUGI_RE2_SOURCE}/util/rune.cc ${KINTSUGI_RE2_SOURCE}/util/strutil.cc)
    target_include_directories(kintsugi_re2_objects SYSTEM PUBLIC ${KINTSUGI_RE2_SOURCE})
    target_compile_options(kintsugi_re2_objects PRIVATE -fmacro-prefix-map=${KINTSUGI_RE2_SOURCE}/=)
    add_library(kintsugi_re2 ALIAS kintsugi_re2_objects)
    return()
  endif()
  # Debian's archive is not position independent, so it is the shared library.
  find_library(KINTSUGI_RE2 re2)
  if(KINTSUGI_RE2)
    add_library(kintsugi_re2 INTERFACE)
    target_link_libraries(kintsugi_re2 INTERFACE ${KINTSUGI_RE2})
  else()
    message(STATUS "RE2 is missing (libre2-dev): `kintsugi kb match` is left out")
  endif()
endfunction()
