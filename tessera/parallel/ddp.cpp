#include <tessera/parallel/ddp.h>

#include <tessera/base/error.h>
#include <tessera/comm/world.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/reducer.h>
#include <tessera/parallel/replicas.h>

#include <set>

namespace tessera {
namespace {

using parallel::NamedTensor;

/// The entries of a module's dictionary, a tensor that is registered twice (tied weights) once, under its first name.
std::vector<NamedTensor> once(const torch::OrderedDict<std::string, at::Tensor>& entries) {
  std::vector<NamedTensor> result;
  std::set<const void*> seen;
  for (const auto& entry : entries)
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      result.push_back({entry.key(), entry.value()});
  return result;
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& n : named) tensors.push_back(n.tensor);
  return tensors;
}

}  // namespace

struct Ddp::Impl {
  torch::nn::Module& module;
  DdpOptions options;
  std::vector<NamedTensor> all, frozen;
  std::vector<std::pair<std::string, at::Tensor>> trainable;
  std::unique_ptr<parallel::Reducer> reducer;

  Impl(torch::nn::Module& wrapped, DdpOptions chosen) : module(wrapped), options(std::move(chosen)) {
    if (!options.group) options.group = world().group();
    all = once(module.named_parameters());
    std::vector<NamedTensor> reduced;
    for (const NamedTensor& p : all) {
      if (!p.tensor.requires_grad()) {
        frozen.push_back(p);
        continue;
      }
      reduced.push_back(p);
      trainable.emplace_back(p.name, p.tensor);
    }
    parallel::require_same_structure(options.group, all, "parameter");
    if (reduced.empty())
      throw InputError(concat("data parallelism: module '", module.name(),
                              "' has no parameter that requires gradient (", frozen.size(),
                              " frozen); there is nothing to reduce, use it without Ddp"));
    share_values();
    reducer = std::make_unique<parallel::Reducer>(
        options.group, std::move(reduced),
        parallel::ReducerOptions{.first_bucket_mb = options.first_bucket_mb,
                                 .bucket_mb = options.bucket_mb,
                                 .reduction = options.reduction,
                                 .find_unused_parameters = options.find_unused_parameters,
                                 .logical_shards = options.logical_shards},
        [this] { after_reduction(); });
  }

  /// Everyone gets rank 0's values; the hashes prove it.
  void share_values() {
    parallel::broadcast_tensors(options.group, tensors_of(all));
    parallel::require_same_bits(options.group, all, "parameter");
    if (!options.broadcast_buffers) return;
    const std::vector<NamedTensor> buffers = once(module.named_buffers());
    parallel::require_same_structure(options.group, buffers, "buffer");
    parallel::broadcast_tensors(options.group, tensors_of(buffers));
    parallel::require_same_bits(options.group, buffers, "buffer");
  }

  void after_reduction() {
    for (const NamedTensor& p : frozen)
      if (p.tensor.requires_grad())
        throw Error(concat("data parallelism: parameter '", p.name,
                           "' was frozen when the module was wrapped and requires grad now; its "
                           "gradients are not reduced; wrap the module again after unfreezing"));
    // Without forward hooks, the moment between a reduction and the next forward is now: forward has already updated
    // the statistics of this step, on every rank those of its own data.
    if (options.broadcast_buffers) parallel::broadcast_tensors(options.group, tensors_of(once(module.named_buffers())));
  }
};

Ddp::Ddp(torch::nn::Module& module, DdpOptions options) : impl_(std::make_unique<Impl>(module, std::move(options))) {}
Ddp::~Ddp() = default;
Ddp::Ddp(Ddp&&) noexcept = default;

Ddp::NoSync::NoSync(Ddp& ddp) : ddp_(ddp) { ddp_.impl_->reducer->pause(); }
Ddp::NoSync::~NoSync() { ddp_.impl_->reducer->resume(); }

void Ddp::zero_grad() { impl_->reducer->zero_grad(); }

const std::vector<std::pair<std::string, at::Tensor>>& Ddp::parameters() const { return impl_->trainable; }

double Ddp::clip_grad_norm(double max_norm) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : impl_->trainable)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  const double norm = optim::gradient_norm(gradients);
  const double coefficient = optim::clip_coefficient(norm, max_norm);
  if (coefficient != 1)
    for (at::Tensor& gradient : gradients) gradient.mul_(coefficient);
  return norm;
}

void Ddp::check_replicas() const { parallel::require_same_bits(impl_->options.group, impl_->all, "parameter"); }

std::vector<std::vector<std::string>> Ddp::buckets() const {
  std::vector<std::vector<std::string>> result;
  for (const std::vector<std::size_t>& list : impl_->reducer->assignment()) {
    result.emplace_back();
    for (const std::size_t i : list) result.back().push_back(impl_->trainable[i].first);
  }
  return result;
}

}  // namespace tessera
