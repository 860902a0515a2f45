#pragma once
/// \file
/// Plug-ins: libraries that are loaded when what they bring is first used, and never closed.

#include <string>
#include <string_view>

namespace tessera {

/// A library of ours that lies beside the one (or the program) that this function is part of.
struct Plugin {
  const char* file;       ///< "libtessera_arrow.so"
  const char* entry;      ///< its function that is asked for
  const char* what;       ///< that needs it: "Parquet and Arrow files need"
  const char* remedy;     ///< where it was not built: "install ... (`make deps`), then build again"
  const char* hint = "";  ///< behind the loader's complaint
};

std::string plugin_path(const Plugin& plugin);
bool has_plugin(const Plugin& plugin);
/// The entry of the plug-in. Throws Error where it was not built, cannot be loaded or is of another build; the next
/// call tries again.
void* load_plugin(const Plugin& plugin);

enum class Symbols { own, shared };  ///< whether libraries that are loaded later see those of this one
/// The address of `entry` in a library, by path or by a name, which is looked for on the loader's path, then beside
/// this library. Throws Error with `hint`.
void* load_entry(const std::string& library, const char* entry, Symbols symbols, std::string_view hint = "");

}  // namespace tessera
