#pragma once
/// \file
/// What the parts of the Megatron front end share: the arguments as typed, by name. Internal to megatron_args.cpp and
/// megatron_model.cpp.

#include <tessera/config/megatron/megatron_args.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

class MegatronArguments {
 public:
  struct Given {
    std::string flag;                 ///< as typed, without its value
    std::vector<std::string> values;  ///< none: a switch
    SourcePos where = {};             ///< in a file of arguments

    SourcePos position() const { return where.file ? where : flag_position(flag); }
  };

  MegatronArguments(Translator& to, Problems& problems) : to_(to), problems_(problems) {}

  /// A second, different value for one name counts, as in argparse, with a note.
  void add(const std::string& name, Given given);

  const Given* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The only value; nullopt when the argument is not given or was found wrong.
  std::optional<std::string> text(std::string_view name);
  std::optional<std::int64_t> whole(std::string_view name, std::int64_t least);
  std::optional<double> real(std::string_view name, double least);
  /// The value in lower case, which must be one of `words`.
  std::optional<std::string> word(std::string_view name, std::initializer_list<std::string_view> words);
  const std::map<std::string, Given>& all() const { return given_; }

  /// The setting gets the text, with the argument as its origin. A wrong value is a problem.
  void give(std::string_view name, std::string_view setting, const std::string& text);
  /// "--flag WHAT" among the problems.
  void problem(std::string_view name, const std::string& what, std::initializer_list<std::string_view> doubtful = {});
  void note(std::string_view name, const std::string& what);

 private:
  Translator& to_;
  Problems& problems_;
  std::map<std::string, Given> given_;
  const std::vector<std::string> said_ = {"", ""};  ///< in place of values that are wrong, which has been said
};

/// --num-layers and all else that describes a model: config_name and config_overrides.
void translate_megatron_model(MegatronArguments& arguments, bool config_name_given, bool overrides_given);

}  // namespace tessera::config
