#pragma once
/// \file
/// The newest numbers of a run in Prometheus' text form (https://prometheus.io/docs/instrumenting/exposition_formats/),
/// for the textfile collector of node_exporter (--metrics_file).

#include <tessera/train/reporting/metrics.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::train {

/// What is known now.
struct Exposition {
  std::string job;           ///< label of every sample
  bool running = true;       ///< false: the run has ended as it should
  double wall_time = 0;      ///< Unix seconds
  std::int64_t planned = 0;  ///< optimizer steps of the whole run; 0: not known yet
  double seconds_left = 0;   ///< by the present speed
  std::optional<StepMetrics> step = {};
  std::optional<EvalMetrics> evaluation = {};
};

/// Samples with HELP and TYPE lines. Units are the base ones: seconds, bytes, ratios. Names begin with tessera_.
std::string prometheus_text(const Exposition& now);

}  // namespace tessera::train
