#pragma once
/// \file
/// Records with nothing to learn from. They are skipped and counted, whereas an invalid record is an error.

#include <tessera/base/error.h>

namespace tessera::corpus {

/// Thrown for a record that cannot be learned from: a cell is empty or null, a conversation has no answer. what() gives
/// the reason, with the same text for all records with the same problem and without their place.
class LeftOut : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera::corpus
