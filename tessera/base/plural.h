#pragma once
/// \file
/// Formats a number with its noun.

#include <tessera/base/text.h>

#include <cstdint>
#include <string>

namespace tessera {

/// "1 row", "2 rows"; `many`: an irregular plural ("processes").
inline std::string plural(std::int64_t count, const std::string& thing, const std::string& many = "") {
  return concat(count, " ", count == 1 ? thing : many.empty() ? thing + "s" : many);
}

}  // namespace tessera
