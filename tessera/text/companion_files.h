#pragma once
/// \file
/// A tokenizer together with the files that belong to it: where one is saved, the others are, so that a trained folder
/// means to others what the one it came from did, and can be talked with.

#include <memory>
#include <string>

#include <tessera/text/tokenizer.h>

namespace tessera::text {

/// The same tokenizer, whose save() also writes, byte for byte, what is_tokenizer_file() names in the tokenizer's
/// folder (`place`, or around it), as it is now. Templates of its more_templates become a list in
/// tokenizer_config.json. `given`, the text of a template or a file of one, as load_chat_template takes it, is saved as
/// chat_template.jinja in place of all of them. Where there is nothing of the kind the tokenizer itself is returned.
/// Throws InputError where `given` names no file.
std::shared_ptr<const Tokenizer> with_companion_files(std::shared_ptr<const Tokenizer> tokenizer,
                                                      const std::string& place, const std::string& given);
/// The tokenizer itself, whose class tells its kind.
const Tokenizer& without_companion_files(const Tokenizer& tokenizer);

}  // namespace tessera::text
