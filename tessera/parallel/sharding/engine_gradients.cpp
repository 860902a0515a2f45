// Operations on reduced gradients: their norm, their scale, and the origin of the first non-finite one.

#include <tessera/parallel/sharding/engine.h>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/optim/norm.h>
#include <tessera/parallel/dispatch/managed.h>

#include <algorithm>

namespace tessera {

std::vector<optim::GradientPiece> Sharded::Impl::gradient_pieces() const {
  std::vector<optim::GradientPiece> pieces;
  for (std::size_t i = 0; i < local_.size(); ++i)
    if (counted_[i]) pieces.push_back({local_[i].local.grad(), local_[i].begin});
  return pieces;
}

std::vector<comm::Group> Sharded::Impl::norm_groups() const {
  std::vector<comm::Group> groups;
  if (!plain() && context_.shards.size() > 1) groups.push_back(context_.shards);
  if (tensor_group_) groups.push_back(tensor_group_);
  if (options_.stages) groups.push_back(options_.stages);
  return groups;
}

double Sharded::Impl::grad_norm() {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard allowed(parallel::managed_key);
  return optim::gradient_norm(gradient_pieces(), [&](std::vector<std::int64_t>& words) {
    const comm::Tag tag("gradient norm");
    for (const comm::Group& group : norm_groups()) comm::all_reduce_numbers(group, words);
  });
}

at::Tensor Sharded::Impl::step_scalars(double max_norm) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard allowed(parallel::managed_key);
  const at::Tensor words = optim::squares_on_device(gradient_pieces(), world().device());
  const comm::Tag tag("gradient norm");
  for (const comm::Group& group : norm_groups()) group.all_reduce(words).wait();
  return optim::step_scalars(words, max_norm);
}

void Sharded::Impl::scale_gradients(double factor) {
  const at::NoGradGuard no_grad;
  for (ShardedParameter& p : local_)
    if (p.local.grad().defined()) p.local.mutable_grad().mul_(factor);
  if (gradients_) gradients_->scale_unreduced(factor);
}

void Sharded::Impl::throw_not_finite(double norm) {
  const std::string mine = gradients_ ? gradients_->first_not_finite() : "";
  const std::string place =
      launch::read_text(comm::heartbeat().slot().place);  // set in a mesh, where group ranks mean little
  const std::string rank =
      place.empty() ? concat(context_.data_parallel.rank()) : concat(world().rank(), " (", place, ")");
  std::string found = mine.empty() ? "" : concat("on rank ", rank, " in '", mine, "'");
  const auto tell_all = [](const comm::Group& group, std::string& text) {
    std::vector<std::string> texts = comm::all_gather_text(group, text);
    std::erase(texts, "");
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    text = join(texts);
  };
  tell_all(context_.data_parallel, found);
  if (tensor_group_) tell_all(tensor_group_, found);
  std::string where = found.empty() ? "" : "first " + found;
  if (where.empty()) {
    for (const ShardedParameter& p : local_)
      if (where.empty() && p.local.grad().defined() && !at::isfinite(p.local.grad()).all().item<bool>())
        where = concat("in the reduced gradient of '", p.name, "'");
    tell_all(context_.data_parallel, where);
  }
  if (options_.stages) tell_all(options_.stages, where);
  if (!where.empty()) where = ": " + where;
  throw Error(
      concat("sharding: the gradient norm is ", norm, where,
             "; the run diverged (lower the learning rate, clip earlier, scale the loss) or its data is damaged"));
}

}  // namespace tessera
