#pragma once
/// \file
/// A tokenizer together with the chat template that belongs to it: where one is saved, the other is, so that a trained
/// folder can be talked with.

#include <memory>
#include <string>

#include <tessera/text/tokenizer.h>

namespace tessera::text {

/// The same tokenizer, whose save() also writes chat_template.jinja: `given` (the text of a template or a file of one,
/// as load_chat_template takes it) if that is not empty; else the file that lies in the tokenizer's folder (`place`, or
/// beside it). Where there is neither (tokenizer_config.json, which is saved anyway, may hold the template) the
/// tokenizer itself is returned. Throws InputError where `given` names no file.
std::shared_ptr<const Tokenizer> with_chat_template(std::shared_ptr<const Tokenizer> tokenizer,
                                                    const std::string& place, const std::string& given);

}  // namespace tessera::text
