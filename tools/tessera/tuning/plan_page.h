#pragma once
/// \file
/// tessera plan --html FILE: the result of a search as one self-contained page without scripts.

#include <tessera/plan/search.h>

#include <string>

namespace tessera::tool {

struct PageOptions {
  /// number of training tokens for which the price is shown; 0: 20 per parameter (Hoffmann et al. 2022)
  double tokens = 0;
  double price = 0;     ///< dollars per device and hour; 0: unknown
  std::string command;  ///< command that runs the best plan
};

/// `answer` must have at least one plan. Also searches for plans on other numbers of devices, for the curve.
std::string plan_page(const plan::Question& question, const plan::Answer& answer, const PageOptions& options);

}  // namespace tessera::tool
