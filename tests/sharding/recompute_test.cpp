// Sharding with every form of checkpointing: parameters are gathered and freed during recomputation, and results stay
// the same bit for bit.
#include <tests/sharding/job.h>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include <tessera/models/checkpoint_blocks.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>

#include <filesystem>

namespace {

using namespace tessera;
using namespace tessera::testing;
using Map = std::function<at::Tensor(const at::Tensor&)>;

/// Re-entrant checkpointing as other libraries write it: backward runs the function again and calls autograd from
/// inside.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const Map& f) {
    ctx->save_for_backward({x});
    function_of(ctx) = f;
    return f(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_(true);
    const at::AutoGradMode grad_mode(true);
    torch::autograd::backward({function_of(ctx)(x)}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
  /// LibTorch's context stores only values of its own types.
  static Map& function_of(torch::autograd::AutogradContext* ctx) {
    static std::map<const void*, Map> functions;
    return functions[ctx];
  }
};

enum class Way { plain, each, nested, offload, reentrant };

/// Three residual blocks on [B, 12] -> [B, 5].
template <Way form>
struct Residual : Model {
  Residual() {
    for (int i = 0; i < 3; ++i) {
      up.push_back(register_module("up" + std::to_string(i), torch::nn::Linear(12, 20)));
      down.push_back(register_module("down" + std::to_string(i), torch::nn::Linear(20, 12)));
    }
    head = register_module("head", torch::nn::Linear(12, 5));
  }
  at::Tensor forward(at::Tensor x) override {
    x = x.detach().requires_grad_(true);
    for (std::size_t i = 0; i < up.size(); ++i) {
      const Map block = [a = up[i], b = down[i]](const at::Tensor& h) mutable {
        return h + at::tanh(b(at::gelu(a(h))));
      };
      if constexpr (form == Way::plain) {
        x = block(x);
      } else if constexpr (form == Way::reentrant) {
        x = Reentrant::apply(x, block);
      } else if constexpr (form == Way::nested) {
        x = checkpointed([block](const at::Tensor& h) { return checkpointed(block, h) * 1.0; }, x);
      } else {
        x = checkpointed(block, x);
      }
    }
    return head(x);
  }
  std::vector<torch::nn::Linear> up, down;
  torch::nn::Linear head{nullptr};
};

Trained offloaded(at::ScalarType dtype) {
  Trained made = make_vectors<Residual<Way::offload>>(dtype);
  const auto policy = parallel::offload_policy({.to = std::filesystem::temp_directory_path().string(), .min_bytes = 0});
  return {made.module, [made, policy](int step, std::int64_t i, std::int64_t n) {
            const parallel::SavedTensors scope(policy);
            return made.loss(step, i, n);
          }};
}

template <Trained (*make)(at::ScalarType), parallel::CheckpointPart part>
Trained with_plan(at::ScalarType dtype) {
  Trained made = make(dtype);
  models::checkpoint_blocks(dynamic_cast<models::CausalLm&>(*made.module), {.part = part});
  return made;
}
Trained tied_llama(at::ScalarType) { return make_llama(true); }

struct Case {
  Task plain, recomputed;
};

std::vector<Case> cases() {
  using parallel::CheckpointPart;
  const std::vector<std::string> linear{"Linear"};
  const Task residual{"residual", make_vectors<Residual<Way::plain>>, linear};
  const Task gpt2{"gpt2", make_gpt2, {"Gpt2Block"}, false}, llama{"llama", tied_llama, {"LlamaDecoderLayer"}, false};
  return {{residual, {"checkpointed", make_vectors<Residual<Way::each>>, linear}},
          {residual, {"nested", make_vectors<Residual<Way::nested>>, linear}},
          {residual, {"checkpointed and offloaded", offloaded, linear}},
          {residual, {"re-entrant", make_vectors<Residual<Way::reentrant>>, linear}},
          {gpt2, {"gpt2 blocks", with_plan<make_gpt2, CheckpointPart::block>, gpt2.units, false}},
          {gpt2, {"gpt2 attention", with_plan<make_gpt2, CheckpointPart::attention>, gpt2.units, false}},
          {llama, {"llama blocks", with_plan<tied_llama, CheckpointPart::block>, llama.units, false}},
          {llama, {"llama mlp", with_plan<tied_llama, CheckpointPart::mlp>, llama.units, false}}};
}

TEST(ShardedRecompute, same_bits_as_one_process_that_keeps_everything) {
  constexpr int steps = 4, shards = 2;
  for (const Case& c : cases()) {
    const Record expected = train_alone(c.plain, Rule::adamw, shards, steps);
    for (const int ranks : {1, 2})
      run_ranks(ranks, [&](comm::World& world) {
        for (const char* strategy : {"full_shard", "zero2"}) {
          ShardingOptions options{.strategy = strategy,
                                  .wrap = by_class(c.recomputed.units),
                                  .logical_shards = shards,
                                  .reshard_alone = true};
          const auto before = parallel::checkpoint_counts().recomputed;
          const Record got = train_job(world, c.recomputed, options, {.rule = Rule::adamw, .steps = steps});
          expect_same_bits(world, got, expected, concat(c.recomputed.name, " ", strategy, " on ", world.size()));
          const bool ours = std::string(c.recomputed.name) != "re-entrant";
          EXPECT_EQ(parallel::checkpoint_counts().recomputed > before, ours);
        }
      });
  }
}

}  // namespace
