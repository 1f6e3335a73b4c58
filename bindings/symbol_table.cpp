// Binds class SymbolTable.

#include "arcgrad/core/symbol_table.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/variant.h>

#include "arcgrad/io/io.h"
#include "symbol_table.h"

namespace arcgrad::bindings {
namespace {

using Path = std::filesystem::path;

/// The table of a handle, copied if graphs or other handles share it.
SymbolTable& edit(SymbolHandle& self) {
  if (!is_sole(self.table)) self.table = std::make_shared<const SymbolTable>(*self.table);
  return const_cast<SymbolTable&>(*self.table);
}

int32_t add(SymbolTable& table, const std::string& symbol, std::optional<int64_t> label) {
  const char* op = "SymbolTable.add";
  return table.add(op, symbol,
                   label ? std::optional(to_int32(op, "the label", *label)) : std::nullopt);
}

std::string to_symbol(nb::handle symbol) {
  std::string out;
  if (!nb::isinstance<nb::str>(symbol) || !nb::try_cast(symbol, out))
    throw nb::type_error(text("SymbolTable: a symbol must be text that UTF-8 can hold, but one is ",
                              nb::repr(symbol).c_str())
                             .c_str());
  return out;
}

/// The table of a list of symbols, or of a dict from symbols to labels or from labels to symbols.
SymbolTable make_table(nb::handle symbols, const std::string& epsilon) {
  SymbolTable table(SymbolTable::Kind::list, epsilon);
  if (symbols.is_none()) return table;
  if (nb::isinstance<nb::mapping>(symbols) && nb::hasattr(symbols, "items")) {
    for (nb::handle item : symbols.attr("items")()) {
      nb::object key = item[0], value = item[1];
      if (!nb::isinstance<nb::str>(key)) std::swap(key, value);
      int64_t label = 0;
      if (!nb::isinstance<nb::str>(key) || !nb::try_cast(value, label))
        throw nb::type_error(text("SymbolTable: a dict must map symbols to labels, or labels to "
                                  "symbols, but it maps ",
                                  nb::repr(item[0]).c_str(), " to ", nb::repr(item[1]).c_str())
                                 .c_str());
      // The symbol of epsilon may be in the dict.
      if (label == kEpsilon && to_symbol(key) == epsilon) continue;
      add(table, to_symbol(key), label);
    }
    return table;
  }
  // Some types that seem to be iterable are not, such as arrays without dimensions.
  PyObject* const list =
      nb::isinstance<nb::str>(symbols) ? nullptr : PySequence_List(symbols.ptr());
  if (!list) {
    PyErr_Clear();
    throw nb::type_error(text("SymbolTable: symbols must be a list or a dict, but they are ",
                              nb::repr(symbols).c_str(), "; SymbolTable.load reads a file")
                             .c_str());
  }
  for (nb::handle symbol : nb::steal<nb::list>(list)) {
    const int32_t before = table.size();
    const std::string name = to_symbol(symbol);
    add(table, name, std::nullopt);
    require(table.size() > before, "SymbolTable", "symbols must differ, but ",
            nb::repr(symbol).c_str(), " occurs again, or is that of epsilon");
  }
  return table;
}

nb::list pairs(const SymbolTable& table) {
  require(table.kind() == SymbolTable::Kind::list, "SymbolTable",
          "only a list of symbols can be listed, but this is a table of all characters");
  nb::list out;
  for (size_t k = 0; k < table.symbols().size(); ++k)
    out.append(nb::make_tuple(table.symbols()[k], table.labels()[k]));
  return out;
}

std::string describe(const SymbolTable& table) {
  if (table.kind() == SymbolTable::Kind::bytes) return "SymbolTable.of_bytes()";
  if (table.kind() == SymbolTable::Kind::unicode) return "SymbolTable.of_unicode()";
  constexpr size_t kShown = 6;
  std::string out = text("SymbolTable(", table.size(), table.size() == 1 ? " symbol" : " symbols");
  for (size_t k = 0; k < std::min(table.symbols().size(), kShown); ++k)
    out += text(k == 0 ? ": " : ", ", nb::repr(nb::cast(table.symbols()[k])).c_str(), "=",
                table.labels()[k]);
  return out + (table.symbols().size() > kShown ? ", ...)" : ")");
}

[[noreturn]] void throw_key(nb::handle key) {
  PyErr_SetObject(PyExc_KeyError, nb::str("SymbolTable: there must be an entry for each key, but "
                                          "there is none for {!r}")
                                      .attr("format")(key)
                                      .ptr());
  throw nb::python_error();
}

}  // namespace

SymbolTables to_tables(const std::optional<SymbolHandle>& isymbols,
                       const std::optional<SymbolHandle>& osymbols) {
  const auto table = [](const std::optional<SymbolHandle>& symbols) {
    return symbols ? symbols->table : nullptr;
  };
  return {table(isymbols), table(osymbols ? osymbols : isymbols)};
}

int32_t to_label(const char* op, const char* what, const Label& label,
                 const SymbolTablePtr& table) {
  if (const auto* number = std::get_if<int64_t>(&label)) return to_int32(op, what, *number);
  require(table != nullptr, op, what,
          " must be a number while the graph has no symbols, but it is ",
          nb::repr(nb::cast(std::get<std::string>(label))).c_str(),
          "; attach a SymbolTable to the graph");
  return table->label(op, std::get<std::string>(label));
}

Column to_labels(const char* op, const char* what, nb::handle values, const SymbolTablePtr& table) {
  const bool is_list = nb::isinstance<nb::list>(values) || nb::isinstance<nb::tuple>(values);
  if (!is_list || nb::len(values) == 0 || !nb::isinstance<nb::str>(nb::object(values[0])))
    return to_ints(op, what, values);
  require(table != nullptr, op, what,
          " must be numbers unless a SymbolTable is given, but they are ",
          nb::repr(values).c_str());
  Column out;
  out.reserve(nb::len(values));
  for (nb::handle value : values) out.push_back(table->label(op, to_symbol(value)));
  return out;
}

void init_symbol_table(nb::module_& m) {
  nb::class_<SymbolHandle> table(m, "SymbolTable", nb::is_final(), explained_constructor(), R"(
The names of labels: a one-to-one map between symbols and labels.

Attached to the input and output labels of a graph, as :attr:`Graph.isymbols` and
:attr:`Graph.osymbols`, symbols are carried through operations and shown when a graph is printed or
drawn. A graph keeps the symbols as they were when they were attached: what is added to the table
later is not in the graph.

``table["a"]`` is a label, ``table[0]`` a symbol, ``len(table)`` the number of symbols. Iteration
gives the symbols, and ``in`` takes a symbol or a label. Epsilon has the label -1 and a symbol that
is not counted.

Args:
    symbols: A list of symbols, whose labels count from 0, or a dict from symbols to labels or from
        labels to symbols.
    epsilon: The symbol of epsilon.

Raises:
    ValueError: If a symbol or a label occurs twice, or a symbol is empty.

>>> import arcgrad as ag
>>> table = ag.SymbolTable(["a", "b"])
>>> table["b"], table[0], table.add("c"), len(table)
(1, 'a', 2, 3)
>>> list(table), "b" in table, 7 in table
(['a', 'b', 'c'], True, False)
>>> ag.chain_graph(["b", "a"], isymbols=table)
Graph(3 nodes, 2 arcs, start [0], accept [2], float32)
  0 -> 1  b/0
  1 -> 2  a/0
)");
  table
      .def(
          "__init__",
          [](SymbolHandle* self, nb::handle symbols, const std::string& epsilon) {
            new (self)
                SymbolHandle{std::make_shared<const SymbolTable>(make_table(symbols, epsilon))};
          },
          "symbols"_a = nb::none(), nb::kw_only(), "epsilon"_a = "<eps>",
          nb::sig("def __init__(self, symbols: collections.abc.Iterable[str] | "
                  "collections.abc.Mapping[str, int] | collections.abc.Mapping[int, str] | None = "
                  "None, *, epsilon: str = '<eps>') -> None"))
      .def_static(
          "of_bytes", [] { return SymbolHandle{bytes_table()}; },
          "The table of all bytes: the label of a byte is its value. It stores nothing.")
      .def_static(
          "of_unicode", [] { return SymbolHandle{unicode_table()}; },
          "The table of all characters: the label of a character is its code point. It stores "
          "nothing.")
      .def_static(
          "load",
          [](const Path& file_name) {
            return SymbolHandle{std::make_shared<const SymbolTable>(
                run_op("SymbolTable.load", [&] { return load_symbols(file_name.string()); }))};
          },
          "file_name"_a, R"(
Read a table in OpenFst's text format: one line ``symbol<TAB>id`` each.

In this format epsilon has the id 0, so a label is the id minus one.

Raises:
    OSError: If the file cannot be read.
    ValueError: If a line is invalid, or a symbol or id occurs twice; the message names it.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "symbols.txt")
...     ag.SymbolTable(["a", "b"]).save(path)
...     with open(path) as file:
...         file.read(), ag.SymbolTable.load(path)
('<eps>\t0\na\t1\nb\t2\n', SymbolTable(2 symbols: 'a'=0, 'b'=1))
)")
      .def(
          "save",
          [](const SymbolHandle& self, const Path& file_name) {
            const SymbolTablePtr table = self.table;
            run_op("SymbolTable.save", [&] { save_symbols(file_name.string(), *table); });
          },
          "file_name"_a,
          "Write the table in the format of :meth:`load`. The file is replaced atomically.")
      .def_prop_ro(
          "epsilon", [](const SymbolHandle& self) { return self.table->epsilon(); },
          "The symbol of epsilon.")
      .def(
          "add",
          [](SymbolHandle& self, const std::string& symbol, std::optional<int64_t> label) {
            return add(edit(self), symbol, label);
          },
          "symbol"_a, "label"_a = nb::none(),
          "Adds a symbol and returns its label: that of the symbol if it is known, else ``label``, "
          "by default one more than the largest.")
      .def(
          "merge",
          [](const SymbolHandle& self, const SymbolHandle& other) {
            return SymbolHandle{joined("SymbolTable.merge", self.table, other.table)};
          },
          "other"_a,
          "The symbols of both tables. Raises ValueError if a symbol has two labels or a label two "
          "symbols.")
      .def(
          "items", [](const SymbolHandle& self) { return pairs(*self.table); },
          nb::sig("def items(self) -> list[tuple[str, int]]"),
          "The pairs of a symbol and its label, in the order in which they were added.")
      .def(
          "__getitem__",
          [](const SymbolHandle& self, const Label& key) -> nb::object {
            if (const auto* symbol = std::get_if<std::string>(&key)) {
              if (const auto label = self.table->find(*symbol)) return nb::int_(*label);
              throw_key(nb::cast(*symbol));
            }
            const int64_t label = std::get<int64_t>(key);
            if (label == static_cast<int32_t>(label))
              if (const auto symbol = self.table->symbol(static_cast<int32_t>(label)))
                return nb::cast(*symbol);
            throw_key(nb::int_(label));
          },
          "key"_a, nb::sig("def __getitem__(self, key: int | str) -> int | str"))
      .def(
          "__contains__",
          [](const SymbolHandle& self, nb::handle key) {
            std::string symbol;
            if (nb::isinstance<nb::str>(key))
              return nb::try_cast(key, symbol) && self.table->find(symbol).has_value();
            int32_t label = 0;
            return nb::try_cast(key, label) && self.table->symbol(label).has_value();
          },
          "key"_a.none(), nb::sig("def __contains__(self, key: object) -> bool"))
      .def("__len__", [](const SymbolHandle& self) { return self.table->size(); })
      .def("__bool__", [](const SymbolHandle&) { return true; })
      .def(
          "__iter__",
          [](const SymbolHandle& self) {
            pairs(*self.table);  // raises for tables that cannot be listed
            return nb::cast(self.table->symbols()).attr("__iter__")();
          },
          nb::sig("def __iter__(self) -> typing.Iterator[str]"))
      .def(
          "__eq__",
          [](const SymbolHandle& self, nb::handle other) -> nb::object {
            if (!nb::isinstance<SymbolHandle>(other)) return nb::borrow(Py_NotImplemented);
            return nb::bool_(*self.table == *nb::cast<const SymbolHandle&>(other).table);
          },
          "other"_a.none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__", [](const SymbolHandle& self) { return describe(*self.table); })
      .def("__copy__", [](const SymbolHandle& self) { return SymbolHandle{self.table}; })
      .def(
          "__deepcopy__",
          [](const SymbolHandle& self, nb::handle) { return SymbolHandle{self.table}; }, "memo"_a)
      .def("__getstate__",
           [](const SymbolHandle& self) {
             const std::string bytes = to_bytes(*self.table);
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def("__setstate__", [](SymbolHandle& self, const nb::bytes& state) {
        new (&self) SymbolHandle{std::make_shared<const SymbolTable>(
            symbols_from_bytes({state.c_str(), state.size()}, "pickle"))};
      });
  table.attr("__hash__") = nb::none();  // a table can be changed
}

}  // namespace arcgrad::bindings
