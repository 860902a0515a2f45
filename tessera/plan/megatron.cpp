#include <tessera/plan/megatron.h>

#include <tessera/base/error.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/layout/schedule/timing.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace tessera::plan {
namespace {

namespace schedule = layout::schedule;

constexpr double bf16 = 2, fp32 = 4;

/// Shapes of the weights on a rank. All weights of a shape share one dummy gradient.
using Shapes = std::set<std::pair<double, double>>;

/// One block on one rank.
struct Block {
  double kept = 0;    ///< bytes for the backward of a micro-batch
  double input = 0;   ///< the block's input, which is all that a recomputed block keeps
  double moment = 0;  ///< additional bytes beyond `kept` at the peak of its backward or, with experts, of its forward
  Shapes weights;
};

/// Adds up the tensors that a block keeps.
class Counting {
 public:
  Counting(const Model& model, const Plan& plan)
      : m_(model),
        t_(plan.tp()),
        cp_(plan.cp()),
        tokens_(plan.tokens()),
        part_(plan.sequence_parallel ? tokens_ / t_ : tokens_) {}

  /// Bytes of the hidden states: of all tokens, and of the tokens between tensor-parallel products.
  double whole() const { return tokens_ * real(m_.hidden) * bf16; }
  double hidden() const { return part_ * real(m_.hidden) * bf16; }
  bool gathers() const { return part_ < tokens_; }

  Block block(bool sparse) const {
    Block b;
    b.input = hidden();
    keep_attention(b);
    keep_norm(b);
    if (sparse)
      keep_experts(b);
    else
      keep_mlp(b, real(m_.inner) / t_, /*beside_experts=*/false);
    if (m_.drops.mlp > 0) b.kept += 2 * part_ * real(m_.hidden);  // masks
    return b;
  }

 private:
  void keep(Block& b, double per_token, double element = bf16) const { b.kept += per_token * tokens_ * element; }
  /// LayerNormLinear keeps its norm's input, output and statistics.
  void keep_norm(Block& b) const { b.kept += 2 * hidden() + (m_.norms.bias ? 2 : 1) * part_ * fp32; }

  void keep_attention(Block& b) const {
    keep_norm(b);
    const double heads = std::ceil(real(m_.heads) / t_), h = real(m_.hidden);
    double out = heads * real(m_.head_size);
    if (m_.latent) {
      const Latent& l = *m_.latent;
      const double queries = real(l.query_rank), keys = real(l.key_rank), score = real(l.plain + l.rotated);
      out = heads * real(l.value);
      keep(b, 2 * (queries + keys));  // latents, and their norms' outputs
      keep(b, 2 * heads * score + out);
      if (queries > 0) b.weights.emplace(queries, h);
      b.weights.emplace(heads * score, queries > 0 ? queries : h);
      b.weights.emplace(keys + real(l.rotated), h);
      b.weights.emplace(heads * real(l.plain + l.value), keys);
    } else {
      const double keys = std::ceil(real(m_.key_heads) / t_) * real(m_.head_size);
      keep(b, out + 2 * keys);  // outputs of the rotation, and values in a contiguous copy
      b.weights.emplace(out + 2 * keys, h);
    }
    keep(b, out);          // attention's result, the input of the next product
    keep(b, heads, fp32);  // log-sums
    // Between all-to-alls attention has all tokens of some heads; its result is kept in addition to the output of the
    // last all-to-all.
    if (cp_ > 1) keep(b, out);
    b.weights.emplace(h, out);
  }

  /// The activation's input and output.
  void keep_mlp(Block& b, double inner, bool beside_experts) const {
    const double ways = m_.gated ? 2 : 1;
    keep(b, (ways + 1) * inner);
    b.weights.emplace(ways * inner, real(m_.hidden));
    b.weights.emplace(real(m_.hidden), inner);
    if (beside_experts) return;  // their peak is higher
    // By the time the gradient of the activation's input is computed, the gradient of its output has replaced that
    // output; before that, the second product has gathered its gradient.
    const double activation = ways * inner * tokens_ * bf16;
    const double product = inner * tokens_ * bf16 + (gathers() ? whole() : 0);
    b.moment = std::max(activation, product) + hidden();  // plus the residual's gradient
  }

  void keep_experts(Block& b) const {
    const Experts& e = *m_.experts;
    const double routed = real(e.top_k), ways = m_.gated ? 2 : 1, inner = real(e.inner) / t_, h = real(m_.hidden);
    keep(b, 3 * real(e.count), fp32);            // logits, their softmax, its masked form
    keep(b, routed * (h + (ways + 1) * inner));  // tokens per expert; the activation's input and output
    b.weights.emplace(ways * inner, h);
    b.weights.emplace(h, inner);
    if (e.shared_inner > 0) keep_mlp(b, real(e.shared_inner) / t_, /*beside_experts=*/true);
    // At the end of the forward, the function still holds the tokens received in the first exchange; the experts'
    // output, the same in rank order, and the tokens received in the second exchange are alive as well. Then tokens
    // return to their positions.
    b.moment = 4 * routed * whole() + 3 * hidden();
  }

  const Model& m_;
  double t_, cp_, tokens_, part_;
};

void check(const Model& model, const Plan& plan) {
  const auto no = [](const std::string& what) { throw InputError(concat("Megatron-LM's memory: ", what)); };
  if (model.vision) no("vision towers are not supported; use a file with only the decoder's text_config");
  if (model.recorded || model.family == Family::bert || model.linear)
    no(concat("a model of type \"", model.type,
              "\" is not supported; GPT-2, the Llama family and mixtures of experts are"));
  if (plan.strategy != Strategy::ddp && plan.strategy != Strategy::zero1)
    no(concat("strategy ", word_of(plan.strategy), " is not supported; use zero1 (its distributed optimizer) or ddp"));
  if (plan.offload != Offload::none) no("offloading is not supported");
}

}  // namespace

std::vector<Memory> megatron_memory(const Model& given, const Plan& plan, const MegatronOptions& options) {
  check(given, plan);
  Model model = given;
  const std::int64_t rows = 128 * plan.tp();
  model.vocabulary = (model.vocabulary + rows - 1) / rows * rows;
  const Elements elements = elements_of(model, plan.tp(), plan.mesh.ep);
  const Counting counting(model, plan);
  const Block kinds[2] = {counting.block(false), model.experts ? counting.block(true) : Block{}};
  const auto kind_of = [&](std::int64_t layer) -> const Block& { return kinds[model.is_sparse(layer) ? 1 : 0]; };
  const auto kept_of = [&](std::int64_t layer) {
    return plan.recomputes(layer) ? kind_of(layer).input : kind_of(layer).kept;
  };
  const bool pipelined = plan.pp() > 1;
  const double words = elements.head / real(model.hidden);
  const double logits = plan.tokens() * words * (options.fused_loss ? bf16 : bf16 + fp32);
  // The head's product gathers its input again, and computes a gradient that is scattered afterwards.
  const double head = logits + counting.whole() + (counting.gathers() ? counting.whole() + counting.hidden() : 0) +
                      // the last micro-batch's input gradient has not been sent yet
                      (pipelined ? counting.hidden() : 0);

  /// A stage: bytes kept per micro-batch, and the additional bytes at the peak of its backward.
  schedule::Costs costs;
  costs.stages.clear();
  std::vector<double> moments;
  for (const layout::StagePart& part : plan.parts) {
    schedule::StageCosts stage;
    double moment = 0;
    if (part.end) {
      stage.activation_bytes += 2 * counting.hidden();  // the last norm's input and output
      moment = head;
    }
    double gone = part.end ? 2 * counting.hidden() : 0;  // freed by the backward before it reaches the block
    for (std::int64_t layer = part.past_block() - 1; layer >= part.first_block; --layer) {
      const Block& block = kind_of(layer);
      const double again = block.kept - kept_of(layer);
      moment = std::max(moment, block.moment + again - gone);
      stage.activation_bytes += kept_of(layer);
      gone += kept_of(layer);
    }
    if (part.embeddings) moment = std::max(moment, elements.head * bf16 - gone);  // the table's gradient
    stage.weight_gradient_bytes = stage.activation_bytes;
    costs.stages.push_back(stage);
    moments.push_back(moment);
  }

  const schedule::Schedule actions =
      schedule::make_schedule(pipelined ? plan.schedule : "1f1b",
                              {plan.pp(), static_cast<int>(plan.stages_per_rank), representative_micro_batches(plan)});
  std::vector<Memory> ranks;
  for (int rank = 0; rank < plan.pp(); ++rank) {
    Memory memory;
    Elements::Piece own;
    Shapes weights;
    for (const int s : schedule::stages_of(actions, rank)) {
      const layout::StagePart& part = plan.parts[static_cast<std::size_t>(s)];
      own.add(stage_elements(model, elements, part));
      for (std::int64_t layer = part.first_block; layer < part.past_block(); ++layer)
        weights.insert(kind_of(layer).weights.begin(), kind_of(layer).weights.end());
      if (part.end) weights.emplace(words, real(model.hidden));
    }
    memory[MemoryKind::parameters] = own.all() * bf16;
    memory[MemoryKind::gradients] = own.all() * fp32;
    // An fp32 copy of the weights and two moments.
    memory[MemoryKind::optimizer] =
        3 * fp32 * (own.shared / plan.shard_ranks() + own.experts / plan.expert_shard_ranks());
    for (const auto& [out, in] : weights) memory[MemoryKind::buffers] += out * in * bf16;
    schedule::HeldBytes held(costs, /*backward=*/true);
    double most = -1;
    for (const schedule::Action& action : actions.ranks[static_cast<std::size_t>(rank)]) {
      const double bytes = held.during(action);
      if (action.kind != schedule::Kind::backward && action.kind != schedule::Kind::input_gradient) continue;
      const double moment = moments[static_cast<std::size_t>(action.stage)];
      if (bytes + moment <= most) continue;
      most = bytes + moment;
      memory[MemoryKind::activations] = bytes;
      memory[MemoryKind::head] = moment;
    }
    memory[MemoryKind::process] = megatron_workspaces;
    ranks.push_back(memory);
  }
  return ranks;
}

}  // namespace tessera::plan
