# SPDX-License-Identifier: MIT
# What Trainyard builds on. All that is missing is named at once, with the line that installs it.
# Imported targets bring their headers as SYSTEM headers: our warnings do not look into them.

set(TRAINYARD_MISSING "")

# trainyard_need(<debian package> <find_package arguments...>)
macro(trainyard_need debian_package)
  find_package(${ARGN} QUIET)
  if(NOT ${ARGV1}_FOUND)
    list(APPEND TRAINYARD_MISSING ${debian_package})
  endif()
endmacro()

trainyard_need(libyaml-cpp-dev yaml-cpp)
trainyard_need(libfmt-dev fmt)
trainyard_need(nlohmann-json3-dev nlohmann_json)
trainyard_need(libcli11-dev CLI11)
trainyard_need(libprotobuf-dev Protobuf)
trainyard_need(zlib1g-dev ZLIB)
trainyard_need(libboost-graph-dev Boost 1.74)
trainyard_need(libeigen3-dev Eigen3 3.4 NO_MODULE)
trainyard_need(libgtest-dev GTest)
trainyard_need(libbenchmark-dev benchmark)

# Packages that are found without the part that we use.
if(Protobuf_FOUND AND NOT Protobuf_PROTOC_EXECUTABLE)
  list(APPEND TRAINYARD_MISSING protobuf-compiler)
endif()
if(Boost_FOUND)
  find_file(TRAINYARD_BOOST_GRAPH boost/graph/adjacency_list.hpp HINTS ${Boost_INCLUDE_DIRS})
  if(NOT TRAINYARD_BOOST_GRAPH)
    list(APPEND TRAINYARD_MISSING libboost-graph-dev)
  endif()
endif()

if(TRAINYARD_MISSING)
  list(JOIN TRAINYARD_MISSING " " TRAINYARD_MISSING)
  # Indented, so that CMake does not break the line.
  message(FATAL_ERROR "Missing packages; install them with\n  apt-get update && apt-get install -y "
                      "--no-install-recommends ${TRAINYARD_MISSING}")
endif()
