#pragma once
/// \file
/// parallel/replicas/: nn.DataParallel: one process, several replicas of a module, each with a part of the batch.
///
///   auto net = std::make_shared<MyModel>(config);       // any unmodified module (or a TORCH_MODULE holder)
///   tessera::DataParallel dp(net, {.replicas = 2});     // two teams of threads; or .devices = {"cuda:0", "cuda:1"}
///   at::Tensor logits = dp(ids);                        // net->forward(ids), half of the rows each
///   at::cross_entropy_loss(logits, labels).backward();  // each replica's backward in its team, or on its device
///   optimizer.step();                                   // updates net->parameters(), as always
///
/// A replica is a *device* or, on the CPU, a *team*: a thread with its own intra-op thread pool. A call scatters the
/// arguments, runs the replicas concurrently, and gathers their results.
///
/// **Scatter.** Tensors are cut along dimension 0 into ceil(rows / replicas) rows each, the last part with fewer; few
/// rows use fewer replicas (5 rows on 4 replicas: 2, 2, 1), no rows use one. All must have the same number of rows.
/// Tensors without dimensions, whole(x), and non-tensors (numbers, flags, options) are passed to every replica. Tensors
/// inside optionals, vectors, arrays, pairs, tuples and maps are scattered, too; for your own types see visit_tensors
/// or RowsOf (parallel/replicas/pieces.h). Without a scattered argument one replica runs.
///
/// **Replicate.** On the CPU nothing is copied. All teams call the *same* module at once: its parameters are only read,
/// and every replica has its own gradients because its backward is a torch::autograd::grad. Buffers are copied on
/// write, per replica; replica 0's writes (BatchNorm's statistics) are kept and the others' discarded, as in PyTorch.
/// This is not safe for modules that keep other state in forward (a member that it assigns): set `make`, and each
/// replica from 1 on is its own module whose parameters share the memory of the first one's. On several devices,
/// replicas are made by `make`, or else by Module::clone(). Their parameters are copied in every call that records
/// gradients, and otherwise only when parameters have changed, so inference replicates once.
///
/// **Gather.** The parts are joined along dimension 0 in replica order, on the output device. A tensor without
/// dimensions (a loss) becomes a vector with one element per replica that ran: use `.sum()` if it is a sum and
/// mean_over_rows() if it is a mean over rows. `.mean()`, as commonly written in PyTorch, weighs replicas equally
/// although the last may have had fewer rows.
///
/// **Gradients** of replicas are added in replica order, so a run is reproducible; a step equals the one on the whole
/// batch up to the rounding of that sum (bit for bit the sum of the steps on the parts). They reach the parameters
/// through ordinary autograd in the user's own backward(): accumulation, hooks, inputs that require grad, and Ddp
/// around the same module work. Double backward and sharded modules (whose parameters are gathered and freed) are
/// errors.
///
/// **Random numbers** (dropout): each replica draws from its own stream, keyed by the replica and by one number that
/// each call which draws at all takes from the CPU's default generator. at::manual_seed() makes a run reproducible;
/// replicas differ from each other. On other devices each uses its device's generator.
///
/// **State of the caller.** Replicas inherit grad mode, inference mode and autocast. Scopes of saved-tensor policies
/// around a call (OffloadActivations, ...) do not extend into it; inside of the module they work, and so does
/// checkpointing.
///
/// **Errors.** An exception in a replica ends the call after all replicas have finished, with an Error that names the
/// replica, its rows, and every other replica that failed (a backward on devices is one for all replicas, and names
/// none). No state remains, so the next call is not affected. One call or backward of a DataParallel at a time.

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <tessera/parallel/replicas/pieces.h>
#include <tessera/parallel/replicas/replica_set.h>

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera {

namespace parallel {

/// Replicas of a module of type M, as described at the top.
template <class M>
class DataParallel {
 public:
  /// Throws InputError for options that do not fit, or a module that is not on the first device.
  explicit DataParallel(std::shared_ptr<M> module, DataParallelOptions options = {})
      : module_(std::move(module)), replicas_(module_, std::move(options)) {}
  explicit DataParallel(const torch::nn::ModuleHolder<M>& holder, DataParallelOptions options = {})
      : DataParallel(holder.ptr(), std::move(options)) {}

  /// module->forward(arguments...) on all replicas. Default arguments do not apply: pass all of them, or use call().
  template <class... Args>
  auto forward(const Args&... arguments) {
    return call([](M& module, auto&... parts) { return module.forward(parts...); }, arguments...);
  }
  template <class... Args>
  auto operator()(const Args&... arguments) {
    return forward(arguments...);
  }

  /// function(M& replica, part of each argument...) on all replicas at once: for a method other than forward, or for
  /// forward and loss in one (the logits are then never gathered). `function` must be safe to call from several
  /// threads.
  template <class Function, class... Args>
  auto call(const Function& function, const Args&... arguments) {
    using Output = std::decay_t<std::invoke_result_t<const Function&, M&, pieces::given_t<Args>&...>>;
    pieces::Collected inputs;
    (inputs.next_argument(arguments), ...);
    if constexpr (std::is_void_v<Output>) {
      replicas_.run(inputs, [&](int, torch::nn::Module& replica, pieces::Part& part) {
        std::tuple<pieces::given_t<Args>...> given{pieces::given(arguments, part)...};
        std::apply([&](auto&... parts) { std::invoke(function, dynamic_cast<M&>(replica), parts...); }, given);
        return std::vector<at::Tensor>();
      });
    } else {
      static_assert(pieces::gatherable<Output>,
                    "replicas return tensors, or optionals, vectors, arrays, pairs, tuples and maps of them, or types "
                    "with visit_tensors(); return numbers as tensors");
      std::vector<std::optional<Output>> outputs(static_cast<std::size_t>(replicas_.size()));
      std::vector<at::Tensor> gathered =
          replicas_.run(inputs, [&](int number, torch::nn::Module& replica, pieces::Part& part) {
            std::tuple<pieces::given_t<Args>...> given{pieces::given(arguments, part)...};
            std::optional<Output>& output = outputs[static_cast<std::size_t>(number)];
            output.emplace(std::apply(
                [&](auto&... parts) { return std::invoke(function, dynamic_cast<M&>(replica), parts...); }, given));
            return pieces::tensors_of(*output);
          });
      Output result = std::move(*outputs.front());
      pieces::set_tensors(result, std::move(gathered));
      return result;
    }
  }

  /// The module whose parameters are trained.
  const std::shared_ptr<M>& module() const { return module_; }
  M* operator->() const { return module_.get(); }                              ///< the members of module()
  int replicas() const { return replicas_.size(); }                            ///< 1: only the module itself
  int threads_per_replica() const { return replicas_.threads_per_replica(); }  ///< intra-op threads per team
  /// Makes the next call copy the parameters to replicas on other devices, for parameters that were written without
  /// LibTorch noticing.
  void refresh() { replicas_.refresh(); }

 private:
  std::shared_ptr<M> module_;
  ReplicaSet replicas_;
};

/// Deduction guides.
template <class M>
DataParallel(std::shared_ptr<M>, DataParallelOptions = {}) -> DataParallel<M>;
template <class M>
DataParallel(const torch::nn::ModuleHolder<M>&, DataParallelOptions = {}) -> DataParallel<M>;

}  // namespace parallel

using parallel::DataParallel;
using parallel::DataParallelOptions;
using parallel::mean_over_rows;
using parallel::pieces::whole;

}  // namespace tessera
