#include <tessera/models/language_model.h>

#include <ATen/ATen.h>

#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/models/layers.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace tessera::models {
namespace {

std::uint64_t number_of(ForwardContext::Draw draw, std::int64_t block) {
  return static_cast<std::uint64_t>(block) * 16 + static_cast<std::uint64_t>(draw);
}

}  // namespace

at::Tensor ForwardContext::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const nn::AttentionOptions& options) const {
  if (!part) return nn::attention(q, k, v, documents, options);
  return (*attention)(q, k, v, {.length = part->length, .documents = documents, .options = options});
}

at::Tensor ForwardContext::attend_both_ways(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            const std::vector<std::int64_t>& lengths,
                                            const nn::AttentionOptions& options) const {
  return (*attention)(q, k, v, {.length = part->length, .lengths = lengths, .causal = false, .options = options});
}

at::Tensor ForwardContext::embedded(const at::Tensor& tokens) const {
  if (embedding_noise == 0) return tokens;
  const std::int64_t length = part ? part->length : tokens.size(1);
  const double bound = embedding_noise / std::sqrt(static_cast<double>(length * tokens.size(2)));
  const at::Tensor noise = nn::uniform(tokens.size(0), tokens.size(1), tokens.size(2),
                                       random.at(number_of(Draw::embedding_noise, 0)), tokens.device());
  return tokens + noise.mul_(2 * bound).sub_(bound).to(tokens.options());
}

nn::RandomPlace ForwardContext::between_layers() const {
  nn::RandomPlace place = random;
  place.token += first_token;
  return place;
}

nn::RandomPlace ForwardContext::between_layers(Draw draw, std::int64_t block) const {
  return between_layers().at(number_of(draw, block));
}

nn::RandomPlace ForwardContext::of_weights(std::int64_t block, std::int64_t first_head) const {
  nn::RandomPlace place = random.at(number_of(Draw::attention_weights, block));
  place.head = first_head;
  return place;
}

LanguageModel::LanguageModel(Value hf_config)
    : hf_config_(std::move(hf_config)), spec_(architectures::read_model(hf_config_)) {}

std::string LanguageModel::tied_parameter() const {
  const bool both = !spec_.vision && spec_.labels == 0 && (spec_.tied || predicts());
  return both ? architectures::embedding_parameter(spec_) : std::string();
}

double LanguageModel::flops_per_token(std::int64_t block_size) const {
  const layout::DecoderShape sizes = shape();
  const std::int64_t blocks = sizes.blocks, depths = predicts() ? prediction_depths() : 0;
  const auto width = static_cast<double>(sizes.width);
  // A depth has a pass of the head and a map from two widths to one.
  double forward = head_flops() + static_cast<double>(depths) * (head_flops() + 4 * width * width);
  for (std::int64_t block = 0; block < blocks + depths; ++block) forward += block_flops(block, block_size).all();
  return 3 * forward;
}

std::vector<at::Tensor> LanguageModel::take_prediction_losses() { return std::exchange(prediction_losses_, {}); }

void LanguageModel::add_prediction_losses(const std::vector<at::Tensor>& losses) {
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i == prediction_losses_.size())
      prediction_losses_.push_back(losses[i].detach());
    else
      prediction_losses_[i] = prediction_losses_[i] + losses[i].detach();
  }
}

void LanguageModel::keep_stages(const std::vector<layout::StagePart>& parts) {
  for (const layout::StagePart& part : parts)
    TESSERA_CHECK(part.first_block >= 0 && part.blocks >= 0 && part.past_block() <= shape().blocks, "a stage of ",
                  layout::text_of(part), " for a model of ", shape().blocks, " blocks");
  if (layout::cuts_blocks(parts) && !blocks_can_be_cut())
    throw InputError(
        concat("the blocks of a model of type \"", hf_config().at("model_type").as_string(),
               "\" cannot be cut: its MLP does not follow its attention on the residual stream; use a "
               "--pipeline_layout of whole blocks (t in place of a and f, flops in place of half_blocks)"));
  drop_layers([&] { drop_all_but(parts); });
}

void LanguageModel::keep_experts(std::int64_t first, std::int64_t count) {
  if (balance_.experts == 0)
    throw InputError(concat("a model of type \"", hf_config().at("model_type").as_string(),
                            "\" has no experts to distribute: use --ep_size 1"));
  TESSERA_CHECK(first >= 0 && count >= 1 && first + count <= balance_.experts, "experts ", first, " to ",
                first + count - 1, " of ", balance_.experts);
  drop_layers([&] { drop_experts_but(first, count); });
}

void LanguageModel::drop_layers(const std::function<void()>& drop) {
  const auto count = [this](const at::Tensor& parameter, std::int64_t sign) {
    elsewhere_elements_ += sign * parameter.numel();
    if (parameter.requires_grad()) trained_elsewhere_ += sign * parameter.numel();
  };
  for (const auto& item : named_parameters()) {
    elsewhere_.insert(item.key());
    count(item.value(), 1);
  }
  drop();
  for (const auto& item : named_parameters()) {
    elsewhere_.erase(item.key());
    count(item.value(), -1);
  }
}

void LanguageModel::drop_all_but(const std::vector<layout::StagePart>&) {
  throw InputError(concat("a model of type \"", hf_config().at("model_type").as_string(),
                          "\" does not support pipelines yet: use --pp_size 1"));
}

void LanguageModel::drop_experts_but(std::int64_t, std::int64_t) {
  TESSERA_CHECK(false, "a family with experts must implement drop_experts_but()");
}

std::shared_ptr<RouterLog> LanguageModel::router_log(const layout::StagePart* stage, const data::Batch& batch) const {
  if (balance_.experts == 0 || !is_training()) return nullptr;
  const bool whole = stage == nullptr || (stage->embeddings && stage->end);
  return std::make_shared<RouterLog>(balance_, auxiliary_scale_, whole, routers_, batch.counts);
}

RouterStatistics LanguageModel::take_router_statistics() { return std::exchange(*routers_, {}); }

at::Tensor LanguageModel::run_stage(const data::Batch&, const layout::StagePart&, const at::Tensor&, double) {
  TESSERA_CHECK(false, "run_stage() of a family that keep_stages() refuses");
}

void LanguageModel::set_part_runner(PartRunner runner) {
  runner_ = runner ? std::make_shared<const PartRunner>(std::move(runner)) : nullptr;
}

void LanguageModel::set_attention(nn::AttentionFunction attention) {
  attention_ = attention ? std::make_shared<const nn::AttentionFunction>(std::move(attention)) : nullptr;
}

void LanguageModel::set_experts(nn::ExpertsFunction experts) {
  experts_ = experts ? std::make_shared<const nn::ExpertsFunction>(std::move(experts)) : nullptr;
}

ForwardContext LanguageModel::context_of(const data::Batch& batch) const {
  if (batch.part && !attention_)
    throw InputError(
        concat("the batch contains parts of rows (of ", batch.part->length,
               " tokens each), but the model's attention sees only whole rows: call set_attention() first"));
  ForwardContext context{.runner = runner_,
                         .embedding_noise = embedding_noise(),
                         .part = batch.part,
                         .attention = attention_,
                         .experts = experts_,
                         .images = batch.images};
  if (is_training()) {
    context.random.key = batch.random_key ? *batch.random_key : nn::drawn_key();
    context.random.row = batch.first_row;
    if (batch.part) context.random.tokens = batch.part->tokens;
  }
  return context;
}

void LanguageModel::set_label_smoothing(double share) {
  TESSERA_CHECK(share >= 0 && share < 1, "label smoothing of ", share, "; it must be in [0, 1)");
  label_smoothing_ = share;
}

bool LanguageModel::is_norm_or_bias(const std::string& parameter_name) const {
  const auto parameters = named_parameters();
  const at::Tensor* parameter = parameters.find(parameter_name);
  TESSERA_CHECK(parameter, "the model has no parameter ", parameter_name);
  return parameter->dim() < 2;
}

void LanguageModel::note_prediction(const at::Tensor& scores) {
  if (keeps_predictions_ && !is_training()) predictions_.push_back(scores.detach().argmax(-1));
}

bool LanguageModel::is_embedding(const std::string& parameter_name, bool of_words_alone) const {
  const std::vector<std::string> path = split(parameter_name, '.');
  if (path.size() < 2 || path.back() != "weight") return false;
  // Tables in blocks, whose paths contain a number, belong to experts and adapters.
  for (const std::string& step : path)
    if (parse_int(step)) return false;
  const torch::nn::Module* module = this;
  std::vector<std::shared_ptr<torch::nn::Module>> held;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const auto children = module->named_children();
    const auto* child = children.find(path[i]);
    if (child == nullptr) return false;
    held.push_back(*child);
    module = held.back().get();
  }
  if (dynamic_cast<const Table*>(module) == nullptr) return false;
  const std::string& name = path[path.size() - 2];
  return !of_words_alone ||
         (name != "wpe" && name.find("position") == std::string::npos && name.find("token_type") == std::string::npos);
}

}  // namespace tessera::models
