#pragma once
/// \file
/// The contents of the rendezvous store: a table of keys and values, and the semantics of the requests on it. It
/// neither uses the network nor waits.

#include <tessera/launch/store/store_wire.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// The outcome of one request.
struct StoreAnswer {
  wire::Status status = wire::Status::ok;
  std::int64_t number = 0;
  std::vector<std::string> fields;
  /// Not empty: the request must wait, and be submitted again when this key appears. In that case, status and fields
  /// are those of a timeout.
  std::string blocked_on;
  /// Keys that the request set: requests blocked on one of them may continue.
  std::vector<std::string> touched;
};

/// Not thread-safe.
class StoreTable {
 public:
  struct Limits {
    std::size_t key_bytes, value_bytes, memory_bytes;
  };
  explicit StoreTable(Limits limits) : limits_(limits) {}

  /// Handles any message that a peer may send; an invalid request is answered with Status::bad_request. `others` bytes
  /// of memory are in use elsewhere and count against the limit.
  StoreAnswer handle(const wire::Message& request, std::size_t others = 0);

  std::optional<std::string> get(std::string_view key) const;
  std::vector<std::string> list(std::string_view prefix) const;
  bool erase(std::string_view key);
  /// Erases all keys with the prefix.
  void erase_prefix(std::string_view prefix);
  /// Keys, values and the overhead of the table.
  std::size_t memory_bytes() const { return bytes_; }

 private:
  using Fields = std::vector<std::string_view>;

  StoreAnswer refuse(wire::Status status, std::string why) const;
  std::optional<StoreAnswer> check_fields(wire::Op op, const Fields& fields, std::size_t others) const;
  void put(std::string_view key, std::string value, StoreAnswer& answer);
  StoreAnswer get_all(const Fields& keys, bool values) const;
  StoreAnswer add(std::string_view key, std::int64_t delta);
  StoreAnswer compare_set(const Fields& fields);

  Limits limits_;
  std::map<std::string, std::string, std::less<>> values_;
  std::size_t bytes_ = 0;
};

}  // namespace tessera::launch
