#include <tessera/format/torch/pickle.h>

#include <tessera/base/byte_cursor.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace tessera::format {
namespace {

// Opcodes by their names in Lib/pickle.py.
enum : unsigned char {
  MARK = '(',
  STOP = '.',
  POP = '0',
  POP_MARK = '1',
  DUP = '2',
  FLOAT = 'F',
  INT = 'I',
  BININT = 'J',
  BININT1 = 'K',
  LONG = 'L',
  BININT2 = 'M',
  NONE = 'N',
  BINPERSID = 'Q',
  REDUCE = 'R',
  BINSTRING = 'T',
  SHORT_BINSTRING = 'U',
  UNICODE = 'V',
  BINUNICODE = 'X',
  APPEND = 'a',
  BUILD = 'b',
  GLOBAL = 'c',
  DICT = 'd',
  EMPTY_DICT = '}',
  APPENDS = 'e',
  GET = 'g',
  BINGET = 'h',
  LONG_BINGET = 'j',
  LIST = 'l',
  EMPTY_LIST = ']',
  PUT = 'p',
  BINPUT = 'q',
  LONG_BINPUT = 'r',
  SETITEM = 's',
  TUPLE = 't',
  EMPTY_TUPLE = ')',
  SETITEMS = 'u',
  BINFLOAT = 'G',
  PROTO = 0x80,
  NEWOBJ = 0x81,
  TUPLE1 = 0x85,
  TUPLE2 = 0x86,
  TUPLE3 = 0x87,
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
  LONG1 = 0x8a,
  LONG4 = 0x8b,
  BINBYTES = 'B',
  SHORT_BINBYTES = 'C',
  SHORT_BINUNICODE = 0x8c,
  BINUNICODE8 = 0x8d,
  BINBYTES8 = 0x8e,
  EMPTY_SET = 0x8f,
  ADDITEMS = 0x90,
  FROZENSET = 0x91,
  NEWOBJ_EX = 0x92,
  STACK_GLOBAL = 0x93,
  MEMOIZE = 0x94,
  FRAME = 0x95,
  BYTEARRAY8 = 0x96,
};

}  // namespace

class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, const std::string& name, std::span<const std::string_view> allowed)
      : bytes_(bytes), name_(name), allowed_(allowed) {}

  Pickle read(std::size_t* used) {
    while (!done_) {
      at_ = bytes_.position();
      step(static_cast<unsigned char>(take(1)[0]));
    }
    if (used != nullptr) *used = bytes_.position();
    return std::move(out_);
  }

 private:
  using Kind = PickleKind;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(name_, ": at byte ", at_, " of the pickle: ", parts...));
  }

  // ---- operands ----
  [[noreturn]] void cut_off(std::uint64_t count) const {
    fail(count, " bytes are needed, but ", bytes_.left(), " are left: the data is truncated");
  }
  std::span<const std::byte> take(std::uint64_t count) {
    return bytes_.take(count, [&] { cut_off(count); });
  }
  template <class T>
  T number() {
    return bytes_.number<T>([&] { cut_off(sizeof(T)); });
  }
  std::string string(std::uint64_t count) {
    const auto part = take(count);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  std::string line() {
    const auto rest = bytes_.rest();
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) fail("a line does not end");
    std::string text = string(static_cast<std::uint64_t>(end - rest.begin()));
    take(1);
    return text;
  }
  std::string utf8(std::uint64_t count) {
    std::string text = string(count);
    if (!is_utf8(text)) fail("a text is not UTF-8");
    return text;
  }
  /// Reads a two's complement, little-endian integer of any length.
  std::int64_t long_integer(std::uint64_t count) {
    const auto part = take(count);
    if (count > 8) fail("an integer of ", count, " bytes; at most 8 are supported");
    std::uint64_t value = count > 0 && (static_cast<unsigned char>(part[count - 1]) & 0x80) ? ~std::uint64_t{0} : 0;
    for (std::size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(part[i]);
    return static_cast<std::int64_t>(value);
  }
  std::int64_t decimal(const std::string& text) {
    const auto value = parse_int(text.ends_with('L') ? text.substr(0, text.size() - 1) : text);
    if (!value) fail("'", text.substr(0, 40), "' is not a 64-bit integer");
    return *value;
  }

  // ---- nodes, stack, memo ----
  std::uint32_t add(PickleNode node) {
    // each node is created by at least one opcode
    if (out_.nodes_.size() >= bytes_.size()) fail("more values than bytes");
    out_.nodes_.push_back(std::move(node));
    return static_cast<std::uint32_t>(out_.nodes_.size() - 1);
  }
  void push(PickleNode node) { stack_.push_back(add(std::move(node))); }
  void push(Kind kind, std::string text) { push({kind, 0, 0, std::move(text), {}}); }
  void push(Kind kind, std::int64_t value) { push({kind, value, 0, {}, {}}); }
  void push_items(Kind kind, std::vector<std::uint32_t> items) { push({kind, 0, 0, {}, std::move(items)}); }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::uint32_t pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    const std::uint32_t index = stack_.back();
    stack_.pop_back();
    return index;
  }
  std::uint32_t top() const {
    if (stack_.size() <= floor()) fail("the stack is empty");
    return stack_.back();
  }
  std::vector<std::uint32_t> pop_to_mark() {
    if (marks_.empty()) fail("there is no mark on the stack");
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    std::vector<std::uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
    return items;
  }
  std::vector<std::uint32_t> pop_several(std::size_t count) {
    std::vector<std::uint32_t> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  void remember(std::uint64_t key) { memo_[key] = top(); }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("nothing is stored in the memo as ", key);
    stack_.push_back(found->second);
  }

  /// The node at the top of the stack, whose kind must be one of those given. Adding nodes invalidates the reference.
  PickleNode& at_top(std::initializer_list<Kind> kinds, const char* what) {
    PickleNode& node = out_.nodes_[top()];
    if (std::find(kinds.begin(), kinds.end(), node.kind) == kinds.end()) fail(what, " a ", pickle_kind_name(node.kind));
    return node;
  }
  /// Appends items to the node at the top; an object without a state first gets None as its state, so that its items
  /// come after it.
  void add_items(const std::vector<std::uint32_t>& items) {
    const std::uint32_t index = top();
    if (out_.nodes_[index].kind == Kind::object && out_.nodes_[index].items.size() == 2) {
      const std::uint32_t no_state = add({});
      out_.nodes_[index].items.push_back(no_state);
    }
    std::vector<std::uint32_t>& held = out_.nodes_[index].items;
    held.insert(held.end(), items.begin(), items.end());
  }
  void append(const std::vector<std::uint32_t>& items) {
    at_top({Kind::list, Kind::set, Kind::object}, "items are added to");
    add_items(items);
  }
  void set_items(const std::vector<std::uint32_t>& items) {
    if (items.size() % 2 != 0) fail("a key without a value");
    at_top({Kind::dict, Kind::object}, "members are set in");
    add_items(items);
  }
  void set_state(std::uint32_t state) {
    PickleNode& node = at_top({Kind::object}, "a state is given to");
    if (node.items.size() > 2 && out_.nodes_[node.items[2]].kind != Kind::none) fail("a second state");
    if (node.items.size() == 2)
      node.items.push_back(state);
    else
      node.items[2] = state;
  }
  void call(std::uint32_t callable, std::uint32_t arguments) {
    // The callable is an object if the name is itself the result of a call: getattr(Outer, "Inner")(...).
    const Kind called = out_.nodes_[callable].kind;
    if (called != Kind::global && called != Kind::object)
      fail("the callable is a ", pickle_kind_name(called), ", not a name");
    if (out_.nodes_[arguments].kind != Kind::tuple)
      fail("arguments are a ", pickle_kind_name(out_.nodes_[arguments].kind), ", not a tuple");
    push_items(Kind::object, {callable, arguments});
  }
  void global(const std::string& module, const std::string& symbol) {
    std::string full = concat(module, ".", symbol);
    const bool ok = std::any_of(allowed_.begin(), allowed_.end(), [&](std::string_view known) {
      return known == full || known == "*" ||
             (known.ends_with('.') && full.starts_with(known) && full.find('.', known.size()) == std::string::npos);
    });
    if (!ok)
      fail("the file refers to ", full.substr(0, 200),
           ", which is not an allowed name in this kind of file; reading stops here");
    push(Kind::global, std::move(full));
  }

  void step(unsigned char op) {
    switch (op) {
      case PROTO:
        if (const auto version = number<std::uint8_t>(); version > 5)
          fail("protocol ", int{version}, "; supported are 0 to 5");
        return;
      case FRAME:
        number<std::uint64_t>();
        return;
      case STOP:
        if (stack_.size() != 1 || !marks_.empty()) fail("the end comes with ", stack_.size(), " values on the stack");
        out_.root_ = stack_.back();
        done_ = true;
        return;
      case MARK:
        marks_.push_back(stack_.size());
        return;
      case POP:
        if (stack_.size() == floor() && !marks_.empty())
          marks_.pop_back();
        else
          pop();
        return;
      case POP_MARK:
        pop_to_mark();
        return;
      case DUP:
        stack_.push_back(top());
        return;
      case NONE:
        return push({});
      case NEWTRUE:
        return push(Kind::boolean, 1);
      case NEWFALSE:
        return push(Kind::boolean, std::int64_t{0});
      case INT: {
        const std::string text = line();
        if (text == "00" || text == "01") return push(Kind::boolean, std::int64_t{text == "01"});
        return push(Kind::integer, decimal(text));
      }
      case LONG:
        return push(Kind::integer, decimal(line()));
      case BININT:
        return push(Kind::integer, std::int64_t{number<std::int32_t>()});
      case BININT1:
        return push(Kind::integer, std::int64_t{number<std::uint8_t>()});
      case BININT2:
        return push(Kind::integer, std::int64_t{number<std::uint16_t>()});
      case LONG1:
        return push(Kind::integer, long_integer(number<std::uint8_t>()));
      case LONG4:
        return push(Kind::integer, long_integer(number<std::uint32_t>()));
      case FLOAT: {
        const std::string text = line();
        const auto value = parse_real(text);
        if (!value) fail("'", text.substr(0, 40), "' is not a number");
        return push({Kind::real, 0, *value, {}, {}});
      }
      case BINFLOAT: {
        const auto big_endian = number<std::uint64_t>();
        return push({Kind::real, 0, std::bit_cast<double>(__builtin_bswap64(big_endian)), {}, {}});
      }
      case UNICODE: {
        std::string text = line();
        if (!is_utf8(text) || text.find('\\') != std::string::npos)
          fail("text with escapes of protocol 0 is not supported");
        return push(Kind::text, std::move(text));
      }
      case SHORT_BINUNICODE:
        return push(Kind::text, utf8(number<std::uint8_t>()));
      case BINUNICODE:
        return push(Kind::text, utf8(number<std::uint32_t>()));
      case BINUNICODE8:
        return push(Kind::text, utf8(number<std::uint64_t>()));
      case SHORT_BINSTRING:
        return push(Kind::bytes, string(number<std::uint8_t>()));
      case BINSTRING:
        return push(Kind::bytes, string(number<std::uint32_t>()));
      case SHORT_BINBYTES:
        return push(Kind::bytes, string(number<std::uint8_t>()));
      case BINBYTES:
        return push(Kind::bytes, string(number<std::uint32_t>()));
      case BINBYTES8:
      case BYTEARRAY8:
        return push(Kind::bytes, string(number<std::uint64_t>()));
      case EMPTY_TUPLE:
        return push_items(Kind::tuple, {});
      case TUPLE1:
        return push_items(Kind::tuple, pop_several(1));
      case TUPLE2:
        return push_items(Kind::tuple, pop_several(2));
      case TUPLE3:
        return push_items(Kind::tuple, pop_several(3));
      case TUPLE:
        return push_items(Kind::tuple, pop_to_mark());
      case EMPTY_LIST:
        return push_items(Kind::list, {});
      case LIST:
        return push_items(Kind::list, pop_to_mark());
      case EMPTY_SET:
        return push_items(Kind::set, {});
      case FROZENSET:
        return push_items(Kind::set, pop_to_mark());
      case EMPTY_DICT:
        return push_items(Kind::dict, {});
      case DICT: {
        std::vector<std::uint32_t> items = pop_to_mark();
        if (items.size() % 2 != 0) fail("a key without a value");
        return push_items(Kind::dict, std::move(items));
      }
      case APPEND:
        return append({pop()});
      case APPENDS:
      case ADDITEMS:
        return append(pop_to_mark());
      case SETITEM:
        return set_items(pop_several(2));
      case SETITEMS:
        return set_items(pop_to_mark());
      case GLOBAL: {
        const std::string module = line();
        return global(module, line());
      }
      case STACK_GLOBAL: {
        const std::vector<std::uint32_t> names = pop_several(2);
        const PickleNode &module = out_.nodes_[names[0]], &symbol = out_.nodes_[names[1]];
        if (module.kind != Kind::text || symbol.kind != Kind::text) fail("a name that is not text");
        const std::string first = module.text, second = symbol.text;  // push() may move the nodes
        return global(first, second);
      }
      case REDUCE:
      case NEWOBJ: {
        const std::vector<std::uint32_t> parts = pop_several(2);
        return call(parts[0], parts[1]);
      }
      case NEWOBJ_EX: {
        const std::vector<std::uint32_t> parts = pop_several(3);
        const PickleNode& named = out_.nodes_[parts[2]];
        if (named.kind != Kind::dict || !named.items.empty()) fail("keyword arguments are not supported");
        return call(parts[0], parts[1]);
      }
      case BUILD:
        return set_state(pop());
      case BINPERSID:
        return push_items(Kind::persistent, {pop()});
      case MEMOIZE:
        return remember(memo_.size());
      case PUT:
        return remember(static_cast<std::uint64_t>(decimal(line())));
      case BINPUT:
        return remember(number<std::uint8_t>());
      case LONG_BINPUT:
        return remember(number<std::uint32_t>());
      case GET:
        return recall(static_cast<std::uint64_t>(decimal(line())));
      case BINGET:
        return recall(number<std::uint8_t>());
      case LONG_BINGET:
        return recall(number<std::uint32_t>());
      default:
        fail("opcode ", int{op}, " is not supported; Python's pickler does not write it for data");
    }
  }

  ByteCursor bytes_;
  const std::string& name_;
  std::span<const std::string_view> allowed_;
  Pickle out_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;  ///< stack sizes
  std::unordered_map<std::uint64_t, std::uint32_t> memo_;
  std::size_t at_ = 0;  ///< offset of the opcode
  bool done_ = false;
};

const char* pickle_kind_name(PickleKind kind) {
  static constexpr const char* names[] = {
      "None", "boolean", "integer",         "real",   "text",         "byte string", "tuple", "list",
      "set",  "dict",    "name of a class", "object", "persistent id"};
  return names[static_cast<std::size_t>(kind)];
}

const PickleNode* Pickle::find(const PickleNode& dict, std::string_view key) const {
  if (dict.kind != PickleKind::dict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleNode& name = nodes_[dict.items[i]];
    if (name.kind == PickleKind::text && name.text == key) return &nodes_[dict.items[i + 1]];
  }
  return nullptr;
}

bool Pickle::is_a(const PickleNode& node, std::string_view global) const {
  return node.kind == PickleKind::object && nodes_[node.items[0]].text == global;
}

std::span<const std::uint32_t> Pickle::arguments(const PickleNode& object) const {
  return nodes_[object.items[1]].items;
}

const PickleNode* Pickle::state(const PickleNode& object) const {
  if (object.items.size() < 3) return nullptr;
  const PickleNode& state = nodes_[object.items[2]];
  return state.kind == PickleKind::none ? nullptr : &state;
}

Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& name,
                    std::span<const std::string_view> allowed, std::size_t* used) {
  return PickleReader(bytes, name, allowed).read(used);
}

}  // namespace tessera::format
