#pragma once
/// \file
/// The XML of S3's responses, parsed by pugixml: elements and text. Attributes (namespaces) are ignored.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::storage {

struct XmlElement {
  std::string name;
  std::string text;  ///< the element's own text, entities resolved, trimmed
  std::vector<XmlElement> children;

  const XmlElement* find(std::string_view child) const;    ///< the first child with this name, or nullptr
  std::string_view text_of(std::string_view child) const;  ///< "" when absent
};

/// Parses a document. Throws Error for malformed XML and for constructs that S3 never sends: a document type, elements
/// nested deeper than 16, more than 200,000 elements. An unknown entity is kept verbatim. Time and memory are linear in
/// the text.
XmlElement parse_xml(std::string_view text);

/// Escapes text for use in an element.
std::string xml_escaped(std::string_view text);

}  // namespace tessera::storage
