#pragma once
/// \file
/// Showing the configuration: --print_config, --help, and the table in the report.

#include <tessera/base/value.h>
#include <tessera/config/resolve.h>

#include <string>

namespace tessera::config {

/// {"optimization": {"learning_rate": {"value": 5e-05, "origin": "--learning_rate"}, ...}, ...}: every setting, by section, in
/// the order of the table.
Value config_value(const Resolved& resolved);
/// The same as JSON text with a newline at its end.
std::string print_config_json(const Resolved& resolved);

/// The text of `tessera train --help`: usage, then every flag with its default, by section.
std::string help_text(const std::string& command);

}  // namespace tessera::config
