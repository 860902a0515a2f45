#pragma once
/// \file
/// Units: which parameters are gathered, used and dropped together. A wrap policy picks modules; each picked module's
/// parameters are a unit, what no picked module holds is the root unit. Works on names, types and sizes alone, so that
/// the engine and the planner divide a model alike.
///
/// Source of the policies: torch/distributed/fsdp/wrap.py (transformer_auto_wrap_policy, size_based_auto_wrap_policy,
/// _recursive_wrap) and accelerate's names for them.

#include <tessera/layout/flat.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::layout {

/// A module as the policies see it.
struct ModuleEntry {
  std::string name;        ///< path from the root: "h.0.attn"; "" is the root
  std::string type;        ///< C++ or Hugging Face class: "tessera::models::LlamaBlockImpl", "BertLayer"
  std::size_t parent = 0;  ///< index of an earlier entry; the root's own is 0
  std::vector<std::size_t> parameters =
      {};                  ///< that it registers itself: indices into the tree's list; tied ones repeat
  bool container = false;  ///< only holds others (ModuleList, ModuleDict): never a unit by its size
};

/// A model: modules in the order of registration, each after its parent; parameters in the order of their first use.
struct ModuleTree {
  std::vector<ModuleEntry> modules;   ///< the first one is the root
  std::vector<Parameter> parameters;  ///< tied ones once
};

/// Which modules become units.
struct WrapPolicy {
  enum class Kind {
    none,      ///< the root unit holds all
    by_class,  ///< modules of one of `classes`
    by_size,   ///< modules that hold `min_num_params` elements which no unit inside them took
    by_regex,  ///< modules whose whole name matches `pattern` (base/names/pattern.h)
    by_name    ///< the modules in `names`
  };  ///< what chooses the modules
  Kind kind = Kind::none;                     ///< members that it does not name have no effect
  std::vector<std::string> classes = {};      ///< short or full names of C++ classes, or class_aliases
  std::int64_t min_num_params = 100'000'000;  ///< PyTorch's and accelerate's default
  std::string pattern = {};                   ///< by_regex: the expression
  std::vector<std::string> names = {};        ///< by_name: paths from the root
  /// Other systems' class names: {"LlamaDecoderLayer", "LlamaBlock"}.
  std::vector<std::pair<std::string, std::string>> class_aliases = {};
  std::vector<std::string> ignored_modules = {};  ///< names; their parameters are in no unit
};

/// Parameters that live and move together.
struct Unit {
  std::string name;                     ///< name of the module; "root" for the root unit
  std::size_t module = 0;               ///< index of the module
  std::vector<std::size_t> parameters;  ///< in the order of the tree's list
};

/// Divides the tree: the root unit first (also when it holds nothing), then units in the order of their modules; units
/// without parameters are left out. A unit inside a unit takes its own parameters out of the outer one. A parameter
/// that several modules share belongs to the innermost unit around all of them, which is present whenever one of them
/// runs.
///
/// Throws InputError: classes of which none is there, a name or pattern that fits no module (with the nearest, or what
/// there is), a bad pattern, a tree without root or with a parent after its child.
std::vector<Unit> make_units(const ModuleTree& tree, const WrapPolicy& policy);
/// The classes of a policy by class that no module has: make_units() passes over them while another one is there.
std::vector<std::string> missing_classes(const ModuleTree& tree, const WrapPolicy& policy);

/// How the error of classes that fit no module begins.
constexpr std::string_view no_class_to_wrap = "no module of class";

/// "tessera::models::LlamaBlockImpl" -> "LlamaBlock": the name without namespace, "Impl" and pointer decoration.
std::string_view short_class_name(std::string_view type);

}  // namespace tessera::layout
