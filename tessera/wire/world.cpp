#include <tessera/wire/world.h>

#include <tessera/base/text.h>
#include <tessera/launch/fleet/rank_list.h>
#include <tessera/wire/shm/control.h>
#include <tessera/wire/shm/segment.h>

#include <unistd.h>

#include <algorithm>

namespace tessera::wire {
namespace {

constexpr int protocol = 1;
constexpr char between = '\x1f';

std::string hostname() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

std::vector<std::string> fields_of(const std::string& text) {
  std::vector<std::string> fields{""};
  for (const char c : text) {
    if (c == between) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

std::string seconds(std::chrono::milliseconds time) {
  return format_real(static_cast<double>(time.count()) / 1000, 4) + " s";
}

}  // namespace

World::World(std::shared_ptr<Store> store, WorldOptions options)
    : store_(std::move(store)), options_(std::move(options)) {
  if (options_.size < 1) throw Failure(Code::invalid, concat("a world of ", options_.size, " ranks."));
  if (options_.rank < 0 || options_.rank >= options_.size) {
    throw Failure(Code::invalid,
                  concat("rank ", options_.rank, " does not exist in a world of ", options_.size, " ranks."));
  }
  meet();
  std::vector<int> ranks(static_cast<std::size_t>(options_.size));
  for (int r = 0; r < options_.size; ++r) ranks[static_cast<std::size_t>(r)] = r;
  all_ = connect(ranks, "world", "world");
  groups_.push_back(all_);
}

World::~World() { close(); }

// Exchanges texts under prefix/what/rank and returns them in the order of `ranks`, in which this rank has index `rank`.
std::vector<std::string> World::exchange(const std::string& prefix, const std::string& what,
                                         const std::vector<int>& ranks, int rank, const std::string& mine) {
  const auto key_of = [&](int r) { return key(concat(prefix, "/", what, "/", r)); };
  store_->set(key_of(ranks[static_cast<std::size_t>(rank)]), mine);
  const auto deadline = Clock::now() + options_.connect_timeout;
  std::vector<std::string> texts;
  std::vector<int> missing;
  for (const int r : ranks) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    try {
      texts.push_back(store_->get(key_of(r), std::max(left, std::chrono::milliseconds(1))));
    } catch (const Failure& failure) {
      if (failure.code() != Code::timeout) throw;
      missing.push_back(r);
    }
  }
  if (missing.empty()) return texts;
  throw Failure(Code::timeout,
                concat("waited ", seconds(options_.connect_timeout), " for ", launch::ranks_text(missing), " of ",
                       ranks.size(), " (", what, " of '", prefix, "'): not started yet, or already exited."));
}

void World::meet() {
  const int me = options_.rank;
  if (store_->add(key(concat("joined/", me)), 1) != 1) {
    throw Failure(Code::invalid,
                  concat("rank ", me, " of '", options_.name,
                         "' has already joined this store: two processes have the same rank, or the name "
                         "was used before."));
  }
  const std::string host = options_.host.empty() ? shm::host_identity() : options_.host;
  const std::string name = options_.host.empty() ? hostname() : options_.host;
  const std::string settings =
      concat("wire ", protocol, ", record ", sizeof(launch::Entry), ", ", options_.size, " ranks, ",
             options_.tcp                  ? "tcp"
             : options_.only_shared_memory ? "shm"
                                           : "auto");
  std::vector<int> ranks;
  for (int r = 0; r < options_.size; ++r) ranks.push_back(r);
  const auto texts =
      exchange("meet", "address", ranks, me, concat(host, between, name, between, options_.address, between, settings));
  for (int r = 0; r < options_.size; ++r) {
    std::vector<std::string> fields = fields_of(texts[static_cast<std::size_t>(r)]);
    fields.resize(4);
    members_.push_back({fields[0], fields[1], fields[2], fields[3]});
    const Member& member = members_.back();
    if (member.settings != settings) {
      throw Failure(Code::mismatch, concat("rank ", r, " of '", options_.name, "' has '", member.settings,
                                           "', this rank '", settings, "'."));
    }
    int number = 0;
    while (number < r && members_[static_cast<std::size_t>(number)].host != member.host) ++number;
    if (number < r) {
      host_of_.push_back(host_of_[static_cast<std::size_t>(number)]);
    } else {
      host_of_.push_back(static_cast<int>(hosts_.size()));
      hosts_.push_back(member.name);
    }
    if (member.host == host && r < me) ++local_rank_;
  }
  host_ranks_ = static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [&](const Member& member) { return member.host == host; }));
  local_size_ = host_ranks_;
  if (options_.local_size > 0) {
    local_rank_ = options_.local_rank;
    local_size_ = options_.local_size;
  }
}

std::shared_ptr<Group> World::connect(const std::vector<int>& ranks, const std::string& name,
                                      const std::string& prefix) {
  Place place;
  place.name = name;
  place.ranks = ranks;
  place.size = static_cast<int>(ranks.size());
  place.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), options_.rank) - ranks.begin());
  place.world_rank = options_.rank;
  place.host_ranks = host_ranks_;
  place.timeout = options_.timeout;
  place.connect_timeout = options_.connect_timeout;
  place.exchange = [&](const std::string& what, const std::string& mine) {
    return exchange(prefix, what, ranks, place.rank, mine);
  };
  const std::string& host = members_[static_cast<std::size_t>(options_.rank)].host;
  const bool one_host = std::all_of(ranks.begin(), ranks.end(),
                                    [&](int r) { return members_[static_cast<std::size_t>(r)].host == host; });
  std::shared_ptr<Transport> transport;
  if (place.size == 1) {
    transport = make_local(place);
  } else if (one_host && !options_.tcp && place.size <= shm::max_ranks) {
    transport = make_shared_memory(place);
  } else if (options_.only_shared_memory) {
    throw Failure(Code::invalid,
                  concat("the group '", name, "' of ", place.size, " ranks cannot share memory: ",
                         one_host ? concat("more than ", shm::max_ranks) : "they are on several hosts", "."));
  } else {
    transport = make_tcp(place, options_.address);
  }
  place.exchange = nullptr;
  return std::make_shared<Group>(std::move(place), std::move(transport), journal_);
}

void World::check_open() const {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Failure(Code::shut_down, concat("the world '", options_.name, "' was shut down."));
}

std::shared_ptr<Group> World::make_group(const std::vector<int>& ranks, const std::string& name) {
  check_open();
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (ranks.empty()) throw Failure(Code::invalid, "a group needs at least one rank.");
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] < 0 || sorted[i] >= options_.size) {
      throw Failure(Code::invalid,
                    concat("rank ", sorted[i], " does not exist in a world of ", options_.size, " ranks."));
    }
    if (i > 0 && sorted[i] == sorted[i - 1])
      throw Failure(Code::invalid, concat("rank ", sorted[i], " is listed twice in a group."));
  }
  if (!std::binary_search(sorted.begin(), sorted.end(), options_.rank)) {
    throw Failure(Code::invalid, concat("rank ", options_.rank,
                                        " is not a member of the group that it creates; only members may create it."));
  }
  std::string list;
  for (const int r : ranks) list += concat(list.empty() ? "" : ",", r);
  const std::string shown = name.empty() ? concat("ranks ", list).substr(0, 31) : name;
  // Names and lists may be long, so keys contain a hash of them.
  const std::string both = concat(name, between, list);
  int number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = made_[both]++;
  }
  auto group = connect(ranks, shown, concat("group/", std::hash<std::string>()(both), ".", number));
  const std::lock_guard lock(mutex_);
  if (closed_) throw Failure(Code::shut_down, concat("the world '", options_.name, "' was shut down."));
  std::erase_if(groups_, [](const auto& weak) { return weak.expired(); });
  groups_.push_back(group);
  return group;
}

std::shared_ptr<Group> World::split(Group& parent, int colour, int key_of_rank, const std::string& name) {
  check_open();
  if (colour < -1) throw Failure(Code::invalid, concat("the colour is ", colour, "."));
  const std::int32_t mine[2] = {colour, key_of_rank};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(parent.size()));
  Request request;
  request.op = launch::Op::all_gather;
  request.dtype = Dtype::int32;
  request.count = 2;
  request.input = mine;
  request.output = all.data();
  request.label = "split";
  request.timeout = options_.connect_timeout;
  const auto work = parent.start(request);
  work->wait_until(Clock::time_point::max());
  if (work->code() != Code::ok) throw Failure(work->code(), work->error());
  if (colour == -1) return nullptr;
  std::vector<std::pair<int, int>> chosen;  // key, rank in the parent
  for (int r = 0; r < parent.size(); ++r) {
    const auto at = 2 * static_cast<std::size_t>(r);
    if (all[at] == colour) chosen.emplace_back(all[at + 1], r);
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<int> ranks;
  for (const auto& [key, r] : chosen) ranks.push_back(parent.ranks()[static_cast<std::size_t>(r)]);
  return make_group(ranks, name);
}

void World::set(const std::string& name, const std::string& value) {
  check_open();
  store_->set(key("user/" + name), value);
}
std::string World::get(const std::string& name, std::chrono::milliseconds timeout) {
  check_open();
  try {
    return store_->get(key("user/" + name), timeout);
  } catch (const Failure& failure) {
    if (failure.code() != Code::timeout) throw;
    throw Failure(Code::timeout, concat("nobody set '", name, "' within ", timeout.count(), " ms."));
  }
}
std::int64_t World::add(const std::string& name, std::int64_t delta) {
  check_open();
  return store_->add(key("user/" + name), delta);
}
void World::remove(const std::string& name) {
  check_open();
  store_->remove(key("user/" + name));
}

void World::close() {
  std::vector<std::weak_ptr<Group>> groups;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    groups = groups_;
  }
  for (const auto& weak : groups) {
    if (const auto group = weak.lock()) group->close();
  }
}

}  // namespace tessera::wire
