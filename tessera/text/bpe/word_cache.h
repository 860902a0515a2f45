#pragma once
/// \file
/// A cache of the ids of common words. Words repeat in a text, so most of them cost only one hash and one comparison.

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera::text {

/// Direct-mapped, one cache line per word, at most 2 MiB; a new word replaces the one in its slot. Not thread-safe.
class WordCache {
 public:
  static constexpr std::size_t max_bytes = 30, max_ids = 8;

  /// The slot for a word of at most max_bytes bytes. Check holds() before using it: another word may occupy it.
  struct alignas(64) Slot {
    std::uint8_t bytes, ids;  // bytes = 0: empty slot (words are never empty)
    std::array<char, max_bytes> word;
    std::array<std::int32_t, max_ids> id;

    bool holds(std::string_view w) const {
      return bytes == w.size() && std::memcmp(word.data(), w.data(), w.size()) == 0;
    }
    void put(std::string_view w, std::span<const std::int32_t> result) {
      if (result.size() > max_ids) return;
      bytes = static_cast<std::uint8_t>(w.size());
      ids = static_cast<std::uint8_t>(result.size());
      std::memcpy(word.data(), w.data(), w.size());
      std::memcpy(id.data(), result.data(), result.size_bytes());
    }
  };

  /// calloc's zeroed pages cost nothing until they are used, so a short text only pays for the slots that it fills.
  WordCache() : memory_(std::calloc(slot_count + 1, sizeof(Slot)), &std::free) {
    void* begin = memory_.get();
    std::size_t room = (slot_count + 1) * sizeof(Slot);
    if (begin == nullptr) throw std::bad_alloc();
    slots_ = static_cast<Slot*>(std::align(alignof(Slot), slot_count * sizeof(Slot), begin, room));
  }
  /// `word` must not be empty.
  Slot& slot(std::string_view word) { return slots_[hash(word) & (slot_count - 1)]; }

  /// Appends the ids of a word; calls make(word, ids) if it is not cached. `word` must not be empty.
  template <class Make>
  void append(std::string_view word, std::vector<std::int32_t>& ids, const Make& make) {
    if (word.size() > max_bytes) return make(word, ids);
    Slot& own = slot(word);
    if (own.holds(word)) {
      ids.insert(ids.end(), own.id.data(), own.id.data() + own.ids);
      return;
    }
    const std::size_t first = ids.size();
    make(word, ids);
    own.put(word, std::span(ids).subspan(first));
  }

 private:
  static constexpr std::size_t slot_count = std::size_t{1} << 15;

  static std::uint64_t hash(std::string_view word) {
    std::uint64_t h = word.size();
    while (word.size() >= 8) {
      h = step(h, word, 8);
      word.remove_prefix(8);
    }
    return word.empty() ? h : step(h, word, word.size());
  }
  static std::uint64_t step(std::uint64_t h, std::string_view word, std::size_t size) {
    std::uint64_t part = 0;
    std::memcpy(&part, word.data(), size);
    h = (h ^ part) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
  }

  std::unique_ptr<void, decltype(&std::free)> memory_;
  Slot* slots_;
};

/// Lends objects (working memory) to concurrent users; creates about as many as are ever in use at once. Without a
/// lock, a thread usually gets the object that it used last, which is still in its core's cache. Thread-safe.
template <class T>
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    for (Place& place : places_) delete place.object.load();
  }

  class Lease {
   public:
    explicit Lease(Pool& pool) : pool_(pool), place_(pool.own_place()), object_(pool.take(place_)) {}
    ~Lease() { pool_.give_back(place_, std::move(object_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T& operator*() const { return *object_; }

   private:
    Pool& pool_;
    std::atomic<T*>& place_;
    std::unique_ptr<T> object_;
  };

 private:
  struct alignas(64) Place {
    std::atomic<T*> object = nullptr;
  };

  /// Several threads may share a place; some of them then find it empty and use `others_`.
  std::atomic<T*>& own_place() {
    return places_[std::hash<std::thread::id>()(std::this_thread::get_id()) % places_.size()].object;
  }
  std::unique_ptr<T> take(std::atomic<T*>& place) {
    if (T* const own = place.exchange(nullptr)) return std::unique_ptr<T>(own);
    {
      const std::lock_guard lock(mutex_);
      if (!others_.empty()) {
        auto object = std::move(others_.back());
        others_.pop_back();
        return object;
      }
    }
    return std::make_unique<T>();
  }
  void give_back(std::atomic<T*>& place, std::unique_ptr<T> object) {
    T* empty = nullptr;
    if (place.compare_exchange_strong(empty, object.get())) {
      object.release();
      return;
    }
    const std::lock_guard lock(mutex_);
    others_.push_back(std::move(object));
  }

  std::array<Place, 64> places_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> others_;
};

}  // namespace tessera::text
