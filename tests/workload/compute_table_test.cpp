// SPDX-License-Identifier: MIT
// Measured kernel times: rows, between rows, outside, and files that are wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "sim/compute_model.h"
#include "sim/errors.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

DeviceCard device() {
  DeviceCard c;
  c.name = "round";
  c.tflops = 1;  // 2 m n k FLOPs: times below are in microseconds
  c.hbm_gbytes_per_s = 1000;
  return c;
}

class ComputeTable : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_table_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<ComputeModel> make(const std::string& rows, bool extrapolate = false,
                                     const std::string& header = "kind,m,n,k,bytes,time_us") {
    std::ofstream(folder_ / "kernels.csv") << header << "\n" << rows;
    Params p(Registry::instance().get("compute", "table").params);
    p.set("file", "kernels.csv", {Origin::Kind::user, {"s.yaml", 7}});
    if (extrapolate) p.set("outside", "roofline", {});
    card_ = device();
    return Registry::instance().factory<ComputeFactory>("compute", "table")(
        p, {card_, folder_.string(), {"s.yaml", 6}});
  }
  std::string problem(const std::string& rows,
                      const std::string& header = "kind,m,n,k,bytes,time_us") {
    try {
      (void)make(rows, false, header);
    } catch (const UserError& e) {
      const std::string text = e.what();
      const auto at = text.find("kernels.csv:");
      return at == std::string::npos ? text : text.substr(at);
    }
    return "";
  }

  fs::path folder_;
  DeviceCard card_;
};

Kernel gemm(int64_t m, int64_t n, int64_t k) {
  return {Kernel::Kind::gemm, 2 * m * n * k, 0, m, n, k};
}

Job job_of(const std::vector<Kernel>& kernels) {
  auto g = std::make_shared<OpGraph>();
  g->streams = {{"compute", StreamOrder::fifo}};
  Op op;
  op.kind = OpKind::compute;
  op.name = g->intern("op");
  op.kernels = static_cast<uint32_t>(kernels.size());
  for (const Kernel& k : kernels) {
    op.flops += k.flops;
    op.bytes += k.bytes;
  }
  g->ops = {op};
  g->kernels = kernels;
  g->finish();
  Job job;
  job.ranks = {{g, {}}, {g, {}}};
  return job;
}

Time time_of(ComputeModel& model, const std::vector<Kernel>& kernels) {
  const Job job = job_of(kernels);
  const Time before = model.duration(*job.ranks[0].graph, 0, 0);
  (void)model.prepare(job);
  EXPECT_EQ(before, model.duration(*job.ranks[0].graph, 0, 1));  // looked up or worked out
  return before;
}

const char* const kRows =
    "gemm,1000,100,10,,30   # measured\n"
    "gemm, 2000, 100, 10,, 50\n"
    "\n"
    "gemm,1000,100,50,,90.5\n"
    "gemm-fp8,1000,100,10,,20\n"
    "attention,512,512,64,,7\n"
    "attention-backward,512,512,64,,17\n"
    "elementwise,,,,1000,2\n"
    "elementwise,,,,3000,5\n";

TEST_F(ComputeTable, RowsAndBetweenRows) {
  const auto model = make(kRows);
  EXPECT_EQ("table kernels.csv", model->source());
  EXPECT_EQ(Time::us(30), time_of(*model, {gemm(1000, 100, 10)}));
  EXPECT_EQ(Time::us(35), time_of(*model, {gemm(1250, 100, 10)}));      // 30 + 20 / 4
  EXPECT_EQ(Time::ns(60'250), time_of(*model, {gemm(1000, 100, 30)}));  // 30 + 60.5 / 2
  Kernel fp8 = gemm(1000, 100, 10);
  fp8.precision = Kernel::Precision::fp8;
  EXPECT_EQ(Time::us(20), time_of(*model, {fp8}));
  Kernel core{Kernel::Kind::attention, 1, 1, 512, 512, 64};
  EXPECT_EQ(Time::us(7), time_of(*model, {core}));
  core.backward = true;
  EXPECT_EQ(Time::us(17), time_of(*model, {core}));
  const Kernel pointwise{Kernel::Kind::elementwise, 0, 2000, 0, 0, 0};
  EXPECT_EQ(Time::ns(3'500), time_of(*model, {pointwise}));
  EXPECT_EQ(Time::ns(53'500), time_of(*model, {gemm(1000, 100, 10), pointwise, fp8}));
}

TEST_F(ComputeTable, OutsideIsAnErrorThatNamesTheShape) {
  const auto model = make(kRows);
  for (const Kernel& k :
       {gemm(999, 100, 10), gemm(2001, 100, 10), gemm(1500, 100, 50), gemm(1000, 101, 10)}) {
    try {
      (void)model->prepare(job_of({k}));
      ADD_FAILURE() << k.m << " " << k.n << " " << k.k;
    } catch (const UserError& e) {
      const std::string text = e.what();
      EXPECT_EQ(text.rfind("s.yaml:7: ", 0), 0U) << text;
      EXPECT_NE(text.find("gemm m " + std::to_string(k.m)), std::string::npos) << text;
      EXPECT_NE(text.find("compute.outside"), std::string::npos) << text;
    }
  }
}

TEST_F(ComputeTable, ExtrapolationIsTheRooflineTimesTheNearestRow) {
  const auto model = make(kRows, true);
  // Roofline 2 m n k at 1 TFLOPS: 4 us for the row of 2000, which measured 50; 8 us for 4000.
  EXPECT_EQ(Time::us(100), time_of(*model, {gemm(4000, 100, 10)}));
  // Nothing of that kind measured: the bare roofline.
  Kernel tf32 = gemm(1000, 100, 10);
  tf32.precision = Kernel::Precision::tf32;
  card_.tf32_tflops = 0;
  EXPECT_THROW((void)model->prepare(job_of({tf32})), UserError);
  const auto remarks =
      model->prepare(job_of({gemm(4000, 100, 10), gemm(1000, 100, 10), gemm(1250, 100, 10)}));
  ASSERT_EQ(2U, remarks.size());
  EXPECT_FALSE(remarks[0].caution);
  EXPECT_NE(remarks[0].text.find("1 shapes of this job are rows of it, 1 lie between"),
            std::string::npos)
      << remarks[0].text;
  EXPECT_TRUE(remarks[1].caution);
  EXPECT_NE(remarks[1].text.find("1 shapes lie outside"), std::string::npos) << remarks[1].text;
}

TEST_F(ComputeTable, OpsWithoutShapesAreRefusedWithTheReason) {
  const auto model = make(kRows);
  Job job = job_of({gemm(1000, 100, 10)});
  auto g = std::make_shared<OpGraph>(*job.ranks[0].graph);
  g->ops[0].kernels = 0;
  job.ranks = {{g, {}}};
  try {
    (void)model->prepare(job);
    ADD_FAILURE();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("no shapes"), std::string::npos) << e.what();
  }
}

TEST_F(ComputeTable, BadFilesSayTheirLine) {
  const struct {
    const char *rows, *message;
  } cases[] = {
      {"gemm,1,2,3,,4\ngemm,1,2,3,,5\n", "kernels.csv:3: gemm m 1 n 2 k 3 stands here a second"},
      {"gem,1,2,3,,4\n", "kernels.csv:2: unknown kind 'gem'"},
      {"gemm,1,2,,,4\n", "kernels.csv:2: k must be a whole number"},
      {"gemm,1,-2,3,,4\n", "kernels.csv:2: n must be a whole number"},
      {"gemm,1,2,3,,0\n", "kernels.csv:2: time_us must be a number above 0"},
      {"gemm,1,2,3,,fast\n", "kernels.csv:2: time_us must be a number above 0"},
      {"gemm,1,2,3\n", "kernels.csv:2: expected 6 cells"},
      {"elementwise,1,2,3,,4\n", "kernels.csv:2: bytes must be a whole number"},
      {"# nothing\n", "kernels.csv:2: no kernel in the table"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(problem(c.rows).rfind(c.message, 0), 0U) << c.rows << problem(c.rows);
  }
  EXPECT_EQ(problem("gemm,1,2,3,,4\n", "m,n,k").rfind("kernels.csv:1: the first line must be", 0),
            0U);
  EXPECT_EQ("", problem("gemm,1,2,3,,4\n"));
}

}  // namespace
}  // namespace trainyard
