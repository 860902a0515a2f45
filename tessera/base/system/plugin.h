#pragma once
/// \file
/// Plug-ins: libraries that are loaded on first use and never closed.

#include <string>
#include <string_view>

namespace tessera {

/// One of our libraries, installed in the same folder as the library (or program) that contains this function.
struct Plugin {
  const char* file;       ///< "libtessera_arrow.so"
  const char* entry;      ///< name of its entry function
  const char* what;       ///< start of the message, naming what needs it: "Parquet and Arrow files need"
  const char* remedy;     ///< what to do if it was not built: "install ... (`make deps`), then build again"
  const char* hint = "";  ///< appended to the loader's message
};

std::string plugin_path(const Plugin& plugin);
bool has_plugin(const Plugin& plugin);
/// Loads the plug-in and returns its entry. Throws Error if it was not built, cannot be loaded or is from another
/// build; the next call tries again.
void* load_plugin(const Plugin& plugin);

enum class Symbols { own, shared };  ///< whether libraries loaded later see this one's symbols
/// Returns the address of `entry` in a library given by path or by name; a name is searched on the loader's path, then
/// in this library's folder. Throws Error with `hint`.
void* load_entry(const std::string& library, const char* entry, Symbols symbols, std::string_view hint = "");

}  // namespace tessera
