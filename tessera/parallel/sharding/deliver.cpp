// Whole parameters for the ranks that write them: every rank sends its pieces straight to the owners, nobody gathers what it does not
// write. On one host a message is read where the shard lies.

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

/// Bytes of a message: it is still in the cache of the core that received it when it is copied on.
constexpr std::int64_t message_bytes = std::int64_t{1} << 20;

/// piece [n] in messages: use(begin, count).
template <class Use>
void in_messages(std::int64_t n, std::int64_t element_size, const Use& use) {
  const std::int64_t most = message_bytes / element_size;
  for (std::int64_t begin = 0; begin < n; begin += most) use(begin, std::min(most, n - begin));
}

/// This rank's pieces of what others own, from its shards to them, in delivery order.
class Outbox {
 public:
  /// `members` of all groups in delivery order; `owners` within the shard group, by member (outside of it: elsewhere in the job).
  Outbox(const comm::Group& shards, const std::vector<Managed>& members, const std::vector<int>& owners)
      : shards_(shards), members_(members), owners_(owners) {}

  /// Starts what precedes members[end]; what is read is not to change before finish().
  void start(std::size_t end) {
    for (; next_ < end; ++next_) {
      const int owner = owners_[next_];
      if (owner < 0 || owner >= shards_.size() || owner == shards_.rank()) continue;
      const at::Tensor piece = members_[next_].member->local.detach().view({-1});
      in_messages(piece.numel(), piece.element_size(), [&](std::int64_t begin, std::int64_t count) {
        started_.push_back(shards_.send(piece.narrow(0, begin, count).to(shards_.device()), owner));
      });
    }
  }
  void finish() {
    for (comm::Work& work : started_) work.wait();
  }

 private:
  const comm::Group& shards_;
  const std::vector<Managed>& members_;
  const std::vector<int>& owners_;
  std::size_t next_ = 0;
  std::vector<comm::Work> started_;
};

}  // namespace

std::vector<std::size_t> Sharded::delivery_order() const {
  std::vector<std::size_t> order = undivided(impl_->local_);
  const auto places = places_of(impl_->local_);
  for (const auto& group : impl_->groups_)
    if (group->trained())
      for (const Managed& m : managed_of(*group, places)) order.push_back(m.index);
  return order;
}

std::vector<int> Sharded::whole_holders() const {
  std::vector<int> holders(impl_->local_.size(), -1);
  const auto places = places_of(impl_->local_);
  for (const auto& group : impl_->groups_) {
    if (!group->trained()) continue;
    for (const Managed& m : managed_of(*group, places)) {
      if (!impl_->local_[m.index].divided) continue;
      for (int r = 0; r < impl_->context_.shards.size(); ++r) {
        const layout::Range piece = piece_of(*group, *m.member, r);
        if (piece.end - piece.begin == m.member->numel) holders[m.index] = r;
      }
    }
  }
  return holders;
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
  const int own = shards.rank();
  const auto places = places_of(impl_->local_);
  std::vector<Managed> members;
  std::vector<int> shard_owners;
  for (const auto& group : impl_->groups_) {
    if (!group->trained()) continue;
    for (const Managed& m : managed_of(*group, places)) {
      members.push_back(m);
      shard_owners.push_back(owners[m.index] - (rank - own));  // the ranks of a shard group follow one another
    }
  }
  // All messages are sent at once, so that nobody waits for a rank that is still busy with what it owns. NCCL's messages between two
  // ranks are done in the order in which both start them: there, each follows what precedes it in delivery order.
  const bool in_order = shards.backend() == "nccl";
  Outbox outbox(shards, members, shard_owners);
  if (!in_order) outbox.start(members.size());
  at::Tensor message;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Managed& m = members[i];
    if (in_order) outbox.start(i + 1);
    if (owners[m.index] != rank) continue;
    for (int r = 0; r < shards.size(); ++r) {  // shards follow one another, so these pieces do, too
      const layout::Range piece = piece_of(*m.group, *m.member, r);
      if (r == own) {
        if (piece.end > piece.begin) keep(m.index, piece.begin, m.member->local.detach().view({-1}));
        continue;
      }
      const auto options = m.group->shard().options().requires_grad(false).device(shards.device());
      in_messages(piece.end - piece.begin, m.member->local.element_size(), [&](std::int64_t begin, std::int64_t count) {
        if (!message.defined() || message.scalar_type() != m.group->shard_dtype())
          message = at::empty({message_bytes / m.member->local.element_size()}, options);
        const at::Tensor arrived = message.narrow(0, 0, count);
        shards.recv(arrived, r).wait();
        keep(m.index, piece.begin + begin, arrived);
      });
    }
  }
  outbox.finish();
}

}  // namespace tessera
