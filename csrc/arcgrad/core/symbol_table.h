#pragma once

// Symbols: the names of labels.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace arcgrad {

/// The label of arcs that consume or emit nothing.
inline constexpr int32_t kEpsilon = -1;
/// The label of failure arcs, which are taken for labels that no other arc of their node matches
/// and consume nothing, and of rest arcs, which consume such a label; see algorithms/failure.h.
inline constexpr int32_t kPhi = -2, kRho = -3;
/// The smallest label.
inline constexpr int32_t kLeastLabel = kRho;

/// The input or the output side of an arc.
enum class Side : uint8_t { input, output };

class SymbolTable;
using SymbolTablePtr = std::shared_ptr<const SymbolTable>;

/// A one-to-one map between labels and symbols. Immutable once shared.
///
/// The tables of bytes and of Unicode characters store nothing: a label is a byte or a code point.
/// Epsilon has a symbol of its own, which is not counted.
class SymbolTable {
 public:
  enum class Kind : uint8_t { list, bytes, unicode };
  explicit SymbolTable(Kind kind = Kind::list, std::string epsilon = "<eps>");

  Kind kind() const { return kind_; }
  const std::string& epsilon() const { return epsilon_; }
  /// Adds a symbol and returns its label: by default the existing one, or one more than the
  /// largest. Throws if the symbol or the label is taken.
  int32_t add(const char* op, std::string symbol, std::optional<int32_t> label = std::nullopt);
  std::optional<int32_t> find(std::string_view symbol) const;
  std::optional<std::string> symbol(int32_t label) const;
  /// The label of a symbol; throws if there is none.
  int32_t label(const char* op, std::string_view symbol) const;

  int32_t size() const;
  /// The symbols in the order in which they were added, and their labels. Not for bytes and
  /// Unicode.
  const std::vector<std::string>& symbols() const { return symbols_; }
  const std::vector<int32_t>& labels() const { return labels_; }

  bool operator==(const SymbolTable& other) const;

 private:
  std::optional<int32_t> position(int32_t label) const;

  Kind kind_;
  std::string epsilon_;
  std::vector<std::string> symbols_;
  std::vector<int32_t> labels_;
  std::unordered_map<std::string, int32_t> position_of_symbol_;
  /// Empty while label k is at position k.
  std::unordered_map<int32_t, int32_t> position_of_label_;
  int32_t next_ = 0;
};

/// The tables of bytes and of Unicode characters.
const SymbolTablePtr& bytes_table();
const SymbolTablePtr& unicode_table();

/// Both tables in one; null if both are null. Throws unless they agree, that is, no symbol has two
/// labels and no label two symbols.
SymbolTablePtr joined(const char* op, const SymbolTablePtr& a, const SymbolTablePtr& b);

/// The symbols of the input and the output labels of a graph; null for labels without symbols.
struct SymbolTables {
  SymbolTablePtr input, output;

  bool empty() const { return !input && !output; }
  const SymbolTablePtr& of(Side side) const { return side == Side::input ? input : output; }
};

}  // namespace arcgrad
