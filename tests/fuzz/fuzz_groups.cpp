// SPDX-License-Identifier: MIT
// comm_group.json.
#include "chakra/reader.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;
  static const fuzz::MemoryFile file("groups");
  file.put(data, size);
  fuzz::refuse_or_read([] { (void)chakra::read_group_file(file.path()); });
  return 0;
}
