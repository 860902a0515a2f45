#include <tessera/plan/adapters.h>

#include <tessera/base/names/module_names.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace tessera::plan {
namespace {

constexpr std::string_view weight = ".weight";

/// Name of the linear map whose weight the tensor is; empty: none. Tables, heads of logits, routers and experts are not
/// linear maps here (models/layers.h: Linear). BERT's classifier, and the maps before its head, are linear maps outside
/// of blocks.
std::string_view map_of(const Model& m, const Tensor& tensor) {
  const std::string_view name = tensor.name;
  if (tensor.shape.size() != 2 || tensor.expert >= 0 || !name.ends_with(weight)) return {};
  const bool in_half = tensor.part == Part::attention || tensor.part == Part::mlp;
  const bool gate = tensor.part == Part::router && tensor.shape[0] == 1;
  const bool of_bert = m.family == Family::bert && tensor.part == Part::head && !name.ends_with("decoder.weight");
  return in_half || gate || of_bert ? name.substr(0, name.size() - weight.size()) : std::string_view();
}

/// Output and input size of a map; GPT-2 stores its weights [in, out].
std::pair<std::int64_t, std::int64_t> out_in(const Model& m, const Tensor& tensor) {
  const bool out_first = m.family != Family::gpt2;
  return {tensor.shape[out_first ? 0 : 1], tensor.shape[out_first ? 1 : 0]};
}

bool is_adapted(const std::vector<std::string>& targets, std::string_view map) {
  return !map.empty() && (targets == std::vector<std::string>{all_linear} ||
                          std::any_of(targets.begin(), targets.end(),
                                      [&](const std::string& target) { return is_meant_module(map, target); }));
}

/// Whether models/frozen/quantize.cpp quantizes it: maps of blocks, except gates with one output.
bool is_packed(const Model& m, const Tensor& tensor, std::string_view map) {
  return m.adapters->bits > 0 && !map.empty() && !tensor.trained && tensor.block >= 0 && tensor.part != Part::router &&
         tensor.part != Part::head;
}

}  // namespace

std::vector<std::string> adapter_targets(const Model& m) {
  if (!m.adapters->targets.empty()) return m.adapters->targets;
  return architectures::default_lora_targets(m);
}

std::string adapters_problem(const Model& m) {
  if (!m.adapters) return "";
  if (m.recorded) return concat("for ", m.name, " only a recorded step is known, not where adapters would be added");
  if (m.vision) return concat(m.name, " is a vision-language model; the planner does not support LoRA adapters for it");
  if (m.computed_depths() > 0)
    return concat(m.name, " has multi-token prediction; the planner does not support LoRA adapters with it: ",
                  "--mtp_loss_scaling_factor 0 disables it");
  Model bare = m;
  bare.adapters.reset();
  const std::vector<Tensor> all = tensors(bare);
  for (const std::string& target : adapter_targets(m)) {
    const std::vector<std::string> parts = split(target, '.');
    const bool of_numbers = std::any_of(parts.begin(), parts.end(), [](const auto& part) { return parse_int(part); });
    if (of_numbers || (is_module_pattern(target) && target.find_first_of("0123456789") != std::string::npos))
      return concat("LoRA target '", target,
                    "' selects a single block; the planner supports only targets in all blocks");
    if (target == all_linear && m.adapters->targets.size() == 1) continue;
    if (std::none_of(all.begin(), all.end(), [&](const Tensor& t) { return is_adapted({target}, map_of(m, t)); }))
      return concat("LoRA target '", target, "' matches no linear map of ", m.name);
  }
  return "";
}

bool Model::head_trained() const {
  if (!trained || !adapters) return trained;
  if (tied) return table_trained();
  return is_in_named_module(concat(names.head, weight), adapters->whole);
}

bool Model::table_trained() const {
  if (!trained || !adapters) return trained;
  Model bare = *this;
  bare.adapters.reset();
  bare.layers = bare.depths = 0;
  const std::vector<Tensor> ends = tensors(bare);
  return std::any_of(ends.begin(), ends.end(), [&](const Tensor& tensor) {
    return tensor.part == Part::embedding && is_in_named_module(tensor.name, adapters->whole);
  });
}

void add_adapters(const Model& m, std::vector<Tensor>& list) {
  if (!m.adapters) return;
  const Adapters& a = *m.adapters;
  const std::vector<std::string> targets = adapter_targets(m);
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Tensor tensor = std::move(list[i]);
    tensor.trained = tensor.trained && is_in_named_module(tensor.name, a.whole);
    const std::string map(map_of(m, tensor));
    const auto [out, in] = map.empty() ? std::pair<std::int64_t, std::int64_t>() : out_in(m, tensor);
    if (is_packed(m, tensor, map)) tensor.packed_bytes = packed_bytes(a, real(out), real(in));
    const Tensor like = tensor;
    all.push_back(std::move(tensor));
    if (!is_adapted(targets, map)) continue;
    // A module's own parameters precede those of its adapters.
    if (i + 1 < list.size() && list[i + 1].name == map + ".bias") {
      all.push_back(std::move(list[++i]));
      all.back().trained = is_in_named_module(all.back().name, a.whole);
    }
    const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
      all.push_back({.name = map + name, .shape = std::move(shape), .part = like.part, .block = like.block});
    };
    add(".lora_A.weight", {a.rank, in});
    add(".lora_B.weight", {out, a.rank});
  }
  list = std::move(all);
}

double packed_bytes(const Adapters& a, double out, double in) {
  const double n = out * in;
  if (a.bits == 8) return n + 4 * out;  // codes, and an absmax of each row
  const double blocks = std::ceil(n / 64);
  return std::ceil(n / 2) + (a.double_quant ? blocks + 4 * std::ceil(blocks / 256) : 4 * blocks);
}

KeepingMaps keeping_maps(const Model& m, bool sparse) {
  KeepingMaps maps;
  if (!m.trained) return maps;
  if (m.maps_trained()) {
    const bool one = m.family == Family::gpt2 || m.packing != Packing::none;
    maps.attention = one ? 1 : m.latent ? 2 : 3;
    maps.query_latent = m.latent && m.latent->query_rank > 0 ? 1 : 0;
    maps.key_latent = maps.output = maps.down = maps.other = 1;
    maps.mlp = m.gated && m.packing == Packing::none ? 2 : 1;
    if (sparse) maps.mlp = m.experts->shared_inner > 0 ? (m.gated ? 2 : 1) : 0;
    return maps;
  }
  // One block of the kind. If linear and ordinary attention alternate, ordinary attention is used.
  Model small = m;
  small.adapters.reset();
  small.layers = 1;
  small.depths = 0;
  small.windows.clear();
  small.linear.reset();
  small.sparse.clear();
  if (m.experts) {
    small.sparse.push_back(sparse);
    small.experts->count = 2;  // a router with one output would be mistaken for a gate
  }
  const std::vector<std::string> targets = adapter_targets(m);
  for (const Tensor& tensor : tensors(small)) {
    const std::string_view map = map_of(m, tensor);
    if (tensor.block != 0 || !is_adapted(targets, map)) continue;
    // Each half of a block ends with the map whose inputs tensor parallelism divides.
    const bool ends = tensor.cut == (m.family == Family::gpt2 ? 0 : 1);
    if (tensor.part != Part::attention)
      ++(ends ? maps.down : maps.mlp);
    else if (map.ends_with(".q_b_proj"))
      ++maps.query_latent;
    else if (map.ends_with(".kv_b_proj"))
      ++maps.key_latent;
    else
      ++(ends ? maps.output : maps.attention);
  }
  return maps;
}

}  // namespace tessera::plan
