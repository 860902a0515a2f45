// Messages of the rendezvous store: anything written is read back; anything truncated, corrupted or invented is
// refused.
#include <gtest/gtest.h>

#include <tessera/launch/store/store_table.h>
#include <tessera/launch/store/store_wire.h>

#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace tessera::launch {
namespace {

using namespace wire;

std::vector<std::string_view> views(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

std::optional<Message> read(std::string_view frame) {
  if (frame.size() < header_bytes) return std::nullopt;
  const auto header = read_header(frame.substr(0, header_bytes));
  return header ? read_payload(*header, frame.substr(header_bytes)) : std::nullopt;
}

RC_GTEST_PROP(StoreWire, FramesAreReadBack,
              (std::uint16_t kind, std::uint64_t sequence, std::int64_t number,
               const std::vector<std::string>& fields)) {
  const std::string frame = encode(kind, sequence, number, views(fields));
  const auto header = read_header(std::string_view(frame).substr(0, header_bytes));
  RC_ASSERT(header.has_value());
  RC_ASSERT(header->sequence == sequence);
  const auto message = read(frame);
  RC_ASSERT(message.has_value());
  RC_ASSERT(message->kind == kind);
  RC_ASSERT(message->number == number);
  RC_ASSERT(message->fields == views(fields));
}

RC_GTEST_PROP(StoreWire, CutOrPaddedFramesAreRefused, (const std::vector<std::string>& fields)) {
  const std::string frame = encode(1, 0, 0, views(fields));
  RC_ASSERT(!read(frame.substr(0, *rc::gen::inRange<std::size_t>(0, frame.size()))));
  RC_ASSERT(!read(frame + "x"));
}

RC_GTEST_PROP(StoreWire, AnyBytesAreReadOrRefused, (const std::string& bytes, const std::string& payload)) {
  std::string header = bytes;
  header.resize(header_bytes);
  const auto parsed = read_header(header);
  if (!parsed) return;
  const auto message = read_payload(*parsed, payload);
  if (message) RC_ASSERT(payload.size() == parsed->payload_bytes);
}

TEST(StoreWire, ImpossibleCountsAreRefusedBeforeAnythingIsAllocated) {
  std::string frame = encode(1, 0, 0, std::vector<std::string_view>{"ab"});
  frame[27] = '\x7f';  // the number of fields: 2 billion
  EXPECT_FALSE(read_header(frame.substr(0, header_bytes)));
  frame = encode(1, 0, 0, std::vector<std::string_view>{"ab"});
  frame[header_bytes + 3] = '\x7f';  // the length of the field
  EXPECT_FALSE(read(frame));
}

TEST(StoreWire, TheGreetingProvesTheSecretBothWays) {
  const Secret secret = make_secret(), other = make_secret();
  Hello hello;
  hello.generation = 3;
  random_bytes(hello.nonce);
  const std::string bytes = encode_hello(secret, hello);
  ASSERT_EQ(bytes.size(), hello_bytes);
  EXPECT_FALSE(read_hello(other, bytes));
  EXPECT_EQ(read_hello(secret, bytes)->generation, 3);
  EXPECT_EQ(read_hello(secret, bytes)->nonce, hello.nonce);
  Reply reply;
  reply.status = ReplyStatus::stale_generation;
  reply.generation = 4;
  reply.message_limit = 1234567890123;
  random_bytes(reply.nonce);
  const std::string answer = encode_reply(secret, bytes, reply);
  ASSERT_EQ(answer.size(), reply_bytes);
  EXPECT_EQ(read_reply(secret, bytes, answer)->status, ReplyStatus::stale_generation);
  EXPECT_EQ(read_reply(secret, bytes, answer)->message_limit, 1234567890123u);
  EXPECT_EQ(read_reply(secret, bytes, answer)->nonce, reply.nonce);
  EXPECT_FALSE(read_reply(other, bytes, answer));
  const std::string later_hello = encode_hello(secret, Hello{1, 3, reply.nonce});
  EXPECT_FALSE(read_reply(secret, later_hello, answer)) << "an answer to another greeting";
  EXPECT_NE(client_key(secret, hello.nonce, reply.nonce), server_key(secret, hello.nonce, reply.nonce));
}

RC_GTEST_PROP(StoreWire, OneFlippedBitOfAGreetingIsRefused, ()) {
  const Secret secret{7};
  std::string hello = encode_hello(secret, {});
  const std::string reply = encode_reply(secret, hello, {});
  const auto flip = [](std::string bytes) {
    const auto bit = *rc::gen::inRange<std::size_t>(0, bytes.size() * 8);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    return bytes;
  };
  RC_ASSERT(!read_hello(secret, flip(hello)));
  RC_ASSERT(!read_reply(secret, hello, flip(reply)));
}

RC_GTEST_PROP(StoreTable, AccountsForItsMemory, ()) {
  StoreTable table({8, 64, 1 << 20});
  for (int i = 0; i < 50; ++i) {
    const auto kind = *rc::gen::inRange<std::uint16_t>(0, last_op + 3);
    const auto fields =
        *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>("a", "b", "ab", "", "12"));
    const auto answer = table.handle({kind, *rc::gen::arbitrary<std::int64_t>(), views(fields)});
    if (answer.status == Status::bad_request) RC_ASSERT(answer.fields.size() == 1u);
  }
  table.erase_prefix("");
  RC_ASSERT(table.memory_bytes() == 0u);
}

}  // namespace
}  // namespace tessera::launch
