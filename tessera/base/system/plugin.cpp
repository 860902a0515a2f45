#include <tessera/base/system/plugin.h>

#include <dlfcn.h>

#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera {

namespace {

/// The path of a file in the folder of the library (or program) that contains this code.
std::string path_beside(const std::string& file) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&path_beside), &info) == 0 || info.dli_fname == nullptr)
    throw Error(concat("cannot find ", file, ": the loader does not know which file contains this code"));
  return path_join(std::filesystem::absolute(info.dli_fname).parent_path().string(), file);
}

}  // namespace

std::string plugin_path(const Plugin& plugin) { return path_beside(plugin.file); }

bool has_plugin(const Plugin& plugin) { return path_exists(plugin_path(plugin)); }

void* load_plugin(const Plugin& plugin) {
  const std::string path = plugin_path(plugin);
  if (!path_exists(path)) throw Error(concat(plugin.what, " ", path, ", which was not built: ", plugin.remedy));
  return load_entry(path, plugin.entry, Symbols::own, plugin.hint);
}

void* load_entry(const std::string& library, const char* entry, Symbols symbols, std::string_view hint) {
  // On later calls dlopen returns the library already loaded.
  std::string cause;
  const auto open = [&](const std::string& path) {
    void* const opened = ::dlopen(path.c_str(), RTLD_NOW | (symbols == Symbols::shared ? RTLD_GLOBAL : RTLD_LOCAL));
    const char* const said = opened == nullptr ? ::dlerror() : nullptr;
    if (said != nullptr) cause = said;
    return opened;
  };
  void* handle = open(library);
  if (handle == nullptr && library.find('/') == std::string::npos && path_exists(path_beside(library)))
    handle = open(path_beside(library));
  if (handle == nullptr) throw Error(concat("cannot load ", library, ": ", cause, hint));
  void* const found = ::dlsym(handle, entry);
  if (found == nullptr) throw Error(concat(library, " has no ", entry, ": it is from another build of Tessera"));
  return found;
}

}  // namespace tessera
