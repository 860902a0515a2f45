// Whole parameters for the ranks that write them: every rank sends its pieces of a unit straight to the owners, nobody
// gathers what it does not write.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/parallel/sharding/engine.h>

#include <algorithm>
#include <map>

namespace tessera {

using parallel::FlatGroup;

namespace {

/// The trained members of the groups, by their place among the trained parameters.
struct Managed {
  const FlatGroup* group;
  const FlatGroup::Member* member;
  std::size_t index;  // into named_parameters()
};

/// Parameters that every rank holds whole, by name: then a single rank writes them as Hugging Face's own writer orders them.
std::vector<std::size_t> undivided(const std::vector<ShardedParameter>& parameters) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].divided) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return parameters[a].name < parameters[b].name; });
  return order;
}

std::map<const c10::TensorImpl*, std::size_t> places_of(const std::vector<ShardedParameter>& parameters) {
  std::map<const c10::TensorImpl*, std::size_t> places;
  for (std::size_t i = 0; i < parameters.size(); ++i) places[parameters[i].local.unsafeGetTensorImpl()] = i;
  return places;
}

std::vector<Managed> managed_of(const FlatGroup& group, const std::map<const c10::TensorImpl*, std::size_t>& places) {
  std::vector<Managed> managed;
  for (const FlatGroup::Member& member : group.members())
    managed.push_back({&group, &member, places.at(member.local.unsafeGetTensorImpl())});
  return managed;
}

/// Elements of a member that the r-th rank of the shard group holds, as a range of the flattened member.
layout::Range piece_of(const FlatGroup& group, const FlatGroup::Member& member, int r) {
  const layout::Range common =
      layout::intersect({member.offset, member.offset + member.numel}, layout::shard_range(group.flat_layout(), r));
  return {common.begin - member.offset, common.end - member.offset};
}

}  // namespace

std::vector<std::size_t> Sharded::delivery_order() const {
  std::vector<std::size_t> order = undivided(impl_->local_);
  const auto places = places_of(impl_->local_);
  for (const auto& group : impl_->groups_)
    if (group->trained())
      for (const Managed& m : managed_of(*group, places)) order.push_back(m.index);
  return order;
}

void Sharded::deliver_parameters(const std::vector<int>& owners, const PieceVisitor& keep) const {
  TESSERA_CHECK(owners.size() == impl_->local_.size(), owners.size(), " owners for ", impl_->local_.size(),
                " parameters");
  const at::NoGradGuard no_grad;
  const comm::Tag tag("deliver for saving");
  const int rank = impl_->context_.data_parallel.rank();
  for (const std::size_t i : undivided(impl_->local_))
    if (owners[i] == rank) keep(i, 0, impl_->local_[i].local.detach().view({-1}));

  const comm::Group& shards = impl_->context_.shards;
  const int ranks = shards.size(), own = shards.rank();
  const int first = rank - own;  // the ranks of a shard group follow one another
  const auto places = places_of(impl_->local_);
  for (const auto& group : impl_->groups_) {
    if (!group->trained()) continue;
    const std::vector<Managed> members = managed_of(*group, places);
    // Out: for each other rank, this rank's pieces of what that rank owns. In: from each other rank, its pieces of what
    // is owned here.
    std::vector<at::Tensor> out;
    std::vector<std::int64_t> out_counts(static_cast<std::size_t>(ranks)), in_counts(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      if (r == own) continue;
      for (const Managed& m : members) {
        const int owner = owners[m.index] - first;
        if (owner == r && m.member->local.numel() > 0) {
          out.push_back(m.member->local.detach().view({-1}));
          out_counts[static_cast<std::size_t>(r)] += m.member->local.numel();
        }
        if (owner == own) {
          const layout::Range piece = piece_of(*group, *m.member, r);
          in_counts[static_cast<std::size_t>(r)] += piece.end - piece.begin;
        }
      }
    }
    const auto sum = [](const std::vector<std::int64_t>& counts) {
      std::int64_t all = 0;
      for (const std::int64_t n : counts) all += n;
      return all;
    };
    const auto options = group->shard().options();
    const at::Tensor sent = out.empty() ? at::empty({0}, options) : at::cat(out);  // [elements for others]
    out.clear();
    const at::Tensor received = at::empty({sum(in_counts)}, options);
    if (ranks > 1) shards.all_to_all(received, sent, in_counts, out_counts).wait();

    std::vector<std::int64_t> at(static_cast<std::size_t>(ranks));  // where each rank's next piece begins in `received`
    for (int r = 1; r < ranks; ++r)
      at[static_cast<std::size_t>(r)] =
          at[static_cast<std::size_t>(r - 1)] + in_counts[static_cast<std::size_t>(r - 1)];
    for (const Managed& m : members) {
      if (owners[m.index] != rank) continue;
      for (int r = 0; r < ranks; ++r) {  // shards follow one another, so these pieces do, too
        const layout::Range piece = piece_of(*group, *m.member, r);
        const std::int64_t count = piece.end - piece.begin;
        if (count == 0) continue;
        if (r == own) {
          keep(m.index, piece.begin, m.member->local.detach().view({-1}));
          continue;
        }
        keep(m.index, piece.begin, received.narrow(0, at[static_cast<std::size_t>(r)], count));
        at[static_cast<std::size_t>(r)] += count;
      }
    }
  }
}

}  // namespace tessera
