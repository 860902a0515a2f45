#include <tessera/launch/store/store_wire.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace tessera::launch::wire {

namespace {

template <class Integer>
void put(std::string& out, Integer value) {
  auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
  for (std::size_t i = 0; i < sizeof(Integer); ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

// Removes an integer from the front of `bytes`, which must be long enough.
template <class Integer>
Integer take(std::string_view& bytes) {
  std::make_unsigned_t<Integer> value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= static_cast<std::make_unsigned_t<Integer>>(
        static_cast<std::make_unsigned_t<Integer>>(static_cast<unsigned char>(bytes[i])) << (8 * i));
  }
  bytes.remove_prefix(sizeof(Integer));
  return static_cast<Integer>(value);
}

Nonce take_nonce(std::string_view& bytes) {
  Nonce nonce;
  const auto from = as_bytes(bytes.substr(0, nonce_bytes));
  std::copy(from.begin(), from.end(), nonce.begin());
  bytes.remove_prefix(nonce_bytes);
  return nonce;
}

bool mac_is_right(const Digest& right, std::string_view mac) { return equal_constant_time(right, as_bytes(mac)); }

Digest over_nonces(const Secret& secret, std::string_view purpose, const Nonce& client, const Nonce& server) {
  return Hmac(secret).update(purpose).update(client).update(server).finish();
}

std::string_view without_mac(std::string_view hello) { return hello.substr(0, hello_bytes - mac_bytes); }

}  // namespace

std::string encode(std::uint16_t kind, std::uint64_t sequence, std::int64_t number,
                   std::span<const std::string_view> fields) {
  std::size_t payload = 0;
  for (const std::string_view field : fields) payload += 4 + field.size();
  TESSERA_CHECK(payload <= std::numeric_limits<std::uint32_t>::max(), "a message of ", payload, " bytes");
  std::string out;
  out.reserve(header_bytes + payload + mac_bytes);
  put(out, static_cast<std::uint32_t>(payload));
  put(out, kind);
  put(out, std::uint16_t{0});
  put(out, sequence);
  put(out, number);
  put(out, static_cast<std::uint32_t>(fields.size()));
  put(out, std::uint32_t{0});
  for (const std::string_view field : fields) {
    put(out, static_cast<std::uint32_t>(field.size()));
    out.append(field);
  }
  return out;
}

std::optional<Header> read_header(std::string_view bytes) {
  if (bytes.size() != header_bytes) return std::nullopt;
  Header header;
  header.payload_bytes = take<std::uint32_t>(bytes);
  header.kind = take<std::uint16_t>(bytes);
  const auto reserved = take<std::uint16_t>(bytes);
  header.sequence = take<std::uint64_t>(bytes);
  header.number = take<std::int64_t>(bytes);
  header.fields = take<std::uint32_t>(bytes);
  if (reserved != 0 || take<std::uint32_t>(bytes) != 0) return std::nullopt;
  if (header.fields > header.payload_bytes / 4) return std::nullopt;
  return header;
}

std::optional<Message> read_payload(const Header& header, std::string_view payload) {
  if (payload.size() != header.payload_bytes) return std::nullopt;
  Message message;
  message.kind = header.kind;
  message.number = header.number;
  message.fields.reserve(std::min<std::size_t>(header.fields, payload.size() / 4));
  for (std::uint32_t i = 0; i < header.fields; ++i) {
    if (payload.size() < 4) return std::nullopt;
    const auto bytes = take<std::uint32_t>(payload);
    if (bytes > payload.size()) return std::nullopt;
    message.fields.push_back(payload.substr(0, bytes));
    payload.remove_prefix(bytes);
  }
  if (!payload.empty()) return std::nullopt;
  return message;
}

std::string encode_hello(const Secret& secret, const Hello& hello) {
  std::string out(magic);
  put(out, hello.version);
  put(out, hello.generation);
  out.append(as_text(hello.nonce));
  const Digest mac = Hmac(secret).update("hello").update(out).finish();
  out.append(as_text(mac));
  return out;
}

std::optional<Hello> read_hello(const Secret& secret, std::string_view bytes) {
  if (bytes.size() != hello_bytes || !bytes.starts_with(magic)) return std::nullopt;
  const Digest mac = Hmac(secret).update("hello").update(without_mac(bytes)).finish();
  if (!mac_is_right(mac, bytes.substr(hello_bytes - mac_bytes))) return std::nullopt;
  bytes.remove_prefix(magic.size());
  Hello hello;
  hello.version = take<std::uint32_t>(bytes);
  hello.generation = take<std::int32_t>(bytes);
  hello.nonce = take_nonce(bytes);
  return hello;
}

std::string encode_reply(const Secret& secret, std::string_view hello, const Reply& reply) {
  std::string out(magic);
  put(out, reply.version);
  put(out, static_cast<std::uint32_t>(reply.status));
  put(out, reply.generation);
  put(out, std::uint32_t{0});
  put(out, reply.message_limit);
  out.append(as_text(reply.nonce));
  const Digest mac = Hmac(secret).update("reply").update(without_mac(hello)).update(out).finish();
  out.append(as_text(mac));
  return out;
}

std::optional<Reply> read_reply(const Secret& secret, std::string_view hello, std::string_view bytes) {
  if (bytes.size() != reply_bytes || !bytes.starts_with(magic)) return std::nullopt;
  const std::string_view body = bytes.substr(0, reply_bytes - mac_bytes);
  const Digest mac = Hmac(secret).update("reply").update(without_mac(hello)).update(body).finish();
  if (!mac_is_right(mac, bytes.substr(body.size()))) return std::nullopt;
  bytes.remove_prefix(magic.size());
  Reply reply;
  reply.version = take<std::uint32_t>(bytes);
  reply.status = static_cast<ReplyStatus>(take<std::uint32_t>(bytes));
  reply.generation = take<std::int32_t>(bytes);
  take<std::uint32_t>(bytes);
  reply.message_limit = take<std::uint64_t>(bytes);
  reply.nonce = take_nonce(bytes);
  return reply;
}

Digest proof(const Secret& secret, const Nonce& client, const Nonce& server) {
  return over_nonces(secret, "proof", client, server);
}
Digest client_key(const Secret& secret, const Nonce& client, const Nonce& server) {
  return over_nonces(secret, "client", client, server);
}
Digest server_key(const Secret& secret, const Nonce& client, const Nonce& server) {
  return over_nonces(secret, "server", client, server);
}

}  // namespace tessera::launch::wire
