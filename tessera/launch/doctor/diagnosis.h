#pragma once
/// \file
/// What the readings of a machine mean for a job.

#include <span>
#include <string>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/launch/doctor/readings.h>

namespace tessera::launch {

/// How a check went: a warning costs speed; with a failure a job will not start or not last.
enum class Health : unsigned char { good, warning, failure };

/// "good", "warning", "failure".
const char* word_of(Health health);

/// What one check found.
struct Finding {
  std::string check;  ///< "open files"
  Health health = Health::good;
  std::string found;   ///< what was read, with its unit
  std::string remedy;  ///< empty when good
};

/// One finding per check that this machine can answer, always in the same order.
std::vector<Finding> diagnose(const Readings& readings);
/// The worst of them.
Health worst(std::span<const Finding> findings);
/// Lines for a terminal: check, health, what was found; below it the remedy.
std::string table_of(const std::string& host, std::span<const Finding> findings);
/// [{"check", "health", "found", "remedy"}].
Value value_of(std::span<const Finding> findings);
/// {"host", "health", "findings": [{"check", "health", "found", "remedy"}]}.
Value value_of(const std::string& host, std::span<const Finding> findings);

}  // namespace tessera::launch
