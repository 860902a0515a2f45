// A user's torch::nn module whose attention is tessera::context_attention.
#include <tests/distributed/harness.h>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <tessera/parallel/context/attention.h>
#include <tessera/parallel/fully_shard.h>

#include <functional>
#include <map>
#include <string>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t vocabulary = 31, width = 16, heads = 4, tokens = 16, rows = 2;

/// q, k, v [B, t, heads, D] -> [B, t, heads * D].
using Attend = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

struct Block : torch::nn::Module {
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({width})};
  torch::nn::Linear qkv{width, 3 * width}, out{width, width}, up{width, 4 * width}, down{4 * width, width};
  Attend attend;
  explicit Block(Attend attention) : attend(std::move(attention)) {
    register_module("norm", norm);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv->forward(norm->forward(x)).view({x.size(0), x.size(1), 3, heads, width / heads}).unbind(2);
    const at::Tensor h = x + out->forward(attend(parts[0], parts[1], parts[2]));
    return h + down->forward(at::gelu(up->forward(h)));
  }
};

struct Net : torch::nn::Module {
  torch::nn::Embedding words{vocabulary, width}, places{tokens, width};
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::Linear head{width, vocabulary};
  explicit Net(const Attend& attention) {
    register_module("words", words);
    register_module("places", places);
    for (int i = 0; i < 2; ++i)
      blocks.push_back(register_module(concat("block", i), std::make_shared<Block>(attention)));
    register_module("head", head);
    to(at::kDouble);
  }
  /// The sum of cross-entropies of targets [B, t].
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& positions, const at::Tensor& targets) {
    at::Tensor x = words->forward(ids) + places->forward(positions);
    for (const auto& block : blocks) x = block->forward(x);
    return at::cross_entropy_loss(head->forward(x).flatten(0, 1), targets.flatten(), {}, at::Reduction::Sum);
  }
};

/// Ids, positions and next tokens of part i of n of the batch's rows.
struct Rows {
  at::Tensor ids, positions, targets;
};
Rows rows_of(std::int64_t i, std::int64_t n) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(3);
  const at::Tensor all = at::randint(0, vocabulary, {rows, tokens + 1}, generator, at::TensorOptions(at::kLong))
                             .narrow(0, i * rows / n, rows / n);
  return {all.slice(1, 0, tokens), at::arange(tokens).expand({rows / n, tokens}), all.slice(1, 1)};
}

TEST(ContextModule, of_a_user_equals_one_process) {
  at::manual_seed(4);
  Net whole([](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {}, 0.0, true)
        .transpose(1, 2)
        .flatten(2);
  });
  const Rows all = rows_of(0, 1);
  const at::Tensor expected = whole.loss(all.ids, all.positions, all.targets);
  expected.backward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& p : whole.named_parameters()) gradients[p.key()] = p.value().grad();

  run_ranks(4, [&](comm::World& world) {
    const layout::Mesh mesh = layout::parse_mesh("dp_shard=2,cp=2");
    for (const ContextMethod method : {ContextMethod::p2p, ContextMethod::all_gather, ContextMethod::a2a}) {
      const ContextGroups groups = context_groups(world, mesh, method);
      at::manual_seed(4);
      Net net([&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        return context_attention(q, k, v, groups);
      });
      Sharded fsdp(net, {.wrap = by_class({"Block"}), .reduction = comm::Reduction::sum});
      const Rows mine = rows_of(layout::coordinates(mesh, world.rank())[2], 2);
      const at::Tensor loss = net.loss(context_part(mine.ids, groups), context_part(mine.positions, groups),
                                       context_part(mine.targets, groups));
      loss.backward();
      at::Tensor sum = loss.detach().clone();
      world.group().all_reduce(sum).wait();
      EXPECT_NEAR(sum.item<double>() / expected.item<double>(), 1, 1e-12);
      for (const ShardedParameter& p : fsdp.named_parameters()) {
        const at::Tensor got = fsdp.gather_like(p, p.local.grad()).view(p.shape);
        EXPECT_LE((got - gradients.at(p.name)).abs().max().item<double>(), 1e-11) << p.name;
      }
    }
  });
}

}  // namespace
