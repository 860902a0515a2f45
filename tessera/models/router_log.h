#pragma once
/// \file
/// What the routers of a model do in a pass: the load of experts, and the auxiliary losses that keep it even
/// (nn/moe/balance.h). A model's loss() stays the cross-entropy; the auxiliary losses' gradients join it in backward.

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

/// How the load is kept even. What is minimised is the cross-entropy + auxiliary * (balancing loss) + z * (z-loss).
struct BalanceOptions {
  /// layers_together: transformers' (nn::load_balancing_loss), whose counts and probabilities are the whole model's;
  /// not possible where a pipeline's stages hold parts of the model. The others are sums over layers of nn::switch_loss
  /// for the counts of this pass (micro_batch), of each row (sequence), of all passes of a step so far and all
  /// processes (global_batch).
  enum class Form { layers_together, micro_batch, sequence, global_batch };
  std::int64_t experts = 0, top_k = 0;  ///< 0: the model has none
  Form form = Form::layers_together;
  double auxiliary = 0, z = 0;  ///< coefficients; 0: none
  /// Sums over the processes that hold other tokens of the same rows (sequence and context parallelism): counts and
  /// tokens are those of whole rows then, and each process adds its part of the losses. Empty: rows are whole.
  nn::SumOver sum_tokens = {};
  nn::SumOver sum = {};  ///< global_batch: over the processes that have other rows of a step
  /// A bound on what one expert does in a pass of training, as Switch Transformers have it; factor 0: none.
  nn::CapacityOptions capacity = {};
  /// Numbers [N, ...] of these processes' tokens, one process' after the other's: what sum_tokens adds up, gathered.
  /// This process' are those from `place` times N on. Empty: rows are whole.
  struct TokensOfRows {
    std::function<at::Tensor(const at::Tensor& numbers)> gather = {};  ///< collective over these processes
    std::int64_t place = 0;                                            ///< 0: this process' tokens come first
  };
  TokensOfRows tokens_of_rows = {};
};

/// What passes in training did since it was last taken.
struct RouterStatistics {
  std::int64_t passes = 0;                  ///< forward passes that came to their end
  double auxiliary_loss = 0, z_loss = 0;    ///< sums over passes, without coefficients
  std::map<std::int64_t, at::Tensor> load;  ///< by block: how many slots chose each expert, fp64 [E], of whole rows
  std::int64_t dropped = 0;                 ///< so many of this process' slots were beyond an expert's capacity
};

/// The routers of one pass.
class RouterLog {
 public:
  /// `totals` is added to at the end. `scale`: of the auxiliary losses' gradients. `whole`: all layers are run.
  /// `counts`: false for a pass whose tokens are another rank's (data::Batch::counts): it takes part in the collectives
  /// and adds nothing.
  RouterLog(const BalanceOptions& options, double scale, bool whole, std::shared_ptr<RouterStatistics> totals,
            bool counts = true)
      : options_(options), scale_(counts ? scale : 0), whole_(whole), counts_(counts), totals_(std::move(totals)) {}

  /// The choice that a layer made for B rows of equally many tokens. Ignored after the end of the pass: that is
  /// checkpointing, which runs a layer again.
  void add(std::int64_t block, const nn::Routing& routing, std::int64_t rows);
  /// The choice within BalanceOptions::capacity, which is that of all tokens of the pass, on whatever process they are:
  /// so what is dropped does not depend on the mesh. `place`: where the B rows' tokens lie. Collective where rows are
  /// cut.
  nn::Routing within_capacity(const nn::Routing& routing, std::int64_t rows, const nn::RandomPlace& place);
  /// What tokens of routers with RouterOptions::sinkhorn choose by: nn::sinkhorn() of all tokens of the pass, on
  /// whatever process they are. logits [N, E] of the tokens here -> [N, E]. Collective where rows are cut.
  at::Tensor sinkhorn(const at::Tensor& logits) const;
  /// The end of the pass, whose result is x: returned so that backward from it adds the auxiliary losses' gradients.
  /// Throws InputError for layers_together in a pass that is not whole.
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
