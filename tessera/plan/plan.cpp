#include <tessera/plan/plan.h>

#include <tessera/architectures/mesh_sizes.h>
#include <tessera/base/text.h>
#include <tessera/plan/recorded.h>

#include <algorithm>

namespace tessera::plan {

using layout::Axis;

double Plan::recomputed_share() const {
  if (recompute == 0) return 0;
  if (recomputed_names.empty()) return 1 / static_cast<double>(recompute);
  double chosen = 0;
  for (std::size_t block = 0; block < recomputed_names.size(); ++block)
    chosen += recomputes(static_cast<std::int64_t>(block)) ? 1 : 0;
  return chosen / static_cast<double>(recomputed_names.size());
}

const WordTable& words_of(Precision) {
  static const WordTable words = {{"fp32", "bf16", "bf16_whole"}, {{"no", "fp32"}, {"float32", "fp32"}}};
  return words;
}

Numerics numerics_of(Precision precision, bool on_cpu) {
  Numerics n;
  n.head_in_chunks = !on_cpu;
  if (precision == Precision::fp32) return n;
  n.product = 2;
  n.copies = on_cpu;
  if (!on_cpu) {
    n.inside = 2;
    n.logits = 10;  // bf16, its fp32 form, and the softmax's saved output
  }
  if (precision == Precision::bf16_whole) n.whole = n.wire = 2;
  if (precision == Precision::bf16_whole && !on_cpu) n.residual = 2;
  return n;
}

Numerics megatron_numerics() {
  Numerics n;
  n.shard = n.whole = 2;
  n.gradient = n.wire = 4;
  n.states = 12;
  n.residual = n.product = n.inside = 2;
  n.logits = 6;
  return n;
}

Numerics engine_numerics(const Engine& engine) {
  if (engine.name == EngineName::tessera) return numerics_of(Precision::bf16, /*on_cpu=*/false);
  Numerics n = megatron_numerics();
  n.wire = engine.narrow_gradients ? 2 : 4;
  if (engine.name == EngineName::torchtitan || engine.name == EngineName::fsdp2) {
    n.shard = n.gradient = 4;
    n.states = 8;
  }
  return n;
}

int Plan::shard_ranks() const { return row_of(strategy).shard_optimizer ? mesh.size(Axis::dp_shard) * cp() : 1; }

int Plan::expert_shard_ranks() const {
  // Along dp_shard x cp, the ranks of one ep group have different experts; the remaining factor is the number of
  // replicas, over which states can be sharded.
  return row_of(strategy).shard_optimizer ? std::max(1, mesh.size(Axis::dp_shard) * cp() / mesh.ep) : 1;
}

Halves halves_of(const Model& model, const layout::StagePart& part) {
  Halves halves;
  double sparse = 0;
  if (!model.sparse.empty())
    sparse = real(std::count(model.sparse.begin() + part.first_block, model.sparse.begin() + part.past_block(), true));
  halves.attention[0] = halves.mlp[0] = real(part.blocks) - sparse;
  halves.attention[1] = halves.mlp[1] = sparse;
  if (part.begins_inside) --halves.attention[model.is_sparse(part.first_block) ? 1 : 0];
  if (part.ends_inside) --halves.mlp[model.is_sparse(part.past_block() - 1) ? 1 : 0];
  for (std::int64_t depth = 0; part.end && depth < model.computed_depths(); ++depth) {
    const int kind = model.is_sparse(model.layers + depth) ? 1 : 0;
    ++halves.attention[kind];
    ++halves.mlp[kind];
  }
  return halves;
}

void cut_plan(const Model& model, Plan& run, double embeddings_as, double end_as) {
  const int stages = static_cast<int>(run.pp() * run.stages_per_rank);
  if (!model.recorded) {
    run.parts = layout::cut_evenly(model.layers, stages, embeddings_as, end_as + real(model.computed_depths()));
    return;
  }
  // Layers of a user's module may be unequal: they are distributed by cost, as PipelineCut::by_measured() does.
  const auto cost = [](const RecordedLayer& layer) {
    constexpr double flop_of_byte = 10;  // roughly the FLOP that a processor computes per byte from memory
    return layer.forward.flop + layer.backward.flop +
           flop_of_byte * (layer.forward.pass_bytes + layer.backward.pass_bytes);
  };
  layout::ChainCosts costs{.blocks = {}, .embeddings = cost(model.recorded->begin), .end = cost(model.recorded->end)};
  for (const RecordedLayer& layer : model.recorded->layers) costs.blocks.push_back(cost(layer));
  run.parts = layout::cut_by_cost(costs, stages);
}

namespace {

/// Returns the divisor of `whole` nearest to `wanted`.
std::int64_t nearest_divisor(std::int64_t whole, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d <= whole && d <= 1 << 20; ++d)
    if (whole % d == 0 && std::abs(d - wanted) < std::abs(best - wanted)) best = d;
  return best;
}

}  // namespace

std::string plan_problem(const Model& m, const Plan& run) {
  if (m.recorded)
    for (const auto& [axis, size] : {std::pair{"tp", run.tp()}, {"cp", run.cp()}, {"ep", run.mesh.ep}})
      if (size > 1)
        return concat(axis, " ", size, ": for ", m.name, " only a recorded step is known, not what ", axis,
                      " would cut; the nearest possible value is ", axis,
                      " 1 (use a config.json of a known family for others)");
  if (m.vision)
    for (const auto& [axis, size] : {std::pair{"tp", run.tp()}, {"cp", run.cp()}, {"pp", run.pp()}})
      if (size > 1)
        return concat(axis, " ", size, ": ", m.name,
                      " is a vision-language model, which cannot be cut; the nearest possible value is ", axis,
                      " 1 (--strategy full_shard can shard it)");
  if (m.adapters && run.tp() > 1)
    return concat(
        "tp ", run.tp(),
        ": the planner does not support LoRA adapters with tensor parallelism; the nearest possible value is tp 1");
  const std::int64_t stages = run.pp() * run.stages_per_rank;
  if (stages > m.layers)
    return concat(stages, " pipeline stages (pp ", run.pp(), " x ", run.stages_per_rank, ") of ", m.layers,
                  " blocks: a stage needs at least one block; pp may be at most ", m.layers / run.stages_per_rank);
  const bool together = m.latent || m.wide_head_norm;  // every rank computes all heads, so only matrices are cut
  layout::ModelSizes sizes = architectures::mesh_sizes(m);
  sizes.name = m.name;
  if (together) sizes.heads = sizes.key_heads = 0;
  if (m.experts) sizes.intermediate = m.experts->inner;
  const layout::MeshUse use{.sequence = run.sequence, .sequence_parallel = run.sequence_parallel};
  if (const auto problems = layout::mesh_problems(run.mesh, sizes, use); !problems.empty()) return problems[0].text;
  if (run.mesh.ep > 1 && !m.experts) return concat("ep ", run.mesh.ep, ": ", m.name, " has no experts to divide");
  if (run.mesh.ep > 1 && run.tp() > 1)
    return concat("ep ", run.mesh.ep, " with tp ", run.tp(),
                  " is not supported by the planner (tessera train runs it): leave one of them at 1");
  if (m.experts && m.experts->count % run.mesh.ep != 0)
    return concat("ep ", run.mesh.ep, " does not divide the ", m.experts->count, " experts of ", m.name,
                  "; the nearest that does is ", nearest_divisor(m.experts->count, run.mesh.ep));
  if (run.mesh.ep > 1 && (run.dp() * run.cp()) % run.mesh.ep != 0)
    return concat("ep ", run.mesh.ep, " does not divide the ", run.dp() * run.cp(), " ranks of dp x cp; the nearest ",
                  "that does is ", nearest_divisor(run.dp() * run.cp(), run.mesh.ep));
  return "";
}

std::string text_of(const Plan& run) {
  std::string text;
  const auto axis = [&](const char* name, int size) {
    if (size > 1) text += concat(text.empty() ? "" : " ", name, size);
  };
  axis("tp", run.tp());
  axis("cp", run.cp());
  axis("pp", run.pp());
  axis("ep", run.mesh.ep);
  axis("dp", run.dp());
  if (text.empty()) text = "one device";
  if (run.dp() * run.cp() > 1) text += concat(" ", word_of(run.strategy));
  if (run.shard_ranks() > 1 && run.mesh.size(Axis::dp_replicate) > 1) text += concat("/", run.shard_ranks());
  return text;
}

}  // namespace tessera::plan
