# Every third-party dependency, as an imported target. docs/dependencies.md says why each was chosen.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(absl REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(GTest REQUIRED)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(TIFF REQUIRED)
pkg_check_modules(webp REQUIRED IMPORTED_TARGET libwebp)
pkg_check_modules(yamlcpp REQUIRED IMPORTED_TARGET yaml-cpp)

# LibTorch from the PyPI wheel. find_package(Torch) would drag nvcc in, so the target is our own.
# The wheel bundles protobuf 3.13 headers: its include folders come last (-idirafter).
file(GLOB torch_candidates ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
list(GET torch_candidates 0 torch_found)
set(TUNDISH_TORCH_DIR "${torch_found}" CACHE PATH "Folder that holds LibTorch's include/ and lib/")
if(NOT EXISTS "${TUNDISH_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found in '${TUNDISH_TORCH_DIR}': run deploy/dev/setup.sh first")
endif()
add_library(tundish_torch INTERFACE)
add_library(tundish::torch ALIAS tundish_torch)
target_compile_options(tundish_torch INTERFACE
  "SHELL:-idirafter ${TUNDISH_TORCH_DIR}/include"
  "SHELL:-idirafter ${TUNDISH_TORCH_DIR}/include/torch/csrc/api/include")
target_compile_definitions(tundish_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(tundish_torch INTERFACE
  ${TUNDISH_TORCH_DIR}/lib/libtorch_cpu.so ${TUNDISH_TORCH_DIR}/lib/libc10.so)
target_link_options(tundish_torch INTERFACE
  -Wl,-rpath,${TUNDISH_TORCH_DIR}/lib -Wl,--allow-shlib-undefined)
