#pragma once
/// \file
/// --compression_training: DeepSpeed's section of that name, as values. It says from which step on the weights of which
/// modules, and the inputs of which linear maps, are rounded to how many bits while the model is trained. Formulas:
/// nn/linear_maps/fake_quantize.h.

#include <tessera/base/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

struct Problems;
struct Resolved;

/// One of a method's different_groups.
struct CompressionGroup {
  std::string name;                       ///< "wq1"
  std::vector<std::string> modules;       ///< regular expressions that occur in names of modules; "*": all there are
  std::int64_t start_bits = 8, bits = 8;  ///< inputs: the same
  std::int64_t period = 1;                ///< quantization_period of weights, in steps
};

/// weight_quantization and activation_quantization.
struct CompressionMethod {
  std::int64_t schedule_offset = 0;  ///< optimizer steps before the first one that is computed with rounded numbers
  bool asymmetric = false;
  std::vector<CompressionGroup> groups;
  // Only weights have these, but for the range of inputs.
  bool in_forward = false;           ///< quantize_weight_in_forward: at once to `bits`, nothing of the next four
  std::int64_t quantize_groups = 1;  ///< parts of a weight that are rounded each by its own range
  bool stochastic = false;
  bool running_range = false;  ///< inputs: range_calibration static
  double change_ratio = 0;  ///< fp16_mixed_quantize: share of the full weight that is lost at each step; 0: all at once
};

/// layer_reduction: the model begins with some of the layers of the one that is loaded.
struct LayerReduction {
  std::string module_name_prefix;              ///< "bert.encoder.layer"
  std::vector<std::int64_t> teacher_layer;     ///< which layers; all different
  std::vector<std::string> other_module_name;  ///< modules besides; the others are initialised anew
};

/// What a section asks for.
struct Compression {
  std::optional<CompressionMethod> weights, inputs;  ///< nothing: not enabled
  std::optional<LayerReduction> layers;
  bool rounds() const { return weights || inputs; }
  bool any() const { return rounds() || layers; }
};

/// What is wrong with a section, or has no effect, and where.
struct CompressionRemark {
  SourcePos where;
  std::string text;
};
struct CompressionRemarks {
  std::vector<CompressionRemark> problems, notes;
};

/// Reads the section; methods that are not enabled are looked at for unknown keys only. Not more than 20 problems.
Compression read_compression(const Value& section, CompressionRemarks& remarks);
/// The setting's text, which settle_compression() has read before. Throws InputError with the first problem.
Compression parse_compression(const std::string& text);

/// Makes the setting the text of its section, whatever it was: a file of the section or of a DeepSpeed configuration
/// with it, or the section itself; empty where it asks for nothing. Problems and notes have file and line.
void settle_compression(Resolved& resolved, Problems& problems);

/// Bits of the group's weights in the step that follows `steps` steps with rounded weights, and the share of the full
/// weight that is mixed in. Bits fall by one after period steps, after 2 period, 4 period, ... (each time after one
/// step where the period is 0), counting the step itself.
struct WeightBits {
  std::int64_t bits = 8;
  double exact = 0;
};
WeightBits weight_bits(const CompressionMethod& weights, const CompressionGroup& group, std::int64_t steps);

}  // namespace tessera::config
