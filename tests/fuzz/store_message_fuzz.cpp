// libFuzzer entry for the server side of the rendezvous store: among any bytes before or after the greeting, only a
// frame with the right size, sequence and MAC is accepted; any request in such a frame gets an answer that can be sent;
// and the table's count of its memory stays correct.

#include <tessera/launch/store/store_connection.h>
#include <tessera/launch/store/store_table.h>

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace tessera::launch;
using Progress = StoreConnection::Progress;

constexpr std::size_t payload_limit = 4096;
const Secret secret{1, 2, 3};
const wire::Nonce client{4}, server{5};

void require(bool condition) {
  if (!condition) std::abort();
}

/// A server's connection whose peer has sent `bytes` and closed.
StoreConnection connection_with(std::string_view bytes, bool session) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  UniqueFd peer(ends[1]);
  require(bytes.empty() ||
          send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  StoreConnection connection{UniqueFd(ends[0])};
  if (session) {
    connection.expect_proof(secret, client, server);
    connection.begin_session();
  }
  return connection;
}

void check_answer(const StoreAnswer& answer) {
  require(answer.blocked_on.empty() || answer.status == wire::Status::timeout);
  std::vector<std::string_view> fields(answer.fields.begin(), answer.fields.end());
  const std::string frame = wire::encode(static_cast<std::uint16_t>(answer.status), 0, answer.number, fields);
  const auto header = wire::read_header(std::string_view(frame).substr(0, wire::header_bytes));
  require(header && wire::read_payload(*header, std::string_view(frame).substr(wire::header_bytes))->fields == fields);
}

/// Raw bytes at the greeting, or inside a session without knowing its key.
void strangers_bytes(std::string_view bytes, bool session) {
  StoreConnection connection = connection_with(bytes, session);
  const Progress progress = connection.read(1 << 20, payload_limit);
  require(!session || progress != Progress::whole);
  if (!session && progress == Progress::whole) require(!wire::read_hello(secret, connection.handshake()));
}

/// Requests of a peer that knows the key; each starts with its kind, its number and the lengths of its fields.
void peers_requests(std::string_view bytes) {
  StoreTable table({16, 256, 8192});
  const Digest key = wire::client_key(secret, client, server);
  for (std::uint64_t sequence = 0; bytes.size() >= 4; ++sequence) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const auto kind = static_cast<std::uint16_t>(byte(0) % 18);
    const auto number = static_cast<std::int64_t>(static_cast<signed char>(byte(1))) << (byte(2) % 57);
    const std::size_t count = byte(3) % 6;
    bytes.remove_prefix(4);
    std::vector<std::string_view> fields;
    for (std::size_t i = 0; i < count && !bytes.empty(); ++i) {
      const std::size_t length = std::min<std::size_t>(byte(0) % 24, bytes.size() - 1);
      fields.push_back(bytes.substr(1, length));
      bytes.remove_prefix(1 + length);
    }
    std::string frame = wire::encode(kind, sequence, number, fields);
    const Digest mac = Hmac(key).update(frame).finish();
    frame.append(wire::as_text(mac));
    // Each connection is new, so only the first frame, with sequence 0, can go through a socket.
    if (sequence == 0) {
      StoreConnection connection = connection_with(frame, true);
      require(connection.read(1 << 20, payload_limit) == Progress::whole);
      require(connection.take().fields == fields && connection.take().number == number);
    }
    check_answer(table.handle({kind, number, fields}));
    require(table.memory_bytes() <= 8192 + 1024);
  }
  table.erase_prefix("");
  require(table.memory_bytes() == 0 && table.list("").empty());
}

/// A valid frame with one flipped bit.
void spoilt_frame(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const std::string_view fields[] = {bytes.substr(2)};
  std::string frame = wire::encode(2, 0, 7, fields);
  const Digest mac = Hmac(wire::client_key(secret, client, server)).update(frame).finish();
  frame.append(wire::as_text(mac));
  const std::size_t place =
      (static_cast<unsigned char>(bytes[0]) * 256u + static_cast<unsigned char>(bytes[1])) % (frame.size() * 8);
  frame[place / 8] = static_cast<char>(frame[place / 8] ^ (1 << place % 8));
  StoreConnection connection = connection_with(frame, true);
  require(connection.read(1 << 20, payload_limit) != Progress::whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      strangers_bytes(bytes, false);
      break;
    case 1:
      strangers_bytes(bytes, true);
      break;
    case 2:
      peers_requests(bytes);
      break;
    case 3:
      spoilt_frame(bytes);
      break;
  }
  return 0;
}
