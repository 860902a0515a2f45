#include <tools/tessera/tuning/memory_check.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/rules/optimizer_states.h>
#include <tessera/launch/agent/available_memory.h>
#include <tessera/plan/from_config.h>
#include <tools/tessera/plan_output.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tessera::tool {
namespace {

using plan::Candidate;
using plan::MemoryKind;
using plan::Question;

/// The smallest change that makes the run fit, as a sentence; empty: none of the changes tried does.
std::string remedy(const Question& q, const Candidate& c) {
  struct Try {
    std::string text;
    plan::Plan plan;
  };
  std::vector<Try> tries;
  const auto change = [&](const std::string& text, auto&& apply) {
    Try attempt{text, c.plan};
    apply(attempt.plan);
    attempt.plan.parts.clear();
    tries.push_back(std::move(attempt));
  };
  if (c.plan.recompute != 1) change("--gradient_checkpointing", [](plan::Plan& p) { p.recompute = 1; });
  const auto shard = [](plan::Plan& p) {
    p.strategy = Strategy::full_shard;
    p.mesh.sizes[2] *= p.mesh.sizes[1];
    p.mesh.sizes[1] = 1;
  };
  const auto bf16 = [](plan::Plan& p) {
    const plan::Numerics given = std::exchange(p.numerics, plan::numerics_of(plan::Precision::bf16, p.on_cpu));
    p.precision = plan::Precision::bf16;
    p.numerics.wire = given.wire, p.numerics.states = given.states, p.numerics.of_tables = given.of_tables;
  };
  const auto eight_bits = [](plan::Plan& p) {
    OptimizationConfig o;
    o.optim = OptimizerKind::adamw_8bit;
    p.numerics.states = config::optimizer_state_bytes(o);
    p.numerics.of_tables = config::wide_state_bytes(o) - p.numerics.states;
  };
  if (c.plan.dp() * c.plan.cp() > 1 && !row_of(c.plan.strategy).reshard_after_forward)
    change("--strategy full_shard", shard);
  if (c.plan.rows > 1 && c.plan.rows % 2 == 0)
    change(concat("--per_device_train_batch_size ", c.plan.rows / 2, " --gradient_accumulation_steps ",
                  c.plan.micro_batches * 2),
           [](plan::Plan& p) { p.rows /= 2, p.micro_batches *= 2; });
  if (c.plan.precision == plan::Precision::fp32) change("--bf16", bf16);
  if (c.plan.numerics.states == 8) {  // AdamW's
    change("--bf16_optimizer_states", [](plan::Plan& p) { p.numerics.states = 4; });
    change("--optim adamw_8bit", eight_bits);
  }
  const bool offloads = c.plan.offload != Offload::none;
  if (!offloads) change("--cpu_offload optimizer", [](plan::Plan& p) { p.offload = Offload::optimizer; });
  change("--gradient_checkpointing --strategy full_shard", [&](plan::Plan& p) { shard(p), p.recompute = 1; });
  change(concat("--gradient_checkpointing --strategy full_shard --per_device_train_batch_size 1 "
                "--gradient_accumulation_steps ",
                c.plan.rows * c.plan.micro_batches),
         [&](plan::Plan& p) { shard(p), p.recompute = 1, p.micro_batches *= p.rows, p.rows = 1; });
  if (!offloads)
    change(concat("--gradient_checkpointing --strategy full_shard --cpu_offload all --per_device_train_batch_size 1 "
                  "--gradient_accumulation_steps ",
                  c.plan.rows * c.plan.micro_batches),
           [&](plan::Plan& p) {
             shard(p), p.recompute = 1, p.micro_batches *= p.rows, p.rows = 1, p.offload = Offload::all;
           });
  for (Try& attempt : tries) {
    const Candidate other = evaluate(q, std::move(attempt.plan));
    if (other.memory.total() <= q.memory_limit)
      return concat("use ", attempt.text, ": ", gigabytes(other.memory.total()), ", ", format_real(other.seconds, 3),
                    " s a step");
  }
  return "";
}

/// The planner's query for this run, and its plan.
std::pair<Question, plan::Plan> question_of(const RunConfig& config, plan::Model model, int world, int local_ranks) {
  Question q;
  q.cluster = plan::parse_cluster(concat(world, "xCPU/", local_ranks));
  q.model = std::move(model);
  plan::Plan plan = plan_of(config, q.model, q.cluster);
  if (config.optimization.auto_find_batch_size) plan.rows = 1;
  q.sequence = plan.sequence;
  q.global_batch = plan.rows * plan.micro_batches * plan.dp();
  q.precision = plan.precision;
  return {std::move(q), std::move(plan)};
}

constexpr double surely = 1.5;  // no prediction was ever too high by more than this factor (bench/plan_memory.py)

}  // namespace

std::string does_not_fit(const Question& q, const Candidate& c) {
  const MemoryKind kind = c.memory.largest();
  const std::string advice = remedy(q, c);
  return concat("does not fit: ", c.plan.pp() > 1 ? concat("pp rank ", c.rank) : "every rank", " needs ",
                gigabytes(c.memory.total()), " of ", gigabytes(q.memory_limit), ", ", name_of(kind), " ",
                gigabytes(c.memory[kind]), advice.empty() ? "" : ": ", advice);
}

std::optional<MemoryVerdict> judge_memory(const RunConfig& config, int world, int local_ranks, std::int64_t available) {
  if (config.device != tessera::Device::cpu || config.sharding.cpu_offload != Offload::none || world % local_ranks != 0)
    return std::nullopt;
  plan::Model model;
  try {
    model = plan::model_of(config);
  } catch (const InputError&) {
    return std::nullopt;  // the trainer also reads the model, and refuses it with the same message
  }
  std::optional<std::pair<Question, plan::Plan>> asked;
  try {
    asked = question_of(config, std::move(model), world, local_ranks);
  } catch (const InputError& error) {
    return MemoryVerdict{.counted = false, .text = error.what()};
  }
  auto& [q, plan] = *asked;
  double counted = 0;
  const std::vector<plan::Memory> by_rank = memory_by_rank(q.model, plan, q.cluster.device.process);
  for (const plan::Memory& m : by_rank) {
    counted += m[MemoryKind::parameters] + m[MemoryKind::gradients] + m[MemoryKind::optimizer] + m[MemoryKind::process];
  }
  const double ranks = static_cast<double>(local_ranks) / static_cast<double>(by_rank.size());
  const double have = static_cast<double>(available), all = bytes_on_host(by_rank, local_ranks);
  if (all <= have) return std::nullopt;
  q.memory_limit = have / local_ranks;
  MemoryVerdict verdict;
  verdict.refused = counted * ranks > have || all > surely * have;
  verdict.text =
      concat(does_not_fit(q, evaluate(q, plan)), " (", local_ranks, local_ranks == 1 ? " process" : " processes",
             " on this host, which has ", gigabytes(have), " left)");
  return verdict;
}

void check_memory(const RunConfig& config, int world, int local_ranks, bool speaks) {
  const MemoryCheck wanted = config.sharding.memory_check;
  if (wanted == MemoryCheck::off) return;
  const auto verdict = judge_memory(config, world, local_ranks, launch::available_bytes());
  if (!verdict) return;
  if (!verdict->counted) {
    if (speaks) log::warning("--memory_check: the planner cannot predict this run: ", verdict->text);
    return;
  }
  if (verdict->refused && wanted == MemoryCheck::refuse) {
    if (!speaks) throw Error("", ExitCode::bad_input);
    throw InputError(concat(verdict->text, "; --memory_check warn starts it anyway"));
  }
  if (speaks) log::warning(concat("this run may need more memory than is available: it ", verdict->text));
}

}  // namespace tessera::tool
