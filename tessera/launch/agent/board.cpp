#include <tessera/launch/agent/board.h>

#include <tessera/base/error.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/base/text.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tessera::launch {
namespace {

constexpr char board_magic[8] = "TESSBRD";

std::size_t board_bytes(std::size_t slots) { return sizeof(BoardHeader) + slots * sizeof(RankSlot); }

RankSlot* first_slot(BoardHeader* header) { return reinterpret_cast<RankSlot*>(header + 1); }

}  // namespace

static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free &&
                  std::atomic<RankState>::is_always_lock_free,
              "atomics shared between processes must not need a lock");

const char* state_name(RankState state) {
  switch (state) {
    case RankState::none:
      return "starting";
    case RankState::joining:
      return "joining";
    case RankState::running:
      return "running";
    case RankState::evaluating:
      return "evaluating";
    case RankState::saving:
      return "saving";
    case RankState::leaving:
      return "leaving";
    case RankState::left:
      return "left";
    case RankState::failed:
      return "failed";
    case RankState::working:
      return "working";
  }
  return "?";
}

Board Board::create(int slots, int first_rank, int world_size, const std::string& job) {
  TESSERA_CHECK(slots > 0, "a board needs at least one slot, not ", slots);
  const std::size_t bytes = board_bytes(static_cast<std::size_t>(slots));
  Board board;
  board.fd_ = UniqueFd(memfd_create("tessera-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!board.fd_ || fchmod(board.fd_.get(), 0600) != 0 || ftruncate(board.fd_.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(board.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    throw InputError(concat("cannot allocate shared memory for the board of ", slots, " ranks (", bytes,
                            " bytes): ", write_error_text(errno)));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, board.fd_.get(), 0);
  if (memory == MAP_FAILED) {
    throw InputError(
        concat("the board of ", slots, " ranks (", bytes, " bytes) cannot be mapped: ", std::strerror(errno)));
  }
  board.bytes_ = bytes;
  board.header_ = static_cast<BoardHeader*>(memory);  // a new memfd contains only zeros, the initial value of every
                                                      // field
  BoardHeader& header = *board.header_;
  std::memcpy(header.magic, board_magic, sizeof header.magic);
  header.version = board_version;
  header.slots = static_cast<std::uint32_t>(slots);
  header.slot_bytes = sizeof(RankSlot);
  header.world_size = world_size;
  header.first_rank = first_rank;
  write_text(header.job, job);
  return board;
}

Board Board::open(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0) throw InputError(concat("descriptor ", fd, " is not a board: ", std::strerror(errno)));
  const auto reject = [&](const auto&... why) {
    throw InputError(concat("descriptor ", fd, " is not a board of this build of tessera: ", why...));
  };
  const std::size_t bytes = static_cast<std::size_t>(info.st_size);
  if (info.st_uid != geteuid()) reject("it belongs to user ", info.st_uid);
  if (bytes < board_bytes(1)) reject("it has ", bytes, " bytes, a board has at least ", board_bytes(1));
  // Only a sealed file keeps its size: if it shrank while mapped, an access would raise SIGBUS.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) reject("its size is not sealed");
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) reject("it cannot be mapped: ", std::strerror(errno));
  Board board;
  board.header_ = static_cast<BoardHeader*>(memory);
  board.bytes_ = bytes;
  const BoardHeader& header = *board.header_;
  if (std::memcmp(header.magic, board_magic, sizeof header.magic) != 0) reject("it does not begin with TESSBRD");
  if (header.version != board_version || header.slot_bytes != sizeof(RankSlot)) {
    reject("version ", header.version, " with slots of ", header.slot_bytes, " bytes; here version ", board_version,
           " and ", sizeof(RankSlot));
  }
  if (header.slots == 0 || board_bytes(header.slots) != bytes) reject(header.slots, " slots in ", bytes, " bytes");
  return board;
}

Board::~Board() {
  if (header_ != nullptr) munmap(header_, bytes_);
}

Board::Board(Board&& other) noexcept
    : fd_(std::move(other.fd_)), header_(std::exchange(other.header_, nullptr)), bytes_(other.bytes_) {}

Board& Board::operator=(Board&& other) noexcept {
  if (this == &other) return *this;
  if (header_ != nullptr) munmap(header_, bytes_);
  fd_ = std::move(other.fd_);
  header_ = std::exchange(other.header_, nullptr);
  bytes_ = other.bytes_;
  return *this;
}

int Board::slots() const { return static_cast<int>(header_->slots); }

RankSlot& Board::slot(int i) const {
  TESSERA_CHECK(i >= 0 && static_cast<std::size_t>(i) < (bytes_ - sizeof(BoardHeader)) / sizeof(RankSlot), "slot ", i,
                " of a board with ", slots(), " slots");
  return first_slot(header_)[i];
}

void clear(RankSlot& slot) {
  // An unused ring already contains only zeros; not touching it leaves its pages unallocated.
  const bool used = slot.next_entry.exchange(0) != 0;
  std::memset(static_cast<void*>(&slot), 0, used ? sizeof slot : offsetof(RankSlot, ring));
  slot.ring[0].id = ~std::uint64_t{0};  // otherwise it would look like an intact entry 0 while entry 0 is being written
}

std::string rank_name(int rank, pid_t pid, std::string_view place) {
  return concat("rank ", rank, " (", place, place.empty() ? "" : "; ", "pid ", pid, ")");
}

std::optional<Entry> entry_of(const RankSlot& slot, std::uint64_t id) {
  const Entry& source = slot.ring[id % RankSlot::ring_size];
  const std::atomic_ref<std::uint64_t> its_id(const_cast<std::uint64_t&>(source.id));
  if (its_id.load(std::memory_order_acquire) != id) return std::nullopt;
  Entry copy;
  std::memcpy(static_cast<void*>(&copy), &source, sizeof copy);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (its_id.load(std::memory_order_relaxed) != id || copy.id != id)
    return std::nullopt;  // overwritten in the
                          // meantime
  if (!repair(copy)) return std::nullopt;
  return copy;
}

std::vector<Entry> entries_from(const RankSlot& slot, std::uint64_t first) {
  const std::uint64_t next = slot.next_entry.load(std::memory_order_acquire);
  if (next > RankSlot::ring_size) first = std::max(first, next - RankSlot::ring_size);
  std::vector<Entry> entries;
  for (std::uint64_t id = first; id < next; ++id) {
    if (auto entry = entry_of(slot, id)) entries.push_back(*entry);
  }
  return entries;
}

std::vector<Entry> last_entries(const RankSlot& slot, std::size_t count) {
  const std::uint64_t next = slot.next_entry.load(std::memory_order_acquire);
  return entries_from(slot, next - std::min<std::uint64_t>(next, count));
}

}  // namespace tessera::launch
