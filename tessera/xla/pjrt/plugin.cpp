#include <tessera/xla/pjrt/plugin.h>

#include <dlfcn.h>

#include <tessera/base/file.h>
#include <tessera/xla/pjrt/call.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

namespace tessera::xla {

std::shared_ptr<const Plugin> Plugin::load(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Plugin>> loaded;  // never unloaded
  const std::lock_guard lock(mutex);
  std::error_code ignored;
  const std::string name = std::filesystem::weakly_canonical(path, ignored).string();
  if (const auto found = loaded.find(name); found != loaded.end()) return found->second;

  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw InputError(concat("the PJRT plug-in cannot be loaded: ", dlerror()));
  using GetApi = const PJRT_Api* (*)();
  const auto get = reinterpret_cast<GetApi>(dlsym(library, "GetPjrtApi"));
  const PJRT_Api* const api = get == nullptr ? nullptr : get();
  if (api == nullptr) throw InputError(concat(path, " is not a PJRT plug-in: it exports no GetPjrtApi()"));
  if (api->pjrt_api_version.major_version != PJRT_API_MAJOR)
    throw InputError(concat("the PJRT plug-in ", path, " has version ", api->pjrt_api_version.major_version, ".",
                            api->pjrt_api_version.minor_version, " of the interface; version ", PJRT_API_MAJOR,
                            ".x is needed"));
  // Newer versions append functions: a table that includes the last function used here has all of them.
  if (api->struct_size < PJRT_STRUCT_SIZE(PJRT_Api, PJRT_Executable_GetCompiledMemoryStats))
    throw InputError(concat("the PJRT plug-in ", path, " has version 0.", api->pjrt_api_version.minor_version,
                            " of the interface, which is older than 0.", PJRT_API_MINOR, "; install a newer one"));
  std::shared_ptr<const Plugin> plugin(new Plugin(path, *api));
  auto initialize = arguments<PJRT_Plugin_Initialize_Args>(PJRT_Plugin_Initialize_Args_STRUCT_SIZE);
  call(*plugin, api->PJRT_Plugin_Initialize, initialize, "starting the PJRT plug-in");
  loaded.emplace(name, plugin);
  return plugin;
}

void Plugin::check(PJRT_Error* error, std::string_view what) const {
  if (error == nullptr) return;
  auto message = arguments<PJRT_Error_Message_Args>(PJRT_Error_Message_Args_STRUCT_SIZE);
  message.error = error;
  api_->PJRT_Error_Message(&message);
  const std::string text(message.message, message.message_size);
  auto destroy = arguments<PJRT_Error_Destroy_Args>(PJRT_Error_Destroy_Args_STRUCT_SIZE);
  destroy.error = error;
  api_->PJRT_Error_Destroy(&destroy);
  throw Error(concat(what, ": ", text, " (PJRT plug-in ", path_, ")"));
}

void Plugin::await(PJRT_Event* event, std::string_view what) const {
  if (event == nullptr) return;
  auto wait = arguments<PJRT_Event_Await_Args>(PJRT_Event_Await_Args_STRUCT_SIZE);
  wait.event = event;
  PJRT_Error* const failed = api_->PJRT_Event_Await(&wait);
  auto destroy = arguments<PJRT_Event_Destroy_Args>(PJRT_Event_Destroy_Args_STRUCT_SIZE);
  destroy.event = event;
  PJRT_Error* const also = api_->PJRT_Event_Destroy(&destroy);
  check(failed, what);
  check(also, what);
}

std::string find_plugin(const std::string& asked) {
  if (!asked.empty()) return asked;
  for (const char* const name : {"TESSERA_PJRT_PLUGIN", "TPU_LIBRARY_PATH"})
    if (const char* const path = std::getenv(name); path != nullptr && *path != '\0') return path;
  throw InputError(
      "device xla: no PJRT plug-in is set. On a TPU machine run `pip install libtpu` (Google's licence does not allow "
      "us to include it) and set TPU_LIBRARY_PATH to its libtpu.so; for another device set TESSERA_PJRT_PLUGIN to its "
      "plug-in");
}

}  // namespace tessera::xla
