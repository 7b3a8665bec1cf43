// Which scores count: CANN's sparse modes, and dropout's bits.
#include <algorithm>
#include <cstring>
#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/attention/attention.h"

namespace vnpu::opapi::attention {
namespace {

constexpr int64_t kFarAway = int64_t{1} << 40;  // beyond any sequence; keeps sums of positions from overflowing
constexpr int kNoPreciseRows = 2;               // innerPrecise: look for queries that see no key

int64_t near(int64_t tokens) { return std::clamp(tokens, -kFarAway, kFarAway); }

bool compressed(int64_t mode) { return mode >= kLeftUpCausal && mode != kPrefix; }

// CANN's modes 7 and 8 are modes of single sequences in a packed batch.
int64_t mode_of_sequence(const Settings &settings, int64_t sequence) {
    const auto empty = [&](size_t i) { return settings.query_ends[i] == (i == 0 ? 0 : settings.query_ends[i - 1]); };
    const size_t count = settings.query_ends.size();
    if (settings.sparse_mode == kRightDownThenBand) {
        size_t last = count - 1;
        while (last > 0 && empty(last)) --last;
        return static_cast<size_t>(sequence) == last ? kBand : kRightDownCausal;
    }
    if (settings.sparse_mode == kBandThenLeftUp) {
        size_t first = 0;
        while (first + 1 < count && empty(first)) ++first;
        return static_cast<size_t>(sequence) == first ? kBand : kLeftUpCausal;
    }
    return settings.sparse_mode;
}

void check_plan(bool holds, const Settings &settings, std::string_view why) {
    tiled_part(holds, "PreTokens[{}] and nextTokens[{}] config error, {}: parameter sparseMode is {}",
               settings.pre_tokens, settings.next_tokens, why, settings.sparse_mode);
}

// (ops-transformer: flash_attention_score_tiling_general.cpp, SparseBandModeCheck)
void check_one_band(const Settings &settings, Lengths all) {
    if ((settings.sparse_mode != kDefaultMask && settings.sparse_mode != kBand) || all.queries == 0 || all.keys == 0)
        return;
    const int64_t shift = settings.sparse_mode == kBand ? all.keys - all.queries : 0;
    const int64_t pre = near(settings.pre_tokens) - shift, next = near(settings.next_tokens) + shift;
    const bool some = pre < 0 ? next >= -pre && -pre < all.keys : next >= 0 || (-next <= pre && -next < all.queries);
    check_plan(some, settings, "there is no valid data block");
}

// (ops-transformer: flash_attention_score_tiling_general.cpp, CheckPretokenAndNexttoken and SparseNoMaskModeCheck)
void check_packed_bands(const Settings &settings, const std::vector<Lengths> &all) {
    const int64_t pre = near(settings.pre_tokens), next = near(settings.next_tokens), mode = settings.sparse_mode;
    if (mode == kDefaultMask) check_plan(next >= 0 && next >= -pre, settings, "there is no valid data block");
    if (mode == kBand) check_plan(pre >= 0 && next >= -pre, settings, "has invalid data block");
    for (size_t i = 0; i < all.size(); ++i) {
        const auto [queries, keys] = all[i];
        const bool empty = queries == 0 || keys == 0, band = queries - next <= keys;
        if (mode == kDefaultMask) check_plan(empty || queries - pre <= keys, settings, "has invalid row");
        if (mode == kRightDownCausal) check_plan(queries <= keys, settings, "exist invalid row");
        if (mode == kRightDownThenBand) check_plan(empty || queries <= keys, settings, "exist invalid row");
        if (mode == kBand) check_plan(empty || band, settings, "has invalid row");
        if (mode == kBand || mode_of_sequence(settings, static_cast<int64_t>(i)) != kBand) continue;
        check_plan(pre >= keys, settings, "the band does not reach all keys");
        check_plan(mode == kBandThenLeftUp ? band : next <= 0 && (empty || band), settings, "has invalid row");
    }
}

}  // namespace

// (ops-transformer: flash_attention_score_tiling_general.cpp, GetPrefixNList and VarLenGetPrefixNList)
void check_band(const Settings &settings, const std::vector<Lengths> &all, int64_t batch) {
    if (settings.packed())
        check_packed_bands(settings, all);
    else
        check_one_band(settings, all.front());
    if (settings.sparse_mode != kPrefixCompressed) return;
    if (static_cast<int64_t>(settings.prefix.size()) != batch)
        fail(FaultKind::PartRefused, "prefixN is invalid, it should be the same size as bSize[{}], but it is {}", batch,
             settings.prefix.size());
    for (size_t i = 0; i < settings.prefix.size(); ++i) {
        const auto [queries, keys] = all[settings.packed() ? i : 0];
        const int64_t least = std::max<int64_t>(keys - queries, 0);
        if (settings.prefix[i] < least || settings.prefix[i] > keys)
            fail(FaultKind::PartRefused, "batch[{}] prefixN={} is invalid, should be in range of [{}, {}]", i,
                 settings.prefix[i], least, keys);
    }
}

Mask::Mask(const at::Tensor &mask, const Settings &settings, int64_t queries, int64_t keys, int64_t sequence)
    : mode_(mask.defined() ? mode_of_sequence(settings, sequence) : int64_t{kDefaultMask}),
      queries_(queries),
      keys_(keys),
      pre_(near(settings.pre_tokens)),
      next_(near(settings.next_tokens)),
      zeroes_blind_queries_(settings.inner_precise == kNoPreciseRows) {
    if (!mask.defined()) return;  // the mode and the band mean nothing without a mask
    if (mode_ == kRightDownCausal || mode_ == kBand || mode_ == kPrefixCompressed) shift_ = keys - queries;
    if (compressed(mode_)) {
        compressed_ = mask.flatten(0, -2);
    } else {
        full_ = mask.dim() == 2 ? mask.unsqueeze(0).unsqueeze(0) : mask;
        if (settings.packed() && full_.size(0) > 1) full_ = full_.narrow(0, sequence, 1);
        full_ = full_.narrow(2, 0, queries).narrow(3, 0, keys).to(at::kBool);
        if (full_.stride(3) != 1) full_ = full_.contiguous();
    }
    if (mode_ == kPrefixCompressed) prefix_.assign(settings.prefix.begin() + sequence, settings.prefix.end());
    // As CANN's tiling decides it: the band, seen from the upper left corner, leaves out a first or last row.
    const bool banded = mode_ == kDefaultMask || mode_ == kBand;
    const int64_t left = mode_ == kBand ? pre_ - shift_ : pre_, right = mode_ == kBand ? next_ + shift_ : next_;
    zeroes_blind_queries_ = zeroes_blind_queries_ || (banded && (left < queries - keys || right < 0)) ||
                            (mode_ == kRightDownCausal && shift_ < 0) ||
                            (mode_ == kPrefixCompressed && shift_ < 0 && std::ranges::count(prefix_, 0) > 0);
    if (mode_ == kAllMask || mode_ == kPrefix) return;
    if (mode_ == kDefaultMask && left >= queries && right >= keys) return;
    diagonals_.resize(static_cast<size_t>(queries + keys));
    left_out_before_.resize(diagonals_.size() + 1);
    for (size_t i = 0; i < diagonals_.size(); ++i) {
        diagonals_[i] = outside(static_cast<int64_t>(i) - queries - shift_);
        left_out_before_[i + 1] = left_out_before_[i] + diagonals_[i];
    }
}

// What the compressed mask says of a score so far right of (negative: below) the diagonal. It is read, not assumed:
// an inverted triangle gives the wrong result here as it does on hardware.
bool Mask::triangle(int64_t right_of_diagonal) const {
    const int64_t row = std::min(std::max<int64_t>(-right_of_diagonal, 0), compressed_.size(1) - 1);
    const int64_t column = std::min(std::max<int64_t>(right_of_diagonal, 0), compressed_.size(1) - 1);
    const char *bytes = static_cast<const char *>(compressed_.const_data_ptr());
    return bytes[row * compressed_.stride(0) + column * compressed_.stride(1)] != 0;
}

bool Mask::outside(int64_t right_of_diagonal) const {
    switch (mode_) {
        case kDefaultMask:
            return right_of_diagonal > next_ || right_of_diagonal < -pre_;
        case kBand:
            return triangle(right_of_diagonal - next_) || !triangle(right_of_diagonal + pre_ + 1);
        default:
            return triangle(right_of_diagonal);
    }
}

// Of rows of one batch, [heads or 1, rows, keys]: the mask that was given, and the band where there is one.
at::Tensor Mask::given(int64_t batch, int64_t first, int64_t last) const {
    const at::Tensor mask = full_.select(0, full_.size(0) == 1 ? 0 : batch).narrow(1, first, last - first);
    if (diagonals_.empty()) return mask;
    at::Tensor band = at::empty({1, last - first, keys_}, at::kBool);
    bool *out = band.mutable_data_ptr<bool>();
    for (int64_t row = first; row < last; ++row, out += keys_)
        std::copy_n(diagonals_.begin() + (queries_ - row), keys_, out);
    return mask.logical_or(band);
}

// Runs of left-out scores: the rest of a row behind the diagonal, padding. ATen's masked_fill looks at each score.
void Mask::leave_out(int64_t batch, int64_t head, int64_t query, const Window &window, float *scores) const {
    const auto fill = [&](const char *left_out, int64_t begin) {  // of the keys [begin, mixed_end)
        const char *at = left_out, *end = left_out + (window.mixed_end - begin);
        while (at < end) {
            const void *found = std::memchr(at, 1, static_cast<size_t>(end - at));
            if (found == nullptr) return;
            at = static_cast<const char *>(found);
            const void *behind = std::memchr(at, 0, static_cast<size_t>(end - at));
            const char *stop = behind == nullptr ? end : static_cast<const char *>(behind);
            std::fill(scores + (at - left_out) + begin - window.begin,
                      scores + (stop - left_out) + begin - window.begin, std::numeric_limits<float>::lowest());
            at = stop;
        }
    };
    const int64_t seen = std::max(window.mixed_begin, prefix(batch));  // by the band
    if (!diagonals_.empty() && seen < window.mixed_end) fill(diagonals_.data() + (queries_ - query + seen), seen);
    if (!full_.defined()) return;
    const int64_t row = (full_.size(0) == 1 ? 0 : batch * full_.stride(0)) +
                        (full_.size(1) == 1 ? 0 : head * full_.stride(1)) + query * full_.stride(2);
    fill(static_cast<const char *>(full_.const_data_ptr()) + row + window.mixed_begin, window.mixed_begin);
}

Window Mask::window(int64_t batch, int64_t first, int64_t last) const {
    if (!leaves_out()) return {0, keys_, 0, 0};
    const auto count = static_cast<size_t>(keys_);
    std::vector<char> some(count), all(count);  // of the queries leave out a key
    bool blind = false;                         // a query sees no key
    if (full_.defined()) {
        const at::Tensor rows = given(batch, first, last).flatten(0, 1);
        const at::Tensor any_row = rows.any(0), all_rows = rows.all(0);
        std::copy_n(any_row.const_data_ptr<bool>(), count, some.begin());
        std::copy_n(all_rows.const_data_ptr<bool>(), count, all.begin());
        blind = rows.all(1).any().item<bool>();
    } else {
        const auto between = [&](int64_t from, int64_t to) {
            return left_out_before_[static_cast<size_t>(to)] - left_out_before_[static_cast<size_t>(from)];
        };
        for (int64_t key = prefix(batch); key < keys_; ++key) {
            const int64_t left_out = between(queries_ - last + 1 + key, queries_ - first + 1 + key);
            some[static_cast<size_t>(key)] = left_out > 0;
            all[static_cast<size_t>(key)] = left_out == last - first;
        }
        for (int64_t row = first; row < last && prefix(batch) == 0; ++row)
            blind = blind || between(queries_ - row, queries_ - row + keys_) == keys_;
    }
    const auto position = [&](auto found) { return found - some.begin(); };
    Window window{0, keys_, 0, 0};
    if (!blind || zeroes_blind_queries_) {
        while (window.end > 1 && all[static_cast<size_t>(window.end - 1)]) --window.end;
        while (window.begin < window.end - 1 && all[static_cast<size_t>(window.begin)]) ++window.begin;
    }
    const auto from = some.begin() + window.begin, to = some.begin() + window.end;
    window.mixed_begin = position(std::find(from, to, 1));
    window.mixed_end = window.mixed_begin;
    for (int64_t key = window.mixed_begin; key < window.end; ++key)
        if (some[static_cast<size_t>(key)]) window.mixed_end = key + 1;
    return window;
}

void Dropout::apply(int64_t row, int64_t keys, const Window &window, float factor, float *values) const {
    const uint8_t *in = bits.const_data_ptr<uint8_t>();
    const int64_t bit = start + row * keys + window.begin;
    for (int64_t j = 0; j < window.keys(); ++j)
        values[j] *= factor * static_cast<float>(in[(bit + j) >> 3] >> ((bit + j) & 7) & 1);
}

}  // namespace vnpu::opapi::attention
