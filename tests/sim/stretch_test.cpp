// SPDX-License-Identifier: MIT
#include "sim/stretch.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

constexpr uint32_t kCompute = 0, kTensor = 1, kData = 2, kHost = 3;

class Program {
 public:
  Program() {
    g_.streams = {{"compute", StreamOrder::fifo, Dimension::none},
                  {"tp", StreamOrder::fifo, Dimension::tensor},
                  {"dp", StreamOrder::fifo, Dimension::data},
                  {"host", StreamOrder::fifo, Dimension::none}};
  }
  uint32_t add(OpKind kind, uint32_t stream, const std::vector<uint32_t>& after,
               CollectiveKind collective = CollectiveKind::all_gather, uint32_t group = 0) {
    Op op;
    op.kind = kind;
    op.stream = stream;
    op.collective = collective;
    op.group_slot = group;
    op.bytes = 1000;
    op.name = g_.intern("op");
    g_.ops.push_back(op);
    const auto index = static_cast<uint32_t>(g_.ops.size() - 1);
    for (const uint32_t a : after) g_.add_dependency(a, index);
    return index;
  }
  uint32_t compute(const std::vector<uint32_t>& after) {
    return add(OpKind::compute, kCompute, after);
  }
  uint32_t gather(const std::vector<uint32_t>& after) {
    return add(OpKind::collective, kTensor, after);
  }
  std::vector<Stretch> find() {
    g_.finish();
    return find_stretches(g_);
  }

 private:
  OpGraph g_;
};

TEST(Stretch, ReachesFromACollectiveToWhatAllOfItLeadsTo) {
  Program p;
  const uint32_t before = p.compute({});
  const uint32_t g1 = p.gather({before});
  const uint32_t c1 = p.compute({g1});
  const uint32_t g2 = p.gather({c1});
  p.compute({});  // beside the collective
  const uint32_t c2 = p.compute({g2});
  p.add(OpKind::send, kData, {c2});
  const auto found = p.find();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, g1);
  EXPECT_EQ(found[0].last, c2);
  EXPECT_EQ(found[0].first_compute, c1);
  EXPECT_EQ(found[0].collectives, 2U);
  EXPECT_EQ(found[0].communication, kTensor);
  EXPECT_EQ(found[0].computation, kCompute);
}

TEST(Stretch, EndsBeforeSomethingElseIsWaitedFor) {
  Program p;
  const uint32_t other = p.add(OpKind::recv, kData, {});
  const uint32_t g1 = p.gather({});
  const uint32_t c1 = p.compute({g1});
  const uint32_t g2 = p.gather({c1});
  const uint32_t c2 = p.compute({g2});
  const uint32_t g3 = p.gather({c2});
  p.compute({g3, other});
  const auto found = p.find();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, g1);
  EXPECT_EQ(found[0].last, c2);
}

TEST(Stretch, EndsWhereSomebodyElseWaits) {
  Program p;
  const uint32_t g1 = p.gather({});
  const uint32_t c1 = p.compute({g1});
  const uint32_t g2 = p.gather({c1});
  const uint32_t c2 = p.compute({g2});
  const uint32_t g3 = p.gather({c2});
  p.compute({g3});
  p.add(OpKind::collective, kData, {c2}, CollectiveKind::reduce_scatter, 1);  // gradients
  const auto found = p.find();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].last, c2);
}

TEST(Stretch, NeedsTheNextCollectiveToWaitForItsEnd) {
  Program p;
  const uint32_t g1 = p.gather({});
  const uint32_t c1 = p.compute({g1});
  const uint32_t g2 = p.gather({c1});
  p.compute({g2});
  p.gather({c1});  // begins beside the last computation
  EXPECT_TRUE(p.find().empty());
}

TEST(Stretch, BeginsWithNothingBesideItsFirstCollective) {
  Program p;
  const uint32_t c0 = p.compute({});
  const uint32_t g1 = p.gather({c0});
  p.compute({});  // begins with the collective
  const uint32_t c1 = p.compute({g1});
  const uint32_t g2 = p.gather({c1});
  const uint32_t c2 = p.compute({g2});
  const uint32_t g3 = p.gather({c2});
  const uint32_t c3 = p.compute({g3});
  const auto found = p.find();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, g2);
  EXPECT_EQ(found[0].last, c3);
}

TEST(Stretch, IsNotWhereAMemberCanBeThroughAlone) {
  for (const auto kind : {CollectiveKind::broadcast, CollectiveKind::reduce, CollectiveKind::gather,
                          CollectiveKind::scatter}) {
    Program p;
    const uint32_t g1 = p.add(OpKind::collective, kTensor, {}, kind);
    const uint32_t c1 = p.compute({g1});
    const uint32_t g2 = p.add(OpKind::collective, kTensor, {c1}, kind);
    p.compute({g2});
    EXPECT_TRUE(p.find().empty());
  }
}

TEST(Stretch, IsOnOneGroupAndNotOnTheHost) {
  Program p;
  const uint32_t g1 = p.gather({});
  const uint32_t c1 = p.compute({g1});
  const uint32_t g2 = p.add(OpKind::collective, kTensor, {c1}, CollectiveKind::all_gather, 1);
  p.compute({g2});
  EXPECT_TRUE(p.find().empty());

  Program q;
  const uint32_t h1 = q.gather({});
  const uint32_t d1 = q.add(OpKind::compute, kHost, {h1});
  const uint32_t h2 = q.gather({d1});
  q.add(OpKind::compute, kHost, {h2});
  EXPECT_TRUE(q.find().empty());
}

}  // namespace
}  // namespace trainyard
