// SPDX-License-Identifier: MIT
// What this binary is, for `trainyard version` and the head of every result.
#pragma once

namespace trainyard {

struct BuildInfo {
  const char* version;     ///< "0.1.0"
  const char* commit;      ///< `git describe` of the source, "" outside a git checkout
  const char* build_type;  ///< "Release", "Debug", ...; sanitizers are appended: "Debug+thread"
  const char* compiler;    ///< "GNU 12.2.0"
};

const BuildInfo& build_info();

}  // namespace trainyard
