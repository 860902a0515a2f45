#pragma once
/// \file
/// Identifies a tokenizer's files.

#include <string>
#include <string_view>

namespace tessera::text {

/// Whether a folder contains a tokenizer in a form that load_tokenizer() supports.
bool holds_tokenizer(const std::string& folder);

/// The folder of chat templates besides chat_template.jinja.
inline constexpr std::string_view more_templates = "additional_chat_templates";

/// Whether a file with that name in a model's folder belongs to the tokenizer, or to its processor, by the naming of
/// Hugging Face's libraries.
bool is_tokenizer_file(std::string_view name);
/// Whether every Tokenizer::save() writes a file of that name.
bool is_saved_by_all(std::string_view name);

}  // namespace tessera::text
