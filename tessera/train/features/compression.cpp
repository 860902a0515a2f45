#include <tessera/train/features/compression.h>

#include <tessera/base/error.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/train/core/random_key.h>
#include <tessera/train/features/run_feature.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace tessera::train {
namespace {

/// Name of the head that is a separate linear map in transformers even when it is tied to the embedding.
std::string tied_head(const models::LanguageModel& model) {
  const Value* tied = model.hf_config().find("tie_word_embeddings");
  if (tied != nullptr && !tied->is_null() && !tied->as_bool()) return {};
  switch (model.objective()) {
    case data::Objective::Kind::next_token:
      return "lm_head";
    case data::Objective::Kind::masked_token:
      return "cls.predictions.decoder";
    default:
      return {};
  }
}

}  // namespace

/// Finds the modules of one method.
class CompressionSchedule::Finder {
 public:
  Finder(const models::LanguageModel& model, const char* method, bool of_weights)
      : method_(method), of_weights_(of_weights) {
    for (const auto& item : model.named_modules("", /*include_self=*/false)) {
      torch::nn::Module* const module = item.value().get();
      if (auto* const map = dynamic_cast<models::Linear*>(module))
        entries_.push_back({item.key(), map, nullptr, ""});
      else if (auto* const table = dynamic_cast<models::Table*>(module))
        entries_.push_back({item.key(), nullptr, table, why_not(model, item.key())});
    }
    const std::string head = tied_head(model);
    const auto named = [&](const Entry& entry) { return entry.name == head; };
    if (!head.empty() && std::none_of(entries_.begin(), entries_.end(), named))
      entries_.push_back({head, nullptr, nullptr, "the head over the vocabulary cannot be rounded"});
  }

  std::vector<Place> find(const config::CompressionMethod& method) {
    std::vector<Place> places;
    for (std::size_t group = 0; group < method.groups.size(); ++group)
      for (const std::string& pattern : method.groups[group].modules) {
        const std::size_t before = places.size();
        for (const Entry* entry : fitting(pattern, method.groups[group].name)) {
          check_groups(*entry, method);
          places.push_back(place_of(*entry, group));
        }
        if (places.size() == before) fail(method.groups[group].name, pattern, "matches no module of the model", hint());
      }
    return places;
  }

 private:
  struct Entry {
    std::string name;
    models::Linear* map;
    models::Table* table;
    std::string refused;  ///< reason why it cannot be rounded; empty: it can be
  };

  /// The reason why a table's rows cannot be rounded; empty: they can be.
  std::string why_not(const models::LanguageModel& model, const std::string& name) const {
    if (!model.is_embedding(concat(name, ".weight"))) return "experts cannot be rounded";
    const std::string last = name.substr(name.rfind('.') + 1);
    if (last == "lm_head" || last == "embed_out" || last == "decoder")
      return "the head over the vocabulary cannot be rounded";
    return of_weights_ ? "" : "an embedding has no inputs to round";
  }

  [[noreturn]] void fail(const std::string& group, const std::string& pattern, const std::string& what,
                         const std::string& remedy) const {
    throw InputError(concat("--compression_training: ", method_, ".different_groups.", group, ".modules: '", pattern,
                            "' ", what, remedy));
  }

  std::string hint() const {
    for (const Entry& entry : entries_)
      if (entry.map != nullptr) return concat(": names are as in transformers, such as ", entry.name);
    return {};
  }

  std::vector<const Entry*> fitting(const std::string& pattern, const std::string& group) {
    const bool all = pattern == "*";
    const Pattern expression(concat("compression_training, ", group), all ? "" : pattern);
    std::vector<const Entry*> found;
    for (const Entry& entry : entries_) {
      if (!all && !expression.occurs_in(entry.name)) continue;
      if (!entry.refused.empty()) {
        if (all) continue;
        fail(group, pattern, concat("matches ", entry.name, ", but ", entry.refused),
             "; use a pattern that excludes it");
      }
      if (const auto [other, is_first] = taken_.emplace(entry.name, concat("'", pattern, "' of ", group)); !is_first)
        fail(group, pattern, concat("matches ", entry.name, ", which ", other->second, " also matches"),
             "; each module must match only one expression");
      found.push_back(&entry);
    }
    return found;
  }

  void check_groups(const Entry& entry, const config::CompressionMethod& method) const {
    if (!of_weights_ || (entry.table != nullptr && method.in_forward)) return;  // an embedding's groups are its rows
    const at::Tensor& weight = entry.map != nullptr ? entry.map->weight : entry.table->weight;
    if (weight.numel() % method.quantize_groups != 0)
      throw InputError(
          concat("--compression_training: ", method_, ".shared_parameters.quantize_groups is ", method.quantize_groups,
                 ", but the weight of ", entry.name, " has ", weight.size(0), " x ", weight.size(1),
                 " numbers, which cannot be split into this many equal groups; use a divisor of ", weight.numel()));
  }

  /// The two methods share one QuantizedOperands per linear map.
  static Place place_of(const Entry& entry, std::size_t group) {
    Place place{group, entry.name, nullptr, nullptr};
    if (entry.map != nullptr) {
      place.map = std::const_pointer_cast<nn::QuantizedOperands>(entry.map->rounding);
      if (!place.map) entry.map->rounding = place.map = std::make_shared<nn::QuantizedOperands>();
    } else {
      entry.table->rounding = place.table = std::make_shared<std::optional<nn::FakeQuantization>>();
    }
    return place;
  }

  const char* method_;
  bool of_weights_;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> taken_;  ///< module -> the expression that matched it
};

CompressionSchedule::CompressionSchedule(const models::LanguageModel& model, const config::Compression& settings,
                                         std::uint64_t seed, at::Device device)
    : settings_(settings), seed_(seed) {
  if (settings_.weights) weights_ = Finder(model, "weight_quantization", true).find(*settings_.weights);
  if (settings_.inputs) inputs_ = Finder(model, "activation_quantization", false).find(*settings_.inputs);
  if (!keeps_ranges()) return;
  const auto maps = static_cast<std::int64_t>(inputs_.size());
  const auto options = at::TensorOptions(at::kFloat).device(device);
  noted_ = at::full({maps, 2}, -std::numeric_limits<float>::infinity(), options);
  ranges_ = at::full({maps, 2}, std::numeric_limits<float>::quiet_NaN(), options);
}

void CompressionSchedule::set_step(std::int64_t step) {
  if (settings_.weights && step >= settings_.weights->schedule_offset) {
    const config::CompressionMethod& method = *settings_.weights;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const Place& place = weights_[i];
      const auto [bits, exact] = config::weight_bits(method, method.groups[place.group], step - method.schedule_offset);
      nn::FakeQuantization how{.bits = bits,
                               .asymmetric = method.asymmetric,
                               .groups = method.quantize_groups,
                               .stochastic = method.stochastic,
                               .exact = exact};
      if (place.table != nullptr && method.in_forward) how.groups = 0;
      if (method.stochastic) how.key = random_key(seed_, step, static_cast<std::int64_t>(i));
      if (place.map != nullptr)
        place.map->weight = how;
      else
        *place.table = how;
    }
  }
  if (!settings_.inputs) return;
  const config::CompressionMethod& method = *settings_.inputs;
  const at::Tensor known = method.running_range ? ranges_.isfinite().all(1).cpu() : at::Tensor();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Place& place = inputs_[i];
    const auto row = static_cast<std::int64_t>(i);
    if (method.running_range && step + 1 >= method.schedule_offset) place.map->noted = noted_[row];
    if (step < method.schedule_offset || (known.defined() && !known[row].item<bool>())) continue;
    nn::FakeQuantization how{.bits = method.groups[place.group].bits,
                             .asymmetric = method.asymmetric,
                             .groups = method.running_range ? 1 : 0};
    if (method.running_range) how.range = ranges_[row];
    place.map->input = how;
  }
}

void CompressionSchedule::begin_step() {
  if (keeps_ranges()) noted_.fill_(-std::numeric_limits<float>::infinity());
}

void CompressionSchedule::end_step() {
  if (!keeps_ranges()) return;
  constexpr double kept = 0.95;  // DeepSpeed's act_range_momentum
  const at::Tensor now = at::stack({noted_.select(1, 0).neg(), noted_.select(1, 1)}, 1);
  const at::Tensor moved = at::where(ranges_.isnan(), now, ranges_ * kept + now * (1 - kept));
  ranges_.copy_(at::where(now.isfinite().all(1, /*keepdim=*/true), moved, ranges_));
}

Value CompressionSchedule::ranges() const {
  if (!keeps_ranges() || ranges_.isnan().all().item<bool>()) return {};
  const at::Tensor numbers = ranges_.cpu().contiguous();
  Value all = Value::make_array();
  for (std::int64_t i = 0; i < numbers.numel(); ++i)
    all.push_back(Value::of(static_cast<double>(numbers.const_data_ptr<float>()[i])));
  return all;
}

void CompressionSchedule::set_ranges(const Value& ranges) {
  if (!keeps_ranges() || ranges.is_null()) return;
  at::Tensor numbers = at::empty({ranges_.size(0), 2});
  if (static_cast<std::int64_t>(ranges.items().size()) != numbers.numel())
    throw InputError(concat(ranges.where().str(), ": the checkpoint has ranges of the inputs of ",
                            ranges.items().size() / 2, " linear maps, but this run has ", ranges_.size(0),
                            ": set --compression_training as before"));
  float* place = numbers.mutable_data_ptr<float>();
  for (const Value& number : ranges.items())
    *place++ = number.is_null() ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(number.as_real());
  ranges_.copy_(numbers);
}

std::string CompressionSchedule::describe() const {
  const auto bits_of = [](const config::CompressionMethod& method) {
    std::vector<std::string> parts;
    for (const config::CompressionGroup& group : method.groups) {
      std::string bits =
          group.start_bits == group.bits ? concat(group.bits) : concat(group.start_bits, " to ", group.bits);
      if (std::find(parts.begin(), parts.end(), bits) == parts.end()) parts.push_back(std::move(bits));
    }
    return join(parts, " or ");
  };
  std::vector<std::string> parts;
  const auto add = [&](const char* what, const std::optional<config::CompressionMethod>& method,
                       const std::vector<Place>& places) {
    if (method)
      parts.push_back(concat(what, " of ", places.size(), places.size() == 1 ? " module to " : " modules to ",
                             bits_of(*method), " bits from step ", method->schedule_offset + 1, " on"));
  };
  add("weights", settings_.weights, weights_);
  add("inputs", settings_.inputs, inputs_);
  return concat("rounded in training: ", join(parts, "; "));
}

std::shared_ptr<CompressionSchedule> apply_compression(const models::LanguageModel& model,
                                                       const OptimizationConfig& config, at::Device device) {
  const config::Compression settings = config::parse_compression(config.compression_training);
  if (!settings.rounds()) return nullptr;
  return std::make_shared<CompressionSchedule>(model, settings, static_cast<std::uint64_t>(config.seed), device);
}

namespace {

class CompressionFeature : public RunFeature {
 public:
  void prepare_model(ModelBuild& build) override {
    const OptimizationConfig& config = build.config.optimization;
    schedule_ = apply_compression(build.model, config, build.world.device());
    if ((schedule_ || config::parse_compression(config.compression_training).layers) && build.adapters)
      throw InputError(
          "--compression_training: the model is a folder of LoRA adapters, and frozen weights can be "
          "neither rounded nor dropped; let the run that trains them write the merged model (--lora_merge) and start "
          "from that");
    if (schedule_) build.parts.facts.push_back(schedule_->describe());
  }
  void begin_run(RunBegin& begin) override {
    world_ = begin.world.group();
    if (schedule_ && begin.resumed != nullptr) schedule_->set_ranges(begin.resumed->input_ranges);
  }
  void divided(const RunContext& run) override {
    if (schedule_) schedule_->set_step(run.plan.resumed_step);
  }
  void begin_step(const StepStart&) override {
    if (schedule_) schedule_->begin_step();
  }
  /// Merges the running ranges of inputs over all ranks.
  void after_step(const StepEnd& end) override {
    if (!schedule_) return;
    if (schedule_->keeps_ranges()) {
      const comm::Tag tag("input ranges");
      world_.all_reduce(schedule_->noted(), comm::Reduction::max).wait();
      schedule_->end_step();
    }
    schedule_->set_step(end.step);
  }
  void save(checkpoint::RunState& state) const override {
    if (schedule_) state.input_ranges = schedule_->ranges();
  }

 private:
  std::shared_ptr<CompressionSchedule> schedule_;  // null: layers are selected but nothing is rounded
  comm::Group world_;
};

}  // namespace

std::unique_ptr<RunFeature> make_compression(const RunConfig& config) {
  return config.optimization.compression_training.empty() ? nullptr : std::make_unique<CompressionFeature>();
}

}  // namespace tessera::train
