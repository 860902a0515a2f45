#include <tessera/parallel/context/block_attention.h>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace tessera::parallel {
namespace {

using comm::Work;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A plan in a form that autograd can save.
struct HeldPlan : torch::CustomClassHolder {
  explicit HeldPlan(std::shared_ptr<const BlockPlan> plan) : plan(std::move(plan)) {}
  std::shared_ptr<const BlockPlan> plan;
};

/// Messages in flight; holds their memory until they have been sent.
class Outbox {
 public:
  void add(Work work) {
    std::erase_if(works_, [](Work& sent) {
      if (!sent.done()) return false;
      sent.wait();  // throws the send's error
      return true;
    });
    works_.push_back(std::move(work));
  }
  void wait() {
    for (Work& work : works_) work.wait();
    works_.clear();
  }

 private:
  std::vector<Work> works_;
};

/// Message tags: blocks by owner, then their gradients by owner.
int block_tag(int owner) { return owner; }
int gradient_tag(const BlockPlan& plan, int owner) { return static_cast<int>(plan.ways.size()) + owner; }

const std::vector<int>& own_way(const BlockPlan& plan) { return plan.ways[static_cast<std::size_t>(plan.rank())]; }

/// False when no block leaves its rank: one rank, or documents that do not cross the ranks' boundaries.
bool moves(const BlockPlan& plan) {
  return std::any_of(plan.ways.begin(), plan.ways.end(), [](const auto& way) { return !way.empty(); });
}

/// Keys and values as one message [2, B, t, key heads, D]; undefined when nothing is sent.
at::Tensor packed(const BlockPlan& plan, const at::Tensor& k, const at::Tensor& v) {
  return moves(plan) ? at::stack({k, v}) : at::Tensor();
}

using UseHome = std::function<void()>;
using UseBlock = std::function<void(const Visit&, const at::Tensor& block)>;

/// Sends this rank's block while computing with it, then computes with each visiting block while the next one is in
/// flight. Sends are waited for only at the end, because a receiver may first need another block from this rank.
void pass_blocks(const BlockPlan& plan, const at::Tensor& home, const UseHome& use_home, const UseBlock& use_block) {
  Outbox sends;
  at::Tensor next;
  Work receiving;
  const auto receive = [&](std::size_t i) {
    if (i >= plan.visits.size()) return;
    next = at::empty_like(home);
    receiving = plan.ring.recv(next, plan.visits[i].from, block_tag(plan.visits[i].owner));
  };
  if (!own_way(plan).empty()) sends.add(plan.ring.send(home, own_way(plan).front(), block_tag(plan.rank())));
  receive(0);
  use_home();
  for (std::size_t i = 0; i < plan.visits.size(); ++i) {
    receiving.wait();
    const at::Tensor block = std::exchange(next, at::Tensor());
    const Visit& visit = plan.visits[i];
    if (visit.to >= 0) sends.add(plan.ring.send(block, visit.to, block_tag(visit.owner)));
    receive(i + 1);
    use_block(visit, block);
  }
  sends.wait();
}

/// The same with all blocks gathered at once, while this rank computes with its own block.
void gather_blocks(const BlockPlan& plan, const at::Tensor& home, const UseHome& use_home, const UseBlock& use_block) {
  auto sizes = home.sizes().vec();
  sizes.insert(sizes.begin(), plan.ring.size());
  const at::Tensor blocks = at::empty(sizes, home.options());
  Work gathering = plan.ring.all_gather(blocks, home);
  use_home();
  gathering.wait();
  for (const Visit& visit : plan.visits) use_block(visit, blocks[visit.owner]);
}

void move_blocks(const BlockPlan& plan, const at::Tensor& home, const UseHome& use_home, const UseBlock& use_block) {
  if (!moves(plan)) return use_home();
  (plan.gather ? gather_blocks : pass_blocks)(plan, home, use_home, use_block);
}

struct BlockAttention : torch::autograd::Function<BlockAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::shared_ptr<const BlockPlan>& plan) {
    const comm::Tag tag("context forward");
    PartialAttention sum;
    move_blocks(
        *plan, packed(*plan, k, v), [&] { add_block(sum, q, plan->block(plan->rank(), k, v), plan->options); },
        [&](const Visit& visit, const at::Tensor& block) {
          add_block(sum, q, plan->block(visit.owner, block[0], block[1]), plan->options);
        });
    const auto wide = at::toOpMathType(q.scalar_type());
    if (!sum.out.defined()) {  // no query attends to any key
      sum.out = at::zeros(q.sizes(), q.options().dtype(wide));
      sum.log_sum =
          at::full({q.size(0), q.size(2), q.size(1)}, -std::numeric_limits<double>::infinity(), sum.out.options());
    }
    const at::Tensor out = sum.out.to(q.scalar_type()).contiguous();
    ctx->save_for_backward({q, k, v, out, sum.log_sum});
    ctx->saved_data["plan"] = c10::IValue::make_capsule(c10::make_intrusive<HeldPlan>(plan));
    return out.view({q.size(0), q.size(1), q.size(2) * q.size(3)});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const comm::Tag tag("context backward");
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const auto held = c10::static_intrusive_pointer_cast<HeldPlan>(ctx->saved_data["plan"].toCapsule());
    const BlockPlan& plan = *held->plan;
    const AttentionResult result{q, saved[3], saved[4], gradients[0].contiguous().view(q.sizes())};
    Backward pass{plan, q.options().dtype(at::toOpMathType(q.scalar_type())), result, k, v, packed(plan, k, v)};
    pass.dq.total = at::empty(q.sizes(), pass.wide);
    const at::Tensor dhome = plan.gather && moves(plan) ? bring_home_scattered(pass) : bring_home_passed(pass);
    const auto narrow = [&](const at::Tensor& x) { return x.to(q.scalar_type()); };
    return {narrow(pass.dq.value()), narrow(dhome[0]), narrow(dhome[1]), at::Tensor()};
  }

 private:
  struct Backward {
    const BlockPlan& plan;
    at::TensorOptions wide;  // type of the sums
    const AttentionResult& result;
    at::Tensor k, v, home;
    GradientSum dq = {};

    at::Tensor empty_sum() const { return at::empty({2, k.size(0), k.size(1), k.size(2), k.size(3)}, wide); }
    /// Writes the gradients of an owner's keys and values to `sum` [2, B, t, key heads, D]; adds to dq.
    void write(const at::Tensor& keys, const at::Tensor& values, int owner, const at::Tensor& sum) {
      GradientSum dk{sum[0]}, dv{sum[1]};
      add_block_gradients(dq, dk, dv, result, plan.block(owner, keys, values), plan.options);
      (void)dk.value(), (void)dv.value();
    }
  };

  /// A block's gradient follows the block from rank to rank. Each rank adds its part, and the last one sends the sum to
  /// the owner.
  static at::Tensor bring_home_passed(Backward& pass) {
    const BlockPlan& plan = pass.plan;
    const at::Tensor mine = pass.empty_sum();
    at::Tensor others;
    Work returning;
    if (!own_way(plan).empty()) {
      others = pass.empty_sum();
      returning = plan.ring.recv(others, own_way(plan).back(), gradient_tag(plan, plan.rank()));
    }
    Outbox sends;
    move_blocks(
        plan, pass.home, [&] { pass.write(pass.k, pass.v, plan.rank(), mine); },
        [&](const Visit& visit, const at::Tensor& block) {
          const int tag = gradient_tag(plan, visit.owner);
          at::Tensor earlier;
          Work receiving;
          if (visit.from != visit.owner) {
            earlier = pass.empty_sum();
            receiving = plan.ring.recv(earlier, visit.from, tag);
          }
          at::Tensor sum = pass.empty_sum();
          pass.write(block[0], block[1], visit.owner, sum);
          if (earlier.defined()) {
            receiving.wait();
            sum = earlier.add_(sum);
          }
          sends.add(plan.ring.send(sum, visit.to >= 0 ? visit.to : visit.owner, tag));
        });
    if (others.defined()) {
      returning.wait();
      mine.add_(others);
    }
    sends.wait();
    return mine;
  }

  /// Every rank's gradients of all blocks, summed by one reduce-scatter.
  static at::Tensor bring_home_scattered(Backward& pass) {
    const BlockPlan& plan = pass.plan;
    auto sizes = pass.home.sizes().vec();
    sizes.insert(sizes.begin(), plan.ring.size());
    const at::Tensor all = at::zeros(sizes, pass.wide), mine = pass.empty_sum();
    move_blocks(
        plan, pass.home, [&] { pass.write(pass.k, pass.v, plan.rank(), all[plan.rank()]); },
        [&](const Visit& visit, const at::Tensor& block) {
          pass.write(block[0], block[1], visit.owner, all[visit.owner]);
        });
    plan.ring.reduce_scatter(mine, all).wait();
    return mine;
  }
};

}  // namespace

std::shared_ptr<const BlockPlan> make_block_plan(const comm::Group& ring, bool gather, const layout::SequenceCut& cut,
                                                 std::int64_t rows, const layout::Sight& sight, TileOptions options) {
  const auto plan = std::make_shared<BlockPlan>();
  plan->ring = ring;
  plan->gather = gather;
  options.window = sight.window;
  plan->options = std::move(options);
  const int ranks = cut.ring_ranks(), rank = plan->rank();
  TESSERA_CHECK((ring ? ring.size() : 1) == ranks, "the sequence is cut for a ring of ", ranks,
                " ranks, but the ring has ", ring ? ring.size() : 1);
  for (int owner = 0; owner < ranks; ++owner) {
    plan->tiles.push_back(layout::tiles(cut, rows, sight, rank, owner));
    std::vector<std::int64_t>& positions = plan->positions.emplace_back();
    for (const layout::Range& range : layout::tokens_of_ring(cut, owner))
      for (std::int64_t token = range.begin; token < range.end; ++token) positions.push_back(token);
  }
  if (plan->options.dropout.p > 0) {
    nn::RandomPlace& queries = plan->options.dropout.place;
    queries.token = 0;
    queries.tokens = std::make_shared<const std::vector<std::int64_t>>(plan->positions[static_cast<std::size_t>(rank)]);
  }
  plan->ways = layout::itineraries(cut, rows, sight);
  for (int distance = 1; distance < ranks; ++distance) {
    const int owner = (rank - distance + ranks) % ranks;
    const auto& way = plan->ways[static_cast<std::size_t>(owner)];
    const auto here = std::find(way.begin(), way.end(), rank);
    if (here == way.end()) continue;
    plan->visits.push_back(
        {owner, here == way.begin() ? owner : *(here - 1), here + 1 == way.end() ? -1 : *(here + 1)});
  }
  return plan;
}

at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::shared_ptr<const BlockPlan>& plan) {
  return BlockAttention::apply(q, k, v, plan);
}

}  // namespace tessera::parallel
