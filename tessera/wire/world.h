#pragma once
/// \file
/// The processes that met at one store: their hosts, and their groups.

#include <tessera/wire/group.h>
#include <tessera/wire/store.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::wire {

struct WorldOptions {
  std::string name;  ///< prefix of the world's keys in the store
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{1'800'000};        ///< default for operations
  std::chrono::milliseconds connect_timeout{300'000};  ///< limit for all ranks to join
  bool tcp = false;                                    ///< use TCP even on one host
  bool only_shared_memory = false;                     ///< never tcp
  std::string address;                                 ///< where other hosts reach this process; empty: determined
                                                       ///< automatically
  std::string host;                                    ///< the host's name; empty: from the kernel
  int local_rank = 0, local_size = 0;                  ///< size 0: computed
};

/// Thread-safe. Creating a group is collective among its ranks.
class World {
 public:
  /// Blocks until all ranks have joined. Throws Failure naming missing ranks, duplicate ranks or different settings.
  World(std::shared_ptr<Store> store, WorldOptions options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  int host_count() const { return static_cast<int>(hosts_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  const std::string& host_name(int host) const { return hosts_[static_cast<std::size_t>(host)]; }

  const std::shared_ptr<Group>& all() const { return all_; }
  /// `ranks`: ranks of the world, including this one.
  std::shared_ptr<Group> make_group(const std::vector<int>& ranks, const std::string& name);
  /// A group of the ranks of `parent` with equal colour; null for colour -1.
  std::shared_ptr<Group> split(Group& parent, int colour, int key, const std::string& name);

  /// Access to the program's own keys.
  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  std::int64_t add(const std::string& key, std::int64_t delta);
  void remove(const std::string& key);

  Journal& journal() { return *journal_; }
  /// A text for people: every group's unfinished operations, the last operations, totals.
  std::string report();
  /// Ends all groups.
  void close();
  void check_open() const;

 private:
  struct Member {
    std::string host, name, address, settings;
  };
  void meet();
  std::vector<std::string> exchange(const std::string& prefix, const std::string& what, const std::vector<int>& ranks,
                                    int rank, const std::string& mine);
  std::shared_ptr<Group> connect(const std::vector<int>& ranks, const std::string& name, const std::string& prefix);
  std::string key(const std::string& rest) const { return options_.name + "/" + rest; }

  const std::shared_ptr<Store> store_;
  WorldOptions options_;
  const std::shared_ptr<Journal> journal_ = std::make_shared<Journal>();
  std::vector<Member> members_;
  std::vector<int> host_of_;
  std::vector<std::string> hosts_;
  int local_rank_ = 0, local_size_ = 1, host_ranks_ = 1;
  std::shared_ptr<Group> all_;
  mutable std::mutex mutex_;
  std::map<std::string, int> made_;  // groups by name and ranks
  std::vector<std::weak_ptr<Group>> groups_;
  bool closed_ = false;
};

}  // namespace tessera::wire
