#pragma once
/// \file
/// Encodes one record with images, or one conversation formatted by --version, into ids.

#include <tessera/base/value.h>
#include <tessera/data/examples.h>
#include <tessera/data/image_input.h>
#include <tessera/text/conversation.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::data {

/// Placeholder for an image in EncodedImages::ids.
inline constexpr std::int32_t image_mark = -1;

struct ImageOptions {
  std::optional<ImageInput> input;                   ///< nullopt: the model has no image input
  const text::Conversation* conversation = nullptr;  ///< format of `conversations`; nullptr: not set
  std::string folder;                                ///< folder of the image files
};

struct EncodedImages {
  std::vector<std::int32_t> ids;    ///< token ids, with one image_mark per image
  std::vector<bool> scored;         ///< one flag per id; images are never scored
  std::vector<std::string> images;  ///< file names within the folder, one per mark
  bool cut = false;                 ///< whether the example was truncated
  bool unclear = false;             ///< a conversation that cannot be scored (text::rounds_of)
  bool stray_mark = false;          ///< a record without images contains "<image>", which is read as text
  std::vector<std::string> unused_fields;
  std::string left_out, remark;  ///< as in corpus::EncodedRecord
};

/// The form of a record.
enum class ImageRecord { none, conversations, messages };
ImageRecord kind_of_record(const Value& record);

/// Encodes a record {"conversations": [{"from": "human" | "gpt", "value": "..."}], "image": "NAME" | ["NAME", ...]}, or
/// {"messages": [...], "images": ["NAME", ...]} whose contents are texts or lists of parts {"type": "text", "text"} and
/// {"type": "image"} (with "image" or "path": a name), which the chat template formats as "<image>". An image is
/// truncated only as a whole: an example has at most options.max_length tokens, each image counted as input->tokens.
/// Every id is below options.vocab_size. Throws InputError with the record's position for a record of a different form,
/// a number of images that differs from the number of "<image>" in the text, and a name that leaves the folder or does
/// not exist. Any number of threads may call it.
EncodedImages encode_images(const Value& record, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                            const ImageOptions& images);

}  // namespace tessera::data
