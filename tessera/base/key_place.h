#pragma once
/// \file
/// Where the readers of JSON and YAML say that a member stands.

#include <tessera/base/value.h>

namespace tessera {

/// A value that begins in a later line than its key gets the key's place, where people look for it. One that stands
/// before its key (a YAML alias) keeps its own.
inline Value at_key(Value value, const SourcePos& key) {
  if (value.where().line > key.line) value.set_where(key);
  return value;
}

}  // namespace tessera
