#pragma once
/// \file
/// The position that the JSON and YAML readers report for a member.

#include <tessera/base/value.h>

namespace tessera {

/// A value that begins on a later line than its key is reported at the key, where people look for it. A value that
/// precedes its key (a YAML alias) keeps its own position.
inline Value at_key(Value value, const SourcePos& key) {
  if (value.where().line > key.line) value.set_where(key);
  return value;
}

}  // namespace tessera
