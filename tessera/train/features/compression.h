#pragma once
/// \file
/// Selects the modules of a model that are rounded to few bits during training, and when (--compression_training;
/// config/rules/compression.h). Linear maps round their weight, their input, or both; embeddings round the rows that
/// are looked up; heads over the vocabulary, experts, routers and norms are not rounded. The full weights are trained
/// and saved.

#include <tessera/config/rules/compression.h>
#include <tessera/models/language_model.h>
#include <tessera/models/layers.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {
struct OptimizationConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

class RunFeature;

class CompressionSchedule {
 public:
  /// Finds the modules by their names in the whole model, so it must be called before keep_stages(). Nothing is rounded
  /// before set_step(). Throws InputError for an expression that matches no module or a module that cannot be rounded,
  /// for a module that two expressions match, and for weights that cannot be divided into the groups.
  CompressionSchedule(const models::LanguageModel& model, const config::Compression& settings, std::uint64_t seed,
                      at::Device device = at::kCPU);

  /// Applies the settings for the step or evaluation that follows `step` optimizer steps.
  void set_step(std::int64_t step);
  // Running ranges of inputs (range_calibration static): r = 0.95 r + 0.05 (range of the step's inputs), starting one
  // step before schedule_offset, or with the first step, whose inputs are not rounded yet.

  /// Whether running ranges are kept.
  bool keeps_ranges() const { return settings_.inputs && settings_.inputs->running_range; }
  /// Discards ranges that trial passes have recorded since the last step.
  void begin_step();
  /// Ranges observed in the current step, fp32 [maps, 2]: each process stores the maximum over all processes here
  /// before end_step().
  const at::Tensor& noted() const { return noted_; }
  void end_step();
  /// Minimum and maximum of each map for a checkpoint, null if not yet observed; set_ranges() restores them. Throws
  /// InputError for a different number of maps.
  Value ranges() const;
  void set_ranges(const Value& ranges);

  /// "weights of 24 modules (8 bits), inputs of 24 (8 bits) from step 1 on".
  std::string describe() const;

 private:
  struct Place {
    std::size_t group = 0;                                       ///< index of the entry in the method
    std::string name;                                            ///< name of the module
    std::shared_ptr<nn::QuantizedOperands> map;                  ///< null for an embedding
    std::shared_ptr<std::optional<nn::FakeQuantization>> table;  ///< null for a linear map
  };
  class Finder;

  config::Compression settings_;
  std::uint64_t seed_;
  std::vector<Place> weights_, inputs_;
  at::Tensor noted_, ranges_;  // [maps, 2]: (-minimum, maximum), (minimum, maximum); NaN if not observed
};

/// Applies the settings to a model; returns nullptr if nothing is rounded.
std::shared_ptr<CompressionSchedule> apply_compression(const models::LanguageModel& model,
                                                       const OptimizationConfig& config, at::Device device);

/// Feature for --compression_training; null: it is off.
std::unique_ptr<RunFeature> make_compression(const RunConfig& config);

}  // namespace tessera::train
