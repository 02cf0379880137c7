// SPDX-License-Identifier: MIT
// A trace file of one rank: reading, validating, importing.
#include "chakra/reader.h"
#include "chakra/validator.h"
#include "tests/fuzz/fuzz_input.h"
#include "workload/chakra_importer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;
  static const fuzz::MemoryFile file("trace");
  file.put(data, size);
  fuzz::refuse_or_read([] {
    chakra::TraceSet set;
    set.ranks.push_back(chakra::read_rank(file.path()));
    set.groups = set.ranks[0].groups;
    (void)chakra::summarise(set);
    (void)chakra::validate(set);
    (void)import_chakra(set, "fuzz", {});
  });
  return 0;
}
