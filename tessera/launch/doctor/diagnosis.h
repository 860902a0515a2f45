#pragma once
/// \file
/// Judges the readings of one machine.

#include <span>
#include <string>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/launch/doctor/readings.h>

namespace tessera::launch {

/// Result of a check. A warning costs speed; with a failure, a job will not start or will not finish.
enum class Health : unsigned char { good, warning, failure };

/// "good", "warning", "failure".
const char* word_of(Health health);

/// The finding of one check.
struct Finding {
  std::string check;  ///< "open files"
  Health health = Health::good;
  std::string found;   ///< the reading, with its unit
  std::string remedy;  ///< empty when good
};

/// Returns one finding per check that is possible on this machine, always in the same order.
std::vector<Finding> diagnose(const Readings& readings);
/// The worst health among them.
Health worst(std::span<const Finding> findings);
/// Lines for a terminal: check, health and reading, with the remedy below.
std::string table_of(const std::string& host, std::span<const Finding> findings);
/// [{"check", "health", "found", "remedy"}].
Value value_of(std::span<const Finding> findings);
/// {"host", "health", "findings": [{"check", "health", "found", "remedy"}]}.
Value value_of(const std::string& host, std::span<const Finding> findings);

}  // namespace tessera::launch
