#include <tessera/parallel/sharding/flat_group.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/replicas.h>

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace tessera::parallel {

FlatGroup::FlatGroup(ShardingContext& context, const GroupPlan& plan, const ModuleParameters& module)
    : context_(context),
      name_(plan.name),
      unit_(plan.unit),
      trained_(plan.trained),
      stays_whole_(plan.stays_whole),
      shared_by_experts_(plan.shared_by_experts),
      root_(plan.root) {
  shard_dtype_ = module.parameters[plan.parameters.front()].tensor.scalar_type();
  const bool converts = context.param_dtype && at::isFloatingType(shard_dtype_) && !plan.of_batch_norm;
  dtype_ = converts ? *context.param_dtype : shard_dtype_;
  layout_ = layout::make_flat_layout(module.tree.parameters, plan.parameters, context.shards.size());
  held_ = layout::shard_range(layout_, context.shards.rank());
  for (const layout::Segment& segment : layout_.segments) {
    const NamedTensor& p = module.parameters[segment.parameter];
    members_.push_back({.name = p.name,
                        .parameter = p.tensor,
                        .index = segment.parameter,
                        .sizes = p.tensor.sizes().vec(),
                        .offset = segment.offset,
                        .numel = segment.numel});
  }
  if (!stays_whole_ && !root_) context.pool.announce(layout_.padded, dtype_, BufferUse::whole_parameters);
  take_values();
}

at::Tensor FlatGroup::own_slice(const at::Tensor& whole) const {
  return whole.narrow(0, held_.begin, held_.end - held_.begin);
}

at::Tensor FlatGroup::part_of(const at::Tensor& like_shard, std::size_t m) const {
  const Member& member = members_[m];
  const layout::Range part = layout::intersect({member.offset, member.offset + member.numel}, held_);
  // Below autograd: a tracked view cannot be detached in place, as optimizers do with gradients.
  const at::AutoDispatchBelowADInplaceOrView below;
  return like_shard.narrow(0, part.begin == part.end ? 0 : part.begin - held_.begin, part.end - part.begin);
}

at::Tensor FlatGroup::gather(const at::Tensor& like_shard) const {
  const comm::Tag tag(concat("all of ", name_));
  at::Tensor whole =
      at::empty({layout_.padded}, like_shard.options().requires_grad(false).device(context_.shards.device()));
  context_.shards.all_gather(whole, like_shard.detach().contiguous().to(whole.device())).wait();
  return whole;
}

at::Tensor FlatGroup::gather_member(std::size_t m, const at::Tensor& part) const {
  const comm::Tag tag(concat("all of ", members_[m].name));
  const layout::Range member{members_[m].offset, members_[m].offset + members_[m].numel};
  const auto options = part.options().requires_grad(false).device(context_.shards.device());
  const at::Tensor whole = at::empty({members_[m].numel}, options);
  for (int rank = 0; rank < context_.shards.size(); ++rank) {  // in place, so no further memory is needed
    const layout::Range held = layout::intersect(member, layout::shard_range(layout_, rank));
    if (held.begin == held.end) continue;
    const at::Tensor piece = whole.narrow(0, held.begin - member.begin, held.end - held.begin);
    if (rank == context_.shards.rank()) piece.copy_(part.view({-1}));
    context_.shards.broadcast(piece, rank).wait();
  }
  return whole.view(members_[m].sizes);
}

void FlatGroup::take_values() {
  const at::NoGradGuard no_grad;
  const c10::Device device = context_.shards.device();
  const at::TensorOptions options = at::TensorOptions().device(device);
  const bool slice_of_whole = stays_whole_ && dtype_ == shard_dtype_;
  if (stays_whole_) {
    whole_ = comm::empty_shared(context_.shards, {layout_.padded}, options.dtype(dtype_));
    whole_.zero_();
  }
  shard_ = slice_of_whole ? own_slice(whole_)
                          : context_.allocate_shard({layout_.shard_numel()}, options.dtype(shard_dtype_));
  storage_ = std::make_unique<ManagedStorage>(
      *context_.materializer, unit_, layout_.padded, dtype_, device,
      concat(
          "the parameters of unit '", name_,
          "' are sharded over ranks and currently not in memory: operators gather them automatically, data_ptr() does "
          "not; read or save them inside tessera::unsharded(...), load with sharded.load_parameters()"));
  if (dtype_ != shard_dtype_) storage_->cast_inputs(true);

  for (std::size_t m = 0; m < members_.size(); ++m) {
    Member& member = members_[m];
    const layout::Range part = layout::intersect({member.offset, member.offset + member.numel}, held_);
    member.begin = part.begin == part.end ? 0 : part.begin - member.offset;
    member.local = part_of(shard_, m);
    const bool loaded = context_.load && context_.load(member.name, member.sizes, member.begin, member.local);
    if (loaded && member.parameter.device() != device) materialize_empty(member.parameter, device);
    if (!loaded) {
      if (is_deferred(member.parameter)) materialize_on(device, {member.parameter});
      if (context_.sync) broadcast_tensors(context_.data_parallel, {member.parameter});
      const at::Tensor flat = member.parameter.detach().contiguous().view({-1});
      member.local.copy_(flat.narrow(0, member.begin, part.end - part.begin));
      if (stays_whole_) whole_.narrow(0, member.offset, member.numel).copy_(flat);
    }
    std::vector<std::int64_t> strides(member.sizes.size());
    std::int64_t stride = 1;
    for (std::size_t d = strides.size(); d-- > 0;) {
      strides[d] = stride;
      stride *= std::max<std::int64_t>(1, member.sizes[d]);
    }
    storage_->adopt(member.parameter, member.offset, member.sizes, strides);
  }
  if (stays_whole_) storage_->attach(whole_);
  parts_ = std::make_unique<LocalParts>(
      shard_, *context_.writes,
      concat("this part of a parameter of unit '", name_, "' no longer exists: its sharding object was destroyed"));
  for (Member& member : members_) {
    member.local = parts_->watched(member.local);
    member.local.unsafeGetTensorImpl()->set_version_counter(context_.shard_version);
    if (trained_) member.local.requires_grad_(true);
    member.memory = member.local.const_data_ptr();
  }
}

FlatGroup::~FlatGroup() {
  try {
    const at::NoGradGuard no_grad;
    if (work_.done()) gathering_.reset();
    for (const Member& member : members_)
      if (storage_->owns(member.parameter))
        ManagedStorage::abandon(member.parameter, at::full({}, std::numeric_limits<double>::quiet_NaN(),
                                                           at::TensorOptions(dtype_).device(shard_.device()))
                                                      .expand(member.sizes));
  } catch (const std::exception&) {  // the process is exiting after an error
  }
}

void FlatGroup::start_gather() {
  const comm::Tag tag(concat("gather ", name_));
  const at::NoGradGuard no_grad;
  gathering_ = stays_whole_ ? whole_ : context_.pool.take(layout_.padded, dtype_, BufferUse::whole_parameters);
  if (dtype_ != shard_dtype_) own_slice(gathering_).copy_(shard_);
  const bool in_place = dtype_ != shard_dtype_ || stays_whole_;
  at::Tensor source = in_place ? own_slice(gathering_) : shard_;
  if (source.device() != gathering_.device()) source = source.to(gathering_.device());  // offloaded
  work_ = context_.shards.all_gather(gathering_, source);
}

void FlatGroup::finish_gather() {
  work_.wait();
  work_ = {};
  if (!present()) storage_->attach(gathering_);
  gathering_.reset();
}

void FlatGroup::contribute() {
  const comm::Tag tag(concat("gather ", name_));
  const at::NoGradGuard no_grad;
  at::Tensor unused = context_.pool.take(layout_.padded, dtype_, BufferUse::whole_parameters);
  own_slice(unused).copy_(shard_);
  context_.shards.all_gather(unused, own_slice(unused)).wait();
  context_.pool.give(std::move(unused), BufferUse::whole_parameters);
}

void FlatGroup::drop() {
  at::Tensor buffer = storage_->detach();
  if (!stays_whole_) context_.pool.give(std::move(buffer), BufferUse::whole_parameters);
}

void FlatGroup::write_back() {
  const at::NoGradGuard no_grad;
  if (shard_.data_ptr() != own_slice(whole()).data_ptr()) shard_.copy_(own_slice(whole()));
  context_.shard_version.bump();
}

void FlatGroup::restore() {
  const at::NoGradGuard no_grad;
  TESSERA_CHECK(present(), "restore() of unit '", name_, "' while it is absent");
  for (const Member& member : members_)
    ManagedStorage::abandon(
        member.parameter,
        whole().narrow(0, member.offset, member.numel).view(member.sizes).to(shard_dtype_, false, true));
}

void FlatGroup::check_owned() const {
  for (const Member& member : members_) {
    if (!storage_->owns(member.parameter))
      throw Error(concat(
          "sharding: the memory of parameter '", member.name,
          "' was replaced after the module was sharded (torch::load(), module->to(), set_data(), "
          "vector_to_parameters(), or an assignment); convert or move the module before it is sharded, load with "
          "sharded.load_parameters(), and change values inside tessera::unsharded(..., write_back)"));
    if (member.local.numel() > 0 && member.local.const_data_ptr() != member.memory)
      throw Error(
          concat("sharding: the memory of this rank's part of '", member.name,
                 "' was replaced (set_data() or vector_to_parameters() on sharded.parameters()), so an optimizer's "
                 "changes would no longer reach the module; copy into the parts with copy_()"));
  }
}

std::int64_t FlatGroup::numel() const {
  return std::accumulate(members_.begin(), members_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Member& m) { return sum + m.numel; });
}

}  // namespace tessera::parallel
