#include <tessera/config/rules/validate_xla.h>

#include <tessera/config/core/fields.h>
#include <tessera/config/core/rule_checks.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

namespace tessera::config {
namespace {

/// A setting that must keep its default with --device xla, and the reason.
struct Left {
  const char* name;
  const char* why;
};

constexpr const char* one_rate = "the compiled update has one learning rate";
constexpr const char* elementwise =
    "the compiled update is adamw, adam, sgd, adagrad, rmsprop or lion, with fp32 states";
constexpr const char* one_process = "one process drives all devices, which are only data-parallel";
constexpr const char* same_step = "every step runs the same compiled program";
constexpr std::array left = {
    Left{"decoupled_lr", one_rate},
    Left{"mm_projector_lr", one_rate},
    Left{"use_mup", one_rate},
    Left{"bf16_optimizer_states", "the optimizer's states are fp32"},
    Left{"neftune_noise_alpha", "noise on embeddings is not compiled"},
    Left{"preference_loss", "its reference model is not compiled"},
    Left{"average_tokens_across_devices", "the program computes one mean over the scored tokens of all devices"},
    Left{"balance_batches", one_process},
    Left{"tokens_per_batch", same_step},
    Left{"batch_size_schedule", same_step},
    Left{"auto_find_batch_size", "the compiler determines what fits"},
    Left{"packing", "the ends of documents would be part of the compiled program"},
    Left{"gradient_noise_scale", "gradients stay on the devices"},
    Left{"fp16", "TPUs compute in bfloat16: use --bf16"},
    Left{"fp8_format", "its products are not compiled"},
    Left{"compression_training", "it changes weights while they are on the devices"},
    Left{"progressive_layer_drop", same_step},
    Left{"data_efficiency", same_step},
    Left{"gradient_checkpointing_kwargs", "all units are recomputed as a whole"},
    Left{"pp_size", one_process},
    Left{"tp_size", one_process},
    Left{"cp_size", one_process},
    Left{"ep_size", one_process},
    Left{"full_determinism", "the compiler chooses the order of sums, the same one in every run"},
    Left{"load_in_4bit", "quantized weights are not compiled"},
    Left{"load_in_8bit", "quantized weights are not compiled"},
    Left{"etp_size", one_process},
    Left{"gradient_predivide_factor", "gradients are summed in fp32"},
    Left{"deterministic_reduce", "the compiler chooses the order of sums, the same one in every run"},
    Left{"backend", one_process},
    Left{"shard_group_size", "all devices share one set of shards"},
    Left{"param_dtype", "shards and gathered parameters are fp32; --bf16 computes in bfloat16"},
    Left{"reduce_dtype", "gradients are summed in fp32"},
    Left{"buffer_dtype", "buffers are part of the compiled program"},
    Left{"ignored_modules", "all parameters are divided"},
    Left{"grad_compression", one_process},
    Left{"checkpoint_in_memory", "states are on the devices"},
    Left{"vision_tower", "positions of images depend on the data"},
};

std::string text_of(const Value& value) { return value.is_string() ? value.as_string() : dump_json(value); }

class XlaRules : RuleChecks {
 public:
  XlaRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    if (c_.device != Device::xla) return;
    static const RunConfig defaults;
    for (const Left& setting : left) {
      const Field* const field = find_field(setting.name);
      if (dump_json(field->get(c_)) != dump_json(field->get(defaults)))
        problem({setting.name, "device"}, said(setting.name), " ", text_of(field->get(c_)),
                " with --device xla: ", setting.why, "; remove it");
    }
    if (c_.sharding.auto_strategy)
      problem({"strategy", "device"},
              "--strategy auto with --device xla: the planner does not support TPUs; use full_shard, ",
              "shard_grad_op or ddp, and check with `tessera xla compile` what fits");
    using K = OptimizerKind;
    const K optim = c_.optimization.optim;
    const auto is_one_of = [&](std::initializer_list<K> kinds) {
      return std::ranges::find(kinds, optim) != kinds.end();
    };
    if (!is_one_of({K::adamw, K::adam, K::sgd, K::adagrad, K::rmsprop, K::lion}))
      problem({"optim", "device"}, said("optim"), " ", optim, " with --device xla: ", elementwise);
    if (c_.optimization.lr_scheduler_type == ScheduleType::one_cycle && is_one_of({K::adamw, K::adam, K::lion}))
      problem({"lr_scheduler_type", "device"}, said("lr_scheduler_type"),
              " one_cycle with --device xla: it changes betas, which are part of the compiled program");
    if (c_.sharding.strategy == Strategy::hybrid_shard || c_.sharding.strategy == Strategy::hybrid_shard_zero2)
      problem({"fsdp", "device"}, "--device xla has no hybrid strategies: all devices share one set of shards; use ",
              "full_shard or shard_grad_op");
  }
};

}  // namespace

void validate_xla(const Resolved& resolved, Problems& problems) { XlaRules(resolved, problems).check(); }

void unused_xla(const Resolved& resolved, const Unused& unused) {
  if (resolved.values.device != Device::xla) {
    for (const char* name : {"xla_devices", "xla_fsdp_v2", "pjrt_plugin", "xla_cache_dir"})
      unused(name, "--device is not xla");
    return;
  }
  struct Idle {
    const char* why;
    std::vector<const char*> names;
  };
  const std::array idle = {Idle{"parameters and their states are on the devices", {"cpu_offload", "offload_folder"}},
                           Idle{"the compiler decides when units are gathered and gradients are summed",
                                {"backward_prefetch", "forward_prefetch", "limit_all_gathers", "reduce_bucket_size",
                                 "ddp_bucket_cap_mb", "overlap_comm"}},
                           Idle{"every parameter is divided, or none", {"persistence_threshold"}},
                           Idle{"one process has the weights, and gives each device its part",
                                {"sync_module_states", "ddp_broadcast_buffers", "cpu_ram_efficient_loading"}},
                           Idle{"capture finds the parameters that have no gradient", {"ddp_find_unused_parameters"}},
                           Idle{"no other process is waited for", {"ddp_timeout"}}};
  if (resolved.values.parallel.xla_fsdp_v2) {
    const Strategy strategy = resolved.values.sharding.strategy;
    if (row_of(strategy).shard_optimizer)
      unused("reshard_after_forward", "--xla_fsdp_v2: the compiler decides when parameters are gathered and freed");
    else
      unused("xla_fsdp_v2", concat("the strategy ", strategy, " divides nothing; set --fsdp full_shard"));
  }
  for (const Idle& reason : idle)
    for (const char* const name : reason.names) unused(name, concat("--device xla: ", reason.why));
}

}  // namespace tessera::config
