# SPDX-License-Identifier: MIT
# cmake -D PROGRAM=... -D PREFIX=... -P this
# Runs `PROGRAM PREFIX` unless a stamp beside the outputs says that this very program wrote them
# and they are all still there. The stamp is the program's hash, then the files' names.
get_filename_component(folder "${PREFIX}" DIRECTORY)
get_filename_component(name "${PREFIX}" NAME)
set(stamp "${folder}/.${name}.stamp")
file(SHA256 "${PROGRAM}" program_hash)

set(needed TRUE)
if(EXISTS "${stamp}")
  file(STRINGS "${stamp}" lines)
  list(POP_FRONT lines written_by)
  if(written_by STREQUAL program_hash AND lines)
    set(needed FALSE)
    foreach(file ${lines})
      if(NOT EXISTS "${folder}/${file}")
        set(needed TRUE)
      endif()
    endforeach()
  endif()
endif()
if(NOT needed)
  return()
endif()

# Another build directory may be at it right now.
file(MAKE_DIRECTORY "${folder}")
file(LOCK "${stamp}.lock" GUARD PROCESS TIMEOUT 60)
file(REMOVE "${stamp}")
execute_process(COMMAND "${PROGRAM}" "${PREFIX}" RESULT_VARIABLE failed
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(failed)
  message(FATAL_ERROR "${PROGRAM} ${PREFIX} failed (${failed}): ${output}")
endif()
file(GLOB files RELATIVE "${folder}" "${folder}/*")
list(FILTER files EXCLUDE REGEX "^\\.")  # stamp and lock
if(NOT files)
  message(FATAL_ERROR "${PROGRAM} ${PREFIX} wrote no file")
endif()
list(JOIN files "\n" files)
file(WRITE "${stamp}" "${program_hash}\n${files}\n")
