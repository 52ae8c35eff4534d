# find_package(Torch): Rushlight under LibTorch's names.
#
#   TORCH_FOUND, TORCH_LIBRARIES, TORCH_INCLUDE_DIRS, TORCH_CXX_FLAGS, TORCH_INSTALL_PREFIX
#   targets: torch, torch_library, torch_cpu, c10, rushlight::rushlight, rushlight::static
get_filename_component(TORCH_INSTALL_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

set(CMAKE_THREAD_PREFER_PTHREAD TRUE)
include(CMakeFindDependencyMacro)
# Programs of C alone have no C++ compiler to look for.
find_dependency(Threads)

if(NOT TARGET torch)
  add_library(rushlight::rushlight SHARED IMPORTED)
  set_target_properties(rushlight::rushlight PROPERTIES
    IMPORTED_LOCATION "${TORCH_INSTALL_PREFIX}/lib/librushlight.so"
    IMPORTED_SONAME "librushlight.so"
    INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INSTALL_PREFIX}/include")
  if(EXISTS "${TORCH_INSTALL_PREFIX}/lib/librushlight.a")
    add_library(rushlight::static STATIC IMPORTED)
    set_target_properties(rushlight::static PROPERTIES
      IMPORTED_LOCATION "${TORCH_INSTALL_PREFIX}/lib/librushlight.a"
      INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INSTALL_PREFIX}/include"
      INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
  endif()
  # The headers need C++17, whatever standard a target asks for.
  foreach(name torch torch_library torch_cpu c10)
    add_library(${name} INTERFACE IMPORTED)
    set_target_properties(${name} PROPERTIES
      INTERFACE_LINK_LIBRARIES "rushlight::rushlight;Threads::Threads"
      INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INSTALL_PREFIX}/include"
      INTERFACE_COMPILE_FEATURES "cxx_std_17")
  endforeach()
endif()

set(TORCH_LIBRARIES torch)
set(TORCH_LIBRARY torch)
set(TORCH_INCLUDE_DIRS "${TORCH_INSTALL_PREFIX}/include")
set(TORCH_CXX_FLAGS "")
set(TORCH_FOUND TRUE)
set(Torch_FOUND TRUE)
