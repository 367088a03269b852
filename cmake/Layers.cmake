# A layer is a directory of csrc/; what it may include is checked by scripts/check_layers.py, from csrc/layers.toml.

# kintsugi_layer(name DEPENDS layers... LIBRARIES targets... INSIDE targets... EXPORTED): the object library of
# csrc/<name>/**/*.cc. Object libraries, not archives: tables that register themselves must not be dropped by the linker.
# LIBRARIES are also used by what includes the layer's headers; INSIDE are linked only where its objects are. What an
# EXPORTED layer declares is seen outside of the library that it is part of (cmake/core.map says what of it).
function(kintsugi_layer name)
  cmake_parse_arguments(ARG "EXPORTED" "" "DEPENDS;LIBRARIES;INSIDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/${name}/*.cc)
  # Of the folders of CPython versions (csrc/pyapi/v311/, since312/, until312/ ...), those of the Python that the build is for.
  set(version ${Python_VERSION_MAJOR}${Python_VERSION_MINOR})
  foreach(source ${sources})
    if((source MATCHES "/v([0-9]+)/[^/]*$" AND NOT CMAKE_MATCH_1 EQUAL version) OR
       (source MATCHES "/since([0-9]+)/[^/]*$" AND CMAKE_MATCH_1 GREATER version) OR
       (source MATCHES "/until([0-9]+)/[^/]*$" AND CMAKE_MATCH_1 LESS version))
      list(REMOVE_ITEM sources ${source})
    endif()
  endforeach()

  # Usage requirements travel on an interface library, so that depending on a layer does not link its objects twice.
  add_library(kintsugi_${name}_usage INTERFACE)
  target_link_libraries(kintsugi_${name}_usage INTERFACE kintsugi_options ${ARG_LIBRARIES})
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(kintsugi_${name}_usage INTERFACE kintsugi_${dependency}_usage)
  endforeach()

  if(sources)
    add_library(kintsugi_${name} OBJECT ${sources})
    target_link_libraries(kintsugi_${name} PRIVATE kintsugi_${name}_usage PUBLIC ${ARG_INSIDE})
    if(ARG_EXPORTED)
      set_target_properties(kintsugi_${name} PROPERTIES CXX_VISIBILITY_PRESET default)
      # Nothing replaces our functions at load time, so they are inlined as if they were hidden.
      target_compile_options(kintsugi_${name} PRIVATE -fno-semantic-interposition)
    endif()
  endif()
endfunction()

# The objects of some layers and what they link, for an executable or the extension.
function(kintsugi_link_layers target)
  foreach(layer ${ARGN})
    target_link_libraries(${target} PRIVATE kintsugi_${layer}_usage)
    if(TARGET kintsugi_${layer})
      target_link_libraries(${target} PRIVATE kintsugi_${layer})
    endif()
  endforeach()
endfunction()
