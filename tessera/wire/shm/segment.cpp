#include <tessera/base/error.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/wire/shm/control.h>
#include <tessera/wire/shm/header.h>
#include <tessera/wire/shm/segment.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>

namespace tessera::wire::shm {
namespace {

constexpr std::size_t huge_page = 2 << 20;
constexpr std::size_t page = 4096;
constexpr std::size_t header_bytes = huge_page;
constexpr char magic[8] = {'T', 'E', 'S', 'S', 'S', 'H', 'M', 0};
constexpr int wanted_seals = F_SEAL_SHRINK | F_SEAL_GROW;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::string random_text() {
  unsigned char bytes[16];
  TESSERA_CHECK(getrandom(bytes, sizeof bytes, 0) == sizeof bytes, "getrandom: ", std::strerror(errno));
  std::string text;
  for (const unsigned char b : bytes) {
    text += "0123456789abcdef"[b >> 4];
    text += "0123456789abcdef"[b & 15];
  }
  return text;
}

// Maps `bytes` of the file at a 2 MB boundary, so that huge pages can be used; nullptr if there is not enough address
// space.
std::byte* map(int fd, std::size_t bytes) {
  void* room = mmap(nullptr, bytes + huge_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(room), at = round_up(begin, huge_page);
  void* mapped =
      mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED) {
    munmap(room, bytes + huge_page);
    return nullptr;
  }
  if (at > begin) munmap(room, at - begin);
  munmap(reinterpret_cast<void*>(at + bytes), huge_page - (at - begin));
  return reinterpret_cast<std::byte*>(at);
}

// Creates an unnamed file in TMPDIR, for systems without memfd.
int unnamed_file() {
  const char* folder = std::getenv("TMPDIR");
  std::string path = concat(folder == nullptr || *folder == 0 ? "/tmp" : folder, "/tessera-", random_text());
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

// The segments of this process by their nonce.
struct LiveSegments {
  std::mutex mutex;
  std::map<std::string, std::byte*> bases;
};
LiveSegments& live_segments() {
  static LiveSegments& all = *new LiveSegments;
  return all;
}

}  // namespace

SegmentSizes default_sizes() {
  SegmentSizes sizes;
  sizes.heap = std::size_t{8} << 30;
  const auto memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  sizes.arena = std::clamp<std::size_t>(memory, std::size_t{1} << 30, std::size_t{1} << 39) / huge_page * huge_page;
  const auto keep_within = [&](std::size_t most_heap, std::size_t most_arena) {
    sizes.heap = std::min(sizes.heap, most_heap / huge_page * huge_page);
    sizes.arena = std::min(sizes.arena, most_arena / huge_page * huge_page);
  };
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const std::size_t most = limit.rlim_cur > header_bytes ? limit.rlim_cur - header_bytes : 0;
    keep_within(most / 2, most / 2);
  }
  // Every rank of the host maps all ranks' segments.
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    keep_within(limit.rlim_cur / 64, limit.rlim_cur / 32);
  }
  return sizes;
}

Segment::Segment(SegmentSizes sizes) : nonce_(random_text()) {
  TESSERA_CHECK(sizes.heap % huge_page == 0 && sizes.arena % huge_page == 0, "segment sizes must be multiples of 2 MB");
  fd_.reset(static_cast<int>(syscall(SYS_memfd_create, "tessera-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  const bool sealed = static_cast<bool>(fd_);
  if (!sealed) {
    fd_.reset(unnamed_file());
    sizes.arena = 0;  // a file on a disk is unsuitable for tensors
  }
  if (!fd_) {
    throw Error(concat("shared memory between ranks needs memfd_create or a file in TMPDIR, and neither works here (",
                       std::strerror(errno), "). Set TMPDIR to a writable folder, or use --backend gloo."));
  }
  for (;; sizes.arena = sizes.arena / 2 / huge_page * huge_page) {  // halve until it fits into the address space
    bytes_ = header_bytes + sizes.heap + sizes.arena;
    if (fchmod(fd_.get(), 0600) != 0 || ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) {
      throw Error(
          concat("a shared segment of ", bytes_, " bytes could not be created: ", write_error_text(errno), "."));
    }
    base_ = map(fd_.get(), bytes_);
    if (base_ != nullptr) break;
    if (sizes.arena == 0) {
      throw Error(concat("no address space for a shared segment of ", bytes_, " bytes: ", std::strerror(errno),
                         " (ulimit -v?)."));
    }
  }
  if (sealed && fcntl(fd_.get(), F_ADD_SEALS, wanted_seals) != 0) {
    throw Error(concat("the shared segment could not be sealed: ", std::strerror(errno), "."));
  }
  heap_begin_ = header_bytes;
  arena_begin_ = header_bytes + sizes.heap;
  free_.give(static_cast<std::int64_t>(heap_begin_), static_cast<std::int64_t>(sizes.heap));
  if (sizes.arena > 0) madvise(base_ + arena_begin_, sizes.arena, MADV_HUGEPAGE);  // a wish
  auto* header = new (base_) SegmentHeader{};
  header->version = segment_version;
  header->control_bytes = area_bytes;
  header->bytes = bytes_;
  header->pid = getpid();
  header->uid = geteuid();
  header->sealed = sealed ? 1 : 0;
  nonce_.copy(header->nonce, sizeof header->nonce);
  std::memcpy(header->magic, magic, sizeof magic);
  const std::lock_guard lock(live_segments().mutex);
  live_segments().bases[nonce_] = base_;
}

Segment::~Segment() {
  {
    const std::lock_guard lock(live_segments().mutex);
    live_segments().bases.erase(nonce_);
  }
  if (base_ != nullptr) munmap(base_, bytes_);
}

MemoryRange Segment::arena() const { return {base_ + arena_begin_, bytes_ - arena_begin_}; }

std::optional<std::uint64_t> Segment::offset_in_arena(const void* data, std::size_t bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(data), base = reinterpret_cast<std::uintptr_t>(base_);
  if (at < base + arena_begin_ || at > base + bytes_ || base + bytes_ - at < bytes) return std::nullopt;
  return at - base;
}

std::byte* Segment::allocate(std::size_t bytes) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), page);
  const std::lock_guard lock(mutex_);
  if (const auto begin = free_.take(static_cast<std::int64_t>(bytes))) {
    used_[static_cast<std::size_t>(*begin)] = bytes;
    return base_ + *begin;
  }
  throw Error(concat("the shared heap of this process (", arena_begin_ - heap_begin_, " bytes) has no piece of ", bytes,
                     " bytes left: there are too many groups, or messages that no rank receives."));
}

void Segment::free(std::byte* piece) {
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(offset(piece));
  TESSERA_CHECK(used != used_.end(), "not a piece of the shared heap");
  free_.give(static_cast<std::int64_t>(used->first), static_cast<std::int64_t>(used->second));
  used_.erase(used);
}

std::string Segment::address() const { return concat(getpid(), " ", fd_.get(), " ", bytes_, " ", nonce_); }

PeerSegment::PeerSegment(const std::string& address) {
  std::istringstream words(address);
  int fd = -1;
  std::string nonce;
  if (!(words >> pid_ >> fd >> bytes_ >> nonce) || pid_ <= 0 || fd < 0 || bytes_ < header_bytes) {
    throw Error(concat("'", address, "' is not the address of a shared segment."));
  }
  const auto refuse = [&](const auto&... why) {
    throw Error(concat("the shared segment of process ", pid_, " was refused: ", why...));
  };
  // Open the pidfd first: if the file then has the expected nonce, the watched process is the one that created it.
  pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) refuse("pidfd_open: ", std::strerror(errno), " (the process may have ended).");
  const std::string path = concat("/proc/", pid_, "/fd/", fd);
  struct stat named{};
  if (stat(path.c_str(), &named) != 0) refuse(path, ": ", std::strerror(errno), ".");
  if (!S_ISREG(named.st_mode)) refuse("descriptor ", fd, " is no longer a file (stale address).");
  const launch::UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status{};
  if (!file || fstat(file.get(), &status) != 0) refuse(path, ": ", std::strerror(errno), ".");
  if (status.st_uid != geteuid()) refuse("it belongs to user ", status.st_uid, ", this is user ", geteuid(), ".");
  if ((status.st_mode & 0777) != 0600) refuse("its mode is not 600: other users could read it.");
  if (status.st_size < 0 || static_cast<std::size_t>(status.st_size) != bytes_) {
    refuse("it has ", status.st_size, " bytes instead of ", bytes_, " (truncated or stale).");
  }
  SegmentHeader header;
  if (pread(file.get(), static_cast<void*>(&header), sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      std::memcmp(header.magic, magic, sizeof magic) != 0) {
    refuse("it does not begin with a segment's header (foreign).");
  }
  if (header.version != segment_version || header.control_bytes != area_bytes) {
    refuse("it is from a different build (version ", header.version, ", here ", segment_version, ").");
  }
  if (std::string_view(header.nonce, sizeof header.nonce) != nonce || header.pid != pid_ || header.bytes != bytes_) {
    refuse("its nonce differs from the address (stale).");
  }
  if (header.sealed != 0 && (fcntl(file.get(), F_GET_SEALS) & wanted_seals) != wanted_seals) {
    refuse("its size is not sealed: it could vanish under the reader.");
  }
  if (pid_ == getpid()) {
    const std::lock_guard lock(live_segments().mutex);
    const auto found = live_segments().bases.find(nonce);
    if (found != live_segments().bases.end()) base_ = found->second;
    borrowed_ = base_ != nullptr;
  }
  if (base_ == nullptr) base_ = map(file.get(), bytes_);
  if (base_ == nullptr) refuse("no address space for ", bytes_, " bytes (ulimit -v?).");
}

PeerSegment::~PeerSegment() {
  if (base_ != nullptr && !borrowed_) munmap(base_, bytes_);
}

std::byte* PeerSegment::at(std::uint64_t offset, std::size_t bytes) const {
  if (offset > bytes_ || bytes_ - offset < bytes) {
    throw Error(concat("process ", pid_, " refers to bytes ", offset, "..", offset + bytes, " of its segment of ",
                       bytes_, " bytes: its memory is corrupt."));
  }
  return base_ + offset;
}

SegmentHeader& PeerSegment::header() const { return *reinterpret_cast<SegmentHeader*>(base_); }

bool PeerSegment::alive() const {
  pollfd ended{pidfd_.get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 0;
}

SegmentHeader& Segment::header() const { return *reinterpret_cast<SegmentHeader*>(base_); }

namespace {

// This process's shared state. Never destroyed: tensors and groups may outlive main(). A child process starts with its
// own.
struct Shared {
  pid_t pid = 0;
  std::atomic<Segment*> own{nullptr};
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<PeerSegment>> peers;
};
std::atomic<Shared*> current{nullptr};
std::mutex current_mutex;

Shared& shared() {
  Shared* present = current.load(std::memory_order_acquire);
  if (present != nullptr && present->pid == getpid()) return *present;
  const std::lock_guard lock(current_mutex);
  present = current.load();
  if (present == nullptr || present->pid != getpid()) {
    present = new Shared;
    present->pid = getpid();
    current.store(present, std::memory_order_release);
  }
  return *present;
}

}  // namespace

Segment& process_segment() {
  Shared& all = shared();
  if (Segment* own = all.own.load(std::memory_order_acquire)) return *own;
  const std::lock_guard lock(all.mutex);
  if (all.own.load() == nullptr) all.own.store(new Segment, std::memory_order_release);
  return *all.own.load();
}

std::shared_ptr<PeerSegment> map_peer(const std::string& address) {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<PeerSegment>& known = all.peers[address];
  std::shared_ptr<PeerSegment> peer = known.lock();
  if (!peer) known = peer = std::make_shared<PeerSegment>(address);
  return peer;
}

std::shared_ptr<PeerSegment> known_peer(pid_t pid) {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  for (const auto& [address, weak] : all.peers) {
    if (auto peer = weak.lock(); peer && peer->pid() == pid) return peer;
  }
  return nullptr;
}

std::optional<std::uint64_t> offset_in_arena(const void* data, std::size_t bytes) {
  const Shared* present = current.load(std::memory_order_acquire);
  if (present == nullptr) return std::nullopt;
  const Segment* own = present->own.load(std::memory_order_acquire);
  return own == nullptr ? std::nullopt : own->offset_in_arena(data, bytes);
}

std::string host_identity() {
  const auto read_text = [](const char* path) {
    char text[256] = {};
    const launch::UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
    const ssize_t n = fd ? read(fd.get(), text, sizeof text - 1) : 0;
    return std::string(text, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  };
  char name_space[64] = {};
  if (readlink("/proc/self/ns/pid", name_space, sizeof name_space - 1) < 0) name_space[0] = 0;
  std::string boot = read_text("/proc/sys/kernel/random/boot_id");
  boot = boot.substr(0, boot.find('\n'));
  return concat(boot, "/", name_space, "/", geteuid());
}

}  // namespace tessera::wire::shm
