#pragma once
/// \file
/// Writes TensorBoard event files without TensorFlow: protocol-buffer messages (tensorflow/core/util/event.proto,
/// framework/summary.proto) in TFRecord framing (tensorflow/core/lib/io/record_writer.cc). The caller passes steps and
/// times: no clock is read here, so the same calls give the same bytes.

#include <tessera/base/append_file.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::format {

/// A curve's name and its value at one step. Curves are grouped on the page by the part of the name before the first
/// '/'.
using Scalar = std::pair<std::string_view, double>;

// ---- messages; wall_time is in Unix seconds --------------------------------------------------------------------
/// The first event of every file: file_version "brain.Event:2".
std::string version_event(double wall_time);
/// Several scalars of one step, stored as fp32 (the type of simple_value).
std::string scalar_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
/// Markdown for the "text" page; `text` must be UTF-8.
std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view text);
/// Marks a (re)start: readers discard data from `step` on in older files of the folder.
std::string start_event(double wall_time, std::int64_t step);

/// length (8 bytes, little-endian), its masked CRC-32C, message, masked CRC-32C of the message.
std::string tfrecord(std::string_view message);

/// One event file, open for appending. Every event is a single write, so readers only see complete records. Not
/// copyable; may be used by one thread at a time.
class EventFile {
 public:
  /// Creates `folder` if it is missing, and in it the file events.out.tfevents.SECONDS.HOST.PID.N (the first free N),
  /// which begins with the version and a start event at `first_step`. Throws Error on failure.
  EventFile(const std::string& folder, double wall_time, std::int64_t first_step);

  /// If the disk refuses a write, the event is kept and written later.
  void scalars(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
  void text(double wall_time, std::int64_t step, std::string_view tag, std::string_view text);
  const std::string& path() const { return file_.path(); }

 private:
  void append(const std::string& message);

  AppendFile file_;
};

}  // namespace tessera::format
