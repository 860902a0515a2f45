#pragma once
/// \file
/// Normalizes the various formats of conversations and pairs of answers into what training uses: lists of messages
/// {"role": ..., "content": ...}, or texts.

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// Returns a list of messages: a list's items, with ShareGPT's turns ("from", "value") converted; an object as a single
/// message; a non-empty text as one message of `role`. If `system` is a text and the list does not begin with a system
/// message, it is prepended. Throws InputError for an unknown speaker.
Value messages_of(const Value& conversation, std::string_view role, const Value* system = nullptr);

/// Whether a value is a list of messages or a single message, rather than text.
inline bool holds_messages(const Value& value) { return value.is_array() || value.is_object(); }

/// Members of ShareGPT's turns that messages_of() ignores, such as "conversations.weight". Members of messages are
/// passed on to the template.
std::vector<std::string> unread_in_turns(const Value& conversation, const std::string& column);

struct PairParts {
  const Value *prompt = nullptr, *system = nullptr;  ///< nullptr: absent
  const Value *chosen = nullptr, *rejected = nullptr;
};

/// Returns {"prompt", "chosen", "rejected"}: three texts or three lists of messages. Without a prompt it is the common
/// beginning of both answers: for lists their common messages, for texts their common words (a blank before the first
/// difference belongs to the answers). A prompt repeated in the answers' lists is removed from them; a text prompt with
/// lists that have no common beginning becomes the user's message. Throws LeftOut if an answer is empty or null, or
/// both texts are equal; InputError with the record's place if there is no common beginning, or an answer's first
/// message is not from the assistant.
Value pair_of(const Value& record, const PairParts& parts);

/// Removes null members at any depth. In tables, every row has the same members, so e.g. each tool call has the
/// arguments of all tool calls.
Value without_nulls(const Value& value);

}  // namespace tessera::corpus
