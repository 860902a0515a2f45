// Boards as readers may find them: foreign, truncated, unsealed, of another version, half written.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/launch/agent/board.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::launch;

UniqueFd memory_file(std::size_t bytes, bool sealed) {
  UniqueFd fd(memfd_create("board-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (sealed) {
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  }
  return fd;
}

// A copy of the board in a file of `bytes` bytes, sealed or not.
UniqueFd copy_of(const Board& board, std::size_t bytes, bool sealed) {
  UniqueFd fd = memory_file(bytes, false);
  EXPECT_GT(pwrite(fd.get(), &board.header(), sizeof(BoardHeader), 0), 0);
  if (sealed) {
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  }
  return fd;
}

std::string why_not(int fd) {
  try {
    Board::open(fd);
  } catch (const InputError& error) {
    return error.what();
  }
  return "it is one";
}

std::size_t bytes_of(int slots) { return sizeof(BoardHeader) + static_cast<std::size_t>(slots) * sizeof(RankSlot); }

void expect_word(const std::string& text, const std::string& word) {
  EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
}

Entry entry_number(std::uint64_t id) {
  Entry entry;
  entry.id = entry.sequence = entry.fingerprint = entry.chain = id;
  entry.op = static_cast<Op>(id % op_count);
  entry.numel = static_cast<std::int64_t>(id);
  write_text(entry.tag, "tag");
  return entry;
}

void put(RankSlot& slot, std::uint64_t id) {
  slot.ring[id % RankSlot::ring_size] = entry_number(id);
  slot.next_entry = id + 1;
}

TEST(Board, two_mappings_share_it) {
  const Board mine = Board::create(3, 4, 12, "demo -> out");
  const Board theirs = Board::open(mine.fd());
  EXPECT_EQ(theirs.slots(), 3);
  EXPECT_EQ(theirs.header().first_rank, 4);
  EXPECT_EQ(theirs.header().world_size, 12);
  EXPECT_EQ(read_text(theirs.header().job), "demo -> out");
  EXPECT_EQ(theirs.slot(2).state, RankState::none);
  mine.slot(2).loss = 1.5;
  mine.slot(2).state = RankState::saving;
  EXPECT_EQ(theirs.slot(2).loss, 1.5);
  EXPECT_EQ(theirs.slot(2).state, RankState::saving);
  EXPECT_THROW(theirs.slot(3), Error);
  EXPECT_THROW(theirs.slot(-1), Error);
}

TEST(Board, outlives_its_maker_and_its_descriptor) {
  Board kept;
  {
    Board made = Board::create(1, 0, 1, "");
    kept = Board::open(made.fd());
  }
  kept.slot(0).step = 7;
  EXPECT_EQ(kept.slot(0).step, 7);
}

TEST(Board, a_dead_rank_s_words_stay) {
  const Board board = Board::create(1, 0, 1, "");
  const pid_t pid = fork();
  if (pid == 0) {
    put(board.slot(0), 0);
    write_text(board.slot(0).error, "out of luck");
    raise(SIGKILL);
  }
  waitpid(pid, nullptr, 0);
  ASSERT_EQ(last_entries(board.slot(0)).size(), 1u);
  EXPECT_EQ(read_text(board.slot(0).error), "out of luck");
}

TEST(Board, foreign_files_are_refused_with_the_reason) {
  const Board board = Board::create(2, 0, 2, "");
  expect_word(why_not(-1), "descriptor");
  expect_word(why_not(memory_file(0, true).get()), "has 0 bytes");
  expect_word(why_not(memory_file(bytes_of(1), true).get()), "TESSBRD");
  expect_word(why_not(copy_of(board, bytes_of(2), false).get()), "not sealed");
  expect_word(why_not(copy_of(board, bytes_of(2) - 1, true).get()), "2 slots");
  expect_word(why_not(copy_of(board, bytes_of(1), true).get()), "2 slots");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  expect_word(why_not(ends[0]), "0 bytes");
  EXPECT_EQ(why_not(copy_of(board, bytes_of(2), true).get()), "it is one");
}

TEST(Board, another_version_or_layout_is_refused) {
  const Board board = Board::create(1, 0, 1, "");
  board.header().version = board_version + 1;
  expect_word(why_not(board.fd()), concat("version ", board_version + 1));
  board.header().version = board_version;
  board.header().slot_bytes += 64;
  expect_word(why_not(board.fd()), "slots of");
  board.header().slot_bytes = sizeof(RankSlot);
  board.header().slots = 0;
  expect_word(why_not(board.fd()), "0 slots");
  board.header().slots = 0x7fffffff;
  expect_word(why_not(board.fd()), "slots in");
}

TEST(Board, cannot_be_cut_under_its_readers) {
  const Board board = Board::create(1, 0, 1, "");
  EXPECT_NE(ftruncate(board.fd(), 4096), 0);
}

TEST(Entries, the_ring_keeps_the_last) {
  const Board board = Board::create(1, 0, 1, "");
  RankSlot& slot = board.slot(0);
  clear(slot);
  EXPECT_TRUE(last_entries(slot).empty());
  for (std::uint64_t id = 0; id < RankSlot::ring_size + 10; ++id) put(slot, id);
  EXPECT_EQ(last_entries(slot).size(), RankSlot::ring_size);
  EXPECT_EQ(last_entries(slot).front().id, 10u);
  EXPECT_EQ(last_entries(slot, 3).front().id, RankSlot::ring_size + 7);
  EXPECT_EQ(entries_from(slot, 0).size(), RankSlot::ring_size);
  EXPECT_EQ(entries_from(slot, RankSlot::ring_size + 8).size(), 2u);
  EXPECT_EQ(entries_from(slot, RankSlot::ring_size + 99).size(), 0u);
  EXPECT_FALSE(entry_of(slot, 9));
  EXPECT_EQ(entry_of(slot, 10)->sequence, 10u);
  clear(slot);
  EXPECT_TRUE(last_entries(slot).empty());
}

TEST(Entries, torn_and_absurd_ones_are_left_out) {
  const Board board = Board::create(1, 0, 1, "");
  RankSlot& slot = board.slot(0);
  clear(slot);
  for (std::uint64_t id = 0; id < 6; ++id) put(slot, id);
  slot.ring[1].id = ~std::uint64_t{0};        // being written
  slot.ring[2].id = 2 + RankSlot::ring_size;  // belongs to a different lap of the ring
  std::memset(&slot.ring[3].op, 0xee, sizeof slot.ring[3].op);
  std::memset(slot.ring[4].tag, 'x', sizeof slot.ring[4].tag);  // no terminator
  const auto entries = last_entries(slot);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].id, 0u);
  EXPECT_EQ(std::string(entries[1].tag), std::string(sizeof entries[1].tag - 1, 'x'));
  EXPECT_EQ(entries[2].id, 5u);
  slot.next_entry = ~std::uint64_t{0};  // an impossible count
  EXPECT_TRUE(last_entries(slot).empty());
}

RC_GTEST_PROP(Entries, whatever_is_in_memory_no_reader_is_harmed,
              (std::vector<std::uint8_t> bytes, std::uint64_t next)) {
  const Board board = Board::create(1, 0, 1, "");
  RankSlot& slot = board.slot(0);
  for (std::size_t i = 0; i < sizeof slot.ring && !bytes.empty(); i += 37)
    reinterpret_cast<unsigned char*>(slot.ring)[i] = bytes[i % bytes.size()];
  slot.next_entry = next;
  for (const Entry& entry : last_entries(slot, 200)) {
    RC_ASSERT(static_cast<int>(entry.op) < op_count);
    const bool ended = std::memchr(entry.tag, 0, sizeof entry.tag) != nullptr;
    RC_ASSERT(ended);
    RC_ASSERT(!describe(entry).empty());
  }
}

TEST(Texts, are_cut_and_ended) {
  char text[8];
  write_text(text, "123456789");
  EXPECT_EQ(read_text(text), "1234567");
  std::memset(text, 'x', sizeof text);
  EXPECT_EQ(read_text(text), "xxxxxxxx");
  write_text(text, "");
  EXPECT_EQ(read_text(text), "");
}

}  // namespace
