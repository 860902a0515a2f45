#pragma once
/// \file
/// Letting go of what lies in other stages of a pipeline (LanguageModel::keep_stages). What stays keeps its name.

#include <torch/nn/module.h>

#include <tessera/layout/stages.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::models {

/// What of a chain lies in some of its parts.
struct KeptParts {
  explicit KeptParts(const std::vector<layout::StagePart>& given) : parts(given) {
    for (const layout::StagePart& part : parts) {
      embeddings = embeddings || part.embeddings;
      end = end || part.end;
    }
  }
  bool block(std::int64_t index) const {
    return std::any_of(parts.begin(), parts.end(), [&](const layout::StagePart& part) {
      return index >= part.first_block && index < part.past_block();
    });
  }

  std::vector<layout::StagePart> parts;
  bool embeddings = false, end = false;
};

/// `member`, which `parent` has registered as `name`, becomes null and is registered no more.
template <class Module>
void drop(torch::nn::Module& parent, const std::string& name, std::shared_ptr<Module>& member) {
  member = nullptr;
  parent.unregister_module(name);
}

/// The same for the blocks, registered under their numbers, that are not kept.
template <class Block>
void drop_blocks(torch::nn::Module& parent, std::vector<std::shared_ptr<Block>>& blocks, const KeptParts& kept) {
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (!kept.block(static_cast<std::int64_t>(i))) drop(parent, std::to_string(i), blocks[i]);
}

}  // namespace tessera::models
