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

/// Types of elements that programs here have.
enum class Element { predicate, int32, int64, float16, bfloat16, float32, float64 };
/// Bytes of one element.
std::size_t bytes_of(Element element);

/// A plug-in's client, which lives as long as the last of what is made with it.
struct Connection;

/// A dense row-major array in a device's memory. Owned: freed with the object.
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
  /// Copies the array to `data` of `bytes` bytes and waits for it. Throws Error when the size is another.
  void read(void* data, std::size_t bytes) const;

 private:
  std::shared_ptr<const Connection> connection_;
  PJRT_Buffer* buffer_ = nullptr;
};

/// A compiled program, loaded on the devices that it was compiled for.
class Program {
 public:
  Program(std::shared_ptr<const Connection> connection, PJRT_LoadedExecutable* program, bool from_cache = false);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  /// Runs it on all its devices and waits. arguments[d][i]: argument i on device d; donated ones are invalid
  /// afterwards. Returns results[d][j]. The caller answers for shapes and types: plug-ins do not check them.
  std::vector<std::vector<Buffer>> run(const std::vector<std::vector<const Buffer*>>& arguments) const;

  bool from_cache() const { return from_cache_; }  ///< loaded, not compiled
  ProgramMemory memory() const;
  /// The optimized program as the plug-in prints it, for counting its collectives.
  std::string optimized() const;
  /// In the plug-in's own form. Throws where it has none.
  std::string serialized() const;

 private:
  std::shared_ptr<const Connection> connection_;
  PJRT_LoadedExecutable* program_;
  std::size_t results_ = 0;
  bool from_cache_;
};

/// The devices of this process. Threads: one at a time.
class Client {
 public:
  /// `cpu_devices` > 0: a CPU plug-in makes this many virtual devices of one CPU; other plug-ins refuse it.
  /// `cache`: what is compiled is kept there, and taken from there; null: nowhere.
  explicit Client(std::shared_ptr<const Plugin> plugin, int cpu_devices = 0,
                  std::unique_ptr<const ProgramCache> cache = nullptr);
  int devices() const { return static_cast<int>(devices_.size()); }
  std::string platform() const;  ///< "cpu", "tpu", "cuda"
  /// Copies `data`, which is free again when this returns.
  Buffer upload(const void* data, Element element, std::span<const std::int64_t> sizes, int device) const;
  /// Compiles StableHLO text, or takes from the cache what was compiled of it before, by the same plug-in for the same
  /// devices with the same options. Throws Error with the compiler's text.
  std::unique_ptr<Program> compile(const std::string& text, const CompileOptions& options) const;

 private:
  /// What a compiled program depends on beside its text and options.
  std::string describe_compiler() const;
  /// A program that serialized() gave. Throws Error with the plug-in's text.
  std::unique_ptr<Program> load(const std::string& bytes) const;
  std::unique_ptr<Program> compile_now(const std::string& text, const std::string& options) const;

  std::shared_ptr<const Connection> connection_;
  std::vector<PJRT_Device*> devices_;
  std::unique_ptr<const ProgramCache> cache_;
  std::string compiler_;  // describe_compiler(), with a cache
};

}  // namespace tessera::xla
