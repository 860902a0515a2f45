#pragma once
/// \file
/// Statistics of a model's routers in a pass: the load of experts, and the auxiliary losses that balance it
/// (nn/moe/balance.h). A model's loss() is only the cross-entropy; the auxiliary losses' gradients are added in
/// backward.

#include <ATen/core/Tensor.h>

#include <tessera/nn/moe/balance.h>
#include <tessera/nn/moe/capacity.h>
#include <tessera/nn/moe/router.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace tessera::models {

/// How the load is balanced. The objective is cross-entropy + auxiliary * (balancing loss) + z * (z-loss).
struct BalanceOptions {
  /// layers_together: transformers' (nn::load_balancing_loss), whose counts and probabilities cover the whole model;
  /// not possible if a pipeline's stages hold parts of the model. The others are sums over layers of nn::switch_loss
  /// for the counts of this pass (micro_batch), of each row (sequence), or of all passes of a step so far and all
  /// processes (global_batch).
  enum class Form { layers_together, micro_batch, sequence, global_batch };
  std::int64_t experts = 0, top_k = 0;  ///< 0: no experts
  Form form = Form::layers_together;
  double auxiliary = 0, z = 0;  ///< coefficients; 0: none
  /// Sums over the processes that hold other tokens of the same rows (sequence and context parallelism): counts and
  /// tokens then cover whole rows, and each process adds its part of the losses. Empty: rows are whole.
  nn::SumOver sum_tokens = {};
  nn::SumOver sum = {};  ///< global_batch: sums over the processes with different rows of a step
  /// Capacity of an expert in a pass of training, as in Switch Transformers; factor 0: unlimited.
  nn::CapacityOptions capacity = {};
  /// Gathers values [N, ...] of the tokens of all processes that sum_tokens covers, in process order. This process's
  /// values start at `place` times N. Empty: rows are whole.
  struct TokensOfRows {
    std::function<at::Tensor(const at::Tensor& numbers)> gather = {};  ///< collective over these processes
    std::int64_t place = 0;                                            ///< 0: this process's tokens come first
  };
  TokensOfRows tokens_of_rows = {};
};

/// Statistics of training passes since the last call.
struct RouterStatistics {
  std::int64_t passes = 0;                  ///< completed forward passes
  double auxiliary_loss = 0, z_loss = 0;    ///< sums over passes, without coefficients
  std::map<std::int64_t, at::Tensor> load;  ///< by block: slots that chose each expert, fp64 [E], of whole rows
  std::int64_t dropped = 0;                 ///< this process's slots beyond an expert's capacity
};

/// The routers of one pass.
class RouterLog {
 public:
  /// `totals` is updated at the end. `scale`: factor of the auxiliary losses' gradients. `whole`: all layers are run.
  /// `counts`: false for a pass with another rank's tokens (data::Batch::counts): it takes part in the collectives and
  /// adds nothing.
  RouterLog(const BalanceOptions& options, double scale, bool whole, std::shared_ptr<RouterStatistics> totals,
            bool counts = true)
      : options_(options), scale_(counts ? scale : 0), whole_(whole), counts_(counts), totals_(std::move(totals)) {}

  /// Records a layer's choice for B rows of equal length. Ignored after the end of the pass, when checkpointing runs a
  /// layer again.
  void add(std::int64_t block, const nn::Routing& routing, std::int64_t rows);
  /// Limits the choice by BalanceOptions::capacity, applied to all tokens of the pass on all processes, so that
  /// dropping does not depend on the mesh. `place`: position of the B rows' tokens. Collective if rows are cut.
  nn::Routing within_capacity(const nn::Routing& routing, std::int64_t rows, const nn::RandomPlace& place);
  /// The scores by which routers with RouterOptions::sinkhorn choose: nn::sinkhorn() over all tokens of the pass, on
  /// all processes. logits [N, E] of the local tokens -> [N, E]. Collective if rows are cut.
  at::Tensor sinkhorn(const at::Tensor& logits) const;
  /// Ends the pass, whose result is x: returns it so that backward adds the auxiliary losses' gradients. Throws
  /// InputError for layers_together in a pass that is not whole.
  at::Tensor finished(const at::Tensor& x);

 private:
  struct Layer {
    std::int64_t block, rows;
    nn::Routing routing;
    at::Tensor counts = {};  ///< fp64 [B, E], of whole rows
  };
  at::Tensor auxiliary_loss() const;
  at::Tensor layer_loss(const Layer& layer) const;

  BalanceOptions options_;
  double scale_;
  bool whole_, counts_, closed_ = false;
  std::vector<Layer> layers_;
  std::shared_ptr<RouterStatistics> totals_;
};

}  // namespace tessera::models
