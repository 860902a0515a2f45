#pragma once
/// \file
/// The record (wire/recorder.h) of this process, and what its collectives belong to.

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

/// The record of this process; part of the World, usable before init() as well.
Recorder& recorder();

/// For backends, inside of an operation or of its Pending's wait(): this many bytes left this process, where that is
/// not what the theory says (wire_bytes in launch/watch/record.h). Several calls for one collective add up.
void report_moved(std::int64_t bytes);
/// What this thread's backends reported since the last call, or -1 (Group's business).
std::int64_t take_moved();

/// Names what the collectives started by this thread belong to, while it lives. Nests; the innermost is recorded. Part
/// of a collective's signature: ranks that start equal collectives for different things (the parameters of two units)
/// are told so like any other mismatch, therefore the text is the same on every rank. (The first bytes of it:
/// Entry::tag.)
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
