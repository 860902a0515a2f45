#pragma once
/// \file
/// Texts with a class each, for sequence classification: the lines of a .jsonl,
///
///   {"text": "...", "label": 1}      or      {"text": "...", "text_pair": "...", "label": "positive"}
///
/// A label is the number of a class, true or false, or its name. Texts are encoded with their special tokens and cut to
/// the longest length. Other fields are not used.

#include <tessera/data/dataset.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::data {

/// The classes that a file's labels name, in order: sorted names, or "LABEL_0" ... up to the largest number, as
/// transformers calls them. nullopt: not a .jsonl whose first line has a text and a label. Throws InputError with
/// file:line:column where some labels are numbers and others names, or a number is negative or beyond 10,000.
std::optional<std::vector<std::string>> label_names(const std::string& path, const std::string& text_field);

/// train_file and validation_file (else the last share of train_file, as open_datasets says) as rows: labels[0] is the
/// class, by `classes` (name -> number) or by number below `class_count`; the other labels are -100. Throws InputError
/// with file:line:column for lines without text or label and for classes that the model does not have.
Datasets open_labelled(const DataConfig& config, const text::WordPieceTokenizer& tokenizer, std::int64_t max_length,
                       const std::map<std::string, std::int64_t>& classes, std::int64_t class_count,
                       bool want_validation);

}  // namespace tessera::data
