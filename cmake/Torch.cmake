# torch, as the interpreter's own package has it. Its CMake package is not used: it looks for CUDA when the wheel was
# built with it, and we only need the headers and three libraries.

execute_process(
  COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin), end='')"
  OUTPUT_VARIABLE KINTSUGI_TORCH_DIR RESULT_VARIABLE status ERROR_QUIET)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "torch is missing from ${Python_EXECUTABLE}: pip install torch.")
endif()

# The minor versions that requirements/pairs.txt has rows for with this CPython: libtorch's ABI changes with each.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/requirements/pairs.txt ${KINTSUGI_TORCH_DIR}/version.py)
set(python ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})
file(STRINGS ${CMAKE_SOURCE_DIR}/requirements/pairs.txt rows REGEX "^[0-9]")
set(minors "")
foreach(row ${rows})
  if(row MATCHES "^${python} +([0-9.]+) ")
    list(APPEND minors ${CMAKE_MATCH_1})
  endif()
endforeach()

file(STRINGS ${KINTSUGI_TORCH_DIR}/version.py version REGEX "^__version__")
if(NOT version MATCHES "'([0-9]+)\\.([0-9]+)\\.([^+']+)")
  message(FATAL_ERROR "${KINTSUGI_TORCH_DIR}/version.py says no version: ${version}")
endif()
set(KINTSUGI_TORCH_FOLDER torch${CMAKE_MATCH_1}${CMAKE_MATCH_2})
set(KINTSUGI_TORCH_RELEASE ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
if(NOT "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}" IN_LIST minors)
  list(JOIN minors " or " minors)
  message(FATAL_ERROR "Kintsugi needs torch ${minors} with CPython ${python}, found ${version} in ${KINTSUGI_TORCH_DIR}.")
endif()
file(STRINGS ${KINTSUGI_TORCH_DIR}/share/cmake/Torch/TorchConfig.cmake abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
if(abi)
  message(FATAL_ERROR "This torch was built with the old C++ ABI, which Kintsugi does not support.")
endif()

add_library(kintsugi_torch INTERFACE)
target_include_directories(kintsugi_torch SYSTEM INTERFACE
  ${KINTSUGI_TORCH_DIR}/include ${KINTSUGI_TORCH_DIR}/include/torch/csrc/api/include)
# Where torch lies is not part of what is built: its macros put names of its headers into messages.
get_filename_component(packages ${KINTSUGI_TORCH_DIR} DIRECTORY)
target_compile_options(kintsugi_torch INTERFACE -fmacro-prefix-map=${packages}/=)
target_link_libraries(kintsugi_torch INTERFACE
  ${KINTSUGI_TORCH_DIR}/lib/libtorch_python.so
  ${KINTSUGI_TORCH_DIR}/lib/libtorch_cpu.so
  ${KINTSUGI_TORCH_DIR}/lib/libc10.so
  Python::Module)
include(${CMAKE_CURRENT_LIST_DIR}/TorchFeatures.cmake)

# kintsugi_torch_pair(name): the extension goes to a folder of its minor version of torch, with a file beside it that says
# which release it was built with (python/kintsugi/_built_with.py).
function(kintsugi_torch_pair name)
  set(folder ${KINTSUGI_EXT_DIR}/kintsugi/${KINTSUGI_TORCH_FOLDER})
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${folder})
  install(TARGETS ${name} LIBRARY DESTINATION kintsugi/${KINTSUGI_TORCH_FOLDER} COMPONENT extension)
  string(REGEX REPLACE "\\.so$" ".json" file "${folder}/${name}${NB_SUFFIX}")
  execute_process(COMMAND ${Python_EXECUTABLE} -I ${CMAKE_SOURCE_DIR}/python/kintsugi/_built_with.py
    ${KINTSUGI_TORCH_DIR} ${file} COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${file} DESTINATION kintsugi/${KINTSUGI_TORCH_FOLDER} COMPONENT extension)
endfunction()
