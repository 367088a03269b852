# CPython, nanobind and the extension module.

find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_Interpreter_FOUND)
  message(FATAL_ERROR "CPython 3.11 or newer is missing.")
endif()
if(NOT Python_Development.Module_FOUND)
  message(FATAL_ERROR "The headers of CPython ${Python_VERSION} are missing: install python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}-dev.")
endif()
if(NOT Python_VERSION VERSION_LESS 3.15)
  message(FATAL_ERROR "Kintsugi supports CPython 3.11 to 3.14; ${Python_EXECUTABLE} is ${Python_VERSION}.")
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
  OUTPUT_VARIABLE gil_disabled OUTPUT_STRIP_TRAILING_WHITESPACE)
if(gil_disabled)
  message(FATAL_ERROR "Kintsugi needs a CPython with the global interpreter lock; ${Python_EXECUTABLE} is a free-threaded build.")
endif()
if(NOT EXISTS "${Python_INCLUDE_DIRS}/internal/pycore_frame.h")
  message(FATAL_ERROR "The headers of CPython ${Python_VERSION} lack internal/pycore_frame.h: install python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}-dev.")
endif()

execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "nanobind is missing from ${Python_EXECUTABLE}: pip install nanobind.")
endif()
find_package(nanobind CONFIG REQUIRED)

# The hash table that nanobind brings along.
add_library(kintsugi_robin_map INTERFACE)
target_include_directories(kintsugi_robin_map SYSTEM INTERFACE ${NB_DIR}/ext/robin_map/include)

# kintsugi_plain_extension(name SOURCES files... LAYERS layers...): kintsugi.<name>, without torch.
function(kintsugi_plain_extension name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS" ${ARGN})
  nanobind_add_module(${name} NB_STATIC NOMINSIZE NOSTRIP ${ARG_SOURCES})
  kintsugi_only_init(${name})
  kintsugi_link_layers(${name} ${ARG_LAYERS})
  target_link_libraries(${name} PRIVATE kintsugi_system)
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${KINTSUGI_EXT_DIR}/kintsugi)
  install(TARGETS ${name} LIBRARY DESTINATION kintsugi COMPONENT extension)
endfunction()

# kintsugi_extension(name CORE library LAYERS layers...): kintsugi.<name> from csrc/bindings, the layers' objects and a
# shared library.
function(kintsugi_extension name)
  cmake_parse_arguments(ARG "" "CORE" "LAYERS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/bindings/*.cc)
  if(NOT sources)
    message(STATUS "csrc/bindings is empty: no extension")
    return()
  endif()
  nanobind_add_module(${name} NB_STATIC NOMINSIZE NOSTRIP ${sources})
  kintsugi_only_init(${name})
  kintsugi_link_layers(${name} ${ARG_LAYERS})
  target_link_libraries(${name} PRIVATE ${ARG_CORE} kintsugi_torch kintsugi_system)
  kintsugi_torch_pair(${name})
  # In a build tree the shared library is that of the tree; installed, it lies in the folder above the module's. torch is
  # imported first, so the loader has its libraries already; their path is for a wheel used in other ways.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/..;$ORIGIN/../../torch/lib")
endfunction()
