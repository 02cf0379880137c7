// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "sim/errors.h"
#include "tests/report/synthetic_result.h"
#include "tools/report/report.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class Write : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() /
           ("trainyard_report_" + std::to_string(::getpid()) + "_" + info->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string message(const std::string& dir) {
    try {
      write_all(testing::synthetic_result(), dir);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  }
  fs::path dir_;
};

TEST_F(Write, AllFilesAndNoTemporaryOnes) {
  write_all(testing::synthetic_result(), (dir_ / "a" / "b").string());
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(dir_ / "a" / "b")) {
    ++files;
    EXPECT_GT(entry.file_size(), 0U) << entry.path();
  }
  EXPECT_EQ(files, 6U);
  EXPECT_EQ(content(dir_ / "a" / "b" / "result.json"), result_json(testing::synthetic_result()));
}

TEST_F(Write, NoEmptyFileAndNoneOfAnEarlierRun) {
  write_all(testing::synthetic_result(), dir_.string());
  ASSERT_TRUE(fs::exists(dir_ / "collectives.csv"));
  write_all(testing::traffic_only_result(), dir_.string());
  EXPECT_FALSE(fs::exists(dir_ / "collectives.csv"));
  EXPECT_FALSE(fs::exists(dir_ / "ranks.csv"));
  EXPECT_TRUE(fs::exists(dir_ / "flows.csv"));
  EXPECT_TRUE(fs::exists(dir_ / "result.json"));
}

TEST_F(Write, EqualResultsGiveEqualBytes) {
  write_all(testing::synthetic_result(), (dir_ / "1").string());
  write_all(testing::synthetic_result(), (dir_ / "2").string());
  for (const auto& entry : fs::directory_iterator(dir_ / "1")) {
    EXPECT_EQ(content(entry.path()), content(dir_ / "2" / entry.path().filename()));
  }
}

TEST_F(Write, FolderThatCannotBeCreatedIsAUserError) {
  std::ofstream(dir_ / "file") << "x";
  const std::string below = message((dir_ / "file" / "out").string());
  EXPECT_NE(below.find((dir_ / "file" / "out").string()), std::string::npos) << below;
  EXPECT_NE(below.find("Not a directory"), std::string::npos) << below;
  EXPECT_NE(below.find("choose another output folder"), std::string::npos) << below;
  const std::string at = message((dir_ / "file").string());
  EXPECT_NE(at.find("a part of the path is a file"), std::string::npos) << at;
}

TEST_F(Write, FolderWithoutWritePermissionIsAUserError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  fs::permissions(dir_, fs::perms::owner_read | fs::perms::owner_exec);
  const std::string text = message(dir_.string());
  fs::permissions(dir_, fs::perms::owner_all);
  EXPECT_NE(text.find("Permission denied"), std::string::npos) << text;
  EXPECT_NE(text.find("choose an output folder that you may write to"), std::string::npos) << text;
}

TEST_F(Write, ReplacesWholeFilesAndKeepsLinks) {
  const fs::path real = dir_ / "real", link = dir_ / "link";
  write_atomically(real.string(), "old and longer");
  fs::create_symlink(real, link);
  write_atomically(link.string(), "new");
  EXPECT_EQ(content(real), "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_THROW(write_atomically(dir_.string(), "x"), UserError);
  EXPECT_THROW(write_atomically((dir_ / "none" / "file").string(), "x"), UserError);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 2);
  write_atomically("/dev/null", "a device stays a device");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace trainyard
