#pragma once
/// \file
/// Devices of a plug-in, memory on them, and compiled programs.

#include <tessera/xla/pjrt/compile_options.h>
#include <tessera/xla/pjrt/executable.h>
#include <tessera/xla/pjrt/plugin.h>
#include <tessera/xla/pjrt/program_cache.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct PJRT_Buffer;
struct PJRT_Client;
struct PJRT_Device;
struct PJRT_LoadedExecutable;

namespace tessera::xla {

/// Element types that programs use.
enum class Element { predicate, int32, int64, float16, bfloat16, float32, float64 };
/// Bytes of one element.
std::size_t bytes_of(Element element);

/// A plug-in's client, kept alive by every object created with it.
struct Connection;

/// A dense row-major array in a device's memory, freed with the object.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<const Connection> connection, PJRT_Buffer* buffer)
      : connection_(std::move(connection)), buffer_(buffer) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  PJRT_Buffer* get() const { return buffer_; }
  std::vector<std::int64_t> sizes() const;
  /// Copies the array to `data` and waits. Throws Error if its size is not `bytes`.
  void read(void* data, std::size_t bytes) const;

 private:
  std::shared_ptr<const Connection> connection_;
  PJRT_Buffer* buffer_ = nullptr;
};

/// A compiled program, loaded on its devices.
class Program {
 public:
  Program(std::shared_ptr<const Connection> connection, PJRT_LoadedExecutable* program, bool from_cache = false);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  /// Runs the program on all its devices and waits. arguments[d][i]: argument i on device d; donated ones become
  /// invalid. Returns results[d][j]. The caller must pass correct shapes and types: plug-ins do not check them.
  std::vector<std::vector<Buffer>> run(const std::vector<std::vector<const Buffer*>>& arguments) const;

  bool from_cache() const { return from_cache_; }  ///< whether it was loaded from the cache
  ProgramMemory memory() const;
  /// The optimized program as printed by the plug-in, for counting its collectives.
  std::string optimized() const;
  /// The program in the plug-in's own form. Throws if it has none.
  std::string serialized() const;

 private:
  std::shared_ptr<const Connection> connection_;
  PJRT_LoadedExecutable* program_;
  std::size_t results_ = 0;
  bool from_cache_;
};

/// The devices of this process. One thread at a time.
class Client {
 public:
  /// `cpu_devices` > 0: a CPU plug-in creates this many virtual devices on one CPU; other plug-ins refuse it. `cache`:
  /// stores compiled programs and supplies them later; may be null.
  explicit Client(std::shared_ptr<const Plugin> plugin, int cpu_devices = 0,
                  std::unique_ptr<const ProgramCache> cache = nullptr);
  int devices() const { return static_cast<int>(devices_.size()); }
  std::string platform() const;  ///< "cpu", "tpu", "cuda"
  /// Copies `data`, which may be reused on return.
  Buffer upload(const void* data, Element element, std::span<const std::int64_t> sizes, int device) const;
  /// Compiles StableHLO text, or loads it from the cache if the same plug-in has compiled the same text for the same
  /// devices with the same options. Throws Error with the compiler's text.
  std::unique_ptr<Program> compile(const std::string& text, const CompileOptions& options) const;

 private:
  /// Describes everything that a compiled program depends on besides its text and options.
  std::string describe_compiler() const;
  /// Loads a result of serialized(). Throws Error with the plug-in's text.
  std::unique_ptr<Program> load(const std::string& bytes) const;
  std::unique_ptr<Program> compile_now(const std::string& text, const std::string& options) const;

  std::shared_ptr<const Connection> connection_;
  std::vector<PJRT_Device*> devices_;
  std::unique_ptr<const ProgramCache> cache_;
  std::string compiler_;  // describe_compiler(), if there is a cache
};

}  // namespace tessera::xla
