#include <tessera/models/registry.h>

#include <tessera/architectures/architecture.h>
#include <tessera/models/bert/bert.h>
#include <tessera/models/gpt2.h>
#include <tessera/models/llama.h>
#include <tessera/models/vision/llava.h>

#include <string_view>

namespace tessera::models {

using architectures::Architecture, architectures::Family, architectures::Task;

std::shared_ptr<LanguageModel> build(const Value& hf_config, std::optional<std::uint64_t> seed) {
  if (architectures::sees_images(hf_config)) return std::make_shared<Llava>(hf_config, seed);
  const Architecture& row = architectures::architecture_of(hf_config);
  if (row.family == Family::gpt2) return std::make_shared<Gpt2>(hf_config, seed);
  if (row.family == Family::llama) return std::make_shared<Llama>(hf_config, seed);
  if (row.task == Task::row_class) return std::make_shared<BertForSequenceClassification>(hf_config, seed);
  return std::make_shared<BertForMaskedLM>(hf_config, seed);
}

std::vector<std::pair<std::string, std::string>> block_class_aliases() {
  std::vector<std::pair<std::string, std::string>> aliases;
  for (const Architecture* row : architectures::all_architectures()) {
    const char* const ours = row->family == Family::gpt2    ? "Gpt2Block"
                             : row->family == Family::llama ? "LlamaDecoderLayer"
                                                            : "BertLayer";
    if (std::string_view(row->hf_block) != ours) aliases.emplace_back(row->hf_block, ours);
  }
  return aliases;
}

}  // namespace tessera::models
