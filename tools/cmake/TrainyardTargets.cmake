# SPDX-License-Identifier: MIT

set(TRAINYARD_LIBRARIES
    trainyard_sim trainyard_network trainyard_stepping trainyard_memo trainyard_chakra trainyard_workload
    trainyard_gpu_replay trainyard_faults trainyard_build_info trainyard_tables trainyard_report
    trainyard_scenario trainyard_calibrate trainyard_published trainyard_lint)

# Links all of Trainyard that is in this tree into an executable. Models announce themselves by
# static objects that nothing refers to, which an archive would leave out: the objects go in
# themselves. (WHOLE_ARCHIVE repeats an archive that is also a dependency of a later one.)
function(trainyard_link_all target)
  foreach(library ${TRAINYARD_LIBRARIES})
    if(TARGET ${library})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
      target_link_libraries(${target} PRIVATE ${library})
    endif()
  endforeach()
  target_link_libraries(${target} PRIVATE fmt::fmt)
endfunction()
