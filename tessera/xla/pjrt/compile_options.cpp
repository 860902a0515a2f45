#include <tessera/xla/pjrt/compile_options.h>

#include <cstdint>

namespace tessera::xla {
namespace {

// Protocol buffers' wire format: a field is a varint of (number << 3 | kind), then a varint (kind 0) or a length and
// bytes (kind 2).
void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void put_number(std::string& out, int field, std::uint64_t value) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3);
  put_varint(out, value);
}
void put_bytes(std::string& out, int field, const std::string& bytes) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string device_assignment(const CompileOptions& options) {
  std::string result;
  put_number(result, 1, static_cast<std::uint64_t>(options.replicas));    // replica_count
  put_number(result, 2, static_cast<std::uint64_t>(options.partitions));  // computation_count
  for (int p = 0; p < options.partitions; ++p) {
    std::string devices, computation;
    for (int r = 0; r < options.replicas; ++r)
      put_varint(devices, static_cast<std::uint64_t>(r) * static_cast<std::uint64_t>(options.partitions) +
                              static_cast<std::uint64_t>(p));
    put_bytes(computation, 1, devices);  // replica_device_ids
    put_bytes(result, 3, computation);   // computation_devices
  }
  return result;
}

}  // namespace

std::string serialize(const CompileOptions& options) {
  std::string build;
  put_number(build, 1, ~std::uint64_t{0});                               // device_ordinal: none
  put_number(build, 4, static_cast<std::uint64_t>(options.replicas));    // num_replicas
  put_number(build, 5, static_cast<std::uint64_t>(options.partitions));  // num_partitions
  put_number(build, 6, options.partitions > 1 ? 1 : 0);                  // use_spmd_partitioning
  put_bytes(build, 9, device_assignment(options));                       // device_assignment
  std::string result;
  put_bytes(result, 3, build);  // executable_build_options
  for (const auto& [name, on] : options.flags) {
    std::string value, entry;
    put_number(value, 2, on ? 1 : 0);  // OptionOverrideProto.bool_field
    put_bytes(entry, 1, name);
    put_bytes(entry, 2, value);
    put_bytes(result, 7, entry);  // env_option_overrides
  }
  return result;
}

}  // namespace tessera::xla
