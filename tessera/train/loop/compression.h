#pragma once
/// \file
/// Which modules of a model are rounded to few bits while it is trained, and when (--compression_training;
/// config/rules/compression.h). Linear maps round their weight, or their input, or both, embeddings the rows that are
/// looked up; heads over the vocabulary, experts, routers and norms stay as they are. What is trained, and saved, are
/// the full weights.

#include <tessera/config/rules/compression.h>
#include <tessera/models/block_choice.h>
#include <tessera/models/language_model.h>
#include <tessera/models/layers.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

class CompressionSchedule {
 public:
  /// Finds the modules by their names in the whole model: before keep_stages(). Nothing is rounded before set_step().
  /// Throws InputError for an expression that fits no module, or one that cannot be rounded, for a module that two
  /// expressions fit, and for weights that cannot be divided into the groups.
  CompressionSchedule(const models::LanguageModel& model, const config::Compression& settings, std::uint64_t seed);

  /// `step` optimizer steps are done: what follows, a step or an evaluation, is computed as the settings say.
  void set_step(std::int64_t step);
  /// "weights of 24 modules (8 bits), inputs of 24 (8 bits) from step 1 on".
  std::string describe() const;

 private:
  struct Place {
    std::size_t group = 0;                                       ///< of the method
    std::string name;                                            ///< the module's
    std::shared_ptr<nn::QuantizedOperands> map;                  ///< a linear map's, or null
    std::shared_ptr<std::optional<nn::FakeQuantization>> table;  ///< an embedding's, or null
  };
  class Finder;

  config::Compression settings_;
  std::uint64_t seed_;
  std::vector<Place> weights_, inputs_;
};

/// As the settings say; nullptr where nothing is rounded.
std::shared_ptr<CompressionSchedule> apply_compression(const models::LanguageModel& model,
                                                       const OptimizationConfig& config);
/// Which layers of a folder the model begins with; nothing: all of them.
std::optional<models::BlockChoice> chosen_layers(const OptimizationConfig& config);

}  // namespace tessera::train
