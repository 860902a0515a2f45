#include <tessera/base/file.h>
#include <tessera/text/tokenizer_json.h>

namespace tessera::text {
namespace {

std::string tokenizer_config(std::string_view end_of_text) {
  Value config = Value::make_object(
      {{"tokenizer_class", Value::of("PreTrainedTokenizerFast")}, {"clean_up_tokenization_spaces", Value::of(false)}});
  if (!end_of_text.empty())
    for (const char* role : {"bos_token", "eos_token", "unk_token"})
      config.set(role, Value::of(std::string(end_of_text)));
  return dump_json(config) + "\n";
}

}  // namespace

std::string tokenizer_json(const BpeFile& file) {
  const auto byte_level = [](bool add_prefix_space) {
    return Value::make_object({{"type", Value::of("ByteLevel")},
                               {"add_prefix_space", Value::of(add_prefix_space)},
                               {"trim_offsets", Value::of(true)},
                               {"use_regex", Value::of(true)}});
  };
  std::vector<Value> added, merges;
  for (const auto& [content, id] : file.specials)
    added.push_back(Value::make_object({{"id", Value::of(std::int64_t{id})},
                                        {"content", Value::of(content)},
                                        {"single_word", Value::of(false)},
                                        {"lstrip", Value::of(false)},
                                        {"rstrip", Value::of(false)},
                                        {"normalized", Value::of(false)},
                                        {"special", Value::of(true)}}));
  std::vector<Value::Member> vocabulary;
  for (const auto& [spelling, id] : file.vocabulary) vocabulary.emplace_back(spelling, Value::of(std::int64_t{id}));
  for (const auto& [left, right] : file.merges)
    merges.push_back(Value::make_array({Value::of(left), Value::of(right)}));
  return dump_json(tokenizer_document({.added_tokens = std::move(added),
                                       .normalizer = {},
                                       .pre_tokenizer = byte_level(false),
                                       .post_processor = {},
                                       .decoder = byte_level(true),
                                       .vocabulary = std::move(vocabulary),
                                       .merges = std::move(merges)}));
}

Value tokenizer_document(BpeDocument parts) {
  return Value::make_object({{"version", Value::of("1.0")},
                             {"truncation", Value()},
                             {"padding", Value()},
                             {"added_tokens", Value::make_array(std::move(parts.added_tokens))},
                             {"normalizer", std::move(parts.normalizer)},
                             {"pre_tokenizer", std::move(parts.pre_tokenizer)},
                             {"post_processor", std::move(parts.post_processor)},
                             {"decoder", std::move(parts.decoder)},
                             {"model", Value::make_object({{"type", Value::of("BPE")},
                                                           {"dropout", Value()},
                                                           {"unk_token", Value()},
                                                           {"continuing_subword_prefix", Value()},
                                                           {"end_of_word_suffix", Value()},
                                                           {"fuse_unk", Value::of(false)},
                                                           {"byte_fallback", Value::of(false)},
                                                           {"ignore_merges", Value::of(parts.ignore_merges)},
                                                           {"vocab", Value::make_object(std::move(parts.vocabulary))},
                                                           {"merges", Value::make_array(std::move(parts.merges))}})}});
}

void write_tokenizer_files(const std::string& folder, std::string_view json, std::string_view end_of_text) {
  write_file_atomically(path_join(folder, "tokenizer.json"), json);
  write_file_atomically(path_join(folder, "tokenizer_config.json"), tokenizer_config(end_of_text));
}

}  // namespace tessera::text
