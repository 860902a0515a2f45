#include <tessera/corpus/shuffle.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/unnamed_file.h>

namespace tessera::corpus {
namespace {

constexpr int bits_of_a_level = 6;
constexpr std::size_t files_of_a_level = std::size_t{1} << bits_of_a_level;
constexpr int last_level = 64 / bits_of_a_level;

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct Item {
  std::uint64_t key = 0;
  std::string bytes;
};
using NextItem = std::function<std::optional<Item>()>;

/// A file of items that is written sequentially, then read once in the same order.
class Spill {
 public:
  explicit Spill(const std::string& folder) : fd_(open_unnamed_file(folder, "the items cannot be shuffled")) {}
  ~Spill() {
    if (fd_ >= 0) ::close(fd_);
  }
  Spill(Spill&& other) noexcept = delete;

  void add(const Item& item) {
    const std::uint64_t size = item.bytes.size();
    buffer_.append(reinterpret_cast<const char*>(&item.key), sizeof item.key);
    buffer_.append(reinterpret_cast<const char*>(&size), sizeof size);
    buffer_ += item.bytes;
    ++count_;
    if (buffer_.size() >= buffer_bytes) flush();
  }
  /// Call after the last item.
  void rewind() {
    flush();
    buffer_.shrink_to_fit();
    if (::lseek(fd_, 0, SEEK_SET) != 0) fail("rewound");
  }
  std::optional<Item> next() {
    if (count_ == 0) return std::nullopt;
    --count_;
    Item item;
    std::uint64_t size = 0;
    take(&item.key, sizeof item.key);
    take(&size, sizeof size);
    item.bytes.resize(size);
    take(item.bytes.data(), size);
    return item;
  }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{32} << 10;

  void flush() {
    write_all(fd_, std::as_bytes(std::span(buffer_)), "a temporary file of the shuffle");
    buffer_.clear();
  }
  void take(void* to, std::size_t bytes) {
    for (auto* out = static_cast<char*>(to); bytes > 0;) {
      if (at_ == buffer_.size()) fill();
      const std::size_t part = std::min(bytes, buffer_.size() - at_);
      std::memcpy(out, buffer_.data() + at_, part);
      at_ += part;
      out += part;
      bytes -= part;
    }
  }
  void fill() {
    buffer_.resize(buffer_bytes);
    at_ = 0;
    ssize_t got;
    do {
      got = ::read(fd_, buffer_.data(), buffer_.size());
    } while (got < 0 && errno == EINTR);
    if (got <= 0) fail("read");
    buffer_.resize(static_cast<std::size_t>(got));
  }
  [[noreturn]] static void fail(const char* what) {
    throw Error(concat("a temporary file of the shuffle cannot be ", what, ": ", std::strerror(errno)));
  }

  int fd_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::uint64_t count_ = 0;
};

class Sorter {
 public:
  Sorter(const std::function<void(std::string_view)>& write, const ShuffleOptions& options)
      : write_(write), options_(options) {}

  /// Sorts items whose keys agree in all bits before the level's.
  void sort(const NextItem& next, int level) {
    std::vector<Item> items;
    std::uint64_t bytes = 0;
    while (auto item = next()) {
      bytes += sizeof(Item) + item->bytes.capacity();
      items.push_back(std::move(*item));
      if (bytes > options_.memory && items.size() > 1 && level < last_level) return divide(items, next, level);
    }
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.key < b.key; });
    for (const Item& item : items) write_(item.bytes);
  }

 private:
  void divide(std::vector<Item>& items, const NextItem& next, int level) {
    std::array<std::unique_ptr<Spill>, files_of_a_level> spills;
    const int shift = 64 - bits_of_a_level * (level + 1);
    const auto add = [&](const Item& item) {
      auto& spill = spills.at((item.key >> shift) % files_of_a_level);
      if (!spill) spill = std::make_unique<Spill>(options_.folder);
      spill->add(item);
    };
    for (Item& item : items) {
      add(item);
      item = {};
    }
    std::vector<Item>().swap(items);
    while (const auto item = next()) add(*item);
    for (auto& spill : spills) {
      if (!spill) continue;
      spill->rewind();
      sort([&] { return spill->next(); }, level + 1);
      spill.reset();  // frees the file's disk space
    }
  }

  const std::function<void(std::string_view)>& write_;
  const ShuffleOptions& options_;
};

}  // namespace

std::uint64_t shuffle_key(std::uint64_t seed, std::uint64_t number) { return splitmix64(splitmix64(seed) + number); }

void shuffle(const std::function<std::optional<std::string>()>& next,
             const std::function<void(std::string_view)>& write, const ShuffleOptions& options) {
  std::uint64_t number = 0;
  const NextItem keyed = [&]() -> std::optional<Item> {
    auto bytes = next();
    if (!bytes) return std::nullopt;
    return Item{shuffle_key(options.seed, number++), std::move(*bytes)};
  };
  Sorter(write, options).sort(keyed, 0);
}

}  // namespace tessera::corpus
