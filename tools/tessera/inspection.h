#pragma once
/// \file
/// The result of `tessera checkpoint inspect`: facts in order, each in one form for users and one for scripts, and a
/// table of tensors.

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

/// Detects the kind of `path` (a folder or a file) and reads headers and JSON, but no weights. Throws InputError if it
/// is missing, not recognized, or damaged.
Inspection inspect(const std::string& path);

/// The facts, wrapped at 80 columns, followed by the table of tensors if `tensors`.
std::string inspection_text(const Inspection& inspection, bool tensors);
/// One JSON object, with a member tensor_list if `tensors`.
std::string inspection_json(const Inspection& inspection, bool tensors);

}  // namespace tessera::tool
