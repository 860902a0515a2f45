#pragma once
/// \file
/// What one step of somebody's module does, as tessera/parallel/recorder/record_step.h writes it down: a chain of
/// layers with their parameters, products, passes over memory and what they keep for backward. Planned like a model of
/// our own, by data parallelism, ZeRO, FSDP and pipelines of its layers; what tensor, context or expert parallelism
/// would do to a module that nobody has described is not known.

#include <tessera/base/value.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::plan {

struct Cluster;
struct Model;
struct Plan;

/// Products of one size.
struct RecordedProduct {
  double m = 0, n = 0, k = 0;  ///< [m, k] by [k, n]
  double batch = 1;            ///< so many of them in one call
  double times = 1;            ///< so many calls
};
/// Calls of fused attention of one size.
struct RecordedAttention {
  double queries = 0;     ///< tokens, of all rows
  double keys = 0;        ///< that each of them sees on average: half of them where attention is causal
  double width = 0;       ///< elements of all heads together
  double times = 1;       ///< so many calls
  bool backward = false;  ///< the gradients of such a call
};

/// Arithmetic of a part of a step.
struct RecordedWork {
  double flop = 0;          ///< what products and attention do; causal attention in full, as the usual MFU counts it
  double pass_bytes = 0;    ///< that the other operators read and write
  std::int64_t passes = 0;  ///< how many these are
  std::vector<RecordedProduct> products;     ///< every size once
  std::vector<RecordedAttention> attention;  ///< every size once

  /// The same sizes once more raise `times`.
  void add(const RecordedProduct& product);
  void add(const RecordedAttention& call);
};

/// A piece of the chain, for the recorded batch.
struct RecordedLayer {
  std::string name;        ///< the module's, as "blocks.3"
  double parameters = 0;   ///< elements
  double trained = 0;      ///< those of them that have gradients
  double saved_bytes = 0;  ///< distinct memory that backward needs, without parameters
  double input_bytes = 0;  ///< the tensor that the layer begins with, which is all that a recomputed layer keeps
  RecordedWork forward;    ///< its operators in forward
  RecordedWork backward;   ///< the gradients of these
};

/// One operator as it was called.
struct RecordedCall {
  std::string name;                              ///< "aten::addmm"
  std::int64_t layer = 0;                        ///< 0: begin; i + 1: layers[i]; layers.size() + 1: end
  bool backward = false;                         ///< called by autograd's backward
  std::string type;                              ///< its first tensor's: "Float", "BFloat16"
  std::vector<std::vector<std::int64_t>> sizes;  ///< all sizes of the tensors that it was given
  double flop = 0;                               ///< a product's or attention's
  double bytes = 0;                              ///< that any other operator reads and writes
};

/// One forward and backward of one micro-batch.
struct RecordedStep {
  std::string name;                   ///< the module's class
  std::int64_t rows = 1;              ///< rows of the recorded micro-batch
  std::int64_t row_tokens = 1;        ///< tokens of a row; 1: rows are no sequences
  double product_bytes = 4;           ///< an element's in most products: 2 under autocast, or in a half type
  double moment_bytes = 0;            ///< besides parameters, gradients and what is saved, at the fullest moment
  double shared = 0;                  ///< elements of parameters that both `begin` and `end` use (tied embeddings)
  RecordedLayer begin;                ///< before the first layer
  std::vector<RecordedLayer> layers;  ///< in the order in which forward meets them
  RecordedLayer end;                  ///< behind the last layer
  std::vector<RecordedCall> calls;    ///< in their order

  double parameters() const;   ///< elements of all layers and both ends
  double saved_bytes() const;  ///< what all of them keep
  double flop() const;         ///< what all of them do, forward and backward
};

/// As JSON.
Value recorded_value(const RecordedStep& step);
/// The reverse. Throws InputError "file:line:column: ..." for a missing member, a number that is negative or no number,
/// and a file of another version.
RecordedStep read_recorded(const Value& value);
/// Whether a JSON file is one of these.
bool is_recorded(const Value& value);

/// A model that is planned by what was recorded. `name`: for people.
Model model_of_recorded(RecordedStep step, std::string name);

/// The batch of `run` by the recorded one: what activations are multiplied with.
double recorded_scale(const RecordedStep& step, const Plan& run);

/// Seconds of arithmetic, by what spends them.
struct RecordedSeconds {
  double products = 0;   ///< matrix products
  double attention = 0;  ///< fused attention
  double passes = 0;     ///< everything else, which memory limits
};
/// How long a part of the step takes on one device of the cluster for a micro-batch of so many rows. `element`: bytes
/// of a product's. Of a product the size that counts rows or tokens is known by being their multiple.
RecordedSeconds recorded_seconds(const RecordedStep& step, const RecordedWork& work, const Cluster& cluster,
                                 double element, std::int64_t rows);

}  // namespace tessera::plan
