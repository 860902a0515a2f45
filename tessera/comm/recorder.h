#pragma once
/// \file
/// This process's record (wire/recorder.h), and tags that describe its collectives.

#include <tessera/launch/watch/record.h>
#include <tessera/wire/recorder.h>

#include <cstdint>
#include <string>

namespace tessera::comm {

using launch::axis_of;
using launch::describe;
using launch::Entry;
using launch::Op;
using launch::op_count;
using launch::op_name;
using launch::Status;
using launch::wire_bytes;
using wire::OpTotals;
using wire::Recorder;

/// This process's record; part of the World, but usable before init().
Recorder& recorder();

/// For backends, inside an operation or its Pending's wait(): reports the bytes that left this process if they differ
/// from the theoretical number (wire_bytes in launch/watch/record.h). Several calls for one collective add up.
void report_moved(std::int64_t bytes);
/// Bytes that this thread's backends have reported since the last call, or -1 for none (called by Group).
std::int64_t take_moved();

/// Describes the collectives that this thread starts during the object's lifetime. Nests; the innermost is recorded.
/// The tag is part of a collective's signature: ranks that start equal collectives for different purposes (the
/// parameters of two units) get a mismatch error, so the text must be the same on every rank. (Entry::tag keeps its
/// first bytes.)
class Tag {
 public:
  explicit Tag(std::string text);
  ~Tag();
  Tag(const Tag&) = delete;
  Tag& operator=(const Tag&) = delete;
  /// The innermost tag of this thread, or "".
  static const std::string& current();

 private:
  std::string text_;
  const Tag* outer_;
};

}  // namespace tessera::comm
