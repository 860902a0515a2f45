#pragma once
/// \file
/// Where a tokenizer's files are.

#include <string>
#include <string_view>

namespace tessera::text {

/// Whether a folder holds a tokenizer in one of the forms that load_tokenizer() reads.
bool holds_tokenizer(const std::string& folder);

/// The folder of chat templates besides chat_template.jinja.
inline constexpr std::string_view more_templates = "additional_chat_templates";

/// Whether a file of that name in a model's folder belongs to the tokenizer, or to the processor around it, as Hugging
/// Face's libraries name them.
bool is_tokenizer_file(std::string_view name);
/// Whether every Tokenizer::save() writes it.
bool is_saved_by_all(std::string_view name);

}  // namespace tessera::text
