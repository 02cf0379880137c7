// SPDX-License-Identifier: MIT
#include "tools/scenario/config_node.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Kind = ConfigNode::Kind;

ConfigNode parse(const std::string& text, Origin::Kind origin = Origin::Kind::user) {
  return parse_yaml(text, "s.yaml", origin);
}

/// The message of the UserError that `text` causes; "" when it is accepted.
std::string problem(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const ConfigNode& at(const ConfigNode& root, const std::string& a, const std::string& b = "") {
  const ConfigNode* n = root.find(a);
  if (n != nullptr && !b.empty()) n = n->find(b);
  if (n == nullptr) throw std::runtime_error("no " + a + "." + b);
  return *n;
}

TEST(ConfigNode, LinesOfKeysAndValuesInInputOrder) {
  const ConfigNode root = parse(
      "# comment\n"
      "b: 1\n"
      "\n"
      "a:\n"
      "  y:\n"
      "    folded\n"
      "  x: [1,\n"
      "      {k: v}]\n");
  ASSERT_EQ(root.kind, Kind::map);
  ASSERT_EQ(root.entries.size(), 2U);
  EXPECT_EQ(root.entries[0].key, "b");
  EXPECT_EQ(root.entries[0].key_pos.str(), "s.yaml:2");
  EXPECT_EQ(root.entries[0].value.text, "1");
  EXPECT_EQ(root.entries[0].value.origin.pos.str(), "s.yaml:2");
  EXPECT_EQ(root.entries[1].key, "a");
  EXPECT_EQ(root.entries[1].key_pos.line, 4);
  const ConfigNode& a = root.entries[1].value;
  ASSERT_EQ(a.entries.size(), 2U);
  EXPECT_EQ(a.entries[0].key, "y");
  EXPECT_EQ(a.entries[0].key_pos.line, 5);
  EXPECT_EQ(a.entries[0].value.origin.pos.line, 6);
  const ConfigNode& x = a.entries[1].value;
  ASSERT_EQ(x.kind, Kind::list);
  ASSERT_EQ(x.items.size(), 2U);
  EXPECT_EQ(x.items[0].origin.pos.line, 7);
  EXPECT_EQ(x.items[1].entries[0].key_pos.line, 8);
  EXPECT_EQ(x.items[1].entries[0].value.text, "v");
}

TEST(ConfigNode, WindowsLineEndsAndByteOrderMark) {
  const ConfigNode root = parse(
      "\xef\xbb\xbf"
      "a: 1\r\nb: {c: 2}\r\n");
  EXPECT_EQ(at(root, "a").text, "1");
  EXPECT_EQ(at(root, "b", "c").text, "2");
  EXPECT_EQ(at(root, "b", "c").origin.pos.line, 2);
}

struct Duplicate {
  const char* text;
  int first, second;
};

TEST(ConfigNode, DuplicateKeysNameBothLines) {
  const Duplicate rows[] = {
      {"a: 1\nb: 2\na: 3\n", 1, 3},       {"a: 1\n\"a\": 2\n", 1, 2},
      {"'a': 1\nb: 1\n\"a\": 2\n", 1, 3}, {"x:\n  a: 1\n  a: 1\n", 2, 3},
      {"x: {a: 1,\n    a: 1}\n", 1, 2},   {"l:\n- a: 1\n  b: 1\n  a: 2\n", 2, 4},
      {"a: {b: 1}\na: {c: 2}\n", 1, 2},   {"a:\na: 1\n", 1, 2},
  };
  for (const Duplicate& row : rows) {
    const std::string text = problem(row.text);
    EXPECT_TRUE(has(text, "key 'a' is given twice")) << row.text << text;
    EXPECT_EQ(text.rfind("s.yaml:" + std::to_string(row.second) + ":", 0), 0U) << text;
    EXPECT_TRUE(has(text, "the first is in line " + std::to_string(row.first) + ";")) << text;
  }
  // The same key in different maps is fine.
  EXPECT_EQ(problem("a: {k: 1}\nb: {k: 1}\nl: [{k: 1}, {k: 1}]\n"), "");
}

TEST(ConfigNode, AnchorsAndAliasesAreRefused) {
  for (const char* text : {"x: 1\na: &n 1\nb: 2\n", "x: 1\na: &n {b: 1}\n", "x: 1\na: &n [1]\n",
                           "x: 1\n&n a: 1\n", "x: 1\na: &n\n"}) {
    const std::string message = problem(text);
    EXPECT_TRUE(has(message, "s.yaml:2: anchors and aliases are not supported")) << text << message;
  }
  EXPECT_NE(problem("a: *nobody\n"), "");
  EXPECT_NE(problem("a: &n {b: 1}\nc:\n  <<: *n\n"), "");
}

TEST(ConfigNode, SecondDocumentIsRefused) {
  const std::string message = problem("a: 1\n---\nb: 2\n");
  EXPECT_TRUE(has(message, "a second document in one file")) << message;
  EXPECT_EQ(message.rfind("s.yaml:3:", 0), 0U) << message;
  EXPECT_EQ(problem("---\na: 1\n"), "");
  EXPECT_EQ(problem("a: 1\n...\n"), "");
}

TEST(ConfigNode, SyntaxErrorsNameTheLine) {
  struct Row {
    const char* text;
    int line;
  };
  const Row rows[] = {
      {"a: 1\n b: 2\n", 2},           // indented below a scalar
      {"a: 1\nb: [1, 2\nc: 3\n", 3},  // list not closed
      {"a: 1\nb: 'x\nc: 1\n", 3},     // quote not closed: noticed at the end
      {"a: 1\n\tb: 2\n", 2},          // tab
      {"a: 1\nb: \"\\q\"\n", 2},      // unknown escape
      {"a: 1\nb: @x\n", 2},           // reserved character
  };
  for (const Row& row : rows) {
    const std::string message = problem(row.text);
    EXPECT_TRUE(has(message, "not valid YAML")) << row.text << message;
    EXPECT_EQ(message.rfind("s.yaml:" + std::to_string(row.line) + ":", 0), 0U)
        << row.text << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ConfigNode, KeysMustBePlainWords) {
  EXPECT_TRUE(has(problem("x: 1\n? [a]\n: 1\n"), "a key must be a plain word"));
  EXPECT_TRUE(has(problem("x: 1\n? {a: 1}\n: 1\n"), "a key must be a plain word"));
}

TEST(ConfigNode, OnlyMapsAreDocuments) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "just words\n", "- a\n- b\n", "~\n"}) {
    EXPECT_TRUE(has(problem(text), "expected 'key: value' lines")) << "'" << text << "'";
  }
}

TEST(ConfigNode, NullValues) {
  const ConfigNode root = parse("a:\nb: ~\nc: null\nd: ''\ne: \"null\"\nf: '~'\ng: {h: }\n");
  for (const char* key : {"a", "b", "c"}) EXPECT_EQ(at(root, key).kind, Kind::null) << key;
  for (const char* key : {"d", "e", "f"}) EXPECT_EQ(at(root, key).kind, Kind::scalar) << key;
  EXPECT_EQ(at(root, "e").text, "null");
  EXPECT_EQ(at(root, "g", "h").kind, Kind::null);
  EXPECT_EQ(at(root, "a").origin.pos.line, 1);
}

TEST(ConfigNode, DepthLimit) {
  // The document's map is one level, so 63 lists more make 64.
  const auto nested = [](size_t n) {
    return "a: 1\nb: " + std::string(n, '[') + std::string(n, ']') + "\n";
  };
  EXPECT_EQ(problem(nested(63)), "");
  EXPECT_TRUE(has(problem(nested(64)), "s.yaml:2: nested deeper than 64 levels"));
  EXPECT_TRUE(has(problem(nested(200'000)), "nested deeper than 64 levels"));
  std::string blocks;
  for (int i = 0; i < 70; ++i) blocks += std::string(static_cast<size_t>(i), ' ') + "k:\n";
  EXPECT_TRUE(has(problem(blocks), "nested deeper than 64 levels"));
  EXPECT_NE(problem("a: " + std::string(100'000, '{')), "");
}

TEST(ConfigNode, GarbageIsAUserErrorNeverACrash) {
  uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint8_t>(state >> 56);
  };
  size_t refused = 0;
  const std::string alphabet = "a:: -[]{}\"'&*!|>?%@`#\n\n  ,~\t\\\0\xff\xc3\x28";
  for (int round = 0; round < 3000; ++round) {
    std::string text(1 + next() % 120U, '\0');
    for (char& c : text) {
      c = round % 2 == 0 ? static_cast<char>(next()) : alphabet[next() % alphabet.size()];
    }
    try {
      (void)parse(text);
    } catch (const UserError&) {
      ++refused;
    }  // anything else fails the test
  }
  EXPECT_GT(refused, 2000U);
}

TEST(ConfigNode, TruncatedScenarioIsAUserErrorNeverACrash) {
  std::ifstream in(fs::path(TRAINYARD_SOURCE_DIR) / "scenarios" / "quickstart.yaml");
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  ASSERT_GT(whole.size(), 500U);
  for (size_t n = 0; n < whole.size(); ++n) {
    try {
      (void)parse(whole.substr(0, n));
    } catch (const UserError&) {
    }
  }
}

class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           ("trainyard_config_" + std::to_string(::getpid()) + "_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  static std::string loading(const fs::path& path) {
    try {
      (void)load_yaml(path.string(), Origin::Kind::user);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
  fs::path dir_;
};

TEST_F(ConfigFile, MissingFileFolderAndEmptyFileAreToldApart) {
  EXPECT_EQ(loading(dir_ / "none.yaml").rfind("cannot read " + (dir_ / "none.yaml").string(), 0),
            0U);
  EXPECT_TRUE(has(loading(dir_), "cannot read"));
  std::ofstream(dir_ / "empty.yaml").flush();
  EXPECT_TRUE(has(loading(dir_ / "empty.yaml"), "expected 'key: value' lines"))
      << loading(dir_ / "empty.yaml");
  std::ofstream(dir_ / "zeros.yaml") << std::string(1000, '\0');
  EXPECT_NE(loading(dir_ / "zeros.yaml"), "");
  std::ofstream(dir_ / "good.yaml") << "a: 1\n";
  EXPECT_EQ(loading(dir_ / "good.yaml"), "");
}

TEST(ConfigMerge, UserWinsAndLinesAndOriginsSurvive) {
  ConfigNode base =
      parse_yaml("a: 1\nb: {x: 1, y: 2}\nc: [1, 2]\n", "preset.yaml", Origin::Kind::preset);
  const ConfigNode user = parse("\n\n\nb:\n  y: 3\n  z: 4\nc: 5\nd: 6\n");
  merge(base, user);
  EXPECT_EQ(at(base, "a").text, "1");
  EXPECT_EQ(at(base, "a").origin.kind, Origin::Kind::preset);
  EXPECT_EQ(at(base, "a").origin.pos.str(), "preset.yaml:1");
  EXPECT_EQ(at(base, "b", "x").origin.pos.str(), "preset.yaml:2");
  EXPECT_EQ(at(base, "b", "y").text, "3");
  EXPECT_EQ(at(base, "b", "y").origin.kind, Origin::Kind::user);
  EXPECT_EQ(at(base, "b", "y").origin.pos.str(), "s.yaml:5");
  EXPECT_EQ(at(base, "b", "z").origin.pos.str(), "s.yaml:6");
  EXPECT_EQ(at(base, "c").kind, Kind::scalar);  // a list is replaced, not merged
  EXPECT_EQ(at(base, "d").text, "6");
  ASSERT_EQ(base.entries.size(), 4U);
  EXPECT_EQ(base.entries[1].key_pos.str(), "s.yaml:4");
}

TEST(ConfigSetting, SetsReplacesAndCreates) {
  ConfigNode root = parse("a: {b: 1, c: 2}\n");
  apply_setting(root, "a.b=7");
  apply_setting(root, "a.d.e=4MiB");
  apply_setting(root, "f=[1, {g: 2}]");
  apply_setting(root, "h=x=y");  // only the first '=' divides
  EXPECT_EQ(at(root, "a", "b").text, "7");
  EXPECT_EQ(at(root, "a", "b").origin.kind, Origin::Kind::command_line);
  EXPECT_EQ(at(root, "a", "b").origin.pos.str(), "--set a.b=7");
  EXPECT_EQ(at(root, "a", "c").text, "2");
  EXPECT_EQ(at(root, "a", "c").origin.pos.str(), "s.yaml:1");
  EXPECT_EQ(at(at(root, "a", "d"), "e").text, "4MiB");
  EXPECT_EQ(at(root, "f").items.size(), 2U);
  EXPECT_EQ(at(root, "h").text, "x=y");
  apply_setting(root, "a.b=");
  EXPECT_EQ(at(root, "a", "b").kind, Kind::null);
}

TEST(ConfigSetting, BadOnesAreUserErrors) {
  for (const char* text : {"", "a", "=1", "a.b", ".=1", "a..b=1", ".a=1"}) {
    ConfigNode root = parse("a: {c: 1}\n");
    EXPECT_THROW(apply_setting(root, text), UserError) << text;
  }
  for (const char* text : {"s.x=1", "l.x=1", "a=[1", "a={k: 1, k: 2}", "a=&n 1"}) {
    ConfigNode root = parse("s: 1\nl: [1]\n");
    try {
      apply_setting(root, text);
      ADD_FAILURE() << "accepted " << text;
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()).rfind("--set " + std::string(text), 0), 0U) << e.what();
    }
  }
}

}  // namespace
}  // namespace trainyard
