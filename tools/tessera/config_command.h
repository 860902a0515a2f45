#pragma once
/// \file
/// The subcommands of `tessera config`. Each takes the arguments after its own name and returns an exit code.

#include <tessera/config/convert/convert.h>
#include <tessera/config/resolve/resolve.h>
#include <tools/tessera/commands.h>

#include <string>

namespace tessera::tool {

int config_show(const Arguments& arguments);
int config_check(const Arguments& arguments);
int config_convert(const Arguments& arguments);
int config_default(const Arguments& arguments);
int config_update(const Arguments& arguments);
int config_to_fsdp2(const Arguments& arguments);
int config_questionnaire(const Arguments& arguments);

/// The file's kind: `word` (from --kind) or a guess. Throws an InputError that lists the kinds.
config::FileKind kind_of_file(const std::string& path, const std::optional<std::string>& word);

/// Resolves settings as for `tessera train`, with FILE allowed without its flag. The environment is used only if
/// `environment`. Problems are appended.
config::Resolved resolve_arguments(const Arguments& arguments, bool environment, config::Problems& problems);

/// Prints the reader's warnings to stderr, one per line.
void print_notes(const config::Resolved& resolved);

/// Writes the file completely or not at all. An existing file is kept (InputError) unless `overwrite`.
void write_configuration(const std::string& path, const std::string& text, bool overwrite);

}  // namespace tessera::tool
