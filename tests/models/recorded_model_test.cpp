// A recorded step of our families against the planner's estimates from config.json: FLOP, parameters, bytes that a
// block keeps.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tessera/parallel/recorder/record_step.h>
#include <tessera/plan/memory.h>
#include <tessera/plan/time.h>

namespace tessera::models {
namespace {

constexpr std::int64_t rows = 2, tokens = 128;

struct Case {
  const char* name;
  std::string config;
};

const Case& gpt2() {
  static const Case c{"gpt2", R"({"model_type": "gpt2", "n_layer": 3, "n_embd": 128, "n_head": 4, "n_positions": 128,
      "vocab_size": 503, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0})"};
  return c;
}
std::string llama_like(const std::string& members) {
  return R"({"hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 3, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 503, "max_position_embeddings": 128, )" +
         members + "}";
}
std::vector<Case> cases() {
  return {gpt2(),
          {"llama", llama_like(R"("model_type": "llama")")},
          {"qwen3", llama_like(R"("model_type": "qwen3", "head_dim": 32)")},
          {"mixtral", llama_like(R"("model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2)")}};
}

plan::RecordedStep recorded(const Value& config) {
  const auto model = build(config, 7);
  model->train();
  at::manual_seed(4);
  data::Batch batch;
  batch.ids = at::randint(0, 503, {rows, tokens}, at::kLong);
  batch.labels = batch.ids;
  return record_step(*model, {.rows = rows, .row_tokens = tokens},
                     [&] { model->loss(batch, 1.0 / (rows * (tokens - 1))).backward(); });
}

TEST(RecordedModel, AgreesWithThePlanOfItsConfiguration) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Value config = parse_json(c.config, c.name);
    const plan::RecordedStep step = recorded(config);
    const plan::Model model = plan::read_model(config);
    ASSERT_EQ(static_cast<std::int64_t>(step.layers.size()), model.layers);
    EXPECT_EQ(step.parameters(), plan::parameter_count(model));
    // The last token of a row is not scored, so the head computes one token less per row.
    const double n = rows * tokens, said = n * plan::model_flops_per_token(model, tokens);
    const double head = 6.0 * rows * static_cast<double>(model.vocabulary * model.hidden);
    EXPECT_NEAR(step.flop(), said - head, 1e-3 * said);
    plan::Plan run;
    run.numerics = plan::numerics_of(plan::Precision::fp32, true);
    run.sequence = tokens;
    run.rows = rows;
    plan::cut_plan(model, run);
    const double kept = plan::block_activations(model, run, model.experts.has_value()).kept;
    EXPECT_NEAR(step.layers[1].saved_bytes, kept, 0.05 * kept);
    EXPECT_EQ(step.layers[1].input_bytes, 4 * n * static_cast<double>(model.hidden));
  }
}

// The same run planned from the recording and from the configuration: the same states, everything else within a few per
// cent.
TEST(RecordedModel, IsPlannedLikeItsConfiguration) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Value config = parse_json(c.config, c.name);
    const plan::Model formulas = plan::read_model(config), seen = plan::model_of_recorded(recorded(config), c.name);
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::full_shard}) {
      plan::Plan run;
      run.numerics = plan::numerics_of(plan::Precision::fp32, false);
      run.precision = plan::Precision::fp32;
      run.strategy = strategy;
      run.mesh = layout::parse_mesh(strategy == Strategy::ddp ? "dp_replicate=4" : "dp_shard=4");
      run.sequence = tokens;
      run.rows = 2 * rows;
      plan::Plan other = run;
      plan::cut_plan(formulas, run);
      plan::cut_plan(seen, other);
      const plan::Memory a = plan::memory_by_rank(formulas, run, 0)[0], b = plan::memory_by_rank(seen, other, 0)[0];
      for (const auto kind : {plan::MemoryKind::parameters, plan::MemoryKind::gradients, plan::MemoryKind::optimizer})
        EXPECT_NEAR(b[kind], a[kind], 1e-9 * a[kind]) << name_of(kind);
      EXPECT_NEAR(b[plan::MemoryKind::activations], a[plan::MemoryKind::activations],
                  0.06 * a[plan::MemoryKind::activations]);
    }
  }
}

// Step times on a device whose memory and kernel launches cost nothing: only arithmetic remains, and both estimates
// must agree.
TEST(RecordedModel, TakesAsLongAsItsConfiguration) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Value config = parse_json(c.config, c.name);
    const plan::Model formulas = plan::read_model(config), seen = plan::model_of_recorded(recorded(config), c.name);
    plan::Cluster cluster = plan::parse_cluster("1xH100");
    cluster.device.launch = 0;
    cluster.device.bandwidth = 1e18;
    cluster.device.units = cluster.device.tile = 1;
    cluster.device.half_depth = 0;
    cluster.device.grouped = 1;  // a recorded product is not marked as an expert's
    for (const std::int64_t times : {1, 8}) {
      plan::Plan run;
      run.numerics = plan::numerics_of(plan::Precision::fp32, false);
      run.precision = plan::Precision::fp32;
      run.sequence = tokens;
      run.rows = times * rows;
      plan::Plan other = run;
      plan::cut_plan(formulas, run);
      plan::cut_plan(seen, other);
      const auto seconds = [&](const plan::Model& model, const plan::Plan& plan) {
        const plan::StepTime time = plan::step_time(model, plan, plan::elements_of(model, 1, 1), cluster);
        return time[plan::TimeKind::products];
      };
      const double said = seconds(formulas, run);
      EXPECT_NEAR(seconds(seen, other), said, 0.02 * said) << times;
    }
  }
}

}  // namespace
}  // namespace tessera::models
