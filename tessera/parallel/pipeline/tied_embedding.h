#pragma once
/// \file
/// A parameter that the first and the last stage of a pipeline both hold: embeddings that are the head's matrix, too
/// (Megatron-LM's embedding group).

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

/// The gradient of such a parameter while a batch runs, where autograd's own sum would be another one. The last stage's
/// part H of a micro-batch is the head's, the first stage's part E the embedding's.
///
/// - One rank has both stages (a V): H is kept separately and joins after the reduction, so that the sum is
///   (H_0 + H_1 + ...) + (E_0 + E_1 + ...), that of two ranks. It costs the memory of one more gradient of the
///   parameter.
/// - In fixed order: E_i + H_i are added before they join the sum, as in the backward of the whole model. The last
///   stage sends H_i to the first as soon as it has it; there they wait for E_i, as many as micro-batches are under
///   way.
///
/// Gradients are looked at only while the backward of one of these stages runs. Not thread-safe.
class TiedGradient {
 public:
  /// Where the two stages are, and in which order their parts are added.
  struct Options {
    comm::Group group = {};             ///< the pipeline's ranks, for these messages only; unused on one rank
    int first_rank = 0, last_rank = 0;  ///< those of the first and the last stage, in the pipeline
    int last_stage = 0;                 ///< its number in the schedule; the first is stage 0
    bool fixed_order = false;           ///< add up as the backward of the whole model does
  };
  /// Whether there is anything to do: two ranks that add up each their own in any order need nothing.
  static bool needed(const Options& options) { return options.fixed_order || options.first_rank == options.last_rank; }

  /// `parameter`: this rank's, trained. It outlives this.
  TiedGradient(at::Tensor parameter, Options options)
      : parameter_(std::move(parameter)), options_(std::move(options)) {}

  /// Before and after each computation of a batch.
  void enter(const layout::schedule::Action& action);
  void leave() { edit_ = Subscription(); }
  /// After a batch; waits for what was sent.
  void end_batch();
  /// Drops the separately kept H.
  void forget() { head_.reset(); }
  /// Adds the separately kept H to the reduced gradient of `name`. After Sharded::reduce(); collective over the
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

/// After Sharded::reduce(), before norms and the optimizer: the gradient of `parameter` becomes the sum of both ranks',
/// with the same bits on both, however each divides it. `first`, `last`: their ranks in `pipeline`; on others, where
/// both are one, for a frozen parameter and for "" it does nothing. Collective over the data-parallel ranks of both
/// stages.
void add_tied_gradients(Sharded& sharded, const std::string& parameter, const comm::Group& pipeline, int first,
                        int last);

/// The same where no engine is around the module: grad() of `parameter`, which the ranks `holders` of `pipeline` have,
/// becomes the sum of theirs, added in the order of `holders`, with the same bits on all; one without a gradient adds
/// nothing, and where nobody has one it stays undefined. On other ranks it does nothing. Collective over the holders.
void add_tied_gradients(const at::Tensor& parameter, const comm::Group& pipeline, const std::vector<int>& holders);

}  // namespace tessera::parallel
