// Bytes on the wire, and bytes that a rank keeps, match the formulas (docs/parallelism.md).
#include <tests/parallel/allocated.h>
#include <tests/tensor/families.h>

#include <tessera/comm/recorder.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>

#include <cstdio>

namespace {

using namespace tessera;
using namespace tessera::testing;
using layout::Axis;

constexpr std::int64_t B = 2, T = 64, C = 32, heads = 4, V = 64;

std::shared_ptr<models::LanguageModel> make_llama(std::int64_t layers, std::int64_t width = C,
                                                  std::int64_t tokens = T) {
  const Value config = parse_json(
      concat(R"({"model_type": "llama", "hidden_size": )", width, R"(, "num_attention_heads": )", heads,
             R"(, "num_key_value_heads": )", heads, R"(, "intermediate_size": )", 3 * width,
             R"(, "num_hidden_layers": )", layers, R"(, "vocab_size": )", V, R"(, "max_position_embeddings": )", tokens,
             R"(, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"),
      "llama");
  return models::build(config, 3);
}

data::Batch rows_of(std::int64_t tokens) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(5);
  data::Batch batch;
  batch.ids = at::randint(0, V, {B, tokens}, generator, at::kLong);
  batch.labels = batch.ids.clone();
  batch.lengths.assign(static_cast<std::size_t>(B), tokens);
  return batch;
}

double wire_bytes() {
  double sum = 0;
  for (const comm::OpTotals& row : comm::recorder().totals()) sum += static_cast<double>(row.wire_bytes);
  return sum;
}

struct Volume {
  double forward = 0, backward = 0;
};
/// Measures a step after the first one, which compares gradients once.
Volume volume_of(models::LanguageModel& model) {
  const data::Batch batch = rows_of(T);
  const auto step = [&] {
    const double start = wire_bytes();
    const at::Tensor loss = model.loss(batch, 1.0 / static_cast<double>(B * (T - 1)));
    const double forward = wire_bytes() - start;
    loss.backward();
    return Volume{forward, wire_bytes() - start - forward};
  };
  (void)step();
  return step();
}

// A ring's all-reduce of n bytes sends 2 (r - 1) / r n from every rank, all-gather and reduce-scatter half of that.
TEST(TensorVolume, is_the_formula_of_megatron) {
  for (const int ranks : {2, 4}) {
    const auto outcomes = run_ranks(ranks, [&](comm::World& world) {
      for (const bool sequence_parallel : {false, true}) {
        Volume of[2];
        double gradients[2] = {};  // norms' gradients, in sequence parallelism
        for (const std::int64_t layers : {1, 3}) {
          const auto model = make_llama(layers);
          const TensorParallel parts(*model, {.plan = model->tensor_plan(), .sequence_parallel = sequence_parallel});
          of[layers / 2] = volume_of(*model);
          gradients[layers / 2] = sequence_parallel ? 4.0 * C * static_cast<double>(2 * layers + 1) : 0;
        }
        const double r = ranks, n = 4.0 * B * T * C, reduce = 2 * (r - 1) / r;
        // Per layer two all-reduces in each direction; with sequence parallelism an all-gather and a reduce-scatter
        // instead of each, of the same volume.
        const double layer_forward = (of[1].forward - of[0].forward) / 2,
                     layer_backward = (of[1].backward - of[0].backward - reduce * (gradients[1] - gradients[0])) / 2;
        EXPECT_NEAR(layer_forward / (2 * reduce * n), 1, 0.01);
        EXPECT_NEAR(layer_backward / (2 * reduce * n), 1, 0.01);
        // Table and head: the table's sum; three numbers per token for the cross-entropy (the largest logit, the sum of
        // exponentials, the target's logit); and the gradient of the head's input. With sequence parallelism tokens are
        // also gathered before the head in forward, and after the table in backward (our families sum the table's
        // output whole in forward).
        const double numbers = 3 * 4.0 * B * T;
        const double ends_forward = of[0].forward - layer_forward,
                     ends_backward = of[0].backward - layer_backward - reduce * gradients[0];
        EXPECT_NEAR(ends_forward / (reduce * ((sequence_parallel ? 1.5 : 1) * n + numbers)), 1, 0.01);
        EXPECT_NEAR(ends_backward / (reduce * n), 1, 0.01);
        if (world.rank() == 0)
          post(concat(ranks, " ranks", sequence_parallel ? " with sequence parallelism" : "", ": a layer ",
                      layer_forward, " + ", layer_backward, " bytes, table and head ", ends_forward, " + ",
                      ends_backward));
      }
    });
    for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
  }
}

struct Use {
  double parameters = 0, kept = 0;  ///< bytes; kept: from forward to backward
};
Use use_of(models::LanguageModel& model, std::int64_t tokens, int attempts = 1) {
  Use use;
  for (const at::Tensor& p : model.parameters()) use.parameters += static_cast<double>(p.nbytes());
  const data::Batch batch = rows_of(tokens);
  const auto loss = [&] { return model.loss(batch, 1.0 / static_cast<double>(B * (tokens - 1))); };
  loss().backward();  // one-time allocations
  for (int i = 0; i < attempts; ++i) {
    model.zero_grad();
    const Allocated allocated;
    const at::Tensor value = loss();
    // Messages that the transport's thread releases last are not counted as freed: take the minimum.
    const auto kept = static_cast<double>(allocated.now());
    use.kept = i == 0 ? kept : std::min(use.kept, kept);
  }
  return use;
}

// Parameters other than norms, and activations inside attention and MLP, shrink to 1 / r. With sequence parallelism so
// do the activations between the layers, but both gathered inputs of column-parallel maps are kept in addition.
TEST(TensorMemory, is_the_formula) {
  constexpr std::int64_t width = 64, tokens = 256;
  const auto whole_of = [&](std::int64_t layers) { return use_of(*make_llama(layers, width, tokens), tokens); };
  const Use one = whole_of(1), three = whole_of(3);
  const double unit = 4.0 * B * tokens * width, layer = (three.kept - one.kept) / 2 / unit;
  // q, k, v, the result of attention, its log-sum-exps; gate, up and their product, three widths each.
  const double inside = 4 + static_cast<double>(heads) / width + 9, between = layer - inside;
  EXPECT_NEAR(between, 4, 0.05) << "input and result of two norms";
  for (const int ranks : {2, 4}) {
    const auto outcomes = run_ranks(ranks, [&](comm::World& world) {
      for (const bool sequence_parallel : {false, true}) {
        Use of[2];
        for (const std::int64_t layers : {1, 3}) {
          const auto model = make_llama(layers, width, tokens);
          const TensorParallel parts(*model, {.plan = model->tensor_plan(), .sequence_parallel = sequence_parallel});
          of[layers / 2] = use_of(*model, tokens, sequence_parallel ? 12 : 1);
        }
        const double norms = 4.0 * width * (2 * 3 + 1), r = ranks;
        EXPECT_NEAR(of[1].parameters / ((three.parameters - norms) / r + norms), 1, 1e-9);
        const double kept = (of[1].kept - of[0].kept) / 2 / unit;
        const double formula = inside / r + (sequence_parallel ? between / r + 2 * (1 - 1 / r) : between);
        EXPECT_NEAR(kept / formula, 1, 0.02) << (sequence_parallel ? "with" : "without") << " sequence parallelism";
        if (world.rank() == 0)
          post(concat(ranks, " ranks", sequence_parallel ? " with sequence parallelism" : "", ": a layer keeps ", kept,
                      " of ", layer, " times 4 B T C bytes"));
      }
    });
    for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
  }
}

}  // namespace
