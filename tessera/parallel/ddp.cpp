#include <tessera/parallel/ddp.h>

#include <tessera/parallel/fully_shard.h>

namespace tessera {

/// Sharded with the strategy that shards nothing.
struct Ddp::Impl {
  Sharded sharded;
  std::vector<std::pair<std::string, at::Tensor>> trainable;

  Impl(torch::nn::Module& module, const DdpOptions& options)
      : sharded(module, {.strategy = Strategy::ddp,
                         .group = options.group,
                         .reduction = options.reduction,
                         .logical_shards = options.logical_shards,
                         .find_unused_parameters = options.find_unused_parameters,
                         .first_bucket_mb = options.first_bucket_mb,
                         .bucket_mb = options.bucket_mb,
                         .broadcast_buffers = options.broadcast_buffers}) {
    for (const ShardedParameter& p : sharded.named_parameters()) trainable.emplace_back(p.name, p.local);
  }
};

Ddp::Ddp(torch::nn::Module& module, DdpOptions options) : impl_(std::make_unique<Impl>(module, options)) {}
Ddp::~Ddp() = default;
Ddp::Ddp(Ddp&&) noexcept = default;

Ddp::NoSync::NoSync(Ddp& ddp) : pause_(ddp.impl_->sharded) {}

void Ddp::zero_grad() { impl_->sharded.zero_grad(); }

const std::vector<std::pair<std::string, at::Tensor>>& Ddp::parameters() const { return impl_->trainable; }

double Ddp::clip_grad_norm(double max_norm) { return impl_->sharded.clip_grad_norm(max_norm); }

void Ddp::check_replicas() const { impl_->sharded.check_replicas(); }

std::vector<std::vector<std::string>> Ddp::buckets() const { return impl_->sharded.buckets(); }

}  // namespace tessera
