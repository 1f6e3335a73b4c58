// Bindings of prefix trees; the Python package wraps and documents them.

#include "arcgrad/tokens/trie.h"

#include "common.h"

namespace arcgrad::bindings {

using Sequences = std::vector<std::vector<int32_t>>;

void init_trie(nb::module_& m) {
  nb::class_<Trie>(m, "Trie", explained_constructor(), R"(
A prefix tree (trie) of entries that are spelled by labels.
)")
      .def(nb::init<const Sequences&, std::vector<int32_t>>(), "spellings"_a, "labels"_a)
      .def(
          "graph",
          [](const Trie& trie, Flag calc_grad, nb::object dtype) {
            return trie.graph(calc_grad, to_dtype("lexicon_graph", dtype));
          },
          nb::kw_only(), "calc_grad"_a = false, "dtype"_a = "float32",
          "The transducer from spellings to output labels; arc i completes entry i.")
      .def(
          "decompositions",
          [](const Trie& trie, const Sequences& sequences, Flag calc_grad, nb::object dtype) {
            const char* op = "decompositions";
            const DType kind = to_dtype(op, dtype);
            int64_t work = 0;
            for (const auto& sequence : sequences) work += static_cast<int64_t>(sequence.size());
            nb::gil_scoped_release release;
            return map_batch(
                op, sequences.size(),
                [&](size_t i) { return trie.decompositions(sequences[i], calc_grad, kind); }, work);
          },
          "sequences"_a, nb::kw_only(), "calc_grad"_a = false, "dtype"_a = "float32",
          "For each sequence, the acceptor of the entry sequences that spell it.");
}

}  // namespace arcgrad::bindings
