#pragma once
/// \file
/// Shared by `tessera generate` and `tessera chat`: a model folder opened for generation, and the sampling flags.

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

/// The flags of open_answerer() that take a value, and its switches, each added to a subcommand's own.
std::vector<std::string> answer_flags(std::vector<std::string> own);
std::vector<std::string> answer_switches(std::vector<std::string> own);

/// The help text of these flags, from "--greedy" on.
extern const char* const answer_help;

struct Answerer {
  std::shared_ptr<models::CausalLm> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::string tokenizer_place;  ///< path from which the tokenizer was loaded
  train::GenerateOptions options;

  /// The chat template: that of --chat_template, otherwise the tokenizer's own. Throws InputError if neither exists.
  text::ChatTemplate chat_template(const Flags& flags) const;
};

/// Reads the flags, loads model and tokenizer, sets the number of threads. Throws InputError before anything is
/// printed.
Answerer open_answerer(const Flags& flags, std::int64_t max_new_tokens);

/// {"role": role, "content": content}
Value chat_message(const std::string& role, const std::string& content);

/// Returns the tokens of a conversation, ending with the beginning of the assistant's answer; `options`: its tools,
/// documents and variables. With ChatML the tokenizer's prefix is added, as in training; other templates write it
/// themselves.
std::vector<std::int32_t> chat_prompt(const Answerer& answerer, const text::ChatTemplate& chat, const Value& messages,
                                      text::ChatOptions options = {});

/// Replaces control characters, except line feed and tab, with ^X.
std::string without_controls(const std::string& text);
/// Writes a model's output to standard output immediately. On a terminal, control characters are shown as ^X, because a
/// model must not move the cursor or rename the window.
void print_said(const std::string& text);
/// Writes to standard output immediately.
void print(const std::string& text);

}  // namespace tessera::tool
