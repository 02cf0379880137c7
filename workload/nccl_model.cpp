// SPDX-License-Identifier: MIT
#include "workload/nccl_model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/errors.h"
#include "workload/double_tree.h"

namespace trainyard {
namespace {

using Wide = __int128;

constexpr int64_t kMillion = 1'000'000;

// Fitted over the public logs, all together (docs/collectives.md); shares of a rate in millionths.
constexpr int64_t kRingShare = 960'000;  // of what the topology search reckons with
constexpr int64_t kGroupedShare = 910'000;
constexpr int64_t kNvlsHopper = 1'070'000, kNvlsBlackwell = 937'000, kNvlsTreeShare = 970'000;
constexpr int64_t kNvlsHeads = 16;       // GPUs of a domain whose NICs NVLSTree uses
constexpr int64_t kSelfCopyTenths = 37;  // out of place: rate of the copy over that of the ring
constexpr Time kFillNvlsHopper = Time::us(125), kFillNvlsBlackwell = Time::us(250);
constexpr Time kFillTree = Time::us(125), kFillRing = Time::us(30), kFillLl128 = Time::us(12),
               kFillLl = Time::us(4);
constexpr int64_t kNetworkFillBytes = 3'000'000;  // per GPU
constexpr Time kLlHop = Time::us(3);
constexpr int64_t kLlRate = 300'000'000;  // bytes per second
constexpr int64_t kRingHides = 3;
constexpr Time kGroupedBase = Time::us(12), kGroupedPeer = Time::ns(2400),
               kGroupedFill = Time::us(48);
constexpr int64_t kQueuePairRate = 35'500'000'000;  // 284 Gb/s, rdma-perftest of a CX-7
constexpr int64_t kFewestPeerChannels = 4, kMostPeerChannels = 32;
constexpr int64_t kPeerChannelRate = 21'200'000'000, kPeerPart = 16 << 20;
constexpr Time kTorch = Time::us(24), kThreadPerGpu = Time::ns(3500);
constexpr int64_t kGroupedThreadTenths = 26;
// NCCL raises a step inside a server to what the CPU needs to post one, of rings between servers.
constexpr Time kPost = Time::us(1);

/// `value` x `ppm` / a million.
int64_t scaled(int64_t value, int64_t ppm) {
  return static_cast<int64_t>(static_cast<Wide>(value) * ppm / kMillion);
}

/// Long calls saturate far beyond what anybody simulates.
Time time_of(Wide bytes, int64_t bytes_per_s) {
  constexpr int64_t kLongest = int64_t{1} << 61;
  if (bytes_per_s <= 0) return {};
  const Wide ps = bytes * 1'000'000'000'000 / bytes_per_s;
  return Time::ps(ps > kLongest ? kLongest : static_cast<int64_t>(ps));
}

/// a b / (a + b): the smaller one where they are far apart.
Time beside(Time a, Time b) {
  const Wide sum = static_cast<Wide>(a.ps()) + b.ps();
  if (sum == 0) return {};
  return Time::ps(static_cast<int64_t>(static_cast<Wide>(a.ps()) * b.ps() / sum));
}

/// What pieces that follow each other take: `all` at the rate of the narrowest link, `first` for
/// the first one on its way.
Time pipelined(Time all, Time first, int64_t pieces) {
  return std::max(first, all + Time::ps(first.ps() / pieces * (pieces - 1)));
}

/// What `transfer` hides of `steps`: w / (1 + (3 w / x)^2), in nanoseconds because of the squares.
Time hides(Time steps, Time transfer) {
  int64_t unit = 1000;
  while (std::max(steps.ps(), transfer.ps()) / unit > int64_t{1} << 40) unit *= 1000;
  const Wide w = steps.ps() / unit, x = transfer.ps() / unit;
  if (w == 0 || x == 0) return {};
  const Wide xx = x * x;
  return Time::ps(static_cast<int64_t>(w * xx / (xx + w * w * kRingHides * kRingHides)) * unit);
}

int64_t log2_of(int64_t n) {
  int64_t log = 0;
  while (n > 1) n /= 2, ++log;
  return log;
}

int64_t root_of(int64_t n) {
  int64_t r = 0;
  for (int64_t bit = int64_t{1} << 30; bit > 0; bit >>= 1) {
    if ((r + bit) <= n / (r + bit)) r += bit;
  }
  return r;
}

/// `is` over `wanted` in millionths; as it is where nothing is wanted.
int64_t ratio(int64_t is, int64_t wanted) {
  return wanted <= 0 ? kMillion : static_cast<int64_t>(static_cast<Wide>(is) * kMillion / wanted);
}

int64_t ppm_of(double share) {
  return std::llround(share * 1e6);
}

/// What NCCL takes a link to carry, over its nominal rate: 20 of 25 GB/s for NVLink 2 and 3, 20.6
/// of 25 for NVLink 4, 40.1 of 50 for NVLink 5. xGMI: fitted.
int64_t link_share(Generation g) {
  switch (g) {
    case Generation::volta:
    case Generation::ampere:
      return 800'000;
    case Generation::hopper:
      return 824'000;
    case Generation::blackwell:
      return 802'000;
    case Generation::cdna:
      break;
  }
  return 790'000;
}

/// A step of LL inside a domain; zero: NCCL's own.
Time measured_ll_step(Generation g) {
  if (g == Generation::blackwell) return Time::ns(1400);
  return g == Generation::cdna ? Time::ns(1100) : Time();
}

bool all_reduces(CollectiveKind k) {
  return k == CollectiveKind::all_reduce || k == CollectiveKind::barrier;
}

}  // namespace

const std::vector<ParamSpec>& nccl_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = [] {
    std::vector<std::string> releases;
    for (const NcclRelease& r : nccl_releases()) releases.push_back(r.name);
    const char* const fitted = "fitted to public nccl-tests logs: docs/collectives.md";
    return std::vector<ParamSpec>{
        {"nccl.release", PT::choice, "2.30.7", "", "", releases, "release whose constants hold",
         "nccl-measured 3"},
        {"nccl.transport",
         PT::text,
         "ib",
         "",
         "",
         {},
         "preset of what the network costs: a file of configs/nccl",
         "nccl-measured 2"},
        {"nccl.launch",
         PT::choice,
         "processes",
         "",
         "",
         {"processes", "threads", "torch"},
         "processes: one per GPU; threads: one process drives the GPUs of a server; torch: a sweep "
         "with torch.distributed",
         fitted},
        {"nccl.generation",
         PT::choice,
         "auto",
         "",
         "",
         {"auto", "volta", "ampere", "hopper", "blackwell", "cdna"},
         "family of the GPUs; auto: that of cluster.device",
         "device card"},
        {"nccl.in_place",
         PT::boolean,
         "true",
         "",
         "",
         {},
         "all-gather and reduce-scatter in place; false: the own share is copied, too",
         fitted},
        {"nccl.nvls",
         PT::boolean,
         "true",
         "",
         "",
         {},
         "the scale-up switch reduces where GPUs and NCCL can; false for meshes",
         "nccl-measured 2.5"},
        {"nccl.header",
         PT::real,
         "0.994",
         "0.01",
         "1",
         {},
         "share of a NIC's rate that headers leave",
         "InfiniBand: 26 of 4122 bytes"},
        {"nccl.efficiency",
         PT::real,
         "0.957",
         "0.01",
         "1",
         {},
         "share of that which a collective reaches in the long run",
         fitted},
        {"nccl.hop", PT::time, "0us", "0us", "1s", {}, "added to a step between domains", fitted},
        {"nccl.call", PT::time, "0us", "0us", "1s", {}, "added to a call", fitted},
        {"nccl.ll_rate",
         PT::rate,
         "none",
         "1Mbps",
         "",
         {"none"},
         "what LL carries at most between domains",
         fitted},
        {"nccl.rendezvous",
         PT::time,
         "0us",
         "0us",
         "1s",
         {},
         "added to a step of LL128 and Simple between domains",
         fitted},
        {"nccl.fill",
         PT::boolean,
         "true",
         "",
         "",
         {},
         "the network's pipeline has to fill, as NICs with RDMA need it",
         fitted},
        {"nccl.step_all_gather",
         PT::time,
         "0us",
         "0us",
         "1s",
         {},
         "a step of the transport's own ring all-gather; 0: NCCL's",
         "nccl-measured 2.4"},
        {"nccl.step_all_reduce",
         PT::time,
         "0us",
         "0us",
         "1s",
         {},
         "a step of the transport's own ring all-reduce; 0: NCCL's",
         "nccl-measured 2.4"},
        {"nccl.step_doubling",
         PT::time,
         "0us",
         "0us",
         "1s",
         {},
         "a step of the transport's own recursive doubling (halving-doubling); 0: NCCL has none",
         "nccl-measured 2.4"},
        {"nccl.first_nic",
         PT::bytes,
         "0B",
         "0B",
         "1GiB",
         {},
         "with step_*: a message puts so many bytes on the first of a GPU's two NICs before it "
         "uses the "
         "second; 0: both from the start",
         "nccl-measured 2.7"},
        {"nccl.tuner",
         PT::choice,
         "nccl",
         "",
         "",
         {"nccl", "own"},
         "by what protocol: tuned chooses: nccl: NCCL's estimate; own: the times of this model, as "
         "a transport's own tuner would (and for AMD always)",
         "nccl-measured 3"},
        {"nccl.source", PT::text, "nccl-measured 2.3", "", "", {}, "of the transport", ""},
    };
  }();
  return specs;
}

NcclShape::NcclShape(const CollectiveRequest& r) : n(static_cast<int64_t>(r.members->size())) {
  if (r.placement.server == nullptr) {
    domains = n;
    gpus = fewest = 1;
    return;
  }
  std::vector<uint32_t> home;
  home.reserve(r.members->size());
  for (const uint32_t m : *r.members) home.push_back(r.placement.node_of(m));
  if (!std::is_sorted(home.begin(), home.end())) std::sort(home.begin(), home.end());
  fewest = n;
  for (size_t i = 0, first = 0; i <= home.size(); ++i) {
    if (i < home.size() && home[i] == home[first]) continue;
    const auto here = static_cast<int64_t>(i - first);
    gpus = std::max(gpus, here);
    fewest = std::min(fewest, here);
    ++domains;
    first = i;
  }
}

NcclModel::NcclModel(const Params& p, const FabricFacts& facts)
    : release_(nccl_release(p.text("nccl.release"))), facts_(facts) {
  for (size_t g = 0; g < kGenerations; ++g) {
    const auto generation = static_cast<Generation>(g);
    if (p.is_word("nccl.generation", generation_name(generation))) facts_.generation = generation;
  }
  if (facts_.nic_payload_bps <= 0) facts_.nic_payload_bps = facts_.nic_bps;
  if (facts_.scale_up_payload_bps <= 0) facts_.scale_up_payload_bps = facts_.scale_up_bps;
  network_ppm_ = scaled(ppm_of(p.real("nccl.header")), ppm_of(p.real("nccl.efficiency")));
  hop_ = p.time("nccl.hop");
  call_ = p.time("nccl.call");
  rendezvous_ = p.time("nccl.rendezvous");
  if (!p.is_word("nccl.ll_rate", "none")) ll_rate_ = p.rate("nccl.ll_rate").bps() / 8;
  nvls_ = p.boolean("nccl.nvls");
  fills_ = p.boolean("nccl.fill");
  in_place_ = p.boolean("nccl.in_place");
  own_times_ = p.is_word("nccl.tuner", "own");
  launch_ = p.is_word("nccl.launch", "threads") ? Launch::threads
            : p.is_word("nccl.launch", "torch") ? Launch::torch
                                                : Launch::processes;
  step_all_gather_ = p.time("nccl.step_all_gather");
  step_all_reduce_ = p.time("nccl.step_all_reduce");
  step_doubling_ = p.time("nccl.step_doubling");
  first_nic_ = p.bytes("nccl.first_nic").count();
  if (first_nic_ > 0 && step_all_gather_ == Time() && step_all_reduce_ == Time() &&
      step_doubling_ == Time()) {
    throw UserError(p.origin("nccl.first_nic").pos,
                    "collectives.nccl.first_nic is for a transport with steps of its own",
                    "set nccl.step_all_gather or nccl.step_all_reduce, or remove it");
  }
}

/// Bytes per second of a GPU inside its domain, for rings, trees or grouped sends.
int64_t NcclModel::scale_up(int64_t share_ppm) const {
  return scaled(scaled(facts_.scale_up_bps / 8, link_share(facts_.generation)), share_ppm);
}

/// Nothing, where a GPU has no NIC.
Time NcclModel::network_fill() const {
  return fills_ ? time_of(kNetworkFillBytes, facts_.nic_bps / 8) : Time();
}

bool NcclModel::switch_reduces(int64_t gpus) const {
  const bool has = (facts_.generation == Generation::hopper && gpus >= 5) ||
                   (facts_.generation == Generation::blackwell && gpus >= 6);
  return nvls_ && has && release_.nvls > Time();
}

void NcclModel::launch(const Shape& s, bool grouped, NcclCost& c) const {
  if (launch_ == Launch::torch) c.latency += kTorch;
  if (launch_ != Launch::threads) return;
  const Time all = kThreadPerGpu * s.gpus;
  c.latency += grouped ? Time::ps(all.ps() * kGroupedThreadTenths / 10) : all;
}

/// Rings, and chains as their rooted form.
NcclCost NcclModel::ring(Protocol protocol, const CollectiveRequest& r, const Shape& s) const {
  NcclCost c;
  const bool several = s.domains > 1;
  const bool rooted = r.kind == CollectiveKind::broadcast || r.kind == CollectiveKind::reduce;
  const int64_t rounds = all_reduces(r.kind) ? 2 : 1;
  const int64_t k = rounds * (s.n - 1);
  const int64_t m = several ? rounds * (s.domains - 1) : 0;
  const bool gathers = r.kind == CollectiveKind::all_gather;
  const Wide size = static_cast<Wide>(r.bytes) * (gathers ? s.n : 1);
  const auto p = static_cast<size_t>(protocol);
  const bool ll = protocol == Protocol::ll, simple = protocol == Protocol::simple;

  const StepTimes& steps = release_.ring[p];
  Time inside = steps.inside;
  if (ll && measured_ll_step(facts_.generation) > Time()) {
    inside = measured_ll_step(facts_.generation);
  }
  if (several) inside = std::max(inside, simple ? kPost * 3 : kPost);
  // A ring that leaves every GPU over its NIC pays for the network as a tree does.
  const Time between =
      (s.gpus == 1 ? release_.tree[p].between : steps.between) + hop_ + (ll ? Time() : rendezvous_);
  const Time all_steps = inside * (k - m) + between * m;
  c.latency = steps.base + all_steps + call_;
  launch(s, false, c);

  const int64_t link = scale_up(kRingShare);
  const int64_t nic = scaled(facts_.nic_bps / 8, network_ppm_);
  const int64_t fastest = std::min(s.gpus > 1 ? link : INT64_MAX,
                                   several ? nic * s.fewest : INT64_MAX);  // with plain data
  int64_t bus = fastest, wire = fastest;
  if (protocol == Protocol::ll128) {
    bus = scaled(fastest, 920'000);
    wire = fastest / 16 * 15;
  } else if (ll) {
    wire = fastest / 2;
    bus = std::min(ll_cap(release_, facts_.generation, s.domains), wire);
    if (several && ll_rate_ > 0) bus = std::min(bus, ll_rate_);
  }
  const Wide carried = rooted ? size : size * k / s.n;
  c.transfer = time_of(carried, bus);
  if (!in_place_ && !all_reduces(r.kind) && !rooted) {
    c.transfer += time_of(size * 10 / s.n, bus * kSelfCopyTenths);
  }
  const Time depth = (simple ? kFillRing
                      : ll   ? kFillLl
                             : kFillLl128) +
                     (several && !ll ? network_fill() : Time());
  c.fill = beside(c.transfer, depth);
  if (several) c.hidden = hides(all_steps, c.transfer);
  if (ll && several) {
    c.ll = beside(kLlHop, time_of(size / s.n, kLlRate)) * m;
  }
  c.inside_ppm = ratio(facts_.scale_up_payload_bps / 8, link);
  // Between domains a ring has a GPU more than links, so that links could carry more.
  if (several && s.gpus > 1) c.inside_ppm = c.inside_ppm * s.gpus / (s.gpus - 1);
  c.between_ppm = ratio(facts_.nic_payload_bps / 8, nic);
  c.messages = time_of(carried, wire) + facts_.wire_inside * (k - m) + facts_.wire_between * m;
  if (rooted && s.n > 2) {
    const int64_t pieces = tree_pieces(r.bytes);  // see chain.cpp
    c.messages += time_of(size / pieces, wire) * (s.n - 2);
  }
  return c;
}

NcclCost NcclModel::tree(Protocol protocol, const CollectiveRequest& r, const Shape& s) const {
  NcclCost c;
  const bool several = s.domains > 1;
  const auto p = static_cast<size_t>(protocol);
  const bool ll = protocol == Protocol::ll, simple = protocol == Protocol::simple;
  const StepTimes& steps = release_.tree[p];
  Time inside = steps.inside;
  if (ll && measured_ll_step(facts_.generation) > Time()) {
    inside = measured_ll_step(facts_.generation);
  }
  const int64_t down = s.gpus - 1, up = log2_of(s.domains);
  c.latency = steps.base + inside * (2 * down) +
              (steps.between + hop_ + (ll ? Time() : rendezvous_)) * (2 * up) + call_;
  launch(s, false, c);

  const int64_t link = scale_up(kRingShare);
  const int64_t nic = scaled(facts_.nic_bps / 8, network_ppm_);
  const int64_t fastest = std::min(s.gpus > 1 ? link / 2 : INT64_MAX,
                                   several ? nic * s.fewest / (s.domains == 2 ? 1 : 2) : INT64_MAX);
  int64_t bus = fastest, wire = fastest;
  if (protocol == Protocol::ll128) {
    bus = several ? scaled(fastest, 920'000) : fastest / 9 * 7;
    wire = fastest / 16 * 15;
  } else if (ll) {
    wire = fastest / 2;
    bus = std::min(fastest / 38 * 10, ll_cap(release_, facts_.generation, s.domains) / 2);
    if (several && ll_rate_ > 0) bus = std::min(bus, ll_rate_);
    bus = bus / 10 * tree_tenths(Protocol::ll, r.bytes);
  }
  c.transfer = time_of(r.bytes, bus);
  const Time depth = (simple ? kFillTree
                      : ll   ? kFillLl
                             : kFillLl128) +
                     (several && !ll ? network_fill() : Time());
  c.fill = beside(c.transfer, depth);
  if (ll && several) c.ll = beside(kLlHop, time_of(r.bytes, kLlRate)) * (2 * up);
  // Between domains a chain has a GPU more than links, so that links could carry more.
  c.inside_ppm = ratio(facts_.scale_up_payload_bps / 8, link);
  if (several && down > 0) c.inside_ppm = c.inside_ppm * s.gpus / down;
  c.between_ppm = ratio(facts_.nic_payload_bps / 8, nic);
  // See tree.cpp. At first two of its parts share a port inside.
  const int64_t parts = 2 * (several ? s.gpus : 1);
  const int64_t part = std::max<int64_t>(1, r.bytes / parts);
  const int64_t pieces = tree_pieces(part);
  const int64_t piece = protocol_bytes(protocol, std::max<int64_t>(1, part / pieces));
  Time first = time_of(piece, link) * (several ? 4 * down : 2 * down);
  if (several) first += time_of(piece, nic) * (2 * up);
  c.messages = pipelined(time_of(r.bytes, wire), first, pieces) + facts_.wire_inside * (2 * down) +
               facts_.wire_between * (2 * up);
  return c;
}

/// One domain, or several that trees join.
NcclCost NcclModel::nvls(const CollectiveRequest& r, const Shape& s) const {
  NcclCost c;
  const bool several = s.domains > 1;
  const bool hopper = facts_.generation == Generation::hopper;
  const int64_t up = log2_of(s.domains);
  c.latency = release_.nvls + call_;
  if (several) c.latency += (release_.nvls_tree_between + hop_ + rendezvous_) * (2 * up);
  launch(s, false, c);
  int64_t share = hopper ? kNvlsHopper : kNvlsBlackwell;
  if (several) share = scaled(share, kNvlsTreeShare);
  // Bus bandwidth over the nominal rate, whatever the number of ranks.
  const int64_t inside =
      s.gpus > 1 ? static_cast<int64_t>(static_cast<Wide>(scaled(facts_.scale_up_bps / 8, share)) *
                                        s.n / (2 * (s.n - 1)))
                 : INT64_MAX;
  const int64_t nic = scaled(facts_.nic_bps / 8, network_ppm_);
  const int64_t heads = std::min(s.gpus, kNvlsHeads);
  const int64_t between = nic * heads / (s.domains == 2 ? 1 : 2);
  c.transfer = time_of(r.bytes, several ? std::min(inside, between) : inside);
  Time depth = hopper ? kFillNvlsHopper : kFillNvlsBlackwell;
  if (s.gpus > 8) {
    // sqrt(p / 8)
    depth = Time::ps(depth.ps() / 1000 * root_of(s.gpus * 1'000'000 / 8));
  }
  if (several) depth += network_fill();
  c.fill = beside(c.transfer, depth);
  // Ports carry S + S / p: see nvls.cpp.
  if (s.gpus > 1) {
    c.inside_ppm = ratio(facts_.scale_up_payload_bps / 8, inside) * s.gpus / (s.gpus + 1);
  }
  c.between_ppm = ratio(facts_.nic_payload_bps / 8, nic) * s.gpus / heads;
  c.messages = c.transfer;
  if (several) {
    // See nvls_tree.cpp.
    const int64_t pieces = nvls_tree_pieces(r.bytes, s.gpus, s.n);
    const Time first = time_of(r.bytes / pieces, inside) +
                       time_of(r.bytes / pieces / s.gpus, nic * heads / s.gpus) * (2 * up);
    c.messages = pipelined(c.messages, first, pieces);
  }
  c.messages += facts_.wire_inside * 2 + facts_.wire_between * (2 * up);
  return c;
}

/// All-to-all as grouped sends; with sizes, sends to whom there is something for.
NcclCost NcclModel::exchange(const CollectiveRequest& r, const Shape& s) const {
  NcclCost c;
  const bool several = s.domains > 1;
  const int64_t link = scale_up(kGroupedShare);
  const int64_t nic = scaled(facts_.nic_bps / 8, network_ppm_);
  // Of the senders with most of it.
  Wide inside = static_cast<Wide>(r.bytes) * (s.gpus - 1) / s.n;
  Wide outside = static_cast<Wide>(r.bytes) * (s.n - s.fewest) / s.n;
  int64_t far_peers = s.n - s.fewest, peers = s.n - 1;
  Wide far_message = r.bytes / s.n, near_message = r.bytes / s.n;
  if (r.sizes != nullptr) {
    inside = outside = far_message = near_message = 0;
    far_peers = peers = 0;
    for (size_t m = 0; m < r.members->size(); ++m) {
      const uint32_t home = r.placement.node_of((*r.members)[m]);
      Wide near = 0, far = 0;
      int64_t far_n = 0, all_n = 0;
      for (size_t to = 0; to < r.members->size(); ++to) {
        const int64_t bytes = (*r.sizes)[m * r.members->size() + to];
        if (to == m || bytes == 0) continue;
        const bool is_near = r.placement.node_of((*r.members)[to]) == home;
        (is_near ? near : far) += bytes;
        Wide& most = is_near ? near_message : far_message;
        most = std::max<Wide>(most, bytes);
        ++all_n;
        if (!is_near) ++far_n;
      }
      inside = std::max(inside, near);
      outside = std::max(outside, far);
      far_peers = std::max(far_peers, far_n);
      peers = std::max(peers, all_n);
    }
  }
  c.latency = kGroupedBase + (kGroupedPeer + hop_) * far_peers + call_;
  launch(s, true, c);
  c.inside_ppm = ratio(facts_.scale_up_payload_bps / 8, link);
  c.between_ppm = ratio(facts_.nic_payload_bps / 8, nic);
  c.transfer = time_of(inside, link);
  if (several && far_peers > 0) {
    // One queue pair does not fill a fast NIC.
    const Time all = time_of(outside, nic);
    const Time one = time_of(far_message, kQueuePairRate);
    if (one > all && all > Time()) {
      c.between_ppm = static_cast<int64_t>(static_cast<Wide>(c.between_ppm) * one.ps() / all.ps());
    }
    c.transfer = std::max({c.transfer, all, one});
  }
  c.messages = c.transfer + (far_peers > 0 ? facts_.wire_between : facts_.wire_inside);
  if (peers == 1 && near_message > 0) {
    // A peer gets so many channels, more when parts of the message are large.
    int64_t channels = kFewestPeerChannels;
    while (channels < kMostPeerChannels && near_message / channels > kPeerPart) channels *= 2;
    c.transfer = std::max(c.transfer, time_of(near_message, kPeerChannelRate * channels));
  }
  c.fill = beside(c.transfer, kGroupedFill + (far_peers > 0 ? network_fill() : Time()));
  return c;
}

/// A transport with algorithms of its own, whose steps were measured.
NcclCost NcclModel::steps(const std::string& algorithm, const CollectiveRequest& r,
                          const Shape& s) const {
  const bool doubling = algorithm == "halving-doubling";
  NcclCost c = ring(Protocol::simple, r, s);
  const int64_t m = doubling              ? log2_of(s.n)
                    : all_reduces(r.kind) ? 2 * (s.domains - 1)
                                          : s.domains - 1;
  const Time step = doubling              ? step_doubling_
                    : all_reduces(r.kind) ? step_all_reduce_
                                          : step_all_gather_;
  c.latency = call_ + step * m;
  launch(s, false, c);
  // Out of place as fast as in place, and at its rate from the start.
  const int64_t rate = scaled(facts_.nic_bps / 8, network_ppm_) * s.gpus;
  const int64_t block = r.kind == CollectiveKind::all_gather ? r.bytes : r.bytes / s.n;
  Time even;  // both NICs all the time
  c.transfer = Time();
  // Rings pass one block per step, doubling what there is by then.
  for (int64_t left = s.n - 1, blocks = 1; left > 0;) {
    const int64_t share = block * std::min(blocks, left);
    const Time both = time_of(share, rate);
    even += both;
    c.transfer += std::max(both, time_of(std::min(share, first_nic_), rate / 2));
    left -= std::min(blocks, left);
    if (doubling) blocks *= 2;
  }
  if (all_reduces(r.kind)) even = even * 2, c.transfer = c.transfer * 2;
  if (even > Time()) {
    c.between_ppm =
        static_cast<int64_t>(static_cast<Wide>(c.between_ppm) * c.transfer.ps() / even.ps());
  }
  c.messages = c.transfer + facts_.wire_between * m;
  c.fill = Time();
  c.hidden = s.domains > 1 && !doubling ? hides(step * m, c.transfer) : Time();
  return c;
}

/// What NCCL's tuner reckons (README of nccl-measured: how 2.30.7 combines its constants). It knows
/// neither what a transport adds nor that pipelines have to fill.
Time NcclModel::estimate(const std::string& algorithm, Protocol protocol,
                         const CollectiveRequest& r, const Shape& s) const {
  const auto full = cost(algorithm, protocol, r, s);
  if (!full) return Time::infinity();
  const bool ringed = algorithm == "ring" || algorithm == "chain", treed = algorithm == "tree";
  const bool switched = algorithm == "nvls" || algorithm == "nvls-tree";
  if (own_times_ || facts_.generation == Generation::cdna || !(ringed || treed || switched)) {
    return full->total();
  }
  const bool several = s.domains > 1;
  const auto p = static_cast<size_t>(protocol);
  const bool ll = protocol == Protocol::ll, simple = protocol == Protocol::simple;
  const int64_t up = log2_of(s.domains);
  // All channels together; of two domains it takes what one has.
  const int64_t channels = facts_.generation > Generation::ampere ? 16 : 12;
  const int64_t inner = scale_up(970'000);
  const int64_t outer = scaled(facts_.nic_bps / 8, 960'000) * s.gpus;
  const int64_t all = s.gpus == 1 ? outer : s.domains <= 2 ? inner : std::min(inner, outer);
  const int64_t cap = ll_cap(release_, facts_.generation, s.domains);
  Time latency;
  int64_t rate = 0;
  Wide size = r.bytes;
  if (ringed) {
    const bool rooted = r.kind == CollectiveKind::broadcast || r.kind == CollectiveKind::reduce;
    const int64_t rounds = all_reduces(r.kind) ? 2 : 1;
    const int64_t k = rooted ? s.n : rounds * (s.n - 1);
    const int64_t m = several ? rounds * (s.domains - 1) : 0;
    const StepTimes& steps = release_.ring[p];
    Time inside = steps.inside;
    if (several) inside = std::max(inside, simple ? kPost * 3 : kPost);
    latency = steps.base + inside * (k - m) +
              (s.gpus == 1 ? release_.tree[p].between : steps.between) * m;
    if (several && simple && all_reduces(r.kind) && r.bytes >= 64 * channels * s.n) {
      latency = Time::ps(latency.ps() / 10 * (facts_.generation == Generation::volta ? 19 : 14));
    }
    rate = simple ? all
           : ll   ? std::min(cap, all / 2)
                  : std::min(
                        scaled(all, 920'000),
                        channel_cap(ChannelCap::ring_ll128, facts_.generation, s.domains) * channels);
    if (r.kind == CollectiveKind::all_gather) size *= s.n;
    size = rooted ? size : size * k / s.n;
  } else if (treed) {
    const StepTimes& steps = release_.tree[p];
    latency = steps.base + steps.inside * (2 * (s.gpus - 1)) + steps.between * (2 * up);
    rate = std::min(scaled(all, 920'000),
                    channel_cap(ChannelCap::tree_simple, facts_.generation, s.domains) * channels);
    if (ll) rate = std::min(rate / 38 * 10, cap);
    if (!ll && !simple) {
      rate = std::min(several ? rate / 16 * 15 : rate / 9 * 7,
                      channel_cap(ChannelCap::tree_ll128, facts_.generation, s.domains) * channels);
    }
    rate = rate / 20 * tree_tenths(protocol, r.bytes);
  } else {
    latency = release_.nvls;
    const int64_t share = facts_.generation == Generation::hopper ? 850'000 : 740'000;
    rate = scaled(inner, share) / channels * (channels - 1) * 2;
    if (several) {
      latency += release_.nvls_tree_between * (2 * up);
      rate = std::min({rate, s.domains == 2 ? outer * 2 : outer,
                       channel_cap(ChannelCap::nvls_tree, facts_.generation, s.domains) * 8});
    }
    size = size * 2 * (s.n - 1) / s.n;
  }
  return latency + time_of(size, rate);
}

bool NcclModel::offers(const std::string& algorithm, const CollectiveRequest& r,
                       const Shape& s) const {
  if (algorithm == "nvls") return s.domains == 1 && switch_reduces(s.gpus);
  if (algorithm == "nvls-tree") return s.domains > 1 && switch_reduces(s.gpus);
  return algorithm != "tree" || all_reduces(r.kind);
}

std::optional<NcclCost> NcclModel::cost(const std::string& algorithm, Protocol protocol,
                                        const CollectiveRequest& r, const Shape& s) const {
  const bool simple = protocol == Protocol::simple;
  // Inside a domain nothing is sent over the transport.
  const bool own =
      s.domains > 1 && (all_reduces(r.kind) ? step_all_reduce_ : step_all_gather_) > Time();
  if (algorithm == "ring" || algorithm == "chain") {
    if (!own || algorithm == "chain") return ring(protocol, r, s);
    if (simple) return steps(algorithm, r, s);
    return std::nullopt;
  }
  if (algorithm == "halving-doubling") {
    if (simple && step_doubling_ > Time() && r.kind == CollectiveKind::all_gather)
      return steps(algorithm, r, s);
    return std::nullopt;
  }
  if (algorithm == "tree" && all_reduces(r.kind) && !own) return tree(protocol, r, s);
  if (algorithm == "nvls" || algorithm == "nvls-tree") {
    if (simple && !own) return nvls(r, s);
    return std::nullopt;
  }
  if (algorithm == "direct" && simple) return exchange(r, s);
  return std::nullopt;
}

namespace {

class NcclRun final : public CollectiveRun {
 public:
  NcclRun(std::unique_ptr<CollectiveRun> inner, const CollectiveRequest& request,
          const NcclCost& cost, Protocol protocol)
      : inner_(std::move(inner)),
        members_(*request.members),
        placement_(request.placement),
        inside_(cost.inside_ppm),
        between_(cost.between_ppm),
        protocol_(protocol) {}
  void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
               std::vector<uint32_t>& done) override {
    const size_t first = sends.size();
    inner_->arrived(member, sends, done);
    widen(sends, first);
  }
  void delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                 std::vector<uint32_t>& done) override {
    const size_t first = sends.size();
    inner_->delivered(send, sends, done);
    widen(sends, first);
  }
  [[nodiscard]] bool all_sent() const override { return inner_->all_sent(); }
  bool receives(uint32_t member, std::vector<CollectiveReceive>& out) const override {
    return inner_->receives(member, out);
  }

 private:
  void widen(std::vector<CollectiveSend>& sends, size_t first) const {
    for (size_t i = first; i < sends.size(); ++i) {
      CollectiveSend& s = sends[i];
      if (s.clear_to_send) continue;
      const bool inside =
          placement_.node_of(members_[s.src]) == placement_.node_of(members_[s.dst]);
      s.bytes = std::max<int64_t>(
          1, scaled(protocol_bytes(protocol_, s.bytes), inside ? inside_ : between_));
    }
  }
  std::unique_ptr<CollectiveRun> inner_;
  const std::vector<uint32_t>& members_;
  Placement placement_;
  int64_t inside_, between_;
  Protocol protocol_;
};

class WithProtocol final : public CollectiveAlgorithm {
 public:
  WithProtocol(const CollectiveAlgorithm& inner, const NcclModel& model, Protocol protocol)
      : inner_(inner), model_(model), protocol_(protocol) {}
  [[nodiscard]] std::string name() const override {
    return inner_.name() + " " + protocol_name(protocol_);
  }
  [[nodiscard]] bool supports(CollectiveKind k) const override { return inner_.supports(k); }
  [[nodiscard]] bool serves(const CollectiveRequest& r) const override {
    return inner_.serves(r) && model_.cost(inner_.name(), protocol_, r).has_value();
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<NcclRun>(inner_.begin(r), r, cost(r), protocol_);
  }
  /// On the wire.
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    const int64_t bytes = protocol_bytes(protocol_, inner_.sent_per_member(r));
    const NcclShape s(r);
    const NcclCost c = cost(r);
    if (s.domains == 1) return scaled(bytes, c.inside_ppm);
    const std::string name = inner_.name();
    int64_t leave = bytes / s.gpus;  // of a ring one message in p
    if (name == "tree" || name == "nvls-tree") {
      // Once up and once down every edge between domains.
      leave = protocol_bytes(protocol_, 2 * r.bytes / s.n * (s.domains - 1));
    } else if (name == "direct" || name == "halving-doubling") {
      leave = bytes / (s.n - 1) * (s.n - s.gpus);
    }
    return scaled(bytes - leave, c.inside_ppm) + scaled(leave, c.between_ppm);
  }
  [[nodiscard]] Time delay(const CollectiveRequest& r) const override { return cost(r).delay(); }

 private:
  [[nodiscard]] NcclCost cost(const CollectiveRequest& r) const {
    return model_.cost(inner_.name(), protocol_, r).value_or(NcclCost());
  }
  const CollectiveAlgorithm& inner_;
  const NcclModel& model_;
  Protocol protocol_;
};

}  // namespace

std::unique_ptr<CollectiveAlgorithm> with_protocol(const CollectiveAlgorithm& inner,
                                                   const NcclModel& model, Protocol protocol) {
  return std::make_unique<WithProtocol>(inner, model, protocol);
}

}  // namespace trainyard
