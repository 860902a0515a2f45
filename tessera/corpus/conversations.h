#pragma once
/// \file
/// Conversations and pairs of answers in the ways that people write them, as training takes them: lists of messages
/// {"role": ..., "content": ...}, or texts.

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// A list of messages: of a list its items, those of ShareGPT ("from", "value") in this form; of an object, which is
/// one message, that; of a text, unless it is empty, one message of `role`. `system`, where it is a text and the list
/// does not begin with one, goes first. Throws InputError for a speaker that is not known.
Value messages_of(const Value& conversation, std::string_view role, const Value* system = nullptr);

/// Whether a value is such a list, or one message, and no text.
inline bool holds_messages(const Value& value) { return value.is_array() || value.is_object(); }

/// Members of ShareGPT's turns that messages_of() passes over, as "conversations.weight". Those of messages go on to
/// the template.
std::vector<std::string> unread_in_turns(const Value& conversation, const std::string& column);

struct PairParts {
  const Value *prompt = nullptr, *system = nullptr;  ///< nullptr: there is none
  const Value *chosen = nullptr, *rejected = nullptr;
};

/// {"prompt", "chosen", "rejected"}, three texts or three lists of messages. Without a prompt, both answers begin with
/// it: lists with the messages that they have in common, texts with the words (a blank before the first other one
/// belongs to the answers). Lists that repeat the prompt lose it; a prompt that is a text before lists without a common
/// beginning is the user's message. Throws LeftOut where an answer is empty or null, or both texts are the same;
/// InputError with the record's place where there is no common beginning, or the answer's first message is not the
/// assistant's.
Value pair_of(const Value& record, const PairParts& parts);

/// The value without members that are null, at any depth: tables have one of the same kind in every row, so that a
/// call of a tool has the arguments of all calls there.
Value without_nulls(const Value& value);

}  // namespace tessera::corpus
