#pragma once
/// \file
/// Result of `tessera checkpoint inspect`: facts in order, each for users and for scripts, and a table of tensors.

#include <tessera/base/value.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::tool {

struct InspectedTensor {
  std::string name;
  std::string dtype;                ///< "F32", "Q4_1"
  std::vector<std::int64_t> shape;  ///< row-major
  std::uint64_t bytes = 0;
};

struct Inspection {
  std::string path;
  std::string kind;                                        ///< "Hugging Face model folder", ...
  std::vector<std::pair<std::string, std::string>> facts;  ///< label and text, for users
  Value json = Value::make_object();                       ///< members for scripts
  std::vector<InspectedTensor> tensors;

  void fact(const std::string& label, const std::string& text) { facts.emplace_back(label, text); }
  void set(const std::string& key, Value value) { json.set(key, std::move(value)); }
};

/// Detects the kind of `path` (a folder or a file) and reads headers and JSON, no weights. Throws InputError: missing,
/// not recognized, or damaged.
Inspection inspect(const std::string& path);

/// The facts, wrapped at 80 columns; with `tensors` followed by their table.
std::string inspection_text(const Inspection& inspection, bool tensors);
/// One JSON object; with `tensors` it has a member tensor_list.
std::string inspection_json(const Inspection& inspection, bool tensors);

}  // namespace tessera::tool
