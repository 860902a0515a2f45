#pragma once
/// \file
/// JSON Schema (draft 2020-12) of our own configuration file, from the table of settings, for editors: names, kinds,
/// words, ranges, help.

#include <tessera/base/value.h>

namespace tessera::config {

/// Settings by name, or below the name of their section; nothing else. Words are ours and other systems' (adamw_torch),
/// in lower case or as those systems write them.
Value file_schema();

}  // namespace tessera::config
