# torch, as the interpreter's own package has it. Its CMake package is not used: it looks for CUDA when the wheel was
# built with it, and we only need the headers and three libraries.

execute_process(
  COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin), end='')"
  OUTPUT_VARIABLE KINTSUGI_TORCH_DIR RESULT_VARIABLE status ERROR_QUIET)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "torch is missing from ${Python_EXECUTABLE}: pip install torch==2.13.0.")
endif()

file(STRINGS ${KINTSUGI_TORCH_DIR}/version.py version REGEX "^__version__")
if(NOT version MATCHES "2\\.1[34]")
  message(FATAL_ERROR "Kintsugi needs torch 2.13.0, found ${version} in ${KINTSUGI_TORCH_DIR}.")
endif()
file(STRINGS ${KINTSUGI_TORCH_DIR}/share/cmake/Torch/TorchConfig.cmake abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
if(abi)
  message(FATAL_ERROR "This torch was built with the old C++ ABI, which Kintsugi does not support.")
endif()

add_library(kintsugi_torch INTERFACE)
target_include_directories(kintsugi_torch SYSTEM INTERFACE
  ${KINTSUGI_TORCH_DIR}/include ${KINTSUGI_TORCH_DIR}/include/torch/csrc/api/include)
target_link_libraries(kintsugi_torch INTERFACE
  ${KINTSUGI_TORCH_DIR}/lib/libtorch_python.so
  ${KINTSUGI_TORCH_DIR}/lib/libtorch_cpu.so
  ${KINTSUGI_TORCH_DIR}/lib/libc10.so
  Python::Module)
