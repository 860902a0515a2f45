#pragma once
/// \file
/// JSON Schema (draft 2020-12) of our own configuration file, for editors, from the table of settings: names, types,
/// words, ranges, help.

#include <tessera/base/value.h>

namespace tessera::config {

/// Allows settings by name, at the top level or in their section, and no other keys. Words are ours and other systems'
/// (adamw_torch), in lower case or in those systems' spelling.
Value file_schema();

}  // namespace tessera::config
