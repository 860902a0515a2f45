#pragma once
/// \file
/// A parameter that the first and the last stage of a pipeline both hold: embeddings that also serve as the head's
/// matrix (Megatron-LM's embedding group).

#include <tessera/comm/group.h>
#include <tessera/layout/schedule/schedule.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/fully_shard.h>

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// The gradient of such a parameter during a batch, where autograd's own sum would be wrong. For each micro-batch, the
/// last stage contributes the head's part H and the first stage the embedding's part E.
///
/// - If one rank has both stages (a V schedule): H is kept separately and added after the reduction, so that the sum is
///   (H_0 + H_1 + ...) + (E_0 + E_1 + ...), as on two ranks. This costs the memory of one more gradient of the
///   parameter.
/// - In fixed order: E_i + H_i are added before they join the sum, as in the backward of the whole model. The last
///   stage sends H_i to the first as soon as it is available; there up to as many H_i as micro-batches in flight wait
///   for their E_i.
///
/// Intercepts gradients only while the backward of one of these stages runs. Not thread-safe.
class TiedGradient {
 public:
  /// The ranks of the two stages, and the order in which their parts are added.
  struct Options {
    comm::Group group = {};             ///< the pipeline's ranks, used for these messages only;
                                        ///< unused if one rank has both stages
    int first_rank = 0, last_rank = 0;  ///< ranks of the first and the last stage, in the pipeline
    int last_stage = 0;                 ///< its number in the schedule; the first is stage 0
    bool fixed_order = false;           ///< add in the order of the whole model's backward
  };
  /// Whether this class is needed. It is not if two ranks each add their own parts in any order.
  static bool needed(const Options& options) { return options.fixed_order || options.first_rank == options.last_rank; }

  /// `parameter`: this rank's trained parameter; must outlive this object.
  TiedGradient(at::Tensor parameter, Options options)
      : parameter_(std::move(parameter)), options_(std::move(options)) {}

  /// Call before and after each computation of a batch.
  void enter(const layout::schedule::Action& action);
  void leave() { edit_ = Subscription(); }
  /// Call after a batch; waits for the sends.
  void end_batch();
  /// Drops the separately kept H.
  void forget() { head_.reset(); }
  /// Adds the separately kept H to the reduced gradient of `name`. Call after Sharded::reduce(); collective over the
  /// data-parallel ranks of the stage.
  void add_to(Sharded& sharded, const std::string& name);

 private:
  at::Tensor take_head(int micro_batch, const at::Tensor& gradient);
  at::Tensor with_head(int micro_batch, const at::Tensor& gradient);

  at::Tensor parameter_;
  Options options_;
  Subscription edit_;
  at::Tensor head_;                  // the sum of H, kept separately
  std::map<int, at::Tensor> heads_;  // in fixed order, on one rank: H by micro-batch
  std::vector<comm::Work> sent_;
};

/// Call after Sharded::reduce(), before norms and the optimizer: the gradient of `parameter` becomes the sum of both
/// ranks' gradients, with the same bits on both, however each divides it. `first`, `last`: their ranks in `pipeline`.
/// Does nothing on other ranks, where both are the same rank, for a frozen parameter, and for "". Collective over the
/// data-parallel ranks of both stages.
void add_tied_gradients(Sharded& sharded, const std::string& parameter, const comm::Group& pipeline, int first,
                        int last);

/// The same for a module without an engine: grad() of `parameter`, which the ranks `holders` of `pipeline` have,
/// becomes the sum of their gradients, added in the order of `holders`, with the same bits on all. A holder without a
/// gradient adds nothing; if no holder has one, it stays undefined. Does nothing on other ranks. Collective over the
/// holders.
void add_tied_gradients(const at::Tensor& parameter, const comm::Group& pipeline, const std::vector<int>& holders);

}  // namespace tessera::parallel
