// SPDX-License-Identifier: MIT
// Fits the constants of a device card, and factors of software, to measured steps.
//
// The cost is the sum over steps of a robust square (pseudo-Huber, 8 %) of the logarithm of
// predicted over measured time, weighted, where the n steps of one source have weight 1/n^(1/4)
// each besides, plus 4 ((p - prior) / sigma)^2 for the logarithm p of every constant; Levenberg-
// Marquardt minimises it. Between simulations a step's time follows its kernels: T = T0 + K - K0.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tools/scenario/scenario.h"

namespace trainyard {

struct CalibrateOptions {
  std::string csv;
  std::string device;                ///< card to fit; empty: that of the first scenario
  std::string priors;                ///< file; empty: configs/calibration/priors.yaml
  std::vector<std::string> heldout;  ///< sources that take no part in the fit
  int rounds = 2;                    ///< simulations of every step
};

/// Two shares of the absolute errors, in percent.
struct ErrorSummary {
  size_t rows = 0;
  double median_pct = 0, p90_pct = 0, bias_pct = 0;
};

struct CalibratedParameter {
  std::string name;  ///< as in the `fit` block, or "software NAME"
  double prior = 0, sigma = 0, value = 0;
};

struct CalibratedStep {
  std::string id, source;
  bool held = false;
  double measured_s = 0, before_s = 0, after_s = 0;
};

struct Calibration {
  DeviceCard card;  ///< with the fit
  std::vector<CalibratedParameter> parameters;
  std::vector<CalibratedStep> steps;
  ErrorSummary before, fitted;    ///< of the steps that were fitted, by the old card and by the new
  ErrorSummary heldout;           ///< of steps that the fit did not see
  bool left_out_in_turn = false;  ///< heldout: each source (of a single one each step) once
};

/// Reads the CSV: scenario, time_s; source, weight, id, half (fit, held), set ("key=value;..."),
/// scenario_more, factor, added_s may be there. With `scenario_more` the step is scenario + factor
/// x (scenario_more - scenario) + added_s: a long step from two short ones. Throws UserError.
Calibration calibrate(const CalibrateOptions& options);

/// Tables for people, and the `fit` block.
void print_calibration(const Calibration& calibration, std::ostream& out);

/// "fit:" and the lines below it.
std::string fit_block(const DeviceFit& fit);

/// Writes the card's file to `path`, with the fit that it has now. Throws UserError.
void write_card(const DeviceCard& card, const std::string& path);

/// The text of a card with another `fit` block.
std::string with_fit(const std::string& card_text, const DeviceFit& fit);

}  // namespace trainyard
