// SPDX-License-Identifier: MIT
// Selective repeat. The receiver takes packets in any order within the window and answers each
// with what it has in a row and which one this was; the sender repeats a packet when another, sent
// `reorder_window` packets later, has arrived, or when its timer fires.
#include <algorithm>

#include "network/packet/domain.h"

namespace trainyard {
namespace {

bool test(const std::vector<uint64_t>& bits, int64_t number) {
  const auto at = static_cast<uint64_t>(number) & (bits.size() * 64 - 1);
  return (bits[at / 64] >> (at % 64) & 1) != 0;
}
void set(std::vector<uint64_t>& bits, int64_t number) {
  const auto at = static_cast<uint64_t>(number) & (bits.size() * 64 - 1);
  bits[at / 64] |= uint64_t{1} << (at % 64);
}
void clear(std::vector<uint64_t>& bits, int64_t number) {
  const auto at = static_cast<uint64_t>(number) & (bits.size() * 64 - 1);
  bits[at / 64] &= ~(uint64_t{1} << (at % 64));
}

}  // namespace

void PacketDomain::receive_selective(uint32_t k) {
  const Packet packet = packets_[k];
  const uint32_t qi = packet.qp;
  QueuePair& q = qps_[qi];
  Selective& r = selective_[qi];
  if (watched_) watch_ended(k, true);
  book_arrival(q, packet);
  const int64_t number = packet.seq / config_.payload;
  const int64_t expected = q.received / config_.payload;
  TRAINYARD_ASSERT(number < expected + selective_window_);
  if (number >= expected && !test(r.got, number)) {
    set(r.got, number);
    if (number > expected) {
      ++totals_.out_of_order;
      ++counters_at(packet).out_of_sequence;
    }
    // What is now in a row goes to the host.
    for (int64_t n = expected; test(r.got, n); ++n) {
      clear(r.got, n);
      const TransferState& t = states_[q.receive_transfer];
      const int64_t bytes = q.received + config_.payload == t.end
                                ? t.bytes - (t.bytes - 1) / config_.payload * config_.payload
                                : config_.payload;
      receive_in_order(q, config_.payload, bytes);
      if (q.receive_transfer == kNil) break;
    }
  }
  send_control(q, qi, kAck, q.received, q.notify, k);
  q.notify = false;
  free_packet(k);
}

void PacketDomain::acknowledge_selective(QueuePair& q, uint32_t qi, uint32_t k) {
  Selective& r = selective_[qi];
  const int64_t about = selective_ack_[k];
  const int64_t row = packets_[k].seq / config_.payload;
  const int64_t una = q.una / config_.payload;
  for (int64_t n = una; n < row; ++n) clear(r.acked, n);
  if (about >= std::max(row, una) && about < una + selective_window_) set(r.acked, about);
  r.highest = std::max(r.highest, about);
  acknowledge_up_to(q, qi, packets_[k].seq);
  // What has been overtaken by enough packets is lost.
  const int64_t limit = std::min(r.highest - config_.reorder_window, q.next / config_.payload - 1);
  const int64_t first = q.una / config_.payload;
  r.checked = std::max(r.checked, first);
  for (; r.checked <= limit; ++r.checked) {
    if (!test(r.acked, r.checked)) r.repeat.push_back(static_cast<uint32_t>(r.checked));
  }
  if (!r.repeat.empty()) activate(qi);
}

/// The timer fired: everything that is not known to have arrived.
void PacketDomain::repeat_all(QueuePair& q, uint32_t qi) {
  Selective& r = selective_[qi];
  r.repeat.clear();
  const int64_t end = q.next / config_.payload;
  for (int64_t n = q.una / config_.payload; n < end; ++n) {
    if (!test(r.acked, n)) r.repeat.push_back(static_cast<uint32_t>(n));
  }
  r.checked = std::max(r.checked, end);
  if (!r.repeat.empty()) activate(qi);
}

/// Something has to be sent again. What has arrived meanwhile is struck off the list.
bool PacketDomain::has_repeat(const QueuePair& q, uint32_t qi) {
  Selective& r = selective_[qi];
  const int64_t una = q.una / config_.payload;
  while (!r.repeat.empty()) {
    const int64_t number = r.repeat.front();
    if (number >= una && !test(r.acked, number)) return true;
    r.repeat.pop_front();
  }
  return false;
}

/// A packet to send again; kNil when all that were listed have arrived meanwhile.
uint32_t PacketDomain::next_repeat(QueuePair& q, uint32_t qi) {
  Selective& r = selective_[qi];
  const int64_t una = q.una / config_.payload;
  while (!r.repeat.empty()) {
    const int64_t number = r.repeat.front();
    r.repeat.pop_front();
    if (number < una || test(r.acked, number)) continue;
    const int64_t seq = number * config_.payload;
    uint32_t state = q.ack_transfer;
    while (states_[state].end <= seq) state = states_[state].next;
    const uint32_t k = new_packet();
    fill_data(k, qi, seq, state);
    ++records_[states_[state].record].retransmitted;
    ++totals_.retransmitted;
    if (q.next == q.posted && r.repeat.empty()) deactivate(qi);
    return k;
  }
  return kNil;
}

}  // namespace trainyard
