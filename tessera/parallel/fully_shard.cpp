#include <tessera/parallel/fully_shard.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/parallel/replicas.h>
#include <tessera/parallel/sharding/engine.h>
#include <tessera/parallel/sharding/file_memory.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <set>

namespace tessera {

using parallel::FlatGroup;
using parallel::NamedTensor;

Sharded::Sharded(torch::nn::Module& module, ShardingOptions options)
    : impl_(std::make_unique<Impl>(module, std::move(options))) {}
Sharded::~Sharded() = default;
Sharded::Sharded(Sharded&&) noexcept = default;

std::vector<at::Tensor> Sharded::parameters() const {
  std::vector<at::Tensor> result;
  for (const ShardedParameter& p : impl_->local_) result.push_back(p.local);
  return result;
}

const std::vector<ShardedParameter>& Sharded::named_parameters() const { return impl_->local_; }

std::vector<ShardedParameter> Sharded::frozen_parameters() const {
  std::map<std::size_t, const FlatGroup::Member*> divided;
  for (const auto& group : impl_->groups_)
    for (const FlatGroup::Member& m : group->members()) divided[m.index] = &m;
  std::vector<ShardedParameter> frozen;
  for (const std::size_t i : impl_->frozen_) {
    const NamedTensor& p = impl_->parameters_.parameters[i];
    if (const auto found = divided.find(i); found != divided.end())
      frozen.push_back({p.name, found->second->sizes, found->second->begin, found->second->local, /*divided=*/true});
    else
      frozen.push_back({p.name, p.tensor.sizes().vec(), 0, p.tensor});
  }
  return frozen;
}

std::vector<optim::Slot> Sharded::slots(const std::function<void(optim::Slot&)>& edit) const {
  std::vector<optim::Slot> result;
  for (const ShardedParameter& p : impl_->local_) {
    optim::Slot slot{.name = p.name, .parameter = p.local};
    if (!impl_->plain()) {
      slot.shape = p.shape;
      slot.begin = p.begin;
    }
    if (edit) edit(slot);
    result.push_back(std::move(slot));
  }
  return result;
}

optim::StateAllocator Sharded::state_allocator() const {
  if (!offloads_optimizer(impl_->options_.offload)) return {};
  return [impl = impl_.get()](at::IntArrayRef sizes, at::TensorOptions options) {
    at::Tensor made = parallel::zeros_in_file(impl->options_.offload_folder, sizes, options);
    impl->offloaded_bytes_ += static_cast<std::int64_t>(made.nbytes());
    return made;
  };
}

optim::SumOverShards Sharded::sum_over_shards() const {
  if (impl_->plain() || impl_->context_.shards.size() == 1) return {};
  return [group = impl_->context_.shards](std::vector<double>& values) {
    const comm::Tag tag("sums over shards");
    comm::all_reduce_numbers(group, values);
  };
}

void Sharded::zero_grad() { impl_->zero_grad(); }

Sharded::NoSync::NoSync(Sharded& sharded) : sharded_(sharded) { sharded_.impl_->pause(); }
Sharded::NoSync::~NoSync() { sharded_.impl_->resume(); }
Sharded::AccumulateLocally::AccumulateLocally(Sharded& sharded) : sharded_(sharded) {
  sharded_.impl_->pause(/*all=*/true);
}
Sharded::AccumulateLocally::~AccumulateLocally() { sharded_.impl_->resume(/*all=*/true); }
void Sharded::reduce() { impl_->reduce(); }

double Sharded::grad_norm() const { return impl_->grad_norm(); }

at::Tensor Sharded::step_scalars(double max_norm) const { return impl_->step_scalars(max_norm); }

double Sharded::clip_grad_norm(double max_norm) {
  const double norm = impl_->grad_norm();
  if (!std::isfinite(norm)) impl_->throw_not_finite(norm);
  const double coefficient = optim::clip_coefficient(norm, max_norm);
  if (coefficient != 1) impl_->scale_gradients(coefficient);
  return norm;
}

void Sharded::scale_gradients(double factor) { impl_->scale_gradients(factor); }

void Sharded::clip_grad_value(double limit) {
  const at::NoGradGuard no_grad;
  for (const ShardedParameter& p : impl_->local_)
    if (p.local.grad().defined()) at::Tensor(p.local.grad()).clamp_(-limit, limit);
}

struct Sharded::Unsharded::Impl {
  Sharded::Impl& engine;
  std::vector<std::size_t> units;
  bool write_back;
};

Sharded::Unsharded::Unsharded(Sharded& sharded, const UnshardedOptions& options)
    : impl_(std::make_unique<Impl>(
          Impl{*sharded.impl_,
               sharded.impl_->plain() ? std::vector<std::size_t>() : sharded.impl_->units_with(options.names),
               options.write_back})) {
  if (!impl_->units.empty()) impl_->engine.hold(impl_->units, options.write_back);
}

Sharded::Unsharded::~Unsharded() {
  if (impl_->units.empty()) return;
  try {
    impl_->engine.release_held(impl_->units, impl_->write_back);
  } catch (const std::exception& error) {  // a peer died: the engine stores the cause and throws it at every later use
    log::error(error.what());
  }
}

void Sharded::visit_parameters(const std::function<void(const std::string&, const at::Tensor&)>& visit) {
  const at::NoGradGuard no_grad;
  std::map<std::size_t, std::pair<const FlatGroup*, const FlatGroup::Member*>> places;
  for (const auto& group : impl_->groups_)
    for (const FlatGroup::Member& m : group->members()) places[m.index] = {group.get(), &m};
  const FlatGroup* gathered = nullptr;
  at::Tensor whole;  // [padded] of `gathered`
  for (std::size_t i = 0; i < impl_->parameters_.parameters.size(); ++i) {
    const NamedTensor& p = impl_->parameters_.parameters[i];
    const auto place = places.find(i);
    if (place == places.end()) {
      visit(p.name, p.tensor.detach());
      continue;
    }
    const auto& [group, member] = place->second;
    if (group != gathered) {
      whole.reset();
      whole = group->gather(group->shard());
      gathered = group;
    }
    visit(p.name, whole.narrow(0, member->offset, member->numel).view(member->sizes));
  }
}

void Sharded::load_parameters(const std::function<at::Tensor(const std::string&)>& whole) {
  const at::NoGradGuard no_grad;
  const auto checked = [&](const std::string& name, at::IntArrayRef sizes) {
    const at::Tensor value = whole(name);
    if (!value.defined() || value.sizes() != sizes)
      throw InputError(concat("sharding: parameter '", name, "' has shape ", sizes, ", but the value to load ",
                              value.defined() ? concat("has shape ", value.sizes()) : std::string("is missing")));
    return value;
  };
  std::set<std::size_t> managed;
  for (const auto& group : impl_->groups_)
    for (const FlatGroup::Member& m : group->members()) {
      managed.insert(m.index);
      const at::Tensor value = checked(m.name, m.sizes).contiguous().view({-1});
      if (m.local.numel() > 0) at::Tensor(m.local).copy_(value.narrow(0, m.begin, m.local.numel()));
    }
  for (std::size_t i = 0; i < impl_->parameters_.parameters.size(); ++i)
    if (managed.count(i) == 0) {
      const NamedTensor& p = impl_->parameters_.parameters[i];
      at::Tensor(p.tensor).copy_(checked(p.name, p.tensor.sizes()));
    }
  impl_->context_.shard_version.bump();
}

at::Tensor Sharded::gather_like(const ShardedParameter& parameter, const at::Tensor& local_state) const {
  const at::NoGradGuard no_grad;
  for (const auto& group : impl_->groups_)
    for (std::size_t m = 0; m < group->members().size(); ++m) {
      const FlatGroup::Member& member = group->members()[m];
      if (!member.local.is_same(parameter.local)) continue;
      TESSERA_CHECK(local_state.numel() == member.local.numel(), "a state of ", local_state.numel(),
                    " elements for a part of ", member.local.numel());
      return group->gather_member(m, local_state);
    }
  return local_state.view(parameter.shape);  // not sharded
}

void Sharded::check_replicas() const {
  if (impl_->plain())
    return parallel::require_same_bits(impl_->context_.data_parallel, impl_->parameters_.parameters, "parameter");
  if (impl_->context_.replicas.size() == 1) return;
  std::vector<NamedTensor> shards;
  for (const auto& group : impl_->groups_) shards.push_back({group->name(), group->shard()});
  parallel::require_same_bits(impl_->context_.replicas, shards, "shard of unit");
}

std::vector<ShardingUnit> Sharded::units() const { return impl_->table(); }
std::vector<std::vector<std::string>> Sharded::buckets() const { return impl_->buckets(); }
std::vector<std::size_t> Sharded::gradient_order() const {
  return impl_->gradients_ ? impl_->gradients_->learnt_order() : std::vector<std::size_t>();
}
bool Sharded::set_gradient_order(const std::vector<std::size_t>& order) {
  return impl_->gradients_ && impl_->gradients_->follow(order);
}
ShardingMemory Sharded::memory() const { return impl_->memory(); }
void Sharded::end_pass() { impl_->end_pass(); }
void Sharded::restore() { impl_->restore(); }
const ShardingOptions& Sharded::options() const { return impl_->options_; }
int Sharded::shard_ranks() const { return impl_->context_.shards.size(); }
int Sharded::replicate_ranks() const { return impl_->context_.replicas.size(); }

}  // namespace tessera
