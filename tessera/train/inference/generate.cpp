#include <tessera/train/inference/generate.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>

namespace tessera::train {
namespace {

void check(const GenerateOptions& options) {
  if (options.max_new_tokens < 0)
    throw InputError(concat("max_new_tokens is ", options.max_new_tokens, "; it must be >= 0"));
  if (!(options.temperature > 0))
    throw InputError(
        concat("temperature is ", options.temperature, "; it must be > 0; for the most likely text use --greedy"));
  if (options.top_k < 0) throw InputError(concat("top_k is ", options.top_k, "; it must be >= 0 (0: no limit)"));
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw InputError(concat("top_p is ", options.top_p, "; it must be in (0, 1]"));
}

/// Switches to evaluation mode and back.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module.eval();
  }
  ~EvaluationMode() { module_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

c10::Device device_of(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? c10::Device(c10::kCPU) : parameters.front().device();
}

/// Keeps the common prefix of cache and prompt, without the prompt's last token, whose logits are needed.
void forget_beyond(SeenTokens& seen, const std::vector<std::int32_t>& prompt) {
  const auto [differs, end] = std::mismatch(seen.ids.begin(), seen.ids.end(), prompt.begin(), prompt.end() - 1);
  seen.ids.erase(differs, seen.ids.end());
  seen.cache.keep(std::min(seen.cache.tokens(), static_cast<std::int64_t>(seen.ids.size())));
}

}  // namespace

std::vector<std::int32_t> stop_ids(const Value& config, const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  const auto add = [&](std::int64_t id) {
    const bool known = id >= 0 && id < tokenizer.vocab_size();
    if (known && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(static_cast<std::int32_t>(id));
  };
  if (const Value* eos = config.find("eos_token_id"); eos != nullptr && eos->is_array()) {
    for (const Value& id : eos->items()) add(id.as_int());
  } else if (eos != nullptr && eos->is_number()) {
    add(eos->as_int());
  }
  if (const auto id = tokenizer.end_of_text()) add(*id);
  if (const auto id = tokenizer.end_of_turn()) add(*id);
  return ids;
}

std::int32_t sample_token(const float* logits, std::int64_t vocabulary, const GenerateOptions& options, double random) {
  if (!options.do_sample) return static_cast<std::int32_t>(std::max_element(logits, logits + vocabulary) - logits);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(vocabulary));
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const bool sorted = options.top_k > 0 || options.top_p < 1;
  if (options.top_k > 0 && options.top_k < vocabulary) {
    std::partial_sort(ids.begin(), ids.begin() + options.top_k, ids.end(), likelier);
    ids.resize(static_cast<std::size_t>(options.top_k));
  } else if (sorted) {
    std::sort(ids.begin(), ids.end(), likelier);
  }
  const float top = logits[sorted ? ids[0] : *std::min_element(ids.begin(), ids.end(), likelier)];
  std::vector<double> weights(ids.size());
  double total = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    weights[i] = std::exp((static_cast<double>(logits[ids[i]]) - top) / options.temperature);
    total += weights[i];
  }
  if (!std::isfinite(total))
    throw Error("the model's logits are not finite: the weights are damaged or the training diverged");
  if (options.top_p < 1) {
    const double enough = options.top_p * total;
    double kept = 0;
    std::size_t count = 0;
    while (count < ids.size() && kept < enough) kept += weights[count++];
    ids.resize(count);
    total = kept;
  }
  double rest = random * total;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    rest -= weights[i];
    if (rest < 0) return ids[i];
  }
  return ids.back();  // reached only because of rounding
}

std::vector<std::int32_t> generate(models::CausalLm& model, const std::vector<std::int32_t>& prompt,
                                   const GenerateOptions& options, const std::function<void(std::int32_t)>& on_token,
                                   SeenTokens* seen) {
  check(options);
  if (prompt.empty()) throw InputError("the prompt is empty: a model continues at least one token");
  if (static_cast<std::int64_t>(prompt.size()) > model.max_positions())
    throw InputError(concat("the prompt has ", prompt.size(), " tokens, but the model has only ", model.max_positions(),
                            " positions: shorten it"));
  for (const std::int32_t id : prompt)
    if (id < 0 || id >= model.vocab_size())
      throw InputError(concat("the prompt contains token id ", id, " but the model's vocabulary has ",
                              model.vocab_size(), " tokens"));
  const std::int64_t vocabulary =
      options.vocabulary > 0 ? std::min(options.vocabulary, model.vocab_size()) : model.vocab_size();
  const std::int64_t room =
      model.max_positions() - static_cast<std::int64_t>(prompt.size()) + 1;  // the last id needs no position

  const at::NoGradGuard no_grad;
  const EvaluationMode evaluation(model);
  const c10::Device device = device_of(model);
  std::mt19937_64 generator(options.seed);
  SeenTokens fresh;
  SeenTokens& known = seen != nullptr ? *seen : fresh;
  forget_beyond(known, prompt);
  std::vector<std::int32_t> result, feed(prompt.begin() + known.cache.tokens(), prompt.end());
  for (std::int64_t i = 0; i < std::min(options.max_new_tokens, room); ++i) {
    if (options.stop && options.stop()) break;
    const at::Tensor ids =
        at::tensor(at::ArrayRef<std::int32_t>(feed), at::kInt).to(at::kLong).unsqueeze(0).to(device);  // [1, P]
    const nn::Autocast autocast(options.bf16, device.type());
    known.ids.insert(known.ids.end(), feed.begin(), feed.end());
    const at::Tensor logits = model.next_logits(ids, known.cache)[0].to(at::kCPU, at::kFloat).contiguous();  // [V]
    const double random = static_cast<double>(generator() >> 11) * 0x1p-53;
    const std::int32_t id = sample_token(logits.data_ptr<float>(), vocabulary, options, random);
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end()) break;
    result.push_back(id);
    if (on_token) on_token(id);
    feed = {id};
  }
  return result;
}

std::size_t complete_utf8_prefix(std::string_view bytes) {
  // Only the last three bytes can belong to an unfinished character: look back for its leading byte.
  const std::size_t size = bytes.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, size); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[size - back]);
    if ((byte & 0xC0) == 0x80) continue;  // a continuation byte
    const std::size_t length = byte >= 0xF0 && byte < 0xF8 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return byte < 0xF8 && length > back ? size - back : size;
  }
  return size;
}

std::string TextStream::add(std::int32_t id) {
  pending_ += tokenizer_.decode_after(ids_, std::span(&id, 1));
  ids_.push_back(id);
  const std::size_t ready = complete_utf8_prefix(pending_);
  std::string text = pending_.substr(0, ready);
  pending_.erase(0, ready);
  return text;
}

std::string TextStream::finish() { return std::exchange(pending_, {}); }

}  // namespace tessera::train
