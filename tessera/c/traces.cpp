#include <tessera/c/handles.h>
#include <tessera/wire/timeline.h>

using namespace tessera;
using namespace tessera::c;

extern "C" {

tessera_status tessera_timeline_start(tessera_world world, const char* path) {
  return guarded([&] {
    const auto found = handles().worlds.find(world)->world;
    wire::start_timeline(found->journal(), &given(path, "path"), found->rank());
  });
}

tessera_status tessera_timeline_stop(tessera_world world) {
  return guarded([&] { wire::stop_timeline(handles().worlds.find(world)->world->journal()); });
}

tessera_status tessera_report(tessera_world world, char* buffer, int64_t capacity, int64_t* needed) {
  return guarded([&] { copy_out(handles().worlds.find(world)->world->report(), buffer, capacity, needed); });
}

}  // extern "C"
