// SPDX-License-Identifier: MIT
// trace.json.gz: the Chrome trace-event format, in the dialect that Perfetto reads. It matches
// complete events of a thread as a stack, so that spans which overlap get threads of their own; it
// takes pid and tid 0 for the idle task; it knows no \u escapes and no arrays in args; and it reads
// times as nanoseconds when displayTimeUnit says so, which is left out for that reason.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/errors.h"
#include "tools/report/analysis.h"
#include "tools/report/atomic_file.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

/// Text in, gzip out. The header carries no time, so equal texts give equal files.
class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : file_(path) {
    constexpr int kGzip = 15 + 16;
    if (deflateInit2(&stream_, 4, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
      throw UserError(SourcePos{path, 0}, "cannot compress: zlib does not start");
    }
  }
  ~GzipFile() { deflateEnd(&stream_); }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    if (text_.size() >= kChunk) deflate_text(Z_NO_FLUSH);
  }
  void commit() {
    deflate_text(Z_FINISH);
    file_.commit();
  }

 private:
  static constexpr size_t kChunk = 1U << 18;

  void deflate_text(int flush) {
    stream_.next_in = reinterpret_cast<Bytef*>(text_.data());
    stream_.avail_in = static_cast<uInt>(text_.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      ::deflate(&stream_, flush);
      file_.write({out_.data(), out_.size() - stream_.avail_out});
    } while (stream_.avail_out == 0);
    text_.clear();
  }

  AtomicFile file_;
  z_stream stream_ = {};
  fmt::memory_buffer text_;
  std::array<char, 1U << 16> out_;
};

/// A JSON string.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : report::printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// Microseconds with the digits of the picoseconds: no double comes near them.
std::string micros(Time t) {
  const int64_t ps = t.ps();
  return fmt::format("{}{}.{:06}", ps < 0 ? "-" : "", std::abs(ps / 1'000'000),
                     std::abs(ps % 1'000'000));
}

class PerfettoWriter {
 public:
  PerfettoWriter(const Result& result, const std::string& path, const PerfettoLimits& limits)
      : result_(result), limits_(limits), out_(path) {
    ranks_ = result.ranks;
    for (const Span& span : result.spans) ranks_ = std::max(ranks_, span.rank + 1);
    next_tid_ = ranks_ + 3;
    for (size_t i = 0; i < result.collectives.size(); ++i) {
      const uint32_t owner = result.collectives[i].owner;
      if (owner >= collective_of_.size()) collective_of_.resize(owner + 1, kNone);
      collective_of_[owner] = static_cast<uint32_t>(i);
    }
  }

  void write() {
    out_.print("{{\"traceEvents\":[\n");
    processes();
    if (only_flows_) {
      flows_as_spans();
    } else {
      spans();
    }
    arrows();
    counters();
    faults();
    about();
    out_.print("\n],\n\"otherData\":{{{}}}}}\n", metadata_);
    out_.commit();
  }

 private:
  static constexpr uint32_t kNone = Span::kNone;
  // Process 0 is special to the viewer.
  static uint32_t pid_of(uint32_t rank) { return rank + 1; }
  [[nodiscard]] uint32_t run_pid() const { return ranks_ + 1; }
  [[nodiscard]] uint32_t link_pid() const { return ranks_ + 2; }

  [[nodiscard]] std::string rank_name(uint32_t rank) const {
    const std::string node = report::endpoint_name(result_, rank);
    const std::string name = "rank " + std::to_string(rank);
    return node == name ? name : name + " (" + node + ")";
  }
  const char* comma() { return std::exchange(first_, false) ? "" : ",\n"; }

  void name_process(uint32_t pid, const std::string& name, uint32_t place) {
    out_.print(
        "{}{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"tid\":0,\"args\":{{\"name\":{}}}}"
        "}",
        comma(), pid, quoted(name));
    out_.print(
        "{}{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{},\"tid\":0,"
        "\"args\":{{\"sort_index\":{}}}}}",
        comma(), pid, place);
  }
  uint32_t new_thread(uint32_t pid, const std::string& name) {
    const uint32_t tid = next_tid_++;
    for (const bool order : {false, true}) {
      out_.print(
          "{}{{\"ph\":\"M\",\"name\":\"thread_{}\",\"pid\":{},\"tid\":{},\"args\":{{\"{}\":{}}}}}",
          comma(), order ? "sort_index" : "name", pid, tid, order ? "sort_index" : "name",
          order ? std::to_string(tid) : quoted(name));
    }
    return tid;
  }
  void complete_event(std::string_view name, const char* what, uint32_t pid, uint32_t tid,
                      Time begin, Time end, const std::string& args) {
    out_.print(
        "{}{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},"
        "\"args\":{{{}}}}}",
        comma(), quoted(name), what, pid, tid, micros(begin), micros(end - begin), args);
    ++events_;
  }

  void processes() {
    name_process(run_pid(), "run", 0);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      name_process(pid_of(rank), rank_name(rank), rank + 1);
    }
    if (!result_.link_series.links.empty()) name_process(link_pid(), "links", ranks_ + 1);
  }

  /// Threads of one name, so many that no two spans of one overlap.
  struct Lanes {
    std::vector<std::pair<uint32_t, Time>> threads;  // tid, end of its last span
  };
  /// Spans must come by ascending begin.
  uint32_t lane(Lanes& lanes, uint32_t pid, const std::string& name, Time begin, Time end) {
    for (auto& [tid, busy_until] : lanes.threads) {
      if (busy_until > begin) continue;
      busy_until = end;
      return tid;
    }
    const size_t n = lanes.threads.size() + 1;
    const uint32_t tid = new_thread(pid, n == 1 ? name : fmt::format("{} ({})", name, n));
    lanes.threads.emplace_back(tid, end);
    return tid;
  }

  // Where an arrow can begin or end: what a rank does for an owner of transfers, or for one
  // transfer when there are only flows.
  struct Anchor {
    uint32_t owner, rank, tid;
    Time begin, end;
    [[nodiscard]] std::pair<uint32_t, uint32_t> key() const { return {owner, rank}; }
  };

  std::string causes(const Span& span) const {
    std::string args;
    if (span.kind == Span::Kind::wait && span.last != kNone) {
      args = "\"waits_for\":" + quoted(rank_name(span.last));
    }
    if (span.owner >= collective_of_.size() || collective_of_[span.owner] == kNone) {
      if (span.owner != kNone && span.kind != Span::Kind::wait) {
        args += "\"of\":" + quoted(report::owner_name(result_, span.owner));
      }
      return args;
    }
    const CollectiveRecord& c = result_.collectives[collective_of_[span.owner]];
    if (!args.empty()) args += ',';
    args += fmt::format("\"collective\":\"{} #{}\",\"group\":{},\"bytes\":{}",
                        collective_name(c.kind), c.index, quoted(c.group), c.bytes);
    if (span.kind == Span::Kind::wait) return args;
    args += fmt::format(
        ",\"algorithm\":{},\"ranks\":{},\"transfers\":{},\"longest_wait_ns\":{},"
        "\"last_to_arrive\":{}",
        quoted(c.algorithm), c.ranks, c.transfers, report::exact_ns(c.wait_max, false),
        quoted(rank_name(c.last_rank)));
    if (std::isfinite(c.busbw_gbytes_per_s) && c.busbw_gbytes_per_s > 0) {
      args += fmt::format(",\"busbw_gbytes_per_s\":{:.6g},\"algbw_gbytes_per_s\":{:.6g}",
                          c.busbw_gbytes_per_s, c.algbw_gbytes_per_s);
    }
    return args;
  }

  void spans() {
    const auto stream = [](const Span& s) -> std::string_view {
      return s.kind == Span::Kind::wait ? std::string_view("waits") : std::string_view(s.stream);
    };
    std::vector<uint32_t> order(result_.spans.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const Span& x = result_.spans[a];
      const Span& y = result_.spans[b];
      return std::tuple(x.rank, stream(x), x.begin, a) < std::tuple(y.rank, stream(y), y.begin, b);
    });
    Lanes lanes;
    for (size_t i = 0; i < order.size(); ++i) {
      const Span& span = result_.spans[order[i]];
      if (i > 0) {
        const Span& before = result_.spans[order[i - 1]];
        if (before.rank != span.rank || stream(before) != stream(span)) lanes.threads.clear();
      }
      const uint32_t pid = pid_of(span.rank);
      const std::string name = stream(span).empty() ? "ops" : std::string(stream(span));
      const uint32_t tid = lane(lanes, pid, name, span.begin, span.end);
      complete_event(span.name, report::span_kind_name(span.kind), pid, tid, span.begin, span.end,
                     causes(span));
      if (span.owner != kNone && span.kind != Span::Kind::wait) {
        anchors_.push_back({span.owner, span.rank, tid, span.begin, span.end});
      }
    }
  }

  /// Without a workload, the flows are all there is to see.
  void flows_as_spans() {
    struct End {
      uint32_t rank;
      bool receives;
      uint32_t flow;
    };
    std::vector<End> ends;
    for (const uint32_t i : slowest_flows()) {
      ends.push_back({result_.flows[i].src, false, i});
      ends.push_back({result_.flows[i].dst, true, i});
    }
    std::sort(ends.begin(), ends.end(), [&](const End& a, const End& b) {
      return std::tuple(a.rank, a.receives, result_.flows[a.flow].start, a.flow) <
             std::tuple(b.rank, b.receives, result_.flows[b.flow].start, b.flow);
    });
    Lanes lanes;
    for (size_t i = 0; i < ends.size(); ++i) {
      const End& e = ends[i];
      if (i > 0 && (ends[i - 1].rank != e.rank || ends[i - 1].receives != e.receives)) {
        lanes.threads.clear();
      }
      const TransferRecord& f = result_.flows[e.flow];
      const uint32_t pid = pid_of(e.rank);
      const uint32_t tid = lane(lanes, pid, e.receives ? "receive" : "send", f.start, f.delivered);
      const std::string name =
          (e.receives ? "from " : "to ") + rank_name(e.receives ? f.src : f.dst);
      complete_event(
          name, "flow", pid, tid, f.start, f.delivered,
          "\"of\":" + quoted(report::owner_name(result_, f.owner)) + "," + transfer_args(e.flow));
      anchors_.push_back({e.flow, e.rank, tid, f.start, f.delivered});
    }
  }

  std::string transfer_args(uint32_t id) const {
    const TransferRecord& f = result_.flows[id];
    return fmt::format("\"transfer\":{},\"bytes\":{},\"delivered_ns\":{},\"links\":{},\"cnps\":{}",
                       id, f.bytes, report::exact_ns(f.delivered, false), f.hops, f.cnps);
  }

  /// At most limits_.arrows delivered transfers, the slowest; in order of id.
  const std::vector<uint32_t>& slowest_flows() {
    if (chosen_) return slowest_;
    chosen_ = true;
    for (size_t i = 0; i < result_.flows.size(); ++i) {
      if (report::was_delivered(result_.flows[i])) slowest_.push_back(static_cast<uint32_t>(i));
    }
    if (slowest_.size() > limits_.arrows) {
      const auto time = [&](uint32_t i) {
        return result_.flows[i].delivered - result_.flows[i].start;
      };
      std::nth_element(
          slowest_.begin(), slowest_.begin() + static_cast<std::ptrdiff_t>(limits_.arrows),
          slowest_.end(),
          [&](uint32_t a, uint32_t b) { return time(a) != time(b) ? time(a) > time(b) : a < b; });
      slowest_.resize(limits_.arrows);
      std::sort(slowest_.begin(), slowest_.end());
    }
    return slowest_;
  }

  const Anchor* anchor(uint32_t owner, uint32_t rank) const {
    const auto it = std::lower_bound(
        anchors_.begin(), anchors_.end(), std::pair(owner, rank),
        [](const Anchor& a, const std::pair<uint32_t, uint32_t>& key) { return a.key() < key; });
    return it != anchors_.end() && it->key() == std::pair(owner, rank) ? &*it : nullptr;
  }

  void arrows() {
    std::stable_sort(anchors_.begin(), anchors_.end(),
                     [](const Anchor& a, const Anchor& b) { return a.key() < b.key(); });
    for (const uint32_t i : slowest_flows()) {
      const TransferRecord& f = result_.flows[i];
      const Anchor* from = anchor(only_flows_ ? i : f.owner, f.src);
      const Anchor* to = anchor(only_flows_ ? i : f.owner, f.dst);
      if (from == nullptr || to == nullptr) {
        ++arrows_without_span_;
        continue;
      }
      arrow('s', i, f.src, *from, f.start);
      arrow('f', i, f.dst, *to, f.delivered);
      ++arrows_;
    }
  }
  /// The span must be open where an arrow touches it: an end at its very end moves by 1 ns.
  void arrow(char phase, uint32_t id, uint32_t rank, const Anchor& at, Time time) {
    time = std::max(at.begin, std::min(time, at.end - std::min(Time::ns(1), at.end - at.begin)));
    out_.print(
        "{}{{\"ph\":\"{}\",{}\"name\":\"transfer\",\"cat\":\"transfer\",\"id\":{},\"pid\":{},"
        "\"tid\":{},\"ts\":{},\"args\":{{{}}}}}",
        comma(), phase, phase == 'f' ? "\"bp\":\"e\"," : "", id + 1, pid_of(rank), at.tid,
        micros(time), transfer_args(id));
  }

  void counter(const std::string& name, Time at, std::string_view unit, const std::string& value) {
    out_.print(
        "{}{{\"ph\":\"C\",\"name\":{},\"pid\":{},\"tid\":0,\"ts\":{},\"args\":{{\"{}\":{}}}}}",
        comma(), quoted(name), link_pid(), micros(at), unit, value);
  }

  void counters() {
    const LinkSeries& series = result_.link_series;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> parallel;
    for (const LinkRecord& link : result_.links) ++parallel[{link.from_node, link.to_node}];
    for (const size_t link : report::hottest_links(result_, limits_.counter_links)) {
      if (link >= series.links.size() || series.links[link].empty()) continue;
      ++counter_links_;
      const auto& rows = series.links[link];
      const LinkRecord& record = result_.links[link];
      std::string name = record.from + " \u2192 " + record.to;
      if (parallel[{record.from_node, record.to_node}] > 1) name += " #" + std::to_string(link);
      const double full =
          static_cast<double>(record.rate.bps()) / 8 * series.window.seconds() / 100;
      const bool queued = record.peak_queue_bytes > 0, paused = record.paused > Time();
      // A value holds until the next one: windows without a row take their own.
      const auto sample = [&](int64_t window, int64_t bytes, int64_t queue, int64_t paused_ps) {
        const Time at = series.window * window;
        counter(name + " busy", at, "percent",
                fmt::format("{:.3f}", static_cast<double>(bytes) / full));
        if (queued) counter(name + " queue", at, "bytes", std::to_string(queue));
        if (paused) {
          counter(name + " paused", at, "percent",
                  fmt::format("{:.3f}", 100 * static_cast<double>(paused_ps) /
                                            static_cast<double>(series.window.ps())));
        }
      };
      if (rows.front().window > 0) sample(0, 0, 0, 0);
      for (size_t i = 0; i < rows.size(); ++i) {
        sample(rows[i].window, rows[i].bytes, rows[i].queue_max_bytes, rows[i].paused_ps);
        const bool gap = i + 1 == rows.size() || rows[i + 1].window != rows[i].window + 1;
        if (gap) sample(rows[i].window + 1, 0, rows[i].queue_bytes, 0);
      }
    }
  }

  /// Begin and end of every fault, as instants across the whole picture.
  void faults() {
    if (result_.faults.empty()) return;
    const uint32_t tid = new_thread(run_pid(), "faults");
    for (const FaultRecord& f : result_.faults) {
      const auto instant = [&](Time at, const std::string& name) {
        out_.print(
            "{}{{\"ph\":\"i\",\"s\":\"g\",\"name\":{},\"cat\":\"fault\",\"pid\":{},\"tid\":{},"
            "\"ts\":{},\"args\":{{\"component\":{},\"what\":{}}}}}",
            comma(), quoted(name), run_pid(), tid, micros(at), quoted(f.component), quoted(f.text));
      };
      instant(f.at, f.kind + ": " + f.component);
      if (f.until <= result_.end) instant(f.until, f.kind + " over: " + f.component);
    }
  }

  /// What was left out stands in the file and, as the one span of the run, in the viewer.
  void about() {
    std::string& m = metadata_;
    m = fmt::format("\"product\":{},\"scenario\":{},\"seed\":{},\"fingerprint\":\"{:016x}\"",
                    quoted("trainyard " + result_.version), quoted(result_.scenario_name),
                    result_.seed, result_.fingerprint);
    m += fmt::format(",\"complete\":{}", result_.complete);
    if (!result_.complete) m += ",\"incomplete_reason\":" + quoted(result_.incomplete_reason);
    m += fmt::format(
        ",\"spans\":{},\"spans_dropped\":{},\"spans_rule\":\"the shortest are dropped first\"",
        events_, result_.spans_dropped);
    m += fmt::format(
        ",\"transfers\":{},\"arrows\":{},\"arrows_without_span\":{},"
        "\"arrows_rule\":\"the slowest {} transfers\"",
        result_.flows.size(), arrows_, arrows_without_span_, limits_.arrows);
    if (result_.link_series.window > Time()) {
      m += fmt::format(
          ",\"counter_links\":{},\"counter_links_rule\":\"the {} busiest\",\"window_ns\":{},"
          "\"counter_queue\":\"largest in the window\"",
          counter_links_, limits_.counter_links,
          report::exact_ns(result_.link_series.window, false));
    }
    const uint32_t tid = new_thread(run_pid(), "about this trace");
    const std::string name = result_.scenario_name.empty() ? "run" : result_.scenario_name;
    complete_event(name, "run", run_pid(), tid, Time(), result_.end, m);
  }

  const Result& result_;
  const PerfettoLimits limits_;
  GzipFile out_;
  bool first_ = true;
  const bool only_flows_ = result_.spans.empty() && result_.rank_times.empty();
  uint32_t ranks_ = 0, next_tid_ = 0;
  std::vector<uint32_t> collective_of_;  // owner -> index, kNone
  std::vector<Anchor> anchors_;
  std::vector<uint32_t> slowest_;
  bool chosen_ = false;
  uint64_t events_ = 0, arrows_ = 0, arrows_without_span_ = 0, counter_links_ = 0;
  std::string metadata_;
};

}  // namespace

void write_perfetto(const Result& result, const std::string& path, const PerfettoLimits& limits) {
  PerfettoWriter(result, path, limits).write();
}

}  // namespace trainyard
