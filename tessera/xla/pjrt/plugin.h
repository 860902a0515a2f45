#pragma once
/// \file
/// xla/pjrt/: drives a PJRT plug-in through the C API, whose header is in third_party/. Independent of tensors. This
/// header: a loaded plug-in.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct PJRT_Api;
struct PJRT_Error;
struct PJRT_Event;

namespace tessera::xla {

/// A loaded plug-in. Never unloaded, because plug-ins start threads that they do not end. Any thread.
class Plugin {
 public:
  /// Loads the shared library at `path` and calls its GetPjrtApi(). Throws InputError for a file that is missing, is
  /// not such a library, or has a different major version of the interface.
  static std::shared_ptr<const Plugin> load(const std::string& path);

  const PJRT_Api& api() const { return *api_; }
  const std::string& path() const { return path_; }

  /// If `error` is not null, frees it and throws Error "WHAT: the plug-in's text (path)".
  void check(PJRT_Error* error, std::string_view what) const;
  /// Waits for `event` and frees it; a null event is ignored. Throws like check().
  void await(PJRT_Event* event, std::string_view what) const;

 private:
  Plugin(std::string path, const PJRT_Api& api) : path_(std::move(path)), api_(&api) {}
  std::string path_;
  const PJRT_Api* api_;
};

/// The plug-in's file: `asked` if not empty, else TESSERA_PJRT_PLUGIN, else TPU_LIBRARY_PATH. If none is set, throws
/// InputError with instructions for installing libtpu.
std::string find_plugin(const std::string& asked = {});

}  // namespace tessera::xla
