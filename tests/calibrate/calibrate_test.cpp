// SPDX-License-Identifier: MIT
// trainyard calibrate: "measured" steps are simulated ones of a card that is changed, so that what
// it must find is known.
#include "tools/calibrate/calibrate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tools/scenario/run.h"
#include "tools/tables/csv_table.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class Calibrate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_calibrate_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    options_.csv = (folder_ / "steps.csv").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string scenario(const std::string& name, int hidden, int sequence,
                       const std::string& more = "", const std::string& device = "h100-sxm") {
    std::ofstream(folder_ / name) << "name: " << name << "\ncluster: {nodes: 1, device: " << device
                                  << "}\nworkload:\n  model: {layers: 4, hidden: " << hidden
                                  << ", heads: 16, vocab: 32000}\n  layout: {tp: 2, dp: 4}\n"
                                     "  batch: {global: 8, sequence: "
                                  << sequence << "}\n"
                                  << more << "simulation: {engine: flow}\n";
    return (folder_ / name).string();
  }
  /// What a GPU with this fit would take.
  static double truth(const std::string& file, const DeviceFit& fit) {
    ScenarioOverrides overrides;
    overrides.settings = {"compute.model=fitted"};
    Scenario s = load_scenario(file, overrides);
    s.device.fit = fit;
    return run_scenario(s).step_time.seconds();
  }
  void csv(const std::string& text) { std::ofstream(options_.csv) << text; }
  std::string problem() {
    try {
      (void)calibrate(options_);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
  fs::path folder_;
  CalibrateOptions options_;
};

double value(const Calibration& c, const std::string& name) {
  for (const CalibratedParameter& p : c.parameters) {
    if (p.name == name) return p.value;
  }
  ADD_FAILURE() << "no constant " << name;
  return 0;
}

TEST_F(Calibrate, FindsTheCardThatTheStepsWereMeasuredOn) {
  const DeviceFit nominal = load_device("h100-sxm", {}).fit;
  DeviceFit slow = nominal;
  slow.gemm_half *= 0.75;
  std::ostringstream text;
  text.precision(12);
  text << "scenario,time_s,source,weight\n";
  for (const int hidden : {2048, 4096, 8192}) {
    for (const int sequence : {2048, 8192}) {
      const std::string name =
          "s" + std::to_string(hidden) + "-" + std::to_string(sequence) + ".yaml";
      text << name << ',' << truth(scenario(name, hidden, sequence), slow) << ",cluster " << hidden
           << ",200\n";
    }
  }
  csv(text.str());
  const Calibration c = calibrate(options_);
  EXPECT_GT(c.before.median_pct, 10);
  EXPECT_LT(c.fitted.median_pct, 1);
  EXPECT_LT(c.fitted.p90_pct, 2);
  EXPECT_TRUE(c.left_out_in_turn);
  EXPECT_EQ(c.heldout.rows, 6U);
  EXPECT_LT(c.heldout.median_pct, 3);
  EXPECT_NEAR(value(c, "gemm.half") / nominal.gemm_half, 0.75, 0.06);
  EXPECT_NEAR(value(c, "unfused"), nominal.unfused, 1e-3);  // no step has any: its prior
  // The card that is written is the old one with another fit.
  write_card(c.card, (folder_ / "card.yaml").string());
  std::ifstream in(folder_ / "card.yaml");
  std::stringstream card;
  card << in.rdbuf();
  EXPECT_EQ(card.str().find("fit:"), card.str().rfind("fit:"));
  EXPECT_NE(card.str().find("tflops: 989.4"), std::string::npos);
  EXPECT_NE(card.str().find("6 steps of steps.csv"), std::string::npos);
  EXPECT_NE(card.str().find(fit_block(c.card.fit)), std::string::npos);
  std::ostringstream shown;
  print_calibration(c, shown);
  EXPECT_NE(shown.str().find("left out once"), std::string::npos);
}

TEST_F(Calibrate, HeldOutStepsTakeNoPart) {
  const DeviceFit nominal = load_device("h100-sxm", {}).fit;
  std::ostringstream text;
  text.precision(12);
  text << "scenario,time_s,source,half\n";
  const double a = truth(scenario("a.yaml", 4096, 4096), nominal);
  const double b = truth(scenario("b.yaml", 8192, 4096), nominal);
  text << "a.yaml," << a << ",one,\nb.yaml," << 2 * b << ",two,\nb.yaml," << 2 * b << ",one,held\n";
  csv(text.str());
  options_.heldout = {"two"};
  options_.rounds = 1;
  const Calibration c = calibrate(options_);
  EXPECT_EQ(c.fitted.rows, 1U);
  EXPECT_EQ(c.heldout.rows, 2U);
  EXPECT_LT(c.fitted.median_pct, 0.1);
  EXPECT_NEAR(c.heldout.median_pct, 50, 1);  // nothing pulled the fit towards them
  for (const CalibratedParameter& p : c.parameters) EXPECT_NEAR(p.value / p.prior, 1, 0.01);
}

TEST_F(Calibrate, TwoShortStepsMakeALongOne) {
  scenario("one.yaml", 2048, 2048);
  const std::string two = scenario("two.yaml", 2048, 2048);
  std::ofstream(two, std::ios::app) << "";
  const double t = truth(two, load_device("h100-sxm", {}).fit);
  csv("scenario,scenario_more,factor,added_s,time_s\none.yaml,two.yaml,3,0.25," +
      std::to_string(t + 0.25) + "\n");
  options_.rounds = 1;
  const Calibration c = calibrate(options_);
  // The same scenario twice: whatever the factor, its time.
  EXPECT_NEAR(c.steps[0].before_s, t + 0.25, 1e-5);
}

TEST_F(Calibrate, ACardWithoutAFitBeginsWithThePriors) {
  const std::string file = scenario("v.yaml", 2048, 2048, "", "v100-sxm");
  csv("scenario,time_s\nv.yaml,0.5\n");
  const Calibration c = calibrate(options_);
  EXPECT_TRUE(c.card.fit.present());
  EXPECT_EQ(c.heldout.rows, 0U);
  EXPECT_EQ(c.card.fit.gemm_fp8, 0);  // it has none
  std::ostringstream shown;
  print_calibration(c, shown);
  EXPECT_NE(shown.str().find("one step says nothing about the error on others"), std::string::npos);
}

TEST_F(Calibrate, TheCommandPrintsABlockThatACardTakes) {
  const std::string file = scenario("a.yaml", 4096, 2048);
  const double t = truth(file, load_device("h100-sxm", {}).fit);
  csv("scenario,time_s,source\na.yaml," + std::to_string(1.1 * t) + ",mine\na.yaml," +
      std::to_string(1.2 * t) + ",theirs\n");
  const auto run = [&](const std::string& arguments) {
    const std::string log = (folder_ / "log").string();
    const int status = std::system((std::string(TRAINYARD_BINARY_DIR) + "/trainyard calibrate " +
                                    arguments + " > " + log + " 2>&1")
                                       .c_str());
    std::ifstream in(log);
    std::stringstream text;
    text << in.rdbuf();
    return std::make_pair(WEXITSTATUS(status), text.str());
  };
  // A folder of presets with the card that it writes.
  const fs::path presets = folder_ / "configs";
  fs::copy(fs::path(TRAINYARD_SOURCE_DIR) / "configs", presets, fs::copy_options::recursive);
  const auto [status, text] = run(options_.csv + " --device h100-sxm --heldout theirs --out " +
                                  (presets / "devices" / "mine.yaml").string());
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find("1 steps fitted, 1 held out"), std::string::npos) << text;
  EXPECT_NE(text.find("fit:"), std::string::npos) << text;
  setenv("TRAINYARD_CONFIGS", presets.c_str(), 1);
  const DeviceCard card = load_device("mine", {});
  unsetenv("TRAINYARD_CONFIGS");
  EXPECT_EQ(card.fit.rows, 1);
  EXPECT_EQ(card.fit.heldout_rows, 1);
  EXPECT_LT(card.fit.gemm_half, load_device("h100-sxm", {}).fit.gemm_half);
  EXPECT_EQ(run(options_.csv + " --device a100-sxm").first, 2);
  EXPECT_EQ(run("nowhere.csv").first, 2);
}

TEST_F(Calibrate, MistakesAreNamed) {
  scenario("a.yaml", 2048, 2048);
  scenario("v.yaml", 2048, 2048, "", "v100-sxm");
  const auto says = [&](const std::string& text, const std::string& part) {
    csv(text);
    const std::string p = problem();
    EXPECT_NE(p.find(part), std::string::npos) << text << ": " << p;
  };
  says("scenario,seconds\na.yaml,1\n", "no column 'time_s'");
  says("scenario,time_s\na.yaml,fast\n", "steps.csv:2: time_s 'fast' is no number above 0");
  says("scenario,time_s\na.yaml,-1\n", "is no number above 0");
  says("scenario,time_s\na.yaml,1,2\n", "3 fields where the head names 2");
  says("scenario,time_s\n", "no measured steps");
  says("scenario,time_s\na.yaml,1\nv.yaml,1\n", "one run of calibrate fits one card");
  says("scenario,time_s,half\na.yaml,1,held\n", "nothing to fit");
  says("scenario,time_s,half\na.yaml,1,both\n", "is not one of: fit, held");
  says("scenario,time_s\nnowhere.yaml,1\n", "nowhere.yaml");
  csv("scenario,time_s\na.yaml,1\n");
  options_.priors = (folder_ / "priors.yaml").string();
  std::ofstream(options_.priors) << "gemm.half: {value: 0.7, sigma: 0.1}\n";
  EXPECT_NE(problem().find("no prior of gemm.fp8"), std::string::npos);
  std::ofstream(options_.priors) << "gemm.hole: {value: 0.7, sigma: 0.1}\n";
  EXPECT_NE(problem().find("unknown constant 'gemm.hole'"), std::string::npos);
}

TEST(CsvTable, QuotesAndEmptyLines) {
  const std::string file =
      (fs::temp_directory_path() / ("trainyard_csv_" + std::to_string(getpid()))).string();
  std::ofstream(file) << "# steps\na,b\n\"x, \"\"y\"\"\",2\n\n1e-3,\n";
  const CsvTable t = CsvTable::read(file);
  fs::remove(file);
  ASSERT_EQ(t.rows(), 2U);
  EXPECT_EQ(t.at(0, "a"), "x, \"y\"");
  EXPECT_EQ(t.positive(0, "b"), 2);
  EXPECT_EQ(t.positive(1, "a"), 1e-3);
  EXPECT_EQ(t.at(1, "nothing"), "");
  EXPECT_EQ(t.pos(1).line, 5);
  EXPECT_THROW((void)t.positive(1, "b"), UserError);
}

}  // namespace
}  // namespace trainyard
