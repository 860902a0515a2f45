#pragma once
/// \file
/// Units: parameters that are gathered, used and freed together. A wrap policy selects modules; the parameters of each
/// selected module are a unit, and all others form the root unit. Uses only names, types and sizes, so that the engine
/// and the planner divide a model identically.
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

/// A module's properties for the policies.
struct ModuleEntry {
  std::string name;        ///< path from the root: "h.0.attn"; "" is the root
  std::string type;        ///< C++ or Hugging Face class: "tessera::models::LlamaBlockImpl", "BertLayer"
  std::size_t parent = 0;  ///< index of an earlier entry; the root's own is 0
  std::vector<std::size_t> parameters = {};  ///< its own parameters, as indices into the tree's list; tied ones repeat
  bool container = false;  ///< only contains other modules (ModuleList, ModuleDict): never a unit by its size
};

/// A model: modules in registration order, each after its parent; parameters in order of first use.
struct ModuleTree {
  std::vector<ModuleEntry> modules;   ///< the first one is the root
  std::vector<Parameter> parameters;  ///< tied ones once
};

/// Selects the modules that become units.
struct WrapPolicy {
  enum class Kind {
    none,      ///< one unit: the root
    by_class,  ///< modules of one of `classes`
    by_size,   ///< modules with `min_num_params` elements outside of nested units
    by_regex,  ///< modules whose full name matches `pattern` (base/names/pattern.h)
    by_name    ///< the modules in `names`
  };  ///< how modules are selected
  Kind kind = Kind::none;                     ///< members that belong to other kinds have no effect
  std::vector<std::string> classes = {};      ///< short or full C++ class names, or class_aliases
  std::int64_t min_num_params = 100'000'000;  ///< PyTorch's and accelerate's default
  std::string pattern = {};                   ///< by_regex: the pattern
  std::vector<std::string> names = {};        ///< by_name: paths from the root
  /// Other systems' class names: {"LlamaDecoderLayer", "LlamaBlock"}.
  std::vector<std::pair<std::string, std::string>> class_aliases = {};
  std::vector<std::string> ignored_modules = {};  ///< names; their parameters are in no unit
};

/// Parameters that are gathered and freed together.
struct Unit {
  std::string name;                     ///< name of the module; "root" for the root unit
  std::size_t module = 0;               ///< index of the module
  std::vector<std::size_t> parameters;  ///< in the order of the tree's list
};

/// Divides the tree: the root unit first (even if it is empty), then units in the order of their modules; other units
/// without parameters are dropped. A unit nested in another one takes its own parameters from it. A parameter that
/// several modules share belongs to the innermost unit that contains all of them, which is present whenever one of them
/// runs.
///
/// Throws InputError: classes that do not occur, a name or pattern that matches no module (with the nearest, or the
/// existing ones), an invalid pattern, a tree without root or with a parent after its child.
std::vector<Unit> make_units(const ModuleTree& tree, const WrapPolicy& policy);
/// Classes of a by_class policy that no module has. make_units() ignores them if at least one class occurs.
std::vector<std::string> missing_classes(const ModuleTree& tree, const WrapPolicy& policy);

/// Beginning of the error about classes that match no module.
constexpr std::string_view no_class_to_wrap = "no module of class";

/// "tessera::models::LlamaBlockImpl" -> "LlamaBlock": the name without namespace, "Impl" and pointer decoration.
std::string_view short_class_name(std::string_view type);

}  // namespace tessera::layout
