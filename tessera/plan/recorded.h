#pragma once
/// \file
/// One recorded step of a user's module, as written by tessera/parallel/recorder/record_step.h: a chain of layers with
/// their parameters, products, passes over memory and tensors kept for backward. It is planned like one of our models,
/// with data parallelism, ZeRO, FSDP and pipelines of its layers. The effects of tensor, context and expert parallelism
/// on such a module are unknown.

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
  double batch = 1;            ///< products per call
  double times = 1;            ///< number of calls
};
/// Calls of fused attention of one size.
struct RecordedAttention {
  double queries = 0;     ///< tokens of all rows
  double keys = 0;        ///< visible to each query on average: half of them if attention is causal
  double width = 0;       ///< elements of all heads
  double times = 1;       ///< number of calls
  bool backward = false;  ///< the call computes gradients
};

/// The arithmetic of a part of a step.
struct RecordedWork {
  double flop = 0;          ///< FLOP of products and attention; causal attention counts in full, as is usual for MFU
  double pass_bytes = 0;    ///< bytes that the other operators read and write
  std::int64_t passes = 0;  ///< number of these operators
  std::vector<RecordedProduct> products;     ///< each size once
  std::vector<RecordedAttention> attention;  ///< each size once

  /// Repeated sizes increase `times`.
  void add(const RecordedProduct& product);
  void add(const RecordedAttention& call);
};

/// A piece of the chain, for the recorded batch.
struct RecordedLayer {
  std::string name;        ///< the module's name, such as "blocks.3"
  double parameters = 0;   ///< elements
  double trained = 0;      ///< elements with gradients
  double saved_bytes = 0;  ///< bytes of distinct memory that backward needs, without parameters
  double input_bytes = 0;  ///< size of the layer's input, which is all that a recomputed layer keeps
  RecordedWork forward;    ///< operators in forward
  RecordedWork backward;   ///< their gradients
};

/// One recorded operator call.
struct RecordedCall {
  std::string name;                              ///< "aten::addmm"
  std::int64_t layer = 0;                        ///< 0: begin; i + 1: layers[i]; layers.size() + 1: end
  bool backward = false;                         ///< whether autograd's backward made the call
  std::string type;                              ///< type of its first tensor: "Float", "BFloat16"
  std::vector<std::vector<std::int64_t>> sizes;  ///< sizes of all tensor arguments
  double flop = 0;                               ///< FLOP of a product or attention
  double bytes = 0;                              ///< bytes read and written by any other operator
};

/// One forward and backward of one micro-batch.
struct RecordedStep {
  std::string name;                   ///< the module's class
  std::int64_t rows = 1;              ///< rows of the recorded micro-batch
  std::int64_t row_tokens = 1;        ///< tokens per row; 1: rows are not sequences
  double product_bytes = 4;           ///< bytes per element in most products: 2 under autocast, or with a half type
  double moment_bytes = 0;            ///< additional bytes at the peak, besides parameters, gradients and saved tensors
  double shared = 0;                  ///< elements of parameters that both `begin` and `end` use (tied embeddings)
  RecordedLayer begin;                ///< before the first layer
  std::vector<RecordedLayer> layers;  ///< in forward order
  RecordedLayer end;                  ///< after the last layer
  std::vector<RecordedCall> calls;    ///< in call order

  double parameters() const;   ///< elements of all layers and both ends
  double saved_bytes() const;  ///< bytes of all layers and both ends
  double flop() const;         ///< FLOP of all layers and both ends, forward and backward
};

/// As JSON.
Value recorded_value(const RecordedStep& step);
/// Parses that JSON. Throws InputError "file:line:column: ..." for a missing member, a number that is negative or
/// invalid, and a file of another version.
RecordedStep read_recorded(const Value& value);
/// Whether a JSON file has this format.
bool is_recorded(const Value& value);

/// Returns a model that is planned from a recorded step. `name` is shown to users.
Model model_of_recorded(RecordedStep step, std::string name);

/// The ratio of `run`'s batch to the recorded one, by which activations are multiplied.
double recorded_scale(const RecordedStep& step, const Plan& run);

/// Seconds of arithmetic by operation.
struct RecordedSeconds {
  double products = 0;   ///< matrix products
  double attention = 0;  ///< fused attention
  double passes = 0;     ///< everything else, which is memory-bound
};
/// Returns the time of a part of the step on one device of the cluster, for a micro-batch of `rows` rows. `element`:
/// bytes per element of a product. The dimension of a product that counts rows or tokens is recognized as a multiple of
/// them.
RecordedSeconds recorded_seconds(const RecordedStep& step, const RecordedWork& work, const Cluster& cluster,
                                 double element, std::int64_t rows);

}  // namespace tessera::plan
