#include <tessera/format/tensorboard.h>

#include <fcntl.h>
#include <unistd.h>
#include <bit>
#include <cerrno>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/system/host_name.h>
#include <tessera/format/manifest/crc32c.h>

namespace tessera::format {
namespace {

// ---- protocol-buffer wire format (protobuf.dev, "Encoding") ----------------------------------------------------
enum Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <class Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, unsigned field, Wire wire) { put_varint(out, field << 3 | wire); }

void put_integer(std::string& out, unsigned field, std::int64_t value) {
  put_key(out, field, varint);
  put_varint(out, static_cast<std::uint64_t>(value));
}

void put_double(std::string& out, unsigned field, double value) {
  put_key(out, field, fixed64);
  put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

void put_float(std::string& out, unsigned field, float value) {
  put_key(out, field, fixed32);
  put_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

/// A string, or an already encoded message.
void put_bytes(std::string& out, unsigned field, std::string_view value) {
  put_key(out, field, bytes);
  put_varint(out, value.size());
  out += value;
}

// ---- field numbers ---------------------------------------------------------------------------------------------
namespace event {
constexpr unsigned wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace summary {
constexpr unsigned value = 1, tag = 1, simple_value = 2, tensor = 8,
                   metadata = 9;  // fields of Summary, then of Summary.Value
}
namespace session_log {
constexpr unsigned status = 1;
constexpr int start = 1;
}  // namespace session_log

std::string event_head(double wall_time, std::int64_t step) {
  std::string out;
  put_double(out, event::wall_time, wall_time);
  if (step != 0) put_integer(out, event::step, step);  // proto3 omits default values
  return out;
}

std::uint32_t masked_crc(std::string_view text) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(text)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace

std::string version_event(double wall_time) {
  std::string out = event_head(wall_time, 0);
  put_bytes(out, event::file_version, "brain.Event:2");
  return out;
}

std::string scalar_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string values;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, summary::tag, tag);
    put_float(value, summary::simple_value, static_cast<float>(number));
    put_bytes(values, summary::value, value);
  }
  std::string out = event_head(wall_time, step);
  put_bytes(out, event::summary, values);
  return out;
}

std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view text) {
  std::string plugin;  // SummaryMetadata.PluginData
  put_bytes(plugin, 1, "text");
  std::string metadata;
  put_bytes(metadata, 1, plugin);
  std::string dimension, shape;  // one element
  put_integer(dimension, 1, 1);
  put_bytes(shape, 2, dimension);
  std::string tensor;         // TensorProto
  put_integer(tensor, 1, 7);  // dtype DT_STRING
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);  // string_val
  std::string value, values;
  put_bytes(value, summary::tag, tag);
  put_bytes(value, summary::tensor, tensor);
  put_bytes(value, summary::metadata, metadata);
  put_bytes(values, summary::value, value);
  std::string out = event_head(wall_time, step);
  put_bytes(out, event::summary, values);
  return out;
}

std::string start_event(double wall_time, std::int64_t step) {
  std::string log;
  put_integer(log, session_log::status, session_log::start);
  std::string out = event_head(wall_time, step);
  put_bytes(out, event::session_log, log);
  return out;
}

std::string tfrecord(std::string_view message) {
  std::string out;
  put_little_endian(out, static_cast<std::uint64_t>(message.size()));
  put_little_endian(out, masked_crc(out));
  out += message;
  put_little_endian(out, masked_crc(message));
  return out;
}

EventFile::EventFile(const std::string& folder, double wall_time, std::int64_t first_step) {
  make_folders(folder);
  const std::string name = path_join(folder, concat("events.out.tfevents.", static_cast<std::int64_t>(wall_time), ".",
                                                    host_name("localhost"), ".", getpid(), "."));
  int number = 0;
  while (path_exists(concat(name, number))) ++number;
  file_ = AppendFile(concat(name, number), O_CREAT | O_EXCL);
  append(version_event(wall_time));
  append(start_event(wall_time, first_step));
}

void EventFile::scalars(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  append(scalar_event(wall_time, step, scalars));
}

void EventFile::text(double wall_time, std::int64_t step, std::string_view tag, std::string_view text) {
  append(text_event(wall_time, step, tag, text));
}

void EventFile::append(const std::string& message) { file_.append(tfrecord(message)); }

}  // namespace tessera::format
