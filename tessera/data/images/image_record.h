#pragma once
/// \file
/// From one record with images, or of a conversation that --version writes, to ids.

#include <tessera/base/value.h>
#include <tessera/data/examples.h>
#include <tessera/data/image_input.h>
#include <tessera/text/conversation.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::data {

/// In EncodedImages::ids, where an image is.
inline constexpr std::int32_t image_mark = -1;

struct ImageOptions {
  std::optional<ImageInput> input;                   ///< nothing: the model sees no images
  const text::Conversation* conversation = nullptr;  ///< how `conversations` are written; nullptr: there are none
  std::string folder;                                ///< where the images are
};

struct EncodedImages {
  std::vector<std::int32_t> ids;    ///< image_mark once for each image
  std::vector<bool> scored;         ///< for each id; images are not
  std::vector<std::string> images;  ///< names in the folder, one for each mark
  bool cut = false;                 ///< it was longer
  bool unclear = false;             ///< it is a conversation that cannot be scored (text::rounds_of)
  bool stray_mark = false;          ///< a record without images has "<image>" in its text, which is read as text
  std::vector<std::string> unused_fields;
  std::string left_out, remark;  ///< as in corpus::EncodedRecord
};

/// Which of the two forms a record has.
enum class ImageRecord { none, conversations, messages };
ImageRecord kind_of_record(const Value& record);

/// Records are {"conversations": [{"from": "human" | "gpt", "value": "..."}], "image": "NAME" | ["NAME", ...]}, or
/// {"messages": [...], "images": ["NAME", ...]} whose contents are texts or lists of parts {"type": "text", "text"} and
/// {"type": "image"} (with "image" or "path": a name), which the chat template writes as "<image>". An image and its
/// tokens are cut off together: an example has at most options.max_length tokens, each image counted as its
/// input->tokens. Every id is below options.vocab_size. Throws InputError with the record's place for another form, for
/// images of another number than there are "<image>" in the text, and for a name that leaves the folder or is not
/// there. Any number of threads may call it.
EncodedImages encode_images(const Value& record, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                            const ImageOptions& images);

}  // namespace tessera::data
