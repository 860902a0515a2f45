// Brings whole parameters to the ranks that write them: every rank sends its pieces directly to the owners, and no rank
// gathers parameters that it does not write. On one host a message is read directly from the shard.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/parallel/sharding/engine.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <numeric>

namespace tessera {

using parallel::FlatGroup;

namespace {

/// The trained members of the groups, by their index among the trained parameters.
struct Managed {
  const FlatGroup* group;
  const FlatGroup::Member* member;
  std::size_t index;  // into named_parameters()
};

/// In the order of Hugging Face's own writer: widest elements first, then by name.
std::vector<std::size_t> in_writing_order(const std::vector<ShardedParameter>& parameters) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto size = [&](std::size_t i) { return parameters[i].local.element_size(); };
    return size(a) != size(b) ? size(a) > size(b) : parameters[a].name < parameters[b].name;
  });
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

/// Elements of a member that rank r of the shard group holds, as a range of the flattened member.
layout::Range piece_of(const FlatGroup& group, const FlatGroup::Member& member, int r) {
  const layout::Range common =
      layout::intersect({member.offset, member.offset + member.numel}, layout::shard_range(group.flat_layout(), r));
  return {common.begin - member.offset, common.end - member.offset};
}

/// Bytes of a message, chosen so that it is still in the receiving core's cache when it is copied on.
constexpr std::int64_t message_bytes = std::int64_t{1} << 20;

constexpr std::size_t copies_on_their_way = 4;

/// Splits piece [n] into messages: use(begin, count).
template <class Use>
void in_messages(std::int64_t n, std::int64_t element_size, const Use& use) {
  const std::int64_t most = message_bytes / element_size;
  for (std::int64_t begin = 0; begin < n; begin += most) use(begin, std::min(most, n - begin));
}

/// Sends this rank's pieces to their owners, in delivery order.
class SendQueue {
 public:
  /// `pieces` in delivery order; `owners` within the shard group (numbers outside of it: elsewhere in the job). At most
  /// `most_messages` are in flight at a time: start() waits for the first of them.
  SendQueue(const comm::Group& shards, const std::vector<at::Tensor>& pieces, const std::vector<int>& owners,
            std::size_t most_messages)
      : shards_(shards), pieces_(pieces), owners_(owners), most_messages_(most_messages) {}

  /// Starts sending everything before pieces[end]; the memory must not change before finish().
  void start(std::size_t end) {
    for (; next_ < end; ++next_) {
      const int owner = owners_[next_];
      if (owner < 0 || owner >= shards_.size() || owner == shards_.rank()) continue;
      const at::Tensor& piece = pieces_[next_];
      in_messages(piece.numel(), piece.element_size(), [&](std::int64_t begin, std::int64_t count) {
        if (started_.size() == most_messages_) {
          started_.front().wait();
          started_.pop_front();
        }
        started_.push_back(shards_.send(piece.narrow(0, begin, count).to(shards_.device()), owner));
      });
    }
  }
  void finish() {
    for (comm::Work& work : started_) work.wait();
  }

 private:
  const comm::Group& shards_;
  const std::vector<at::Tensor>& pieces_;
  const std::vector<int>& owners_;
  std::size_t most_messages_, next_ = 0;
  std::deque<comm::Work> started_;
};

}  // namespace

std::vector<std::size_t> Sharded::gather_order() const { return in_writing_order(impl_->local_); }

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

void Sharded::gather_to_owners(const std::vector<int>& owners, const PieceVisitor& keep) const {
  impl_->deliver(parameters(), owners, keep, /*peers_can_read=*/true);
}

void Sharded::gather_like_to_owners(const std::vector<at::Tensor>& held, const std::vector<int>& owners,
                                    const PieceVisitor& keep) const {
  impl_->deliver(held, owners, keep, /*peers_can_read=*/false);
}

void Sharded::Impl::deliver(const std::vector<at::Tensor>& held, const std::vector<int>& owners,
                            const PieceVisitor& keep, bool peers_can_read) const {
  TESSERA_CHECK(owners.size() == local_.size() && held.size() == owners.size(), owners.size(), " owners for ",
                held.size(), " tensors of ", local_.size(), " parameters");
  const at::NoGradGuard no_grad;
  const comm::Tag tag("deliver for saving");
  const int rank = context_.data_parallel.rank();
  const comm::Group& shards = context_.shards;
  const int own = shards.rank();
  const auto places = places_of(local_);
  std::map<std::size_t, Managed> divided;
  for (const auto& group : groups_)
    if (group->trained())
      for (const Managed& m : managed_of(*group, places)) divided.emplace(m.index, m);
  std::vector<std::size_t> order;  // parameters to deliver; `pieces` and `shard_owners` cover the divided ones, in the
                                   // same order
  std::vector<at::Tensor> pieces;
  std::vector<int> shard_owners;
  for (const std::size_t i : in_writing_order(local_)) {
    if (!held[i].defined()) continue;
    order.push_back(i);
    if (!divided.contains(i)) continue;
    pieces.push_back(held[i].detach().view({-1}));
    shard_owners.push_back(owners[i] - (rank - own));  // the ranks of a shard group are consecutive
  }
  // Shards are read in place: all messages are sent at once, so that no rank waits for one that is still busy with its
  // own parameters. For other memory a message is a copy, so few are in flight. NCCL processes messages between two
  // ranks in the order in which both start them. In the last two cases every rank sends its messages in delivery order,
  // so the first unfinished one waits for nothing.
  const bool in_order = !peers_can_read || shards.capabilities().ordered_messages;
  SendQueue sends(shards, pieces, shard_owners,
                  peers_can_read ? std::numeric_limits<std::size_t>::max() : copies_on_their_way);
  if (!in_order) sends.start(pieces.size());
  at::Tensor message;
  std::size_t next = 0;  // index in `pieces`
  for (const std::size_t i : order) {
    const auto found = divided.find(i);
    if (found == divided.end()) {  // every rank has the whole parameter
      if (owners[i] == rank) keep(i, 0, held[i].detach().view({-1}));
      continue;
    }
    const at::Tensor& mine = pieces[next++];
    if (in_order) sends.start(next);
    if (owners[i] != rank) continue;
    if (found->second.member->numel == 0) {  // this tp rank has no part of it, but the other ranks expect the call
      keep(i, 0, mine);
      continue;
    }
    for (int r = 0; r < shards.size(); ++r) {  // shards are consecutive, so these pieces are as well
      const layout::Range piece = piece_of(*found->second.group, *found->second.member, r);
      if (r == own) {
        if (piece.end > piece.begin) keep(i, piece.begin, mine);
        continue;
      }
      const auto options = mine.options().requires_grad(false).device(shards.device());
      const std::int64_t element_size = mine.element_size();
      in_messages(piece.end - piece.begin, element_size, [&](std::int64_t begin, std::int64_t count) {
        if (!message.defined() || message.scalar_type() != mine.scalar_type())
          message = at::empty({message_bytes / element_size}, options);
        const at::Tensor arrived = message.narrow(0, 0, count);
        shards.recv(arrived, r).wait();
        keep(i, piece.begin + begin, arrived);
      });
    }
  }
  sends.finish();
}

}  // namespace tessera
