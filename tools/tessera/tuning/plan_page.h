#pragma once
/// \file
/// tessera plan --html FILE: the answer of a search as one page without network or scripts.

#include <tessera/plan/search.h>

#include <string>

namespace tessera::tool {

struct PageOptions {
  double tokens = 0;    ///< that the priced training takes; 0: 20 per parameter (Hoffmann et al. 2022)
  double price = 0;     ///< dollars of a device and hour; 0: not known
  std::string command;  ///< that runs the best plan
};

/// `answer` has a plan at least. Searches other numbers of devices, too, for the curve.
std::string plan_page(const plan::Question& question, const plan::Answer& answer, const PageOptions& options);

}  // namespace tessera::tool
