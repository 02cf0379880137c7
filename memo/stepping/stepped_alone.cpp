// SPDX-License-Identifier: MIT
// Messages that have their path to themselves: most of those of a ring. Nothing can queue but
// behind ACKs that go the same way, so that no port has to be followed as long as those alone
// cannot make a queue that marks: a message is through when its bytes, and the ACKs that passed
// meanwhile, have had their time on the busiest port. As soon as somebody else comes to one of the
// ports, it is one of several like any other.
#include <algorithm>

#include "memo/stepping/stepped_fabric.h"
#include "sim/errors.h"

namespace trainyard {

bool SteppedFabric::may_be_alone(const QueuePair& q) {
  if (q.window > 0 || q.under_way > 0 || !nics_[q.nic].active.empty()) return false;
  const int64_t line = ports_[path_[q.forward]].carries;
  for (uint32_t i = q.forward; i < q.forward + q.hops; ++i) {
    Port& p = ports_[path_[i]];
    if (p.alone != kNil || !p.members.empty() || p.carries < line) return false;
    if (p.queue > 0) settle(p);
    if (p.queue > 0) return false;
  }
  return !may_mark_alone(q, std::max<int64_t>(0, q.alone_clear - now_));
}

/// Could ACKs that pass during its message queue so much of it that a switch marks or pauses?
/// `waits`: ps of what waits already.
bool SteppedFabric::may_mark_alone(const QueuePair& q, int64_t waits) const {
  const Wide volume = volume_of(messages_[q.head]);
  for (uint32_t i = q.forward + 1; i < q.forward + q.hops; ++i) {
    const Port& p = ports_[path_[i]];
    const int64_t most = p.marks ? std::min(p.kmin, p.watch) : p.watch;
    if (most == kNever) continue;
    const Wide queue = (volume * p.ack_share_q40 >> 40) + static_cast<Wide>(p.carries) * waits;
    if (queue > static_cast<Wide>(most) << kQueueShift) return true;
  }
  return false;
}

/// Its first message begins now.
void SteppedFabric::start_alone(uint32_t qi) {
  QueuePair& q = qps_[qi];
  q.alone = true;
  for (uint32_t i = q.forward; i < q.forward + q.hops; ++i) ports_[path_[i]].alone = qi;
  q.alone_front = std::max(q.since, now_);
  q.alone_waits = std::max<int64_t>(0, q.alone_clear - now_);
  begin_alone(q);
  q.wanted = allowed(q);
  set_rate_alone(qi);
}

/// What is sent, and what ACKs take, counts from now on.
void SteppedFabric::begin_alone(QueuePair& q) {
  q.alone_since = now_;
  for (uint32_t i = q.forward; i < q.forward + q.hops; ++i) {
    acked_before_[i] = acked(ports_[path_[i]]);
  }
}

void SteppedFabric::set_rate_alone(uint32_t qi) {
  QueuePair& q = qps_[qi];
  const int64_t line = ports_[path_[q.forward]].carries;
  const int64_t rate = std::max<int64_t>(1, std::min(q.wanted, line));
  if (rate == q.rate) return;
  settle(q, now_);
  q.rate = rate;
  told_receiver(qi, rate);
  schedule(qi);
}

/// Of the line, by ACKs until now.
SteppedFabric::Wide SteppedFabric::acked(const Port& p) const {
  return p.acked + static_cast<Wide>(p.ack_rate) * (now_ - p.acks_since);
}

/// How long what has been sent until now still needs to get through its busiest port.
int64_t SteppedFabric::waits_alone(const QueuePair& q) const {
  const Wide sent = volume_of(messages_[q.head]) - q.left;
  int64_t most = 0;
  for (uint32_t i = q.forward; i < q.forward + q.hops; ++i) {
    const Port& p = ports_[path_[i]];
    const Wide could = static_cast<Wide>(p.carries) * (now_ - q.alone_since - q.alone_waits);
    const Wide over = sent + acked(p) - acked_before_[i] - could;
    if (over > 0) most = std::max(most, static_cast<int64_t>(over / p.carries));
  }
  return most;
}

/// The last bit of a message has left the sender, but for what waits behind ACKs.
void SteppedFabric::on_sent_alone(uint32_t qi) {
  QueuePair& q = qps_[qi];
  settle(q, now_);
  overshoot_ -= q.left;
  q.left = 0;
  const int64_t waits = waits_alone(q);
  q.alone_clear = now_ + waits;
  const uint32_t mi = q.head;
  Message& m = messages_[mi];
  book(m);
  m.at = q.hops;
  const int64_t last = m.bytes - (m.packets - 1) * config_.payload + config_.header;
  int64_t at = q.alone_clear + ports_[path_[q.forward]].delay_ps;
  for (uint32_t i = q.forward + 1; i < q.forward + q.hops; ++i) {
    const Port& p = ports_[path_[i]];
    at += (m.follows ? p.full_ps : send_ps(last, p.rate_bps)) + p.delay_ps;
  }
  events_.push(at, key(kDelivered, mi), 0);
  q.head = m.next;
  if (q.head == kNil) {
    q.tail = kNil;
    q.active = false;
    leave_alone(q);
    q.rate = 0;
    told_receiver(qi, 0);
    return;
  }
  messages_[q.head].follows = true;
  q.alone_waits = waits;
  begin_alone(q);
  begin(q, q.head);
  if (may_mark_alone(q, waits))
    join_others(qi);
  else
    schedule(qi);
}

void SteppedFabric::leave_alone(QueuePair& q) {
  q.alone = false;
  for (uint32_t i = q.forward; i < q.forward + q.hops; ++i) ports_[path_[i]].alone = kNil;
}

/// Somebody else is on its path: from now on it is a flow among others. What waits is as if it had
/// not been sent.
void SteppedFabric::join_others(uint32_t qi) {
  QueuePair& q = qps_[qi];
  TRAINYARD_ASSERT(q.alone && q.active && q.head != kNil);
  settle(q, now_);
  const Wide waits = static_cast<Wide>(ports_[path_[q.forward]].carries) * waits_alone(q);
  q.left += waits;
  carried_ -= waits;
  leave_alone(q);
  // What it has reached by now it goes through at its rate.
  int64_t front = q.alone_front;
  for (uint32_t i = q.forward; i + 1 < q.forward + q.hops; ++i) {
    front += ports_[path_[i]].full_ps + ports_[path_[i]].delay_ps;
    Hop& h = hops_[i + 1];
    if (front > now_) {
      h.arriving.push(q.rate);
      ++q.under_way;
      events_.push(front, key(kFront, i + 1), 0);
      break;
    }
    Port& p = ports_[h.port];
    settle(p);
    h.member = static_cast<uint32_t>(p.members.size());
    p.members.push_back(i + 1);
    p.in += q.rate;
    h.in = h.out = q.rate;
    set_head(i + 1, q.rate);
    if (front < now_) {
      h.begins = std::max<int64_t>(1, front);
      p.joined_at = -1;
    }
    rescale(h.port, i + 1);
    reschedule(h.port);
  }
  Nic& nic = nics_[q.nic];
  nic.active.push_back(qi);
  nic.wanted += q.wanted;
  share(q.nic, qi);
  schedule(qi);
}

}  // namespace trainyard
