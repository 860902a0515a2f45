#include <tessera/models/moe_config.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

namespace tessera::models {
using config::check_part, config::flag, config::given, config::positive, config::positive_or, config::positive_real,
    config::probability, config::sparse_layers;
namespace {

double not_negative(const Value& json, const char* key, double otherwise) {
  const Value* v = given(json, key);
  if (!v) return otherwise;
  const double x = v->as_real();
  if (!(x >= 0)) throw InputError(concat(v->where().str(), ": \"", key, "\" is ", x, "; it must not be negative"));
  return x;
}

void read_deepseek(const Value& json, std::int64_t layers, MoeConfig& c) {
  c.router.experts = positive_or(json, "n_routed_experts", 256);
  c.router.top_k = positive_or(json, "num_experts_per_tok", 8);
  c.router.scoring = nn::RouterOptions::Scoring::sigmoid;
  c.router.normalize = flag(json, "norm_topk_prob", true);
  c.router.groups = positive_or(json, "n_group", 8);
  c.router.top_groups = positive_or(json, "topk_group", 4);
  c.router.group_best = 2;
  c.router.scale = positive_real(json, "routed_scaling_factor", 2.5);
  c.selection_bias = true;
  c.intermediate = positive_or(json, "moe_intermediate_size", 2048);
  c.shared_intermediate = c.intermediate * positive_or(json, "n_shared_experts", 1);
  c.shared_name = "shared_experts";
  const Value* dense = given(json, "first_k_dense_replace");
  const std::int64_t first = dense ? dense->as_int() : 3;
  for (std::int64_t i = 0; i < layers; ++i) c.sparse.push_back(i >= first);
  if (c.router.experts % c.router.groups != 0)
    throw InputError(concat((given(json, "n_group") ? *given(json, "n_group") : json).where().str(), ": ",
                            c.router.experts, " experts in n_group ", c.router.groups, " equal groups"));
  const std::int64_t each = c.router.experts / c.router.groups;
  check_part(json, "topk_group", c.router.top_groups, c.router.groups, "groups");
  if (c.router.groups > 1 && each < c.router.group_best)
    throw InputError(concat((given(json, "n_group") ? *given(json, "n_group") : json).where().str(), ": groups of ",
                            each, " expert; a group is judged by its two best, so it needs two at least"));
  check_part(json, "num_experts_per_tok", c.router.top_k, c.router.top_groups * each,
             "experts in the groups that a token may choose");
}

}  // namespace

MoeConfig parse_moe_config(const Value& json, const std::string& type, std::int64_t layers) {
  MoeConfig c;
  if (type == "deepseek_v3") {
    read_deepseek(json, layers, c);
    c.balance = {.experts = c.router.experts, .top_k = c.router.top_k};
    return c;
  }
  const bool mixtral = type == "mixtral", qwen = type == "qwen2_moe" || type == "qwen3_moe";
  c.sparse = qwen ? sparse_layers(json, layers) : std::vector<bool>(static_cast<std::size_t>(layers), true);
  if (mixtral) {
    c.router.experts = positive_or(json, "num_local_experts", 8);
    c.router.top_k = positive_or(json, "num_experts_per_tok", 2);
    c.router.normalize = true;
    c.jitter = probability(json, "router_jitter_noise", 0);
    c.gate_name = "w1";
    c.up_name = "w3";
    c.down_name = "w2";
  } else {
    // transformers 5 writes Qwen3's as num_local_experts
    const char* const key = given(json, "num_experts") ? "num_experts" : "num_local_experts";
    c.router.experts = positive_or(json, key, type == "qwen3_moe" ? 128 : type == "qwen2_moe" ? 60 : 64);
    c.router.top_k = positive_or(json, "num_experts_per_tok", type == "qwen2_moe" ? 4 : 8);
    c.router.normalize = flag(json, "norm_topk_prob", false);
  }
  c.intermediate = qwen ? positive_or(json, "moe_intermediate_size", type == "qwen2_moe" ? 1408 : 768)
                        : positive(json, "intermediate_size");
  if (type == "qwen2_moe") {
    c.shared_intermediate = positive_or(json, "shared_expert_intermediate_size", 5632);
    c.shared_name = "shared_expert";
    c.shared_gate = true;
  }
  check_part(json, "num_experts_per_tok", c.router.top_k, c.router.experts, "experts");
  c.balance = {.experts = c.router.experts, .top_k = c.router.top_k};
  if (flag(json, "output_router_logits", false))
    c.balance.auxiliary = not_negative(json, "router_aux_loss_coef", type == "olmoe" ? 0.01 : 0.001);
  return c;
}

}  // namespace tessera::models
