#include <tessera/plan/reference_step.h>

#include <tessera/base/text.h>
#include <tessera/plan/model.h>
#include <tessera/plan/time.h>

namespace tessera::plan {

Value reference_config() {
  return parse_json(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 448, "intermediate_size": 1216,
          "num_hidden_layers": 5, "num_attention_heads": 7, "num_key_value_heads": 7, "vocab_size": 3072,
          "max_position_embeddings": 256})",
      "the reference step");
}

ReferenceSeconds reference_seconds(const Cluster& cluster, Precision precision, int processes) {
  Cluster here = cluster;
  here.devices = here.per_node = processes;
  here.crowding = 1;
  const Model model = read_model(reference_config());
  Plan run;
  run.mesh = layout::parse_mesh(concat("dp_replicate=", processes));
  run.precision = precision;
  run.numerics = numerics_of(precision, /*on_cpu=*/true);
  run.on_cpu = true;
  run.sequence = reference_tokens;
  run.rows = reference_rows;
  cut_plan(model, run);
  const StepTime step = step_time(model, run, elements_of(model, 1, 1), here);
  ReferenceSeconds seconds;
  for (const TimeKind kind : {TimeKind::products, TimeKind::attention, TimeKind::passes})
    seconds.computing += step[kind];
  seconds.rest = step.total() - seconds.computing;
  return seconds;
}

}  // namespace tessera::plan
