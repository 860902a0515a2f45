#pragma once
/// \file
/// The current metrics of a run in Prometheus' text format
/// (https://prometheus.io/docs/instrumenting/exposition_formats/), for the textfile collector of node_exporter
/// (--metrics_file).

#include <tessera/train/reporting/metrics.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::train {

/// The values known so far.
struct Exposition {
  std::string job;           ///< label of every sample
  bool running = true;       ///< false: the run has ended normally
  double wall_time = 0;      ///< Unix seconds
  std::int64_t planned = 0;  ///< optimizer steps of the whole run; 0: not known yet
  double seconds_left = 0;   ///< estimated from the current speed
  std::optional<StepMetrics> step = {};
  std::optional<EvalMetrics> evaluation = {};
};

/// Samples with HELP and TYPE lines, in base units: seconds, bytes, ratios. All names start with tessera_.
std::string prometheus_text(const Exposition& now);

}  // namespace tessera::train
