// Rules between sharding settings.

#include <tessera/config/resolve/validate_sharding.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/config/hf/sharding.h>
#include <tessera/config/rules/checkpointing.h>
#include <tessera/layout/gradient_compression.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

class ShardingRules : RuleChecks {
 public:
  ShardingRules(const Resolved& resolved, Problems& problems)
      : RuleChecks(resolved, problems), s_(resolved.values.sharding) {}

  void check() {
    if (s_.auto_max_batch_size > 0 && s_.auto_min_batch_size > s_.auto_max_batch_size)
      problem({"auto_min_batch_size", "auto_max_batch_size"}, said("auto_min_batch_size"), " ", s_.auto_min_batch_size,
              " is above ", said("auto_max_batch_size"), " ", s_.auto_max_batch_size,
              ": make the first one the smaller one");
    offload();
    wrap();
    precision();
    compression();
    checkpointing();
  }

 private:
  /// The strategy and its source, such as "--fsdp full_shard".
  std::string strategy() const {
    return concat("the strategy ", s_.strategy, is_default("strategy") ? "" : concat(" (", origin("strategy"), ")"));
  }

  void offload() {
    if (offloads_parameters(s_.cpu_offload) && !row_of(s_.strategy).shard_parameters && !s_.auto_strategy)
      problem({"cpu_offload", "strategy", "fsdp"}, said("cpu_offload"), " ", s_.cpu_offload,
              " needs a strategy that divides parameters (", "--fsdp full_shard, --zero_stage 3); ", strategy(),
              " keeps them whole. --cpu_offload optimizer works with every strategy");
    const std::string& folder = s_.offload_folder;
    if (!folder.empty() && !is_directory(folder))
      problem({"offload_folder"}, said("offload_folder"), " ", folder,
              path_exists(folder) ? " is not a folder" : ": no such folder");
  }

  void wrap() {
    if (s_.auto_wrap_policy == AutoWrap::regex && s_.wrap_pattern.empty())
      problem({"auto_wrap_policy", "wrap_pattern"}, said("auto_wrap_policy"), " regex_wrap needs --wrap_pattern REGEX");
    for (const auto& [name, text] :
         {std::pair("wrap_pattern", s_.wrap_pattern), std::pair("ignored_modules", s_.ignored_modules)})
      read(name, [&] { return Pattern(said(name), text); });
  }

  void precision() {
    const OptimizationConfig& o = c_.optimization;
    if (o.fp16 && o.bf16)
      problem({"fp16", "bf16"}, said("fp16"), " and ", said("bf16"), " exclude each other: use only one of them");
    if (s_.param_dtype == FloatType::fp16 && !o.fp16)
      problem({"param_dtype", "fp16"}, said("param_dtype"),
              " fp16 needs --fp16: without loss scaling small gradients vanish");
    if (o.fp16 && s_.param_dtype == FloatType::bf16)
      problem({"param_dtype", "fp16"}, said("param_dtype"), " bf16 contradicts ", said("fp16"));
    if (o.bf16 && s_.param_dtype == FloatType::fp16)
      problem({"param_dtype", "bf16", "fp16"}, said("param_dtype"), " fp16 contradicts ", said("bf16"));
    if (c_.parallel.deterministic_reduce && s_.reduce_dtype != FloatType::fp32)
      problem({"reduce_dtype", "deterministic_reduce"}, said("reduce_dtype"), " ", s_.reduce_dtype, " contradicts ",
              said("deterministic_reduce"), ": the fixed order sums gradients in fp32");
    if (c_.parallel.deterministic_reduce && o.gradient_predivide_factor != 1)
      problem({"gradient_predivide_factor", "deterministic_reduce"}, said("gradient_predivide_factor"), " ",
              o.gradient_predivide_factor, " contradicts ", said("deterministic_reduce"),
              ": the fixed order adds unscaled gradients");
  }

  void compression() {
    const std::string& text = s_.grad_compression;
    const auto asked = read("grad_compression", [&] { return layout::parse_gradient_compression(text); });
    const bool compresses = asked && asked->method != layout::CompressionMethod::none;
    if (compresses && c_.parallel.deterministic_reduce)
      problem({"grad_compression", "deterministic_reduce"}, said("grad_compression"), " ", text, " contradicts ",
              said("deterministic_reduce"), ": compressed gradients depend on the number of processes");
    if (compresses && s_.reduce_dtype != FloatType::fp32)
      problem({"grad_compression", "reduce_dtype"}, said("grad_compression"), " ", text, " and ", said("reduce_dtype"),
              " ", s_.reduce_dtype, " both determine what is sent: keep one of them");
    if (asked && asked->method == layout::CompressionMethod::onebit && c_.device == Device::cuda)
      problem({"grad_compression", "device"}, said("grad_compression"), " ", text,
              " with --device cuda: signs are packed on the CPU; use powersgd or bf16, or --device cpu");
  }

  void checkpointing() {
    read("gradient_checkpointing_kwargs",
         [&] { return parse_checkpoint_plan(c_.optimization.gradient_checkpointing_kwargs); });
  }

  const ShardingConfig& s_;
};

}  // namespace

void validate_sharding(const Resolved& resolved, Problems& problems) { ShardingRules(resolved, problems).check(); }

}  // namespace tessera::config
