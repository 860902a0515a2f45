#pragma once
/// \file
/// Records that training goes without: left out and counted, where a wrong one ends the reading.

#include <tessera/base/error.h>

namespace tessera::corpus {

/// Nothing can be learnt from a record: a cell is empty or null, a conversation without an answer. what() says why,
/// the same words for all records of a kind and without their place.
class LeftOut : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera::corpus
