#pragma once

// Back-off language models as compact sorted arrays, in memory or mapped from a file.
//
// States are histories: state 0 is the empty one, and longer histories have greater numbers. The
// arcs of a state are the n-grams that extend its history, sorted by word. A word that no arc of a
// state reads is looked up at `link`, the longest suffix of the history that is a state, with the
// back-off weight added. So the score of a word is exact, and a model of 10 million n-grams takes
// 12 bytes for each n-gram and 12 for each history.
//
// All arrays are one block of bytes, which is also the content of a file. A mapped file costs no
// reading, and processes share its pages.

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/search/mapped_file.h"

namespace arcgrad {

/// The result of reading a word: the next state, and the natural logarithm of its probability.
struct NgramStep {
  uint32_t state = 0;
  float score = 0.0F;
};

struct NgramState {
  /// Its arcs are [first_arc, first_arc of the next state).
  uint32_t first_arc;
  /// The longest proper suffix of the history that is a state.
  uint32_t link;
  float back_off;
};

struct NgramArc {
  uint32_t word;
  float score;
  uint32_t next;
};

/// The first bytes of the block; offsets count from its begin.
struct NgramHeader {
  static constexpr uint32_t kMaxOrder = 16;
  char magic[8];
  uint32_t version, order;
  /// The state after `<s>`, or 0.
  uint32_t start_state;
  /// The numbers of `<s>`, `</s>` and `<unk>`, or -1.
  int32_t start_word, end_word, unknown_word;
  uint64_t num_words, num_states, num_arcs, num_name_bytes, num_cells;
  /// The number of n-grams of each order, from 1.
  uint64_t counts[kMaxOrder];
  /// Of all bytes after the header.
  uint64_t checksum;
  /// Of the header before this number.
  uint64_t header_checksum;
};

inline constexpr char kNgramMagic[8] = {'a', 'r', 'c', 'n', 'g', 'r', 'a', 'm'};
inline constexpr uint32_t kNgramVersion = 1;

/// The offsets of the sections of a block, and its size. Sections are aligned to cache lines.
struct NgramLayout {
  explicit NgramLayout(const NgramHeader& header);
  uint64_t states, arcs, name_offsets, cells, names, size;
};
/// The number that `header.header_checksum` must be.
uint64_t header_checksum(const NgramHeader& header);

/// A back-off language model. Immutable; all functions may be called from several threads.
class NgramModel {
 public:
  /// A model in memory; see build_ngram_model() and parse_arpa().
  explicit NgramModel(Buffer<char> bytes);
  /// A model in a file by save(). Files up to 64 MB are checked completely, larger ones by their
  /// header and their size; verify() checks the rest.
  NgramModel(std::shared_ptr<const MappedFile> file, const std::string& name);
  NgramModel(const NgramModel&) = delete;

  void save(const std::string& file_name) const;
  /// Throws unless the checksum fits the content.
  void verify(const std::string& name) const;

  int32_t order() const { return static_cast<int32_t>(header().order); }
  int32_t num_words() const { return static_cast<int32_t>(header().num_words); }
  std::span<const uint64_t> counts() const { return {header().counts, header().order}; }
  int64_t num_bytes() const { return static_cast<int64_t>(num_bytes_); }
  uint32_t start_state() const { return clamp_state(header().start_state); }
  int32_t start_word() const { return header().start_word; }
  int32_t end_word() const { return header().end_word; }
  int32_t unknown_word() const { return header().unknown_word; }
  std::string_view name(int32_t word) const;
  /// The number of a word, or -1.
  int32_t find(std::string_view name) const;

  /// Reads a word below num_words() in a state. Every index is checked, so that a damaged file
  /// gives wrong scores, but no invalid access.
  NgramStep next(uint32_t state, uint32_t word) const;
  /// The score of `</s>` in a state; 0 if the model has no `</s>`.
  float end_score(uint32_t state) const {
    return end_word() < 0 ? 0.0F : next(state, static_cast<uint32_t>(end_word())).score;
  }

 private:
  const NgramHeader& header() const { return *reinterpret_cast<const NgramHeader*>(bytes_); }
  void set_sections(const std::string& name);
  uint32_t clamp_state(uint32_t state) const { return state < num_states_ ? state : 0; }

  Buffer<char> owned_;
  std::shared_ptr<const MappedFile> file_;
  const char* bytes_ = nullptr;
  size_t num_bytes_ = 0;
  const NgramState* states_ = nullptr;
  const NgramArc* arcs_ = nullptr;
  const uint64_t* name_offsets_ = nullptr;
  const uint32_t* cells_ = nullptr;
  const char* names_ = nullptr;
  uint32_t num_states_ = 0, num_arcs_ = 0;
};

}  // namespace arcgrad
