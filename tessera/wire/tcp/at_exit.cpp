#include <tessera/wire/inside.h>
#include <tessera/wire/tcp/at_exit.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace tessera::wire::tcp {
namespace {

struct Meshes {
  std::mutex mutex;
  std::vector<std::pair<pid_t, std::weak_ptr<Mesh>>> all;
};

Meshes& meshes() {
  static Meshes& all = *new Meshes;  // exit handlers of others may still use it
  return all;
}

void end_all() {
  if (Inside::now()) return;
  std::vector<std::shared_ptr<Mesh>> open;
  {
    const std::lock_guard lock(meshes().mutex);
    for (const auto& [owner, weak] : meshes().all) {
      if (owner != getpid()) continue;  // a forked child shares its parent's connections, but has no thread for them
      if (auto mesh = weak.lock()) open.push_back(std::move(mesh));
    }
  }
  for (const auto& mesh : open) mesh->close();
  const auto until = Clock::now() + std::chrono::seconds(2);
  for (const auto& mesh : open) mesh->drain(until);
}

}  // namespace

void end_at_exit(const std::shared_ptr<Mesh>& mesh) {
  static const int registered = std::atexit(end_all);
  (void)registered;
  const std::lock_guard lock(meshes().mutex);
  std::erase_if(meshes().all, [](const auto& known) { return known.second.expired(); });
  meshes().all.emplace_back(getpid(), mesh);
}

}  // namespace tessera::wire::tcp
