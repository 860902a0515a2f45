#include <tessera/image/plugin.h>

#include <dlfcn.h>

#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera::image {
namespace {

/// Beside the library (or program) that this function is in.
std::string image_plugin_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&image_plugin_path), &info) == 0 || info.dli_fname == nullptr)
    throw Error("cannot find the own library: dladdr knows no file");
  return path_join(std::filesystem::absolute(info.dli_fname).parent_path().string(), "libtessera_image.so");
}

const ImagePlugin* load_image_plugin() {
  const std::string path = image_plugin_path();
  if (!path_exists(path))
    throw Error(concat("images need ", path,
                       ", which was not built: install libjpeg62-turbo-dev and libpng-dev (`make deps`), then build "
                       "again"));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(concat("cannot load ", path, ": ", ::dlerror()));
  const auto entry = reinterpret_cast<decltype(&tessera_image_plugin)>(::dlsym(library, image_plugin_entry));
  if (entry == nullptr) throw Error(concat(path, " has no ", image_plugin_entry, ": it is of another build"));
  return entry();
}

}  // namespace

const ImagePlugin& image_plugin() {
  static const ImagePlugin* const plugin = load_image_plugin();  // a load that threw is tried again by the next call
  return *plugin;
}

bool has_image_plugin() { return path_exists(image_plugin_path()); }

}  // namespace tessera::image
