#include <tessera/plan/search.h>

#include <tessera/base/text.h>
#include <tessera/plan/recorded.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tessera::plan {
namespace {

using layout::Axis;

std::string fixed(double value, int digits = 1) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string gigabytes(double bytes) { return fixed(bytes / 1e9); }

double limit(const Question& q) { return q.memory_limit > 0 ? q.memory_limit : 0.94 * q.cluster.device.memory; }

/// Returns a plan with one setting changed; data parallelism uses the remaining devices.
struct Change {
  std::string text;
  Plan plan;
};

/// Sets the sizes of the mesh, with dp derived from the others. Returns false if they do not divide.
bool resize(const Question& q, Plan& plan, int tp, int pp, int cp) {
  const std::int64_t rest = q.cluster.devices / (std::int64_t{tp} * pp * cp);
  if (tp < 1 || pp < 1 || cp < 1 || rest * tp * pp * cp != q.cluster.devices) return false;
  if (q.global_batch % (rest * plan.rows) != 0) return false;
  const bool shards = row_of(plan.strategy).shard_optimizer;
  plan.mesh.sizes = {pp, shards ? 1 : static_cast<int>(rest), shards ? static_cast<int>(rest) : 1, cp, tp};
  plan.micro_batches = q.global_batch / rest / plan.rows;
  plan.sequence_parallel = tp > 1 && plan.engine.sequence_parallel;
  if (pp == 1) {
    plan.schedule = "1f1b";
    plan.stages_per_rank = 1;
  }
  plan.parts.clear();
  return pp * plan.stages_per_rank <= q.model.layers;
}

std::vector<Change> changes(const Question& q, const Plan& best) {
  std::vector<Change> all;
  const auto mesh = [&](const std::string& text, int tp, int pp, int cp) {
    Plan plan = best;
    if (!cuts_models(q.engine.name) && tp * cp * pp > 1) return;
    if ((q.model.has_no_cuts() && tp * cp > 1) || (q.model.adapters && tp > 1) || (q.model.vision && pp > 1)) return;
    if (resize(q, plan, tp, pp, cp)) all.push_back({text, plan});
  };
  for (const int tp : {best.tp() * 2, best.tp() / 2})
    if (tp >= 1) mesh(concat("tp ", tp), tp, best.pp(), best.cp());
  for (const int pp : {best.pp() * 2, best.pp() / 2})
    if (pp >= 1) mesh(concat("pp ", pp), best.tp(), pp, best.cp());
  if (best.cp() > 1) mesh(concat("cp ", best.cp() / 2), best.tp(), best.pp(), best.cp() / 2);
  mesh(concat("cp ", best.cp() * 2), best.tp(), best.pp(), best.cp() * 2);
  for (const std::int64_t rows : {best.rows * 2, best.rows / 2}) {
    if (rows < 1 || (best.rows * best.micro_batches) % rows != 0) continue;
    Plan plan = best;
    plan.rows = rows;
    plan.micro_batches = best.rows * best.micro_batches / rows;
    all.push_back({concat(rows, rows == 1 ? " row" : " rows", " per micro-batch"), plan});
  }
  for (const std::int64_t every : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}}) {
    if (every == best.recompute) continue;
    Plan plan = best;
    plan.recompute = every;
    all.push_back({every == 0   ? "no recomputation"
                   : every == 1 ? "every block recomputed"
                                : "every second block recomputed",
                   plan});
  }
  if (best.dp() * best.cp() > 1) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::full_shard}) {
      if (same_strategy(strategy, best.strategy) || !has_strategy(q.engine.name, strategy, best.pp())) continue;
      Plan plan = best;
      plan.strategy = strategy;
      if (resize(q, plan, best.tp(), best.pp(), best.cp())) all.push_back({word_of(strategy), plan});
    }
  }
  if (best.pp() > 1) {
    const std::pair<const char*, int> others[] = {{"1f1b", 1}, {"interleaved_1f1b", 2}, {"zbv", 2}, {"zb_h1", 1}};
    for (const auto& [name, stages] : others) {
      if (best.schedule == name || !has_schedule(q.engine.name, name) || best.pp() * stages > q.model.layers) continue;
      Plan plan = best;
      plan.schedule = name;
      plan.stages_per_rank = stages;
      plan.parts.clear();
      all.push_back({name, plan});
    }
  }
  return all;
}

/// The kind of time in which `other` exceeds `best` the most.
std::pair<TimeKind, double> grown(const StepTime& best, const StepTime& other) {
  std::size_t most = 0;
  for (std::size_t i = 1; i < time_kinds; ++i)
    if (other.seconds[i] - best.seconds[i] > other.seconds[most] - best.seconds[most]) most = i;
  return {static_cast<TimeKind>(most), other.seconds[most] - best.seconds[most]};
}

}  // namespace

std::vector<Neighbour> neighbours(const Question& q, const Candidate& best) {
  std::vector<Neighbour> all;
  for (Change& change : changes(q, best.plan)) {
    if (const std::string problem = plan_problem(q.model, change.plan); !problem.empty()) {
      all.push_back({change.text, "not possible: " + problem});
      continue;
    }
    const Candidate other = evaluate(q, std::move(change.plan));
    const double bytes = other.memory.total();
    if (bytes > limit(q)) {
      const MemoryKind kind = other.memory.largest();
      all.push_back({change.text, concat("does not fit: ", gigabytes(bytes), " of ", gigabytes(limit(q)), " GB, ",
                                         name_of(kind), " ", gigabytes(other.memory[kind]))});
      continue;
    }
    const double slower = other.seconds / best.seconds - 1;
    const auto [kind, more] = grown(best.time, other.time);
    all.push_back(
        {change.text,
         concat(slower < 0 ? fixed(-100 * slower) : fixed(100 * slower), slower < 0 ? " % faster" : " % slower",
                more > 0 && slower >= 0 ? concat(": ", name_of(kind), " +", format_real(more, 3), " s") : "")});
  }
  return all;
}

std::string against_ours(const Question& q, const Candidate& theirs) {
  Plan plan = theirs.plan;
  plan.engine = {};
  plan.numerics = numerics_of(plan.precision, plan.on_cpu);
  plan.sequence_parallel = plan.tp() > 1;
  Question asked = q;
  asked.engine = {};
  const Candidate ours = evaluate(asked, std::move(plan));
  const double slower = theirs.seconds / ours.seconds - 1;
  const bool longer = slower >= 0;
  const auto [kind, more] = longer ? grown(ours.time, theirs.time) : grown(theirs.time, ours.time);
  return concat("the same plan in tessera: ", format_real(ours.seconds, 3), " s per step; ", text_of(q.engine), " is ",
                fixed(100 * std::abs(slower)), " % ", longer ? "slower" : "faster",
                more > 0 ? concat(" (", name_of(kind), longer ? " +" : " -", format_real(more, 3), " s)") : "");
}

std::vector<std::string> train_arguments(const Question& q, const Plan& plan) {
  std::vector<std::string> all = {concat("--num_processes ", plan.mesh.world_size())};
  const auto put = [&](const char* name, std::int64_t value, std::int64_t otherwise) {
    if (value != otherwise) all.push_back(concat("--", name, " ", value));
  };
  put("tp_size", plan.tp(), 1);
  if (plan.sequence_parallel && plan.tp() > 1) all.emplace_back("--sequence_parallel");
  put("cp_size", plan.cp(), 1);
  put("pp_size", plan.pp(), 1);
  put("ep_size", plan.mesh.ep, 1);
  if (plan.pp() > 1) {
    all.push_back("--pipeline_schedule " + plan.schedule);
    put("pipeline_stages_per_rank", plan.stages_per_rank, 1);
  }
  if (plan.strategy != Strategy::ddp) all.push_back("--strategy " + word_of(plan.strategy));
  const int group = plan.mesh.size(Axis::dp_shard) * plan.cp();
  if (row_of(plan.strategy).shard_group == ShardGroup::host) put("shard_group_size", group, 0);
  put("per_device_train_batch_size", plan.rows, 0);
  put("gradient_accumulation_steps", plan.micro_batches, 1);
  put("block_size", plan.sequence, 0);
  if (plan.precision != Precision::fp32) all.emplace_back("--bf16");
  if (plan.precision == Precision::bf16_whole) all.emplace_back("--param_dtype bf16 --reduce_dtype bf16");
  if (plan.recompute > 0) all.emplace_back("--gradient_checkpointing");
  if (plan.recompute > 1) all.push_back(concat("--gradient_checkpointing_kwargs every=", plan.recompute));
  if (!q.cluster.on_cpu) all.emplace_back("--device cuda");
  return all;
}

std::vector<std::string> run_lines(const Question& q, const Plan& plan) {
  if (!q.model.recorded) {
    std::vector<std::string> lines;
    std::string line = "tessera train";
    for (const std::string& argument : train_arguments(q, plan)) {
      if (line.size() + argument.size() + 5 > 80) {
        lines.push_back(line + " \\");
        line = "   ";
      }
      line += " " + argument;
    }
    lines.push_back(line + " \\");
    lines.emplace_back("    --train_file ... --output_dir ...");
    return lines;
  }
  std::vector<std::string> lines = {concat("tessera launch --num_processes ", plan.mesh.world_size(), " YOUR_PROGRAM")};
  if (plan.pp() > 1)
    lines.push_back(
        concat("tessera::pipeline(net, {", plan.dp() > 1 ? concat(".group = GROUP_OF_", plan.pp(), ", ") : "",
               ".schedule = \"", plan.schedule, "\", .micro_batches = ", plan.micro_batches,
               ", .stages_per_rank = ", plan.stages_per_rank, ", .cut = tessera::PipelineCut::by_measured(sample)})"));
  if (plan.dp() > 1) {
    const int group = row_of(plan.strategy).shard_group == ShardGroup::host ? plan.mesh.size(Axis::dp_shard) : 0;
    lines.push_back(concat("tessera::Sharded(net, {.strategy = \"", word_of(plan.strategy), "\"",
                           group > 0 ? concat(", .shard_group_size = ", group) : "", "})"));
  }
  if (plan.recompute > 0)
    lines.push_back(concat("tessera::checkpointed(layer, x) around every ",
                           plan.recompute > 1 ? concat(plan.recompute, "th ") : "", "layer"));
  lines.push_back(concat(plan.rows, plan.rows == 1 ? " row" : " rows", " per micro-batch, ", plan.micro_batches,
                         plan.micro_batches == 1 ? " micro-batch per step" : " micro-batches per step"));
  return lines;
}

std::string limit_of(const Question& q, const Candidate& c) {
  const double full = c.memory.total() / limit(q);
  const MemoryKind kind = c.memory.largest();
  if (full > 0.9) return concat("memory: ", name_of(kind), " ", gigabytes(c.memory[kind]), " GB");
  TimeKind most = TimeKind::attention;  // besides products, which are useful work
  for (std::size_t i = 1; i < time_kinds; ++i)
    if (c.time.seconds[i] > c.time[most]) most = static_cast<TimeKind>(i);
  const double share = 100 * c.time[most] / c.seconds;
  return share < 8 ? concat("products ", fixed(100 * c.time[TimeKind::products] / c.seconds, 0), " %")
                   : concat(name_of(most), " ", fixed(share, 0), " %");
}

}  // namespace tessera::plan
