// SPDX-License-Identifier: MIT
#include "tools/scenario/energy_figures.h"

#include <fmt/format.h>

#include "tools/report/text.h"
#include "tools/scenario/power_meter.h"
#include "workload/generator/flops.h"

namespace trainyard {
namespace {

std::string joules_text(double j) {
  if (j >= 3.6e6) return fmt::format("{:.4g} kWh", j / 3.6e6);
  return j >= 1e3 ? fmt::format("{:.4g} kJ", j * 1e-3) : fmt::format("{:.4g} J", j);
}

}  // namespace

std::vector<TrainingFigure> energy_figures(const Scenario& s,
                                           const std::optional<Training>& training, Time time,
                                           const std::vector<RankTimes>& ranks) {
  std::vector<TrainingFigure> out;
  const double seconds = time.seconds();
  if (seconds <= 0 || ranks.empty()) return out;
  const auto gpus = static_cast<double>(ranks.size());
  const double steps = training ? static_cast<double>(training->steps) : 1;
  const double gpu_hours = gpus * seconds / 3600 / steps;
  out.push_back({"gpu_hours_per_step", "GPU time per step",
                 fmt::format("{:.4g} GPU-hours", gpu_hours), gpu_hours});

  const DeviceCard& d = s.device;
  if (d.tdp_watts > 0) {
    double compute = 0, exposed = 0, wait = 0, idle = 0;
    for (const RankTimes& r : ranks) {
      compute += r.compute.seconds() * phase_watts(d, Phase::compute);
      exposed += r.exposed_comm.seconds() * phase_watts(d, Phase::exposed_comm);
      wait += r.wait.seconds() * phase_watts(d, Phase::wait);
      idle += r.host.seconds() * phase_watts(d, Phase::host) +
              r.storage.seconds() * phase_watts(d, Phase::storage) +
              r.idle.seconds() * phase_watts(d, Phase::idle);
    }
    const double total = compute + exposed + wait + idle;
    const double per_step = total / steps;
    const auto percent = [&](double part) { return report::percent(part / total) + " %"; };
    out.push_back({"energy_per_step_j", "energy per step",
                   fmt::format("{} of the GPU boards: compute {}, exposed communication {}, "
                               "waiting for peers {}, idle {}",
                               joules_text(per_step), percent(compute), percent(exposed),
                               percent(wait), percent(idle)),
                   per_step});
    out.push_back({"energy_compute_per_step_j", "", "", compute / steps});
    out.push_back({"energy_exposed_comm_per_step_j", "", "", exposed / steps});
    out.push_back({"energy_wait_per_step_j", "", "", wait / steps});
    out.push_back({"energy_idle_per_step_j", "", "", idle / steps});
    const double watts = total / seconds / gpus;
    out.push_back({"mean_watts_per_gpu", "power per GPU",
                   fmt::format("{:.4g} W in the mean, of a TDP of {:.4g} W", watts, d.tdp_watts),
                   watts});
    if (training) {
      // C 3.13: TFLOP/s per kW and tokens per kJ of a board.
      const double tflops_per_kw = step_flops(*training).model * 1e-12 / (per_step * 1e-3);
      const double tokens = static_cast<double>(training->global_batch) *
                            static_cast<double>(training->sequence) / (per_step * 1e-3);
      out.push_back(
          {"model_tflops_per_kw", "work per energy",
           fmt::format("{:.4g} model TFLOP/s per kW, {:.4g} tokens per kJ", tflops_per_kw, tokens),
           tflops_per_kw});
      out.push_back({"tokens_per_kj", "", "", tokens});
    }
    if (s.kwh_price >= 0) {
      const double price = per_step * s.pue / 3.6e6 * s.kwh_price;
      out.push_back({"energy_cost_per_step", "cost of energy per step",
                     fmt::format("{:.4g} at {:g} per kWh, PUE {:g}", price, s.kwh_price, s.pue),
                     price});
    }
  }
  if (s.steps_to_target > 0) {
    const auto n = static_cast<double>(s.steps_to_target);
    const double train = seconds / steps * n;
    const double whole = gpu_hours * n;
    out.push_back({"time_to_train_s", "time to train",
                   fmt::format("{:.4g} days for {} steps, {:.4g} GPU-hours{}; without start-up, "
                               "checkpoints and faults",
                               train / 86400, report::grouped(static_cast<uint64_t>(n)), whole,
                               s.gpu_hour_price < 0 ? ""
                                                    : fmt::format(", cost of GPUs {:.4g}",
                                                                  whole * s.gpu_hour_price)),
                   train});
    out.push_back({"time_to_train_gpu_hours", "", "", whole});
  }
  if (s.gpu_hour_price >= 0) {
    const double price = gpu_hours * s.gpu_hour_price;
    out.push_back({"gpu_cost_per_step", "cost of GPUs per step",
                   fmt::format("{:.4g} at {:g} per GPU-hour", price, s.gpu_hour_price), price});
  }
  return out;
}

}  // namespace trainyard
