#pragma once
/// \file
/// A tokenizer together with its companion files: saving the tokenizer also saves them, so that other programs (and
/// `tessera chat`) can use a trained folder like the original one.

#include <memory>
#include <string>

#include <tessera/text/tokenizer.h>

namespace tessera::text {

/// Returns the same tokenizer, whose save() also writes, byte for byte and as they are on this call, the files of the
/// tokenizer's folder (`place`, or its parent) that is_tokenizer_file() accepts. The templates in its more_templates
/// become a list in tokenizer_config.json. `given`, the text of a template or its file as for load_chat_template, is
/// saved as chat_template.jinja in place of all of them. Returns the tokenizer itself if there are no such files.
/// Throws InputError if `given` does not name a file.
std::shared_ptr<const Tokenizer> with_companion_files(std::shared_ptr<const Tokenizer> tokenizer,
                                                      const std::string& place, const std::string& given);
/// The wrapped tokenizer, whose class identifies its kind.
const Tokenizer& without_companion_files(const Tokenizer& tokenizer);

}  // namespace tessera::text
