#pragma once
/// \file
/// Devices and links as numbers, each with its source: a table of well-known ones, and user-defined files. SI units:
/// bytes, seconds, FLOP; a link's bandwidth is per device and direction.

#include <tessera/plan/measured.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::plan {

struct Device {
  std::string name;
  double memory = 0;          ///< bytes that a program can allocate
  double bf16 = 0, fp32 = 0;  ///< peak FLOP/s of dense products
  double products = 0.8;      ///< share of the peak that large products reach
  double half_depth = 0;      ///< depth K at which products reach half of that share: rate factor K / (K + half_depth)
  double tile = 128;          ///< products are computed in square tiles of this size ...
  double units = 1;           ///< ... by this many units at once; 1: without rounding up
  double attention = 0.6;     ///< share of the peak that fused attention reaches
  double older_products = 1;  ///< share of the peak reached with an A100's product instructions
  double bandwidth = 0;       ///< memory bandwidth in bytes/s
  double passes = 0.8;        ///< share of the memory bandwidth that long passes reach
  double launch = 0;          ///< launch latency of a kernel in seconds
  double process = 0;         ///< bytes of context and program, without communication
  std::string source;
  std::shared_ptr<const Speeds> measured;  ///< curves that replace the numbers above; may be null
  /// Rate of grouped expert products relative to single products: SimuMax v1.2 measured 0.30 of a B200's peak
  /// (configs/system/b200_bf16_ceperm.json), two thirds of the rate that single products sustain in steps.
  double grouped = 0.66;
};

/// alpha-beta: a message of S bytes takes latency + S / (bandwidth x efficiency).
struct Link {
  double bandwidth = 0;  ///< bytes/s
  double efficiency = 0.8;
  double latency = 0;  ///< seconds per ring step
  std::string source;
};

/// Devices of one type in equal nodes.
struct Cluster {
  Device device;
  std::string text;  ///< as given by the user: "64xH100"
  int devices = 1;
  int per_node = 8;
  Link inside, across;
  double hours_between_failures =
      50'000;  ///< for one device: Llama 3 (Grattafiori et al. 2024, table 5): 419 unexpected
               ///< interruptions of 16,384 GPUs in 54 days
  bool on_cpu = false;
  double host_memory = 0;  ///< bytes shared by the processes of a node; 0: each device has its own
  double crowding = 1;     ///< processes of a node per measured process; above 1: processes share cores
  std::vector<std::shared_ptr<const Speeds>> measured;  ///< by number of processes per node
};

std::vector<std::string> hardware_names();

/// Parses "64xH100", "H100:64", "16384xH100/8" (devices per node), "2xmine.json": a name of the table, a file with the
/// members of Device and Link (see hardware_value()), or "2xthis-machine": the file written by `tessera plan calibrate`
/// (calibration_file()). Throws InputError: unknown hardware (with the nearest), an invalid number or one above 2^24,
/// partly filled nodes.
Cluster parse_cluster(const std::string& text);

/// Content of a hardware file as JSON, for editing.
Value hardware_value(const Cluster& cluster);
/// Parses that content. Throws InputError "file:line:column: ...".
Cluster read_hardware(const Value& value);

}  // namespace tessera::plan
