#include <tessera/config/model/vocabulary.h>

#include <tessera/architectures/config_value.h>

#include <utility>

namespace tessera::config {
using architectures::given;

constexpr const char *size_key = "vocab_size", *text_key = "text_config";

std::int64_t vocabulary_of(const Value& hf_config) {
  if (!hf_config.is_object()) return 0;
  const Value* text = given(hf_config, text_key);
  if (text != nullptr && text->is_object() && given(*text, size_key) != nullptr) return vocabulary_of(*text);
  const Value* size = given(hf_config, size_key);
  return size != nullptr && size->is_number() ? size->as_int() : 0;
}

Value with_vocabulary(Value hf_config, std::int64_t tokens) {
  const std::int64_t rows = vocabulary_of(hf_config);
  if (rows == 0 || rows >= tokens) return hf_config;
  if (const Value* text = given(hf_config, text_key); text != nullptr && vocabulary_of(*text) > 0)
    hf_config.set(text_key, with_vocabulary(*text, tokens));
  if (given(hf_config, size_key) != nullptr) hf_config.set(size_key, Value::of(tokens));
  return hf_config;
}

}  // namespace tessera::config
