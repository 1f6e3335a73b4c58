#include "arcgrad/search/ngram_model.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "arcgrad/io/file.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/search/hashing.h"

namespace arcgrad {
namespace {

constexpr char kOp[] = "load_ngrams";
/// Files up to this size are checked completely when they are mapped.
constexpr size_t kCheckedBytes = size_t{64} << 20;

/// The end of a section that begins at `offset`, rounded up to the alignment of all sections.
constexpr uint64_t section_end(uint64_t offset, uint64_t size) {
  return (offset + size + 63) / 64 * 64;
}

}  // namespace

NgramLayout::NgramLayout(const NgramHeader& header)
    : states(section_end(0, sizeof(NgramHeader))),
      arcs(section_end(states, (header.num_states + 1) * sizeof(NgramState))),
      name_offsets(section_end(arcs, header.num_arcs * sizeof(NgramArc))),
      cells(section_end(name_offsets, (header.num_words + 1) * sizeof(uint64_t))),
      names(section_end(cells, header.num_cells * sizeof(uint32_t))),
      size(section_end(names, header.num_name_bytes)) {}

uint64_t header_checksum(const NgramHeader& header) {
  return hash_bytes(reinterpret_cast<const char*>(&header), offsetof(NgramHeader, header_checksum));
}

NgramModel::NgramModel(Buffer<char> bytes)
    : owned_(std::move(bytes)), bytes_(owned_.data()), num_bytes_(owned_.size()) {
  set_sections("the model");
}

NgramModel::NgramModel(std::shared_ptr<const MappedFile> file, const std::string& name)
    : file_(std::move(file)), bytes_(file_->content().data()), num_bytes_(file_->content().size()) {
  set_sections(name);
  if (num_bytes_ <= kCheckedBytes) verify(name);
}

void NgramModel::set_sections(const std::string& name) {
  require(num_bytes_ >= sizeof(NgramHeader) &&
              std::memcmp(bytes_, kNgramMagic, sizeof kNgramMagic) == 0,
          kOp, name, " must be a compiled n-gram model, but its first bytes differ");
  const NgramHeader& h = header();
  require(h.version == kNgramVersion, kOp, name, " must have format version ", kNgramVersion,
          ", but it has version ", h.version, "; compile the ARPA file again");
  require(h.header_checksum == header_checksum(h), kOp, name,
          " must be intact, but the checksum of its header does not fit");
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  const bool fits = h.num_words <= kMost && h.num_states <= kMost && h.num_states > 0 &&
                    h.num_arcs <= kMost && h.num_arcs >= h.num_words &&
                    h.num_name_bytes <= (kMost << 8U) && std::has_single_bit(h.num_cells) &&
                    h.num_cells <= kMost && h.num_cells > h.num_words && h.order >= 1 &&
                    h.order <= NgramHeader::kMaxOrder;
  require(fits && NgramLayout(h).size == num_bytes_, kOp, name,
          " must be complete, but its size differs from that in its header");
  const NgramLayout layout(h);
  states_ = reinterpret_cast<const NgramState*>(bytes_ + layout.states);
  arcs_ = reinterpret_cast<const NgramArc*>(bytes_ + layout.arcs);
  name_offsets_ = reinterpret_cast<const uint64_t*>(bytes_ + layout.name_offsets);
  cells_ = reinterpret_cast<const uint32_t*>(bytes_ + layout.cells);
  names_ = bytes_ + layout.names;
  num_states_ = static_cast<uint32_t>(h.num_states);
  num_arcs_ = static_cast<uint32_t>(h.num_arcs);
}

void NgramModel::verify(const std::string& name) const {
  require(header().checksum ==
              hash_bytes(bytes_ + sizeof(NgramHeader), num_bytes_ - sizeof(NgramHeader)),
          kOp, name, " must be intact, but its checksum does not fit its content");
}

void NgramModel::save(const std::string& file_name) const {
  write_file("save", file_name, {bytes_, num_bytes_});
}

std::string_view NgramModel::name(int32_t word) const {
  if (word < 0 || word >= num_words()) return {};
  const uint64_t end = std::min(name_offsets_[word + 1], header().num_name_bytes);
  const uint64_t begin = std::min(name_offsets_[word], end);
  return {names_ + begin, end - begin};
}

int32_t NgramModel::find(std::string_view wanted) const {
  const uint64_t mask = header().num_cells - 1;
  uint64_t cell = hash_bytes(wanted.data(), wanted.size()) & mask;
  for (uint64_t tried = 0; tried <= mask && cells_[cell] != 0; ++tried, cell = (cell + 1) & mask) {
    const auto word = static_cast<int32_t>(cells_[cell] - 1);
    if (name(word) == wanted) return word;
  }
  return -1;
}

NgramStep NgramModel::next(uint32_t state, uint32_t word) const {
  float score = 0.0F;
  while (state != 0) {
    const NgramState& from = states_[state];
    const uint32_t end = std::min(states_[state + 1].first_arc, num_arcs_);
    uint32_t first = std::min(from.first_arc, end);
    // Binary search without branches on the result of a comparison.
    for (uint32_t count = end - first; count > 0;) {
      const uint32_t half = count / 2;
      const bool is_right = arcs_[first + half].word < word;
      first = is_right ? first + half + 1 : first;
      count = is_right ? count - half - 1 : half;
    }
    if (first < end && arcs_[first].word == word)
      return {clamp_state(arcs_[first].next), score + arcs_[first].score};
    score += from.back_off;
    state = from.link < state ? from.link : 0;
  }
  // The arcs of state 0 are the words in their order.
  return {clamp_state(arcs_[word].next), score + arcs_[word].score};
}

}  // namespace arcgrad
