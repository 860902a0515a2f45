#pragma once
/// \file
/// Files of records with images, or of conversations that --version writes (image_record.h), as examples.

#include <tessera/corpus/cache/tally.h>
#include <tessera/corpus/sources.h>
#include <tessera/data/images/image_record.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::data {

/// Examples in memory: four bytes for each token of the text and one bit, and the names of the images, in each process.
struct ImageExamples {
  std::shared_ptr<const ExampleSource> source;
  std::string kind;  ///< "conversations" or "messages"
  std::int64_t tokens = 0, scored = 0, images = 0;
  std::int64_t cut = 0;      ///< examples that were longer
  std::int64_t dropped = 0;  ///< examples of which no scored token was left
  std::int64_t unclear = 0;  ///< conversations that cannot be scored, left out as well
  std::int64_t stray = 0;    ///< records without images whose text has "<image>"
  std::vector<std::string> unused_fields;
  corpus::Findings left_out, remarks;
};

/// Whether the first record whose list is not null is one of these: with a list `conversations` whose items say "from"
/// (and there is a model that sees images, or a --version), or with `messages`, for a model that sees images. Throws
/// InputError for a record of another form that names images.
bool has_image_records(const std::vector<corpus::SourceFile>& files, const ImageOptions& images);

/// Reads all records, several at a time. Images are looked for, and not opened. Throws InputError with the place for a
/// record that cannot be used.
ImageExamples read_image_examples(const std::vector<corpus::SourceFile>& files, const text::Tokenizer& tokenizer,
                                  const ExampleOptions& options, const ImageOptions& images,
                                  const ReadProgress& progress);

}  // namespace tessera::data
