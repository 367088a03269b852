# libkintsugi_core.so: the layers that know neither Python nor torch, and LLVM. A wheel has it once; the modules beside it,
# one for each minor version of torch, are small (docs/adr/0018-the-core-is-a-library.md).

# kintsugi_core(LAYERS layers...): the target kintsugi_core. Its layers are those of kintsugi_layer(... EXPORTED).
function(kintsugi_core)
  cmake_parse_arguments(ARG "" "" "LAYERS" ${ARGN})
  add_library(kintsugi_core SHARED)
  kintsugi_link_layers(kintsugi_core ${ARG_LAYERS})
  target_link_libraries(kintsugi_core PRIVATE kintsugi_system)
  set(map ${CMAKE_SOURCE_DIR}/cmake/core.map)
  # Calls inside the library are bound when it is linked; only those of the modules go through a table.
  target_link_options(kintsugi_core PRIVATE
    -Wl,--version-script=${map} -Wl,-Bsymbolic -Wl,--gc-sections -Wl,-z,defs -Wl,-z,now -Wl,-O1)
  set_target_properties(kintsugi_core PROPERTIES
    LINKER_LANGUAGE CXX LINK_DEPENDS ${map} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  install(TARGETS kintsugi_core LIBRARY DESTINATION kintsugi COMPONENT extension)
endfunction()

# kintsugi_only_init(module): a module exports the function that Python calls, and nothing else.
function(kintsugi_only_init module)
  set(map ${CMAKE_SOURCE_DIR}/cmake/module.map)
  target_link_options(${module} PRIVATE -Wl,--version-script=${map})
  set_property(TARGET ${module} APPEND PROPERTY LINK_DEPENDS ${map})
endfunction()
