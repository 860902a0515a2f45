#include <tessera/plan/reference_step.h>

#include <tessera/plan/model.h>
#include <tessera/plan/time.h>

namespace tessera::plan {

Value reference_config() {
  return parse_json(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 320, "intermediate_size": 864,
          "num_hidden_layers": 4, "num_attention_heads": 5, "num_key_value_heads": 5, "vocab_size": 2048,
          "max_position_embeddings": 256})",
      "the reference step");
}

double reference_seconds(const Cluster& cluster, Precision precision) {
  Cluster alone = cluster;
  alone.devices = alone.per_node = 1;
  alone.crowding = 1;
  const Model model = read_model(reference_config());
  Plan run;
  run.mesh = layout::parse_mesh("dp_replicate=1");
  run.precision = precision;
  run.numerics = numerics_of(precision, /*on_cpu=*/true);
  run.on_cpu = true;
  run.sequence = reference_tokens;
  run.rows = reference_rows;
  cut_plan(model, run);
  const StepTime step = step_time(model, run, elements_of(model, 1, 1), alone);
  return step.total() - step[TimeKind::optimizer];
}

}  // namespace tessera::plan
