#pragma once

// Symbols between Python and C++.

#include <nanobind/stl/variant.h>

#include <string>
#include <variant>

#include "common.h"

namespace arcgrad::bindings {

/// The SymbolTable of Python: a handle on a shared table, which is copied before it is changed.
struct SymbolHandle {
  SymbolTablePtr table;
};

/// A label from Python: a number or a symbol.
using Label = std::variant<int64_t, std::string>;

/// The tables of the two sides. Without `osymbols` both sides have `isymbols`.
SymbolTables to_tables(const std::optional<SymbolHandle>& isymbols,
                       const std::optional<SymbolHandle>& osymbols);
/// The number of a label; a symbol is looked up in `table`.
int32_t to_label(const char* op, const char* what, const Label& label, const SymbolTablePtr& table);
/// The labels of an array-like of whole numbers, or of a list of symbols of `table`.
Column to_labels(const char* op, const char* what, nb::handle values, const SymbolTablePtr& table);

}  // namespace arcgrad::bindings
