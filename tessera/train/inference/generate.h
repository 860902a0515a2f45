#pragma once
/// \file
/// train/inference/: uses a trained model to continue or encode texts.
///
/// This header generates text: one token at a time with a key-value cache, returning bytes as they become readable.

#include <tessera/models/causal_lm.h>
#include <tessera/models/kv_cache.h>
#include <tessera/text/tokenizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::train {

struct GenerateOptions {
  std::int64_t max_new_tokens = 100;
  bool do_sample = true;     ///< false: the most likely token (greedy)
  double temperature = 1.0;  ///< > 0; logits are divided by it
  std::int64_t top_k = 0;    ///< keep the k most likely; 0: all
  double top_p = 1.0;        ///< then keep the smallest set whose probability reaches p (Holtzman et al. 2020)
  std::uint64_t seed = 42;
  std::int64_t vocabulary = 0;         ///< only ids below this; 0: the model's vocabulary
  std::vector<std::int32_t> stop_ids;  ///< each of them ends the text and is not part of the result
  std::function<bool()> stop = {};     ///< called before every token; returning true ends the text
  bool bf16 = false;                   ///< forward under autocast (nn/autocast.h)
};

/// The model's cache for a conversation: the next prompt starts with the same tokens, which need not be computed again.
/// One per conversation and model.
struct SeenTokens {
  models::KvCache cache;
  std::vector<std::int32_t> ids;  ///< tokens whose keys and values the cache contains
};

/// Continues `prompt` (at least one id). Passes each new id to `on_token` as soon as it is known. Stops after
/// max_new_tokens tokens, at a stop id, or when the model's positions are used up. Returns the new ids and updates
/// `seen` (may be null). Throws InputError for an empty or too long prompt or options out of range. Runs in evaluation
/// mode without gradients.
std::vector<std::int32_t> generate(models::CausalLm& model, const std::vector<std::int32_t>& prompt,
                                   const GenerateOptions& options,
                                   const std::function<void(std::int32_t)>& on_token = {}, SeenTokens* seen = nullptr);

/// Ids that end a text: eos_token_id of a config.json or generation_config.json (a number or a list), and the
/// tokenizer's end of text and end of turn. Skips ids that the tokenizer does not have.
std::vector<std::int32_t> stop_ids(const Value& config, const text::Tokenizer& tokenizer);

/// Draws one id from logits fp32 [V] (on the CPU), with the options above; `random` is uniform in [0, 1).
std::int32_t sample_token(const float* logits, std::int64_t vocabulary, const GenerateOptions& options, double random);

/// Turns ids into text piece by piece: a character whose bytes are spread over several tokens is returned once it is
/// complete.
class TextStream {
 public:
  /// `before`: the ids that the text continues (those of a prompt); without them the first token may lose its leading
  /// space.
  explicit TextStream(const text::Tokenizer& tokenizer, std::vector<std::int32_t> before = {})
      : tokenizer_(tokenizer), ids_(std::move(before)) {}
  /// Adds a token; returns the text that is now complete.
  std::string add(std::int32_t id);
  /// Returns the remaining text at the end (including an incomplete character).
  std::string finish();

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;
  std::string pending_;
};

/// Length of the longest prefix of `bytes` that does not end inside a UTF-8 character. Ill-formed bytes count as
/// characters.
std::size_t complete_utf8_prefix(std::string_view bytes);

}  // namespace tessera::train
