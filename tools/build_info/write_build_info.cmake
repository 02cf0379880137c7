# SPDX-License-Identifier: MIT
# cmake -D SOURCE_DIR=... -D OUTPUT=... -D TEMPLATE=... -D VERSION=... -P this
# Runs in every build, so that the commit is the one that was built; touches OUTPUT on change only.
set(COMMIT "")
find_program(GIT_PROGRAM git)
# A source archive inside somebody else's checkout must not report theirs.
if(GIT_PROGRAM AND EXISTS "${SOURCE_DIR}/.git")
  execute_process(COMMAND "${GIT_PROGRAM}" -C "${SOURCE_DIR}" describe --always --dirty --tags
                  OUTPUT_VARIABLE described RESULT_VARIABLE failed ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND described MATCHES "^[A-Za-z0-9._+/-]+$")
    set(COMMIT "${described}")
  endif()
endif()
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
