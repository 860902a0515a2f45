#include <tessera/c/handles.h>

#include <algorithm>

using namespace tessera;
using namespace tessera::c;
using wire::Code;
using wire::Failure;

namespace {

std::shared_ptr<wire::Group> group_of(tessera_group group) { return handles().groups.find(group)->group; }

tessera_group add_group(std::shared_ptr<wire::World> world, std::shared_ptr<wire::Group> group) {
  auto made = std::make_shared<GroupHandle>();
  made->world = std::move(world);
  made->group = std::move(group);
  return handles().groups.add(std::move(made));
}

}  // namespace

extern "C" {

tessera_status tessera_world_group(tessera_world world, tessera_group* group) {
  return guarded([&] {
    const auto found = handles().worlds.find(world);
    given(group, "group") = found->all;
  });
}

tessera_status tessera_group_create(tessera_world world, const int32_t* ranks, int32_t count, const char* name,
                                    tessera_group* group) {
  return guarded([&] {
    const auto found = handles().worlds.find(world);
    tessera_group& result = given(group, "group");
    given(ranks, "ranks");
    if (count < 1 || count > found->world->size()) {
      throw Failure(Code::invalid, concat("a group of ", count, " ranks in a world of ", found->world->size(), "."));
    }
    result = add_group(found->world, found->world->make_group({ranks, ranks + count}, text_or(name)));
  });
}

tessera_status tessera_group_split(tessera_group parent, int32_t colour, int32_t key, const char* name,
                                   tessera_group* group) {
  return guarded([&] {
    const auto found = handles().groups.find(parent);
    tessera_group& result = given(group, "group");
    auto made = found->world->split(*found->group, colour, key, text_or(name));
    result = made ? add_group(found->world, std::move(made)) : 0;
  });
}

tessera_status tessera_group_find(tessera_world world, const char* name, tessera_group* group) {
  return guarded([&] {
    const auto found = handles().worlds.find(world);
    tessera_group& result = given(group, "group");
    const std::string wanted = &given(name, "name");
    tessera_group last = 0;
    handles().groups.each([&](std::uint64_t handle, const GroupHandle& candidate) {
      if (candidate.world == found->world && candidate.group->name() == wanted) last = std::max(last, handle);
    });
    if (last == 0) throw Failure(Code::invalid, concat("no group of this process is named '", wanted, "'."));
    result = last;
  });
}

tessera_status tessera_group_destroy(tessera_group group) {
  return guarded([&] {
    if (handles().groups.find(group)->is_world) {
      throw Failure(Code::invalid, "the group 'world' ends with its world: tessera_shutdown().");
    }
    handles().groups.take(group, false)->group->close();
  });
}

tessera_status tessera_group_abort(tessera_group group, const char* reason) {
  return guarded([&] { group_of(group)->abort(text_or(reason, "no reason given").substr(0, 3000)); });
}

tessera_status tessera_group_state(tessera_group group) {
  return guarded([&] { group_of(group)->check(); });
}

tessera_status tessera_group_rank(tessera_group group, int32_t* rank) {
  return guarded([&] {
    const auto found = group_of(group);
    given(rank, "rank") = found->rank();
  });
}
tessera_status tessera_group_size(tessera_group group, int32_t* size) {
  return guarded([&] {
    const auto found = group_of(group);
    given(size, "size") = found->size();
  });
}
tessera_status tessera_group_ranks(tessera_group group, int32_t* ranks, int32_t capacity) {
  return guarded([&] {
    const auto found = group_of(group);
    given(ranks, "ranks");
    if (capacity < found->size()) {
      throw Failure(Code::invalid, concat("room for ", capacity, " ranks of ", found->size(), "."));
    }
    std::copy(found->ranks().begin(), found->ranks().end(), ranks);
  });
}
tessera_status tessera_group_name(tessera_group group, char* buffer, int64_t capacity, int64_t* needed) {
  return guarded([&] { copy_out(group_of(group)->name(), buffer, capacity, needed); });
}
tessera_status tessera_group_transport(tessera_group group, char* buffer, int64_t capacity, int64_t* needed) {
  return guarded([&] { copy_out(group_of(group)->transport(), buffer, capacity, needed); });
}
tessera_status tessera_group_set_timeout(tessera_group group, int64_t timeout_ms) {
  return guarded([&] {
    const auto found = group_of(group);
    if (timeout_ms <= 0) throw Failure(Code::invalid, concat("the timeout is ", timeout_ms, " ms."));
    found->set_timeout(std::chrono::milliseconds(timeout_ms));
  });
}

}  // extern "C"
