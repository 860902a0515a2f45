#pragma once
/// \file
/// The variables of a block, with access to the variables of the enclosing blocks.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/text/jinja/value.h>

namespace tessera::text::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;  ///< few: searched linearly

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
      for (const auto& [key, value] : scope->variables)
        if (key == name) return &value;
    return nullptr;
  }

  void set(std::string_view name, Value value) {
    for (auto& [key, known] : variables)
      if (key == name) {
        known = std::move(value);
        return;
      }
    variables.emplace_back(std::string(name), std::move(value));
  }
};

using ScopePtr = std::shared_ptr<Scope>;

}  // namespace tessera::text::jinja
