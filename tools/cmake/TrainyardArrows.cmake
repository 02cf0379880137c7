# SPDX-License-Identifier: MIT
# Refuses to configure when a library links against one above or beside it (arrows.txt).

set(TRAINYARD_ARROWS_FILE "${CMAKE_CURRENT_LIST_DIR}/arrows.txt")

# The folder of the house that a path relative to the root of the source is in.
function(trainyard_folder_of path result)
  string(REGEX MATCH "^[^/]+" first "${path}")
  set(${result} "${first}" PARENT_SCOPE)
endfunction()

# Looks at the targets of `directory` and below. Uses the lists arrows_<folder> of its caller.
function(trainyard_check_directory root directory)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(source_dir ${target} SOURCE_DIR)
    file(RELATIVE_PATH source_dir "${root}" "${source_dir}")
    trainyard_folder_of("${source_dir}" from)
    if(NOT DEFINED arrows_${from})
      continue()  # tests and the root may use everything
    endif()
    set(links "")
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(value ${target} ${property})
      if(value)
        list(APPEND links ${value})
      endif()
    endforeach()
    # Generator expressions too: every name in them that is a target of ours.
    string(REGEX MATCHALL "[A-Za-z0-9_.+-]+" names "${links}")
    list(REMOVE_DUPLICATES names)
    foreach(name ${names})
      if(NOT TARGET ${name} OR name STREQUAL target)
        continue()
      endif()
      get_target_property(imported ${name} IMPORTED)
      if(imported)
        continue()
      endif()
      get_target_property(link_dir ${name} SOURCE_DIR)
      file(RELATIVE_PATH link_dir "${root}" "${link_dir}")
      trainyard_folder_of("${link_dir}" to)
      if(NOT to STREQUAL from AND NOT to IN_LIST arrows_${from})
        message(FATAL_ERROR "${target} (${from}/) links ${name} (${to}/); ${from}/ may only use: "
                            "${arrows_${from}} (see tools/cmake/arrows.txt)")
      endif()
    endforeach()
  endforeach()
  get_property(subdirectories DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(subdirectory ${subdirectories})
    trainyard_check_directory("${root}" "${subdirectory}")
  endforeach()
endfunction()

# Checks all targets of the directory that calls it and those below, `root` being the root of the
# house. Call last.
function(trainyard_check_arrows root)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${TRAINYARD_ARROWS_FILE}")
  file(STRINGS "${TRAINYARD_ARROWS_FILE}" lines REGEX "^[a-z]")
  foreach(line ${lines})
    string(REGEX MATCH "^([a-z_]+): *(.*)$" matched "${line}")
    string(REPLACE " " ";" below "${CMAKE_MATCH_2}")
    set(arrows_${CMAKE_MATCH_1} "${below}")
  endforeach()
  trainyard_check_directory("${root}" "${CMAKE_CURRENT_SOURCE_DIR}")
endfunction()
