#include <tessera/train/features/block_routing.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/train/core/random_key.h>
#include <tessera/train/features/run_feature.h>

#include <algorithm>
#include <utility>

namespace tessera::train {
namespace {

// Make these draws independent of dropout's draws for the same (seed, step, row).
constexpr std::uint64_t drop_salt = 0x70726f6764726f70u, token_salt = 0x72616e646f6d6c74u;

double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

/// x, with gradients of 0 for the block's parameters: adds a sum over zero of their elements.
at::Tensor left_out(const torch::nn::Module& block, const at::Tensor& x) {
  at::Tensor nothing;
  for (const at::Tensor& parameter : block.parameters()) {
    if (!parameter.requires_grad()) continue;
    const at::Tensor sum = parameter.narrow(0, 0, 0).sum().to(x.dtype());
    nothing = nothing.defined() ? nothing + sum : sum;
  }
  return nothing.defined() ? x + nothing : x;
}

}  // namespace

BlockRouting::BlockRouting(const models::LanguageModel& model, std::optional<config::ProgressiveLayerDrop> drop,
                           std::optional<config::RandomLtd> ltd, std::uint64_t seed)
    : drop_(std::move(drop)), ltd_(std::move(ltd)), seed_(seed) {
  const char* const name = drop_ ? "--progressive_layer_drop" : "--data_efficiency";
  if (model.balance().experts > 0)
    throw InputError(concat(name,
                            ": the model has layers with experts, and the load of experts in skipped blocks would not "
                            "be counted; remove the setting"));
  const std::int64_t count = model.shape().blocks;
  blocks_.resize(static_cast<std::size_t>(count));
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const models::ModelPart& part : model.parts())
    if (part.kind == models::ModelPart::Kind::block && part.block < count)
      blocks_[static_cast<std::size_t>(part.block)] = modules[part.name];
  if (!ltd_) return;
  if (ltd_->total_layers != count)
    throw InputError(concat("--data_efficiency: random_ltd.total_layer_num is ", ltd_->total_layers,
                            ", but the model has ", count, " layers: use that number"));
  const Value* const type = model.hf_config().find("model_type");
  if (type == nullptr || !type->is_string() || type->as_string() != "gpt2")
    throw InputError(
        concat("--data_efficiency: random_ltd drops tokens in models of type gpt2, which add positions "
               "to the embeddings; this one has type ",
               type && type->is_string() ? type->as_string() : "none",
               ", whose attention needs to know the positions of the tokens, or which of them are padding; set "
               "random_ltd.enabled to false"));
}

void BlockRouting::begin_batch(const data::Batch& batch) {
  first_row_ = batch.first_row;
  if (ltd_ && !batch.document_starts.empty())
    throw InputError(
        "--data_efficiency: random_ltd needs rows of one document each, but these rows contain several, which do not "
        "see each other; remove --packing, or set random_ltd.enabled to false");
}

double BlockRouting::keep_probability(std::int64_t block) const {
  return drop_ ? drop_->keep_probability(block, static_cast<std::int64_t>(blocks_.size()), step_) : 1;
}

bool BlockRouting::keeps(std::int64_t block) const {
  return uniform(random_key(seed_ ^ drop_salt, step_, block)) < keep_probability(block);
}

at::Tensor BlockRouting::kept_tokens(std::int64_t block, std::int64_t rows, std::int64_t length) const {
  if (!ltd_ || !std::binary_search(ltd_->layers.begin(), ltd_->layers.end(), block)) return {};
  const std::int64_t kept = ltd_->tokens_at(step_);
  if (kept >= length) return {};
  const std::uint64_t key = random_key(ltd_->seed ^ token_salt, step_, block);
  at::Tensor all = at::empty({rows, kept}, at::kLong);
  std::int64_t* place = all.mutable_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < rows; ++row) {
    // Takes each remaining token with the probability that makes all subsets equally likely (selection sampling, Knuth,
    // The Art of Computer Programming 2, 3.4.2, algorithm S).
    for (std::int64_t token = 0, left = kept; left > 0; ++token) {
      const double u = uniform(random_key(key, first_row_ + row, token));
      if (u * static_cast<double>(length - token) >= static_cast<double>(left)) continue;
      *place++ = token;
      --left;
    }
  }
  return all;
}

at::Tensor BlockRouting::run(const models::ModelPart& part, const models::PartFunction& function,
                             const at::Tensor& x) const {
  const auto index = static_cast<std::size_t>(part.block);
  if (index >= blocks_.size() || !blocks_[index]->is_training()) return function(x);
  if (!keeps(part.block)) return left_out(*blocks_[index], x);
  const double p = keep_probability(part.block);
  const at::Tensor tokens = kept_tokens(part.block, x.size(0), x.size(1));
  if (!tokens.defined()) {
    const at::Tensor y = function(x);
    return p < 1 ? x + (y - x) / p : y;
  }
  // Indices of rows of [B T, C]; each row is read once and written back to its place.
  const at::Tensor first = at::arange(x.size(0), at::kLong).unsqueeze(1) * x.size(1);
  const at::Tensor places = (tokens + first).flatten().to(x.device()), flat = x.flatten(0, 1);
  const at::Tensor seen = flat.index_select(0, places).view({x.size(0), tokens.size(1), x.size(2)});
  at::Tensor y = function(seen);
  if (p < 1) y = seen + (y - seen) / p;
  return flat.index_copy(0, places, y.to(x.dtype()).flatten(0, 1)).view_as(x);
}

std::vector<std::string> BlockRouting::describe() const {
  std::vector<std::string> lines;
  if (drop_)
    lines.push_back(concat("progressive layer drop: theta falls to ", drop_->theta, " (gamma ", drop_->gamma,
                           "); the last of ", blocks_.size(), " blocks is kept with probability ",
                           keep_probability(static_cast<std::int64_t>(blocks_.size()) - 1), " in the first step"));
  if (ltd_)
    lines.push_back(concat("random-LTD: ", ltd_->layers.size(), " of ", blocks_.size(), " layers see ",
                           ltd_->tokens_at(step_), " tokens of a row at first, ", ltd_->max_value, " after ",
                           ltd_->require_steps, " steps"));
  return lines;
}

std::shared_ptr<BlockRouting> route_blocks(models::LanguageModel& model, const OptimizationConfig& config,
                                           models::PartRunner inner) {
  auto drop = config::parse_progressive_layer_drop(config.progressive_layer_drop);
  auto ltd = config::parse_data_efficiency(config.data_efficiency);
  if (!drop && !ltd) return nullptr;
  auto routing =
      std::make_shared<BlockRouting>(model, std::move(drop), std::move(ltd), static_cast<std::uint64_t>(config.seed));
  model.set_part_runner([routing, inner = std::move(inner)](const models::ModelPart& part,
                                                            const models::PartFunction& function, const at::Tensor& x) {
    if (part.kind != models::ModelPart::Kind::block) return inner(part, function, x);
    return routing->run(part, [&](const at::Tensor& y) { return inner(part, function, y); }, x);
  });
  return routing;
}

namespace {

class BlockRoutingFeature : public MicroBatchFeature {
 public:
  std::string acts_on(const models::LanguageModel&) const override {
    return "--progressive_layer_drop or --data_efficiency";
  }
  void divided(const RunContext& run) override {
    routing_ = route_blocks(*run.model, run.config.optimization, run.part_runner);
    if (routing_) routing_->set_step(run.plan.resumed_step);
  }
  void start(std::vector<std::string>& notes) override {
    if (routing_)
      for (std::string& line : routing_->describe()) notes.push_back(std::move(line));
  }
  void begin_micro_batch(const data::Batch& batch) override {
    if (routing_) routing_->begin_batch(batch);
  }
  void after_step(const StepEnd& end) override {
    if (routing_) routing_->set_step(end.step);
  }

 private:
  std::shared_ptr<BlockRouting> routing_;  // null: the settings name a method that is not enabled
};

}  // namespace

std::unique_ptr<RunFeature> make_block_routing(const RunConfig& config) {
  const OptimizationConfig& o = config.optimization;
  return o.progressive_layer_drop.empty() && o.data_efficiency.empty() ? nullptr
                                                                       : std::make_unique<BlockRoutingFeature>();
}

}  // namespace tessera::train
