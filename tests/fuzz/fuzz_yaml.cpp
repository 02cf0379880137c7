// SPDX-License-Identifier: MIT
// A scenario: the text, then the grammar, then the checks between its blocks.
#include "tests/fuzz/fuzz_input.h"
#include "tools/scenario/run.h"
#include "tools/scenario/scenario.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;
  static const fuzz::MemoryFile file("scenario");
  file.put(data, size);
  fuzz::refuse_or_read([] { (void)load_yaml(file.path(), Origin::Kind::user); });
  fuzz::refuse_or_read([] { (void)packet_config(load_scenario(file.path())); });
  return 0;
}
