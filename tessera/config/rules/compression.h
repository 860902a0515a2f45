#pragma once
/// \file
/// --compression_training: DeepSpeed's section of that name, parsed. It specifies from which step on, and to how many
/// bits, the weights of which modules and the inputs of which linear layers are rounded during training. Formulas:
/// nn/linear_maps/fake_quantize.h.

#include <tessera/base/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

struct Problems;
struct Resolved;

/// An entry of a method's different_groups.
struct CompressionGroup {
  std::string name;                       ///< "wq1"
  std::vector<std::string> modules;       ///< regular expressions searched in module names; "*": all modules
  std::int64_t start_bits = 8, bits = 8;  ///< for inputs, both are the same
  std::int64_t period = 1;                ///< quantization_period of weights, in steps
};

/// weight_quantization and activation_quantization.
struct CompressionMethod {
  std::int64_t schedule_offset = 0;  ///< optimizer steps before rounding starts
  bool asymmetric = false;
  std::vector<CompressionGroup> groups;
  // Only for weights, except running_range.
  /// quantize_weight_in_forward: use `bits` at once; the next four members are unused
  bool in_forward = false;
  std::int64_t quantize_groups = 1;  ///< parts of a weight with separate ranges
  bool stochastic = false;
  bool running_range = false;  ///< inputs: range_calibration static
  double change_ratio = 0;  ///< fp16_mixed_quantize: decrease per step of the unrounded weight's share; 0: all at once
};

/// layer_reduction: the model starts with a subset of the loaded model's layers.
struct LayerReduction {
  std::string module_name_prefix;              ///< "bert.encoder.layer"
  std::vector<std::int64_t> teacher_layer;     ///< indices of these layers, all different
  std::vector<std::string> other_module_name;  ///< further modules to load; the others are newly initialized
};

/// A parsed section.
struct Compression {
  std::optional<CompressionMethod> weights, inputs;  ///< nullopt: not enabled
  std::optional<LayerReduction> layers;
  bool rounds() const { return weights || inputs; }
  bool any() const { return rounds() || layers; }
};

/// A problem of a section, or a part without effect, with its position.
struct CompressionRemark {
  SourcePos where;
  std::string text;
};
struct CompressionRemarks {
  std::vector<CompressionRemark> problems, notes;
};

/// Reads the section; methods that are not enabled are only checked for unknown keys. Reports at most 20 problems.
Compression read_compression(const Value& section, CompressionRemarks& remarks);
/// Parses the setting's text after settle_compression(). Throws InputError with the first problem.
Compression parse_compression(const std::string& text);

/// Replaces the setting by the text of its section. It may be a file with the section or with a DeepSpeed configuration
/// that contains it, or the section itself; becomes empty if it enables nothing. Problems and notes have file and line.
void settle_compression(Resolved& resolved, Problems& problems);

/// Bits of the group's weights in the step after `steps` steps with rounded weights, and the share of the unrounded
/// weight that is mixed in. The bits fall by one after period, 2 period, 4 period, ... steps (after every step if the
/// period is 0), counting the step itself.
struct WeightBits {
  std::int64_t bits = 8;
  double exact = 0;
};
WeightBits weight_bits(const CompressionMethod& weights, const CompressionGroup& group, std::int64_t steps);

}  // namespace tessera::config
