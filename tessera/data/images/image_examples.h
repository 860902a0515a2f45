#pragma once
/// \file
/// Examples from files of records with images, or of conversations formatted by --version (image_record.h).

#include <tessera/corpus/cache/tally.h>
#include <tessera/corpus/sources.h>
#include <tessera/data/images/image_record.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::data {

/// Examples in memory: per process, four bytes and one bit for each token of the text, and the images' names.
struct ImageExamples {
  std::shared_ptr<const ExampleSource> source;
  std::string kind;  ///< "conversations" or "messages"
  std::int64_t tokens = 0, scored = 0, images = 0;
  std::int64_t cut = 0;      ///< examples that were truncated
  std::int64_t dropped = 0;  ///< examples left without a scored token
  std::int64_t unclear = 0;  ///< conversations that cannot be scored and are left out, too
  std::int64_t stray = 0;    ///< records without images whose text contains "<image>"
  std::vector<std::string> unused_fields;
  corpus::Findings left_out, remarks;
};

/// Whether the first record with a non-null list has the form of image records: a list `conversations` whose items have
/// "from" (if the model sees images or --version is set), or `messages` for a model that sees images. Throws InputError
/// for a record of a different form that names images.
bool has_image_records(const std::vector<corpus::SourceFile>& files, const ImageOptions& images);

/// Reads all records, several at a time. Images must exist but are not opened. Throws InputError with the position of
/// an unusable record.
ImageExamples read_image_examples(const std::vector<corpus::SourceFile>& files, const text::Tokenizer& tokenizer,
                                  const ExampleOptions& options, const ImageOptions& images,
                                  const ReadProgress& progress);

}  // namespace tessera::data
