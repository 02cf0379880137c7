// SPDX-License-Identifier: MIT
// Files that claim more than they hold (found by tools/fuzz): refused before memory is taken.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "network/topology.h"

namespace trainyard {
namespace {

std::string problem(const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("trainyard_limits_" + std::to_string(::getpid()) + ".txt");
  std::ofstream(path) << text;
  std::string found;
  try {
    Params params(Registry::instance().get("topology", "file").params);
    params.set("path", path.string(), {});
    (void)Registry::instance().factory<TopologyFactory>("topology", "file")(TopologyRequest{},
                                                                            params);
  } catch (const UserError& e) {
    found = e.what();
  }
  std::filesystem::remove(path);
  return found;
}

TEST(TopologyLimits, HostsWithoutLinksAreCountedBeforeTheyAreBuilt) {
  EXPECT_NE(problem("9999999 0 0\n").find(":1: 9999999 hosts and 0 links: some host has no link"),
            std::string::npos);
  EXPECT_NE(problem("6 1 2\n5\n0 5 1Gbps 1us 0\n1 5 1Gbps 1us 0\n").find("5 hosts and 2 links"),
            std::string::npos);
  EXPECT_EQ(problem("2 0 1\n0 1 1Gbps 1us 0\n"), "");
}

TEST(TopologyLimits, SumsOfTheHeaderCannotOverflow) {
  const std::string most = std::to_string(INT64_MAX);
  EXPECT_NE(problem("4 1 " + most + " " + most + " 3 H100\n").find("the header declares"),
            std::string::npos);
  EXPECT_NE(problem("2 0 " + most + "\n0 1 1Gbps 1us 0\n").find("the file has 1"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard
