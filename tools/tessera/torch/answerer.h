#pragma once
/// \file
/// What `tessera generate` and `tessera chat` share: a model folder opened for generation, and the flags that say how
/// tokens are chosen.

#include <memory>
#include <string>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/models/causal_lm.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/tokenizer.h>
#include <tessera/train/inference/generate.h>

#include "tool.h"

namespace tessera::tool {

/// The flags of open_answerer() that take a value, and those that do not; a subcommand adds its own.
std::vector<std::string> answer_flags(std::vector<std::string> own);
std::vector<std::string> answer_switches(std::vector<std::string> own);

/// Their help, from "--max_new_tokens" on.
extern const char* const answer_help;

struct Answerer {
  std::shared_ptr<models::CausalLm> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::string tokenizer_place;  ///< what the tokenizer was loaded from
  train::GenerateOptions options;

  /// The chat template: --chat_template's, else the tokenizer's own. Throws InputError where there is none.
  text::ChatTemplate chat_template(const Flags& flags) const;
};

/// Reads the flags, loads model and tokenizer, sets the number of threads. Throws InputError before anything is
/// printed.
Answerer open_answerer(const Flags& flags, std::int64_t max_new_tokens);

/// {"role": role, "content": content}
Value chat_message(const std::string& role, const std::string& content);

/// The tokens of a conversation that ends with what the assistant's answer begins with; `options`: its tools, documents
/// and variables. ChatML has the tokenizer's prefix before it, as in training; a template writes it itself.
std::vector<std::int32_t> chat_prompt(const Answerer& answerer, const text::ChatTemplate& chat, const Value& messages,
                                      text::ChatOptions options = {});

/// Control characters but line feed and tab as ^X.
std::string without_controls(const std::string& text);
/// What a model said, to standard output, at once. On a terminal control characters are shown as ^X: a model must not
/// move the cursor or rename the window.
void print_said(const std::string& text);
/// To standard output, at once.
void print(const std::string& text);

}  // namespace tessera::tool
