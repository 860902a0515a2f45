#pragma once
/// \file
/// Which modules of a model are rounded to few bits while it is trained, and when (--compression_training;
/// config/rules/compression.h). Linear maps round their weight, or their input, or both, embeddings the rows that are
/// looked up; heads over the vocabulary, experts, routers and norms stay as they are. What is trained, and saved, are
/// the full weights.

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
  /// Finds the modules by their names in the whole model: before keep_stages(). Nothing is rounded before set_step().
  /// Throws InputError for an expression that fits no module, or one that cannot be rounded, for a module that two
  /// expressions fit, and for weights that cannot be divided into the groups.
  CompressionSchedule(const models::LanguageModel& model, const config::Compression& settings, std::uint64_t seed,
                      at::Device device = at::kCPU);

  /// `step` optimizer steps are done: what follows, a step or an evaluation, is computed as the settings say.
  void set_step(std::int64_t step);
  // Ranges of inputs that run on (range_calibration static): r = 0.95 r + 0.05 (range of the step's inputs), from the
  // step before schedule_offset on, or the first, whose inputs are not rounded yet.

  /// Whether there are any.
  bool keeps_ranges() const { return settings_.inputs && settings_.inputs->running_range; }
  /// Forgets what was noted since the last step: trials.
  void begin_step();
  /// Noted in the step that runs, fp32 [maps, 2]: each process puts the largest of all in before end_step().
  const at::Tensor& noted() const { return noted_; }
  void end_step();
  /// For a checkpoint: least and largest of each map, null where there are none; and back. Throws InputError for
  /// another number of maps.
  Value ranges() const;
  void set_ranges(const Value& ranges);

  /// "weights of 24 modules (8 bits), inputs of 24 (8 bits) from step 1 on".
  std::string describe() const;

 private:
  struct Place {
    std::size_t group = 0;                                       ///< its place in the method
    std::string name;                                            ///< the module's
    std::shared_ptr<nn::QuantizedOperands> map;                  ///< a linear map's, or null
    std::shared_ptr<std::optional<nn::FakeQuantization>> table;  ///< an embedding's, or null
  };
  class Finder;

  config::Compression settings_;
  std::uint64_t seed_;
  std::vector<Place> weights_, inputs_;
  at::Tensor noted_, ranges_;  // [maps, 2]: (-least, largest), (least, largest); no numbers where there are none
};

/// As the settings say; nullptr where nothing is rounded.
std::shared_ptr<CompressionSchedule> apply_compression(const models::LanguageModel& model,
                                                       const OptimizationConfig& config, at::Device device);

/// --compression_training in a run; null: it is off.
std::unique_ptr<RunFeature> make_compression(const RunConfig& config);

}  // namespace tessera::train
