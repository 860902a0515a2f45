#include <tessera/storage/xml.h>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <pugixml.hpp>

namespace tessera::storage {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(concat("the server's XML cannot be read: ", what)); }

/// Copies an element and its descendants; `elements`: number of elements copied so far.
XmlElement copied(const pugi::xml_node& node, int depth, int& elements) {
  constexpr int deepest = 16, most_elements = 200'000;
  if (depth > deepest) refuse(concat("elements are nested more than ", deepest, " deep"));
  if (++elements > most_elements) refuse(concat("there are more than ", most_elements, " elements"));
  XmlElement out;
  out.name = node.name();
  std::string text;
  for (const pugi::xml_node child : node.children()) {
    if (child.type() == pugi::node_element) {
      out.children.push_back(copied(child, depth + 1, elements));
    } else {
      text += child.value();
    }
  }
  out.text = trim(text);
  return out;
}

}  // namespace

const XmlElement* XmlElement::find(std::string_view child) const {
  for (const XmlElement& element : children)
    if (element.name == child) return &element;
  return nullptr;
}

std::string_view XmlElement::text_of(std::string_view child) const {
  const XmlElement* const found = find(child);
  return found == nullptr ? std::string_view() : std::string_view(found->text);
}

XmlElement parse_xml(std::string_view text) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(
      text.data(), text.size(), pugi::parse_default | pugi::parse_doctype | pugi::parse_fragment, pugi::encoding_utf8);
  if (!result) refuse(concat(result.description(), " at byte ", result.offset));
  const pugi::xml_node root = document.first_child();
  if (root.type() != pugi::node_element || root.next_sibling())
    refuse("expected one element, without a document type and without text around it");
  int elements = 0;
  return copied(root, 0, elements);
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace tessera::storage
