#pragma once
/// \file
/// The protocol of the rendezvous store: fixed layouts, little endian, over TCP.
///
/// K is the job's secret, H HMAC-SHA256. The client speaks first; a peer that does not know K learns nothing, not even
/// the version:
///
///     hello  (client)  magic[8] version:u32 generation:i32 nonce_c[32]                                    H(K, "hello"
///     ..) reply  (server)  magic[8] version:u32 status:u32 generation:i32 0:u32 message_limit:u64 nonce_s[32]
///                                                                               H(K, "reply" hello-without-mac ..)
///     proof  (client)                                                           H(K, "proof" nonce_c nonce_s)
///
/// Each side has then proved that it knows K over the other's fresh nonce, and each direction gets its own key, H(K,
/// "client"|"server" nonce_c nonce_s). Frames of a session:
///
///     payload_bytes:u32 kind:u16 0:u16 sequence:u64 number:i64 fields:u32 0:u32 | fields x (bytes:u32 ...) | H(key,
///     all before)
///
/// `kind` is an Op in requests and a Status in answers; `sequence` counts the frames of its direction from 0, so that
/// nothing can be injected, repeated, dropped or reordered. Each connection has at most one open request, answered
/// once. The store may send one unrequested answer before it closes: Status::stale. The contents are not encrypted:
/// addresses of ranks and the like are not secret; the secret itself is never sent.

#include <tessera/launch/store/hmac.h>
#include <tessera/launch/store/store_secret.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch::wire {

constexpr std::uint32_t version = 3;
constexpr std::string_view magic = "TESSRDZV";
constexpr std::size_t nonce_bytes = 32, mac_bytes = 32, header_bytes = 32;
constexpr std::size_t hello_bytes = 80, reply_bytes = 96, proof_bytes = 32;

using Nonce = std::array<std::uint8_t, nonce_bytes>;

/// The comments give `number` and the fields of each request, and those of the answer in brackets.
enum class Op : std::uint16_t {
  set = 1,      ///< key, value
  get,          ///< number = timeout; keys [their values]
  wait,         ///< number = timeout; keys
  check,        ///< keys [number: 1 when all exist]
  add,          ///< number = the summand; key [number: the sum]
  compare_set,  ///< key, expected, desired [value]
  erase,        ///< key [number: 1 when it existed]
  num_keys,     ///< [number]
  append,       ///< key, value
  multi_set,    ///< key, value, key, value...
  list,         ///< prefix [keys]
  will,         ///< key, value: set when the peer closes this connection or dies
};
constexpr std::uint16_t last_op = static_cast<std::uint16_t>(Op::will);

enum class Status : std::uint16_t {
  ok,
  timeout,      ///< fields: the missing keys
  bad_request,  ///< fields: the reason. Also for a value that is not a number in Op::add
  full,         ///< fields: the reason. The store's memory is used up, or the answer would be too large
  stale,        ///< number = the current generation: the peer belongs to an older one
};

/// Milliseconds; a negative timeout never expires.
constexpr std::int64_t no_timeout = -1;

/// One message in either direction. The fields point into the bytes from which it was read.
struct Message {
  std::uint16_t kind = 0;
  std::int64_t number = 0;
  std::vector<std::string_view> fields;
};

/// Header and payload; the MAC is appended to it.
std::string encode(std::uint16_t kind, std::uint64_t sequence, std::int64_t number,
                   std::span<const std::string_view> fields);

struct Header {
  std::uint32_t payload_bytes = 0;
  std::uint16_t kind = 0;
  std::uint64_t sequence = 0;
  std::int64_t number = 0;
  std::uint32_t fields = 0;
};
/// Reads a header from `header_bytes` bytes; nullopt when it is invalid (reserved bytes in use, more fields than the
/// payload can contain).
std::optional<Header> read_header(std::string_view bytes);
/// nullopt unless the payload consists of exactly the fields that the header announces.
std::optional<Message> read_payload(const Header& header, std::string_view payload);

struct Hello {
  std::uint32_t version = wire::version;
  std::int32_t generation = 0;
  Nonce nonce{};
};
enum class ReplyStatus : std::uint32_t { welcome, other_version, stale_generation, too_many };
struct Reply {
  std::uint32_t version = wire::version;
  ReplyStatus status = ReplyStatus::welcome;
  std::int32_t generation = 0;
  std::uint64_t message_limit = 0;  ///< largest payload that the store accepts, bytes
  Nonce nonce{};
};

std::string encode_hello(const Secret& secret, const Hello& hello);
/// nullopt: the sender does not know the secret. The sender's version may differ from this one.
std::optional<Hello> read_hello(const Secret& secret, std::string_view bytes);
std::string encode_reply(const Secret& secret, std::string_view hello, const Reply& reply);
std::optional<Reply> read_reply(const Secret& secret, std::string_view hello, std::string_view bytes);
Digest proof(const Secret& secret, const Nonce& client, const Nonce& server);
Digest client_key(const Secret& secret, const Nonce& client, const Nonce& server);
Digest server_key(const Secret& secret, const Nonce& client, const Nonce& server);

inline std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tessera::launch::wire
