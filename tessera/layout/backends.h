#pragma once
/// \file
/// The table of backends, which move tensors between the ranks of a group. A row contains all differences between
/// backends, so callers query capabilities instead of comparing names. Torch-free: configuration and program read the
/// rows; comm/ creates groups with the factories, which are defined with each backend.

#include <tessera/base/words.h>

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace tessera::comm {
class Backend;
struct BackendRequest;
}  // namespace tessera::comm

namespace tessera {
/// The compute device of a run; automatic: CUDA if built and a GPU is visible; xla: the devices of a PJRT plug-in
/// (docs/tpu.md), with tensors on the CPU. The words: cpu, cuda, auto, xla.
enum class Device : unsigned char { cpu, cuda, automatic, xla };
const WordTable& words_of(Device);
}  // namespace tessera

namespace tessera::layout {

/// Capabilities of a backend; for a group: comm::Group::capabilities().
struct Capabilities {
  /// Peers access tensors of comm::empty_shared directly, without a copy.
  bool reads_peers_in_place = false;
  /// Sums of bf16 and fp16 are sent in that type and accumulated in fp32; otherwise comm/ sends them as fp32.
  bool reduces_halves = false;
  /// Messages between two ranks complete in the order in which both ranks start them, regardless of their tags.
  bool ordered_messages = false;
  /// Errors name the dead rank or the mismatch, so no further exchange is needed to find the cause.
  bool names_causes = false;
};

/// The hosts and devices of a group's ranks.
struct Placement {
  int ranks = 1;               ///< in the group
  int hosts = 1;               ///< ranks of one host can share memory
  bool shares_device = false;  ///< whether any two ranks share an accelerator
};

/// A backend's static properties: name, reach, capabilities.
struct BackendRow {
  /// The largest groups that the backend can serve.
  enum class Reach { one_rank, one_host, anywhere };

  std::string_view name;            ///< value of --backend, and the name in messages
  Device device;                    ///< device of its tensors; automatic: any
  Reach reach = Reach::anywhere;    ///< larger groups are refused
  std::string_view rule;            ///< text: when `auto` selects it
  bool (*suits)(const Placement&);  ///< `auto` selects the first row of the device that suits
  Capabilities capabilities = {};   ///< capabilities of every group that it serves
  bool in_pytorch = false;          ///< torch.distributed has a backend with this name
  bool for_comparison = false;      ///< for measurements only: not a value of --backend
};

// The rows, in the order in which `auto` tries them. To add one: CONTRIBUTING.md, "Walk: a backend".

/// A world of one rank, without communication.
struct Local {
  static constexpr BackendRow row{.name = "local",
                                  .device = Device::automatic,
                                  .reach = BackendRow::Reach::one_rank,
                                  .rule = "one rank",
                                  .suits = [](const Placement& p) { return p.ranks == 1; },
                                  .capabilities = {.reduces_halves = true}};  ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);    ///< in comm/local.cpp
};

/// CPU tensors between processes of one host, through shared memory.
struct Shm {
  static constexpr BackendRow row{
      .name = "shm",
      .device = Device::cpu,
      .reach = BackendRow::Reach::one_host,
      .rule = "all ranks share a host",
      .suits = [](const Placement& p) { return p.hosts == 1; },
      .capabilities = {.reads_peers_in_place = true, .reduces_halves = true, .names_causes = true}};  ///< its row
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/shm/backend.cpp
};

/// Shared memory within each host, another backend between hosts.
struct Hier {
  static constexpr BackendRow row{.name = "hier",
                                  .device = Device::cpu,
                                  .rule = "several hosts have several ranks",
                                  .suits = [](const Placement& p) { return p.hosts > 1 && p.hosts < p.ranks; },
                                  .capabilities = {.reads_peers_in_place = true}};  ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/hierarchical/backend.cpp
};

/// CPU tensors over TCP.
struct Gloo {
  static constexpr BackendRow row{.name = "gloo",
                                  .device = Device::cpu,
                                  .rule = "else, on the CPU",
                                  .suits = [](const Placement&) { return true; },
                                  .in_pytorch = true};                      ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/gloo.cpp
};

/// LibTorch's Gloo with its own collectives, for comparison.
struct C10dGloo {
  static constexpr BackendRow row{.name = "c10d_gloo",
                                  .device = Device::cpu,
                                  .rule = "never",
                                  .suits = [](const Placement&) { return false; },
                                  .for_comparison = true};                  ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/gloo.cpp
};

/// CUDA tensors; part of the CUDA plug-in.
struct Nccl {
  static constexpr BackendRow row{.name = "nccl",
                                  .device = Device::cuda,
                                  .rule = "on CUDA, one rank per GPU",
                                  .suits = [](const Placement& p) { return !p.shares_device; },
                                  .capabilities = {.reduces_halves = true, .ordered_messages = true},
                                  .in_pytorch = true};                      ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/nccl.cpp
};

/// All rows, in the order in which `auto` tries them.
using Backends = std::tuple<Local, Shm, Hier, Gloo, C10dGloo, Nccl>;

/// The rows of Backends.
const std::vector<BackendRow>& backends();
/// Returns nullptr if there is no such backend.
const BackendRow* find_backend(std::string_view name);
/// The backend that `auto` selects for a group with tensors on `device`; nullptr: no row suits.
const BackendRow* fitting_backend(Device device, const Placement& placement);
/// "auto" and the names of the rows, including those for comparison if `with_comparison`.
std::vector<std::string> backend_names(bool with_comparison);
/// "CPU", "CUDA": for messages.
std::string device_text(Device device);
/// The first row that `auto` would select for tensors on `device` and several ranks anywhere: the backend to recommend
/// instead of another.
std::string_view usual_backend(Device device);

}  // namespace tessera::layout
