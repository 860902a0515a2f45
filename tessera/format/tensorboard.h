#pragma once
/// \file
/// TensorBoard event files, written without TensorFlow: protocol-buffer messages (tensorflow/core/util/event.proto,
/// framework/summary.proto) in TFRecord framing (tensorflow/core/lib/io/record_writer.cc). Steps and seconds are the
/// caller's: nothing here reads a clock, so the same calls give the same bytes.

#include <tessera/base/append_file.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::format {

/// A curve's name and its value at the step that is written. The part before the first '/' groups curves on the page.
using Scalar = std::pair<std::string_view, double>;

// ---- messages; wall_time is in Unix seconds --------------------------------------------------------------------
/// The first event of every file: file_version "brain.Event:2".
std::string version_event(double wall_time);
/// Several scalars of one step. They are stored as fp32, which is all that simple_value holds.
std::string scalar_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
/// Markdown for the "text" page; `text` is UTF-8.
std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view text);
/// A (re)start: readers drop what older files of the folder hold from `step` on.
std::string start_event(double wall_time, std::int64_t step);

/// length (8 bytes, little-endian), masked CRC-32C of these, message, masked CRC-32C of the message.
std::string tfrecord(std::string_view message);

/// One event file, open for appending. Every event is one write, so readers see whole records. Not copyable; one
/// thread at a time.
class EventFile {
 public:
  /// Creates `folder` when it is missing and in it events.out.tfevents.SECONDS.HOST.PID.N (the first N that is free),
  /// which starts with its version and a start event at `first_step`. Throws Error when that fails.
  EventFile(const std::string& folder, double wall_time, std::int64_t first_step);

  /// What the disk does not take at present is kept and written later.
  void scalars(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
  void text(double wall_time, std::int64_t step, std::string_view tag, std::string_view text);
  const std::string& path() const { return file_.path(); }

 private:
  void append(const std::string& message);

  AppendFile file_;
};

}  // namespace tessera::format
