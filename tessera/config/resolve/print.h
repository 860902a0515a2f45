#pragma once
/// \file
/// Prints the configuration: --print_config and --help.

#include <string>

namespace tessera::config {

struct Resolved;

/// to_value() as JSON text, terminated by a newline.
std::string print_config_json(const Resolved& resolved);

/// The text of `tessera train --help`: usage, then every flag with its default, by section.
std::string help_text();

}  // namespace tessera::config
