#include <tessera/parallel/sharding/engine.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/comm/world.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/replicas.h>
#include <tessera/parallel/sharding/check_options.h>
#include <tessera/parallel/sharding/file_memory.h>
#include <tessera/parallel/sharding/sharded_gradient.h>
#include <tessera/parallel/tensor/tensor_shard.h>

#include <algorithm>
#include <map>
#include <set>

namespace tessera {
namespace {

using parallel::FlatGroup;
using parallel::GroupPlan;
using parallel::NamedTensor;

/// A module's buffers, each once.
std::vector<NamedTensor> buffers_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> result;
  std::set<const void*> seen;
  for (const auto& entry : module.named_buffers())
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      result.push_back({entry.key(), entry.value()});
  return result;
}

/// BatchNorm statistics are not converted: a BatchNorm computes in their type.
void convert_buffers(const torch::nn::Module& module, at::ScalarType dtype) {
  module.apply([&](const torch::nn::Module& each) {
    if (parallel::is_batch_norm(each)) return;
    for (at::Tensor& buffer : each.buffers(/*recurse=*/false))
      if (buffer.defined() && at::isFloatingType(buffer.scalar_type())) buffer.set_data(buffer.to(dtype));
  });
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& n : named) tensors.push_back(n.tensor);
  return tensors;
}

}  // namespace

Sharded::Impl::Impl(torch::nn::Module& module, ShardingOptions options)
    : module_(module),
      options_(std::move(options)),
      strategy_(row_of(options_.strategy)),
      parameters_(parallel::parameters_of(module, options_.param_dtype.has_value())),
      context_{.data_parallel = options_.group ? options_.group : world().group(),
               .shards = {},
               .replicas = {},
               .expert_replicas = {},
               .pool = parallel::BufferPool(options_.group ? options_.group : world().group())} {
  parallel::check_options(options_, context_.data_parallel);
  if (options_.shared_by_experts.ranks && options_.shared_by_experts.ranks.size() > 1) {
    context_.expert_replicas = options_.shared_by_experts.ranks;
    if (options_.logical_shards > 0) context_.per_source = options_.shared_by_experts.per_source;
    for (std::size_t i = 0; i < parameters_.parameters.size(); ++i)
      parameters_.shared_by_experts[i] = options_.shared_by_experts.has(parameters_.parameters[i].name);
  }
  check_module();
  move_deferred_buffers();
  parallel::require_same_structure(context_.data_parallel, parameters_.parameters, "parameter");
  if (options_.broadcast_buffers)
    parallel::require_same_structure(context_.data_parallel, buffers_of(module_), "buffer");
  choose_groups();
  const bool alone = context_.data_parallel.size() == 1 && !options_.reshard_alone;
  const bool converts = options_.param_dtype.has_value();
  const bool whole = context_.shards.size() == 1 && !options_.reshard_alone && !converts;
  if (whole) {
    fill_unmanaged(/*sync=*/false);
    share_values();
    if (!alone || options_.logical_shards > 0 || context_.expert_replicas) make_reducer();
  } else {
    make_groups();
  }
  list_local_parts();
  find_cuts();
  for (const NamedTensor& p : parameters_.parameters) known_.insert(p.tensor.unsafeGetTensorImpl());
  if (options_.buffer_dtype) convert_buffers(module_, *options_.buffer_dtype);
}

/// The parameters are released first, since they must not call a destroyed engine.
Sharded::Impl::~Impl() {
  listening_ = {};
  hooks_.clear();
  const std::lock_guard lock(mutex_);
  gradients_.reset();
  groups_.clear();
}

/// Sends rank 0's values to all ranks; hashes verify equality where the values stay whole.
void Sharded::Impl::share_values() {
  if (options_.sync_module_states)
    parallel::broadcast_tensors(context_.data_parallel, tensors_of(parameters_.parameters));
  parallel::require_same_bits(context_.data_parallel, parameters_.parameters, "parameter");
  broadcast_buffers();
}

/// Fills parameters that are not managed (all if nothing is sharded, frozen parameters of ZeRO-1 and ZeRO-2, ignored
/// ones): allocates memory, loads values with the caller's `load`, and broadcasts rank 0's.
void Sharded::Impl::fill_unmanaged(bool sync) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own, deferred_ones;
  for (const NamedTensor& p : parameters_.parameters) {
    if (parallel::is_managed(p.tensor) && parallel::managed_storage(p.tensor) != nullptr) continue;
    own.push_back(p.tensor);
    const bool deferred = parallel::is_deferred(p.tensor);
    if (options_.load) {
      const auto options = at::TensorOptions(p.tensor.scalar_type()).device(context_.data_parallel.device());
      const at::Tensor values = at::empty({p.tensor.numel()}, options);
      if (options_.load(p.name, p.tensor.sizes(), 0, values)) {
        if (deferred) parallel::materialize_empty(p.tensor, options.device());
        at::Tensor(p.tensor.detach()).copy_(values.view(p.tensor.sizes()));
        continue;
      }
    }
    if (deferred) deferred_ones.push_back(p.tensor);
  }
  parallel::materialize_on(context_.data_parallel.device(), deferred_ones);
  if (sync && !own.empty()) parallel::broadcast_tensors(context_.data_parallel, own);
}

/// Buffers of a module that was constructed without memory are on the host.
void Sharded::Impl::move_deferred_buffers() {
  const c10::Device device = context_.data_parallel.device();
  const bool deferred = std::any_of(parameters_.parameters.begin(), parameters_.parameters.end(),
                                    [](const NamedTensor& p) { return parallel::is_deferred(p.tensor); });
  if (deferred) parallel::materialize_on(device, tensors_of(buffers_of(module_)));
}

void Sharded::Impl::broadcast_buffers() {
  if (!options_.broadcast_buffers || context_.data_parallel.size() == 1) return;
  const std::vector<NamedTensor> buffers = buffers_of(module_);
  if (!buffers.empty()) parallel::broadcast_tensors(context_.data_parallel, tensors_of(buffers));
}

void Sharded::Impl::make_reducer() {
  std::vector<NamedTensor> trained;
  parallel::BucketSizes sizes{.first_mb = options_.first_bucket_mb, .mb = options_.bucket_mb};
  const std::vector<std::size_t> units = parallel::units_by_parameter(parameters_, options_.wrap);
  const bool alone = context_.data_parallel.size() == 1 && options_.logical_shards == 0;
  for (std::size_t i = 0; i < parameters_.parameters.size(); ++i) {
    if (!parameters_.parameters[i].tensor.requires_grad()) continue;
    if (alone && !parameters_.shared_by_experts[i])
      continue;  // its gradient is not reduced, so autograd's is the result
    trained.push_back(parameters_.parameters[i]);
    if (!units.empty()) sizes.unit_of.push_back(units[i]);
    sizes.shared_by_experts.push_back(parameters_.shared_by_experts[i]);
  }
  if (trained.empty()) return;
  // To the reducer, a 16-bit type on the wire is a compression. fp64 is not converted, as with scattered gradients.
  std::shared_ptr<parallel::Compression> compression = options_.compression;
  const bool any_fp64 = std::any_of(trained.begin(), trained.end(),
                                    [](const NamedTensor& p) { return p.tensor.scalar_type() == at::kDouble; });
  if (!compression && options_.reduce_dtype && options_.logical_shards == 0 && !any_fp64) {
    if (options_.reduce_dtype == at::kBFloat16) compression = parallel::make_compression("bf16");
    if (options_.reduce_dtype == at::kHalf) compression = parallel::make_compression("fp16");
  }
  gradients_ = std::make_unique<parallel::GradientReducer>(context_.data_parallel, std::move(trained), std::move(sizes),
                                                           reducer_options(std::move(compression)));
  listen();
}

parallel::GradientReducerOptions Sharded::Impl::reducer_options(
    std::shared_ptr<parallel::Compression> compression) const {
  return {.reduction = {.op = options_.reduction,
                        .predivide_factor = options_.gradient_predivide_factor,
                        .logical_shards = options_.logical_shards,
                        .compression = std::move(compression)},
          .find_unused_parameters = options_.find_unused_parameters || options_.data_dependent,
          .wait_at_once = !options_.overlap_comm,
          .reduce_at_end = options_.data_dependent,
          .check_finite = options_.check_finite,
          .expert_replicas = context_.expert_replicas,
          .per_source = context_.per_source,
          .before = options_.before_reduction};
}

/// Installs hooks on the gradients of all trained parameters and on the begin and end of every backward.
void Sharded::Impl::listen() {
  const std::vector<at::Tensor> parameters = gradients_->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    hooks_.push_back(parallel::after_gradient(parameters[i], [this, i](const at::Tensor&) {
      const std::lock_guard lock(mutex_);
      gradients_->on_gradient(i);
    }));
  listening_ = parallel::listen_to_backward(*this);
}

void Sharded::Impl::make_groups() {
  const bool sharded = strategy_.shard_parameters;
  if (const auto missing = layout::missing_classes(parameters_.tree, options_.wrap);
      !missing.empty() && world().rank() == 0)
    log::warning("no module of class '", join(missing, "' or '"), "' to wrap; the others are wrapped");
  plan_ = sharded ? parallel::group_by_units(parameters_, options_.wrap, options_.persistence_threshold)
                  : parallel::group_by_buckets(parameters_,
                                               {.first_mb = options_.first_bucket_mb,
                                                .mb = options_.bucket_mb,
                                                .unit_of = parallel::units_by_parameter(parameters_, options_.wrap),
                                                .shared_by_experts = parameters_.shared_by_experts});
  context_.materializer = this;
  context_.writes = &writes_;
  context_.param_dtype = options_.param_dtype;
  context_.load = options_.load;
  context_.sync = options_.sync_module_states && context_.data_parallel.size() > 1;
  const bool offloads = offloads_parameters(options_.offload);
  context_.allocate_shard = [this, offloads](at::IntArrayRef sizes, at::TensorOptions options) {
    if (!offloads) return comm::zeros_shared(context_.shards, sizes, options);
    offloaded_bytes_ += static_cast<std::int64_t>(c10::multiply_integers(sizes) * options.dtype().itemsize());
    return parallel::zeros_in_file(options_.offload_folder, sizes, options);
  };
  refuse_stored_views();
  for (const GroupPlan& group : plan_.groups)
    groups_.push_back(std::make_unique<FlatGroup>(context_, group, parameters_));
  fill_unmanaged(context_.sync);
  broadcast_buffers();

  const bool after_forward = options_.reshard_after_forward.value_or(strategy_.reshard_after_forward);
  std::vector<layout::UnitPolicy> policies;
  for (const parallel::UnitPlan& unit : plan_.units) {
    layout::UnitPolicy policy;
    const bool stays =
        std::any_of(unit.groups.begin(), unit.groups.end(), [&](std::size_t g) { return plan_.groups[g].stays_whole; });
    policy.release_after_forward = !stays && after_forward && (!unit.root || options_.reshard_root);
    policy.release_after_backward = !stays;
    policy.release_when_left = unit.root && options_.reshard_root && after_forward;
    policy.expects_gradients =
        std::any_of(unit.groups.begin(), unit.groups.end(), [&](std::size_t g) { return plan_.groups[g].trained; });
    policies.push_back(policy);
  }
  residency_.emplace(
      std::move(policies),
      layout::ResidencyOptions{
          .forward_prefetch = options_.forward_prefetch && options_.overlap_comm && !options_.data_dependent,
          .backward_prefetch = options_.overlap_comm && !options_.data_dependent ? options_.backward_prefetch
                                                                                 : layout::BackwardPrefetch::none,
          .prefetch_depth = options_.limit_all_gathers ? 1 : 3});

  // In the approximate order in which gradients are completed: the last unit first; the root and units that stay whole
  // last.
  std::vector<FlatGroup*> trained;
  const auto add = [&](bool late) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      FlatGroup& group = *groups_[sharded ? groups_.size() - 1 - i : i];
      const bool is_late = sharded && (plan_.units[group.unit()].root || group.stays_whole());
      if (group.trained() && is_late == late) trained.push_back(&group);
    }
  };
  add(false);
  add(true);
  std::vector<std::unique_ptr<parallel::FlatGradient>> flats;
  std::size_t parameters = 0;
  for (FlatGroup* group : trained) {
    flats.push_back(std::make_unique<parallel::ShardedGradient>(context_, *group, options_.reduce_dtype,
                                                                options_.logical_shards > 0, parameters));
    parameters += group->members().size();
  }
  gradients_ = std::make_unique<parallel::GradientReducer>(
      context_.data_parallel, std::move(flats), reducer_options(options_.compression),
      [this](std::size_t unit) { execute(residency_->gradients_complete(unit)); });
  listen();
}

void Sharded::Impl::list_local_parts() {
  std::map<std::size_t, ShardedParameter> by_index;
  for (const auto& group : groups_) {
    if (!group->trained()) continue;
    for (const FlatGroup::Member& m : group->members())
      by_index[m.index] = {m.name, m.sizes, m.begin, m.local, /*divided=*/true};
  }
  for (std::size_t i = 0; i < parameters_.parameters.size(); ++i) {
    const NamedTensor& p = parameters_.parameters[i];
    if (const auto found = by_index.find(i); found != by_index.end())
      local_.push_back(found->second);
    else if (p.tensor.requires_grad())
      local_.push_back({p.name, p.tensor.sizes().vec(), 0, p.tensor});
    else
      frozen_.push_back(i);
  }
}

/// Parameters may already be parts (tensor parallelism): their cut is attached to the local parts here. Parameters that
/// an earlier stage also holds are counted there.
void Sharded::Impl::find_cuts() {
  std::map<std::string, const at::Tensor*> parameters;
  for (const NamedTensor& p : parameters_.parameters) {
    parameters[p.name] = &p.tensor;
    if (const parallel::TensorShard* const cut = parallel::cut_of(p.tensor)) tensor_group_ = cut->group();
  }
  for (const ShardedParameter& p : local_) {
    parallel::share_cut(*parameters.at(p.name), p.local);
    const parallel::TensorShard* const cut = parallel::cut_of(p.local);
    const bool counts_in_stage = cut != nullptr ? cut->counts() : !tensor_group_ || tensor_group_.rank() == 0;
    const auto& elsewhere = options_.held_by_earlier_stage;
    counted_.push_back(counts_in_stage && std::find(elsewhere.begin(), elsewhere.end(), p.name) == elsewhere.end());
  }
  for (const std::string& name : options_.held_by_earlier_stage)
    if (!parameters.contains(name))
      throw InputError(concat("sharding: held_by_earlier_stage names '", name,
                              "', which is not a parameter of this stage; remove it"));
}

void Sharded::Impl::require_alive() const {
  if (failed_) throw Error(concat("sharding: this rank failed before and is out of step with the others: ", failure_));
}

void Sharded::Impl::fail(std::exception_ptr cause) {
  failed_ = true;
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    failure_ = error.what();
  } catch (...) {
    failure_ = "an exception that is not a std::exception";
  }
}

void Sharded::Impl::execute(const layout::Residency::Actions& actions) {
  using Kind = layout::ResidencyAction::Kind;
  try {
    for (const auto& [kind, unit] : actions)
      for (const std::size_t g : plan_.units[unit].groups) {
        if (kind == Kind::gather) groups_[g]->start_gather();
        if (kind == (options_.overlap_comm ? Kind::wait : Kind::gather)) groups_[g]->finish_gather();
        if (kind == Kind::release) groups_[g]->drop();
      }
  } catch (...) {
    fail(std::current_exception());
    throw;
  }
}

constexpr const char* stepped_in_scope =
    "sharding: an optimizer (or load_parameters) changed the shards while a tessera::unsharded scope holds whole "
    "parameters, whose values are now outdated; "
    "end the scope before optimizer.step()";

/// Called when an operator changes a local part, which makes gathered parameters outdated.
void Sharded::Impl::shards_written() {
  const std::lock_guard lock(mutex_);
  context_.shard_version.bump();
  if (!failed_ && residency_ && scopes_ == 0 && !residency_->in_backward()) execute(residency_->release_all());
}

/// Drops gathered parameters after an optimizer changed the shards. (Not during backward, which needs the values that
/// forward used.) Our own optimizers write through raw pointers and count versions; others may not, so a reduction
/// outside of no_sync() also counts as a change.
void Sharded::Impl::expire_if_changed() {
  const std::uint32_t version = context_.shard_version.current_version();
  if ((version == seen_version_ && !may_have_stepped_) || residency_->in_backward()) return;
  if (scopes_ > 0 && version != seen_version_) throw Error(stepped_in_scope);
  if (scopes_ > 0) return;  // the values must stay as they are until the scope ends
  seen_version_ = version;
  may_have_stepped_ = false;
  execute(residency_->release_all());
}

/// data_dependent: every rank sends the units it needs, and all ranks gather a unit that any rank needs. Each exchange
/// of a rank matches one exchange of every other rank, whatever those ranks are doing: a rank that is ahead, for
/// example in backward, serves one that is behind. Returns the number of ranks that have no more requests.
int Sharded::Impl::exchange_requests(std::span<const std::size_t> wanted, bool done) {
  std::vector<std::int32_t> asked(plan_.units.size() + 1);  // ranks that want each unit; ranks that are done
  for (const std::size_t unit : wanted) asked[unit] = 1;
  asked.back() = done;
  {
    const comm::Tag tag("requests of units");
    comm::all_reduce_numbers(context_.shards, asked);
  }
  for (std::size_t unit = 0; unit < plan_.units.size(); ++unit) {
    if (asked[unit] == 0) continue;
    if (residency_->state(unit) == layout::Residency::State::absent)
      execute(residency_->admit(unit));
    else
      for (const std::size_t g : plan_.units[unit].groups) groups_[g]->contribute();
  }
  return asked.back();
}

/// Serves the other ranks until no rank needs any more units in this step.
void Sharded::Impl::end_requests() {
  if (!options_.data_dependent) return;
  while (exchange_requests({}, true) < context_.shards.size()) {
  }
}

void Sharded::Impl::end_pass() {
  if (plain()) return;
  const std::lock_guard lock(mutex_);
  require_alive();
  end_requests();
  execute(residency_->release_all());
}

void Sharded::Impl::enter(std::span<const std::size_t> units, bool writes, const char* op) {
  const std::lock_guard lock(mutex_);
  require_alive();
  const c10::InferenceMode ordinary(false);  // buffers outlive an evaluation's inference mode
  if (writes && writable_ == 0)
    throw Error(concat(
        "sharding: operator ", op, " would change a whole parameter of unit '", plan_.units[units.front()].name,
        "', of which this rank holds only a part; pass sharded.parameters() to optimizers, and change values inside "
        "tessera::unsharded(sharded, {.write_back = true})"));
  expire_if_changed();
  if (options_.data_dependent) {
    std::vector<std::size_t> wanted;
    for (const std::size_t unit : units)
      if (residency_->state(unit) == layout::Residency::State::absent) wanted.push_back(unit);
    if (!wanted.empty()) exchange_requests(wanted, false);
  }
  execute(residency_->touch(units));
}

void Sharded::Impl::leave(std::span<const std::size_t> units) noexcept {
  const std::lock_guard lock(mutex_);
  const auto actions = residency_->unpin(units);
  if (failed_) return;
  try {
    execute(actions);  // releases units, which starts no collective
  } catch (...) {      // recorded by fail(); the next operator throws it
  }
}

void Sharded::Impl::backward_begin() {
  const std::lock_guard lock(mutex_);
  require_alive();
  for (const auto& group : groups_) group->check_owned();
  if (gradients_->touched()) return;
  check_unknown();
  if (residency_) execute(residency_->backward_begin());
  gradients_->begin(pauses_ > 0 && (plain() || !strategy_.shard_gradients || pauses_under_all_strategies_ > 0));
}

void Sharded::Impl::backward_end() {
  const std::lock_guard lock(mutex_);
  if (!gradients_->ends_here()) return;
  if (residency_) {
    end_requests();
    execute(residency_->backward_end());
  }
  if (gradients_->end()) after_reduction();
}

void Sharded::Impl::after_reduction() {
  if (pauses_ == 0) {
    may_have_stepped_ = true;
    // Raw readers, such as torch::save, must not see values from before the optimizer's step.
    if (residency_ && scopes_ == 0) execute(residency_->release_all());
  }
  check_frozen();
  check_values();
  broadcast_buffers();
}

void Sharded::Impl::backward_failed() noexcept {
  const std::lock_guard lock(mutex_);
  if (!gradients_->ends_here()) return;
  gradients_->fail();
  if (failed_ || !residency_) return;
  try {
    execute(residency_->backward_end());
  } catch (...) {
  }
}

void Sharded::Impl::pause(bool under_all_strategies) {
  if (options_.logical_shards > 0)
    throw InputError(concat("data parallelism: no_sync() with logical_shards = ", options_.logical_shards,
                            ": in fixed order every micro-batch is reduced separately; remove no_sync()"));
  ++pauses_;
  pauses_under_all_strategies_ += under_all_strategies;
}

void Sharded::Impl::resume(bool under_all_strategies) {
  --pauses_;
  pauses_under_all_strategies_ -= under_all_strategies;
}

void Sharded::Impl::reduce() {
  const std::lock_guard lock(mutex_);
  require_alive();
  TESSERA_CHECK(pauses_ == 0, "reduce() was called inside a guard that pauses reductions");
  if (!gradients_) return;
  gradients_->reduce();
  after_reduction();
}

void Sharded::Impl::zero_grad() {
  const std::lock_guard lock(mutex_);
  if (gradients_) gradients_->zero_grad();
  if (plain())  // some or all gradients may be known only to autograd
    for (ShardedParameter& p : local_) p.local.mutable_grad().reset();
}

void Sharded::Impl::hold(std::span<const std::size_t> units, bool writable) {
  const std::lock_guard lock(mutex_);
  require_alive();
  const c10::InferenceMode ordinary(false);
  expire_if_changed();
  if (options_.data_dependent) execute(residency_->release_all());  // the gathered units may differ between ranks
  execute(residency_->touch(units));
  writable_ += writable;
  ++scopes_;
}

void Sharded::Impl::release_held(std::span<const std::size_t> units, bool write_back) {
  const std::lock_guard lock(mutex_);
  --scopes_;
  if (write_back) {
    --writable_;
    if (context_.shard_version.current_version() != seen_version_) {  // writing back would undo the optimizer's step
      fail(std::make_exception_ptr(Error(stepped_in_scope)));
      throw Error(stepped_in_scope);
    }
    for (const std::size_t unit : units)
      for (const std::size_t g : plan_.units[unit].groups) groups_[g]->write_back();
    seen_version_ = context_.shard_version.current_version();
  }
  execute(residency_->unpin(units));
  if (!residency_->in_backward()) execute(residency_->release_all());
}

}  // namespace tessera
