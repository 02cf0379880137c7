// SPDX-License-Identifier: MIT
// A topology file in either format.
#include "network/topology.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;
  static const fuzz::MemoryFile file("topology");
  static const ModelDoc& doc = Registry::instance().get("topology", "file");
  static const auto& make = Registry::instance().factory<TopologyFactory>("topology", "file");
  file.put(data, size);
  fuzz::refuse_or_read([] {
    Params params(doc.params);
    params.set("path", file.path(), {});
    (void)make(TopologyRequest{}, params);
  });
  return 0;
}
