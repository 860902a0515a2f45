#include <tessera/base/file.h>
#include <tessera/base/system/plugin.h>
#include <tessera/wire/mpi/library.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

namespace tessera::wire::mpi {
namespace {

constexpr const char* shim = "libtessera_mpi_shim.so";
constexpr const char* standard = "libmpi_abi.so.1";
constexpr const char* entry = "tessera_mpi_table";
constexpr Plugin plugin{"libtessera_mpi.so", entry, "the transport mpi needs", "build the whole of Tessera"};

struct Found {
  const tessera_mpi_functions* functions = nullptr;
  std::string file;
};

// The folder lib of the MPI whose mpiexec is on PATH, as a file name in it; "" without one.
std::string beside_mpiexec(const char* file) {
  const char* const path = std::getenv("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const auto end = rest.find(':');
    const std::string program = path_join(rest.substr(0, end), "mpiexec");
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
    if (access(program.c_str(), X_OK) != 0) continue;
    std::error_code error;
    const auto real = std::filesystem::canonical(program, error);
    if (error) return "";
    for (const std::filesystem::path& folder : {std::filesystem::path(program).parent_path(), real.parent_path()}) {
      const std::string at = (folder.parent_path() / "lib" / file).string();
      if (path_exists(at)) return at;
    }
    return "";
  }
  return "";
}

// Loads a library with the standard ABI, whose symbols libtessera_mpi.so uses. Empty: with the reason in `why`.
Found load_standard(const std::string& file, std::string& why) {
  if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* const said = ::dlerror();
    why += concat(why.empty() ? "" : "; ", said == nullptr ? file : said);
    return {};
  }
  return {reinterpret_cast<tessera_mpi_entry>(load_plugin(plugin))(), file};
}

// MPI 5.0, chapter 20: MPI_Abi_get_version() returns -1 in a library that is compiled for another ABI. It may be called
// before MPI_Init.
bool has_standard_abi(void* library) {
  const auto version = reinterpret_cast<int (*)(int*, int*)>(::dlsym(library, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  return version != nullptr && version(&major, &minor) == 0 && major >= 1;
}

Found load_shim(const std::string& file, std::string& why) {
  try {
    return {reinterpret_cast<tessera_mpi_entry>(load_entry(file, entry, Symbols::own))(), file};
  } catch (const Error& error) {
    why += concat(why.empty() ? "" : "; ", error.what());
    return {};
  }
}

Found find() {
  std::string why;
  Found found;
  const char* const chosen = std::getenv("TESSERA_MPI_LIBRARY");
  if (chosen != nullptr && *chosen != 0) {
    void* const opened = ::dlopen(chosen, RTLD_NOW | RTLD_GLOBAL);
    if (opened == nullptr) {
      const char* const said = ::dlerror();
      throw Failure(Code::system, concat("TESSERA_MPI_LIBRARY=", chosen, ": ", said == nullptr ? "" : said, "."));
    }
    const bool is_shim = ::dlsym(opened, entry) != nullptr;
    if (!is_shim && !has_standard_abi(opened)) {
      throw Failure(Code::system,
                    concat("TESSERA_MPI_LIBRARY=", chosen,
                           ": this library has its own ABI, not MPI-5's standard one. Compile a shim for it with "
                           "mpi_shim.sh, and name that."));
    }
    found = is_shim ? load_shim(chosen, why) : load_standard(chosen, why);
  } else {
    found = load_shim(shim, why);
    if (found.functions == nullptr) found = load_standard(standard, why);
    const std::string installed = found.functions == nullptr ? beside_mpiexec(standard) : "";
    if (!installed.empty()) found = load_standard(installed, why);
  }
  if (found.functions == nullptr) {
    throw Failure(Code::system,
                  concat("the transport mpi finds no MPI library with MPI-5's standard ABI (", standard, ") and no ",
                         shim, ": ", why,
                         ". Install MPICH 5 (pip install mpich), or compile the shim for the MPI of this cluster with "
                         "mpi_shim.sh (docs/communication.md), and start with its mpirun; TESSERA_MPI_LIBRARY names "
                         "the file if the loader does not find it."));
  }
  if (found.functions->abi != TESSERA_MPI_ABI) {
    throw Failure(Code::system, concat(found.file, " belongs to another version of Tessera (interface ",
                                       found.functions->abi, " instead of ", TESSERA_MPI_ABI, "): compile it again."));
  }
  return found;
}

Library* made = nullptr;

}  // namespace

Library::Library() : functions_(*find().functions) {
  char version[200];
  functions_.version(version, sizeof version);
  version_ = version;
}

void Library::start() {
  const std::lock_guard lock(mutex_);
  if (started_) return;
  int threads = 0, first = 0;
  check(functions_.start(&threads, &first), "MPI_Init_thread");
  owner_ = getpid();
  if (first != 0) std::atexit(at_exit);
  if (threads == 0) {
    throw Failure(Code::system, concat(version_, " allows calls on one thread only",
                                       first != 0 ? "." : ": initialize it with MPI_THREAD_SERIALIZED or more."));
  }
  many_threads_ = threads == 2;
  check(functions_.place(&rank_, &size_), "MPI_Comm_rank");
  largest_tag_ = functions_.largest_tag();
  started_ = true;
}

Library& Library::instance() {
  // Never destroyed: threads may still use it while the process ends.
  static Library& library = *(made = new Library);
  return library;
}

void Library::closed(bool in_order) {
  if (in_order && --open_ == 0 && exiting_) finish_at_exit();
}

// Exit handlers run last in, first out: those of the program's worlds may run after this one.
void Library::at_exit() {
  if (made == nullptr) return;
  made->exiting_ = true;
  if (made->open_ == 0) made->finish_at_exit();
}

void Library::finish_at_exit() {
  if (owner_ == getpid() && functions_.ended() == 0) functions_.finish();
}

void Library::check(int error, const std::string& what) {
  if (error == 0) return;
  char text[600];
  functions_.error_text(error, text, sizeof text);
  throw Failure(functions_.is_truncation(error) != 0 ? Code::mismatch : Code::system, concat(what, ": ", text, "."));
}

}  // namespace tessera::wire::mpi
