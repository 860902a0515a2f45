#pragma once
/// \file
/// Drops the modules of other stages of a pipeline (LanguageModel::keep_stages). Modules that stay keep their names.

#include <torch/nn/module.h>

#include <tessera/layout/stages.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::models {

/// The members of a chain of blocks that some of its parts contain.
struct KeptParts {
  explicit KeptParts(const std::vector<layout::StagePart>& given) : parts(given) {
    for (const layout::StagePart& part : parts) {
      embeddings = embeddings || part.embeddings;
      end = end || part.end;
    }
  }
  bool attention(std::int64_t block) const {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.attention_of(block); });
  }
  bool mlp(std::int64_t block) const {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.mlp_of(block); });
  }

  std::vector<layout::StagePart> parts;
  bool embeddings = false, end = false;
};

/// Sets `member`, registered in `parent` as `name`, to null and unregisters it.
template <class Module>
void drop(torch::nn::Module& parent, const std::string& name, std::shared_ptr<Module>& member) {
  member = nullptr;
  parent.unregister_module(name);
}

/// Unregisters the children of `parent` that are among `members`, which may contain null.
inline void unregister(torch::nn::Module& parent, const std::vector<std::shared_ptr<torch::nn::Module>>& members) {
  for (const auto& child : parent.named_children())
    if (std::find(members.begin(), members.end(), child.value()) != members.end())
      parent.unregister_module(child.key());
}

/// Drops the blocks, registered by number, that are not kept, and the half that is not kept of blocks that can be cut
/// (Block::drop_attention, Block::drop_mlp).
template <class Block>
void drop_blocks(torch::nn::Module& parent, std::vector<std::shared_ptr<Block>>& blocks, const KeptParts& kept) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    const bool attention = kept.attention(number), mlp = kept.mlp(number);
    if (!attention && !mlp) {
      drop(parent, std::to_string(i), blocks[i]);
    } else if constexpr (requires { blocks[i]->drop_mlp(); }) {
      if (!attention) blocks[i]->drop_attention();
      if (!mlp) blocks[i]->drop_mlp();
    }
  }
}

}  // namespace tessera::models
