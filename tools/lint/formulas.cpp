// SPDX-License-Identifier: MIT
#include "tools/lint/formulas.h"

namespace trainyard::lint {

int64_t headroom_need(Rate rate, Time delay, int64_t frame, int64_t pause_frame, Time response) {
  return bytes_in(rate, delay + delay + response).count() + 2 * frame + pause_frame;
}

int64_t headroom_hpcc(Rate rate, Time delay) {
  return bytes_in(rate, delay * 3).count();
}

int64_t headroom_mlx5(Rate rate, Time delay, int64_t frame) {
  const int64_t metres = delay.ps() / 5'000;
  const int64_t per_gbps = 301 + 216 * metres / 100;
  return static_cast<int64_t>(static_cast<__int128>(per_gbps) * rate.bps() / 1'000'000'000) +
         272 * frame / 100;
}

int64_t headroom_textbook(Rate rate, Time delay, int64_t frame) {
  return bytes_in(rate, delay + delay).count() + frame;
}

Time headroom_hpcc_break_even(Rate rate, int64_t frame, int64_t pause_frame, Time response) {
  return response + transmission_time(Bytes(2 * frame + pause_frame), rate);
}

double static_xoff_bound(double buffer, double headroom, int classes, int ports) {
  const double queues = static_cast<double>(classes) * ports;
  return (buffer - queues * headroom) / queues;
}

double ecn_bound(double pool, double share, double reserve, int classes, int ports) {
  return (share * pool + reserve * (1 + share)) / (ports * (1 + share * classes));
}

double pause_point(double pool, double share, double reserve, int active) {
  return reserve + share * pool / (1 + active * share);
}

}  // namespace trainyard::lint
