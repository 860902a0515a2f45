#pragma once
/// \file
/// Texts with a class each, for sequence classification: the records of files of any kind (corpus/records.h),
///
///   {"text": "...", "label": 1}      or      {"text": "...", "text_pair": "...", "label": "positive"}
///
/// A label is the number of a class, true or false, or its name; in a .csv, whose cells are texts, one that is written
/// like a number is one. Texts are encoded with their special tokens and cut to
/// the longest length. Other fields are not used.

#include <tessera/data/dataset.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::data {

/// The classes that the labels of a list of files (corpus/data_list.h) name, in order: sorted names, or "LABEL_0" ...
/// up to the largest number, as transformers calls them. nullopt: it is text, tokens, or records of which the first has
/// no text or no label. Reads all. Throws InputError with the place where some labels are numbers and others names, or
/// a number is negative or beyond 10,000.
std::optional<std::vector<std::string>> label_names(const std::string& list, const std::string& text_field);

/// train_file and validation_file (else the last share of train_file, as open_datasets says) as rows: labels[0] is the
/// class, by `classes` (name -> number) or by number below `class_count`; the other labels are -100. Throws InputError
/// with file:line:column for records without text or label and for classes that the model does not have.
Datasets open_labelled(const DataConfig& config, const text::WordPieceTokenizer& tokenizer, std::int64_t max_length,
                       const std::map<std::string, std::int64_t>& classes, std::int64_t class_count,
                       bool want_validation);

}  // namespace tessera::data
