#include "record/tables.h"

#include <cmath>
#include <new>

#include "record/kernels.h"

namespace torchport::record {

namespace {

constexpr size_t kMostSpare = 8, kPage = 4096;
std::mutex spare_mutex;
std::vector<Block::Bytes> &spare() {
    static auto *all = new std::vector<Block::Bytes>;  // never destroyed: threads use it to the end
    return *all;
}

}  // namespace

Block::Block(size_t size) : capacity(size) {
    if (capacity == Step::kBlock) {
        const std::lock_guard lock(spare_mutex);
        if (!spare().empty()) {
            bytes = std::move(spare().back());
            spare().pop_back();
        }
    }
    if (bytes) return;
    bytes.reset(static_cast<std::byte *>(std::aligned_alloc(kPage, (capacity + kPage - 1) / kPage * kPage)));
    if (!bytes) throw std::bad_alloc();
}

Block::~Block() {
    if (capacity != Step::kBlock) return;
    const std::lock_guard lock(spare_mutex);
    if (spare().size() < kMostSpare) spare().push_back(std::move(bytes));
}

TensorRow::TensorRow() { minimum = maximum = mean = l2 = std::nan(""); }

void TensorRow::measured(const Statistics &found, int64_t elements_measured, int64_t times) {
    const int64_t finite = elements_measured - found.nans - found.infinities;
    if (elements_measured > found.nans) minimum = found.minimum, maximum = found.maximum;
    if (finite > 0) mean = found.sum / static_cast<double>(finite);
    l2 = std::sqrt(found.squares * static_cast<double>(times));
    nans = found.nans * times;
    infinities = found.infinities * times;
    zeros = found.zeros * times;
    checksum = found.checksum;
    flags |= kMeasured;
}

int32_t Texts::number(std::string_view text) {
    if (text.empty()) return -1;
    std::string line(text);
    for (char &letter : line)
        if (letter == '\n') letter = ' ';
    const std::lock_guard lock(mutex_);
    const auto [found, added] = numbers_.try_emplace(std::move(line), static_cast<int32_t>(texts_.size()));
    if (added) texts_.push_back(found->first);
    return found->second;
}

std::string Texts::text(int32_t number) const {
    const std::lock_guard lock(mutex_);
    return texts_.at(static_cast<size_t>(number));
}

bool Step::hold() noexcept {
    int64_t now = pending.load();
    while (now > 0)
        if (pending.compare_exchange_weak(now, now + 1)) return true;
    return false;
}

int32_t Step::line(int32_t text) {
    if (text < 0) return -1;
    const auto place = static_cast<size_t>(text);
    if (place >= local_.size()) local_.resize(place + 256, -1);
    if (local_[place] < 0) {
        local_[place] = static_cast<int32_t>(lines_.size());
        lines_.push_back(text);
    }
    return local_[place];
}

std::string Step::strings(const Texts &texts) const {
    std::string all;
    for (const int32_t text : lines_) {
        if (!all.empty()) all += '\n';
        all += texts.text(text);
    }
    return all;
}

namespace {

// Contents begin where vectors can be stored.
constexpr size_t kAlignment = 64;
size_t padded(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Step::Room Step::room(size_t size, std::atomic<int64_t> &waiting) {
    const std::lock_guard lock(contents_mutex_);
    if (open_ && open_->size + padded(size) > open_->capacity) {
        full_.push_back(std::move(open_));
        ++blocks_;
    }
    if (!open_) open_ = std::make_unique<Block>(std::max(kBlock, padded(size)));
    const Room room{open_.get(), open_->size, size, blocks_};
    open_->size += padded(size);
    ++open_->filling;
    waiting += static_cast<int64_t>(padded(size));
    return room;
}

int32_t Step::keep(const Room &room, uint64_t checksum, std::atomic<int64_t> &waiting) {
    const std::lock_guard lock(contents_mutex_);
    --room.block->filling;
    const auto [found, added] =
        known_.try_emplace(mixed(checksum ^ mixed(room.size)), static_cast<int32_t>(contents_.size()));
    if (added) {
        contents_.push_back(
            {checksum, static_cast<int64_t>(room.offset), static_cast<int64_t>(room.size), room.number});
    } else if (room.offset + padded(room.size) == room.block->size && open_.get() == room.block) {
        room.block->size = room.offset;
        waiting -= static_cast<int64_t>(padded(room.size));
    }
    return found->second;
}

void Step::changed(int32_t row, int32_t call, int32_t content, uint64_t checksum) {
    Watch &watch = watches[static_cast<size_t>(row)];
    ChangeRow made{.call = call, .tensor = row, .after = watch.after, .content = content};
    for (size_t later = watches.size(); later-- > static_cast<size_t>(row) + 1 && made.by < 0;) {
        const Watch &other = watches[later];
        if (other.after != Watch::kUnread &&  // else the device has not come to it
            other.address < watch.address + watch.size && watch.address < other.address + other.size &&
            tensors[later].storage != tensors[static_cast<size_t>(row)].storage)
            made.by = static_cast<int32_t>(later);
    }
    changes.push_back(made);
    watch.after = call;
    watch.checksum = checksum;
}

std::vector<TensorRow> Step::rows() const {
    std::vector<TensorRow> all(tensors.begin(), tensors.end());
    for (const auto &[place, as] : same_) {
        TensorRow &row = all[static_cast<size_t>(place)];
        const TensorRow &first = all[static_cast<size_t>(as)];
        row.minimum = first.minimum, row.maximum = first.maximum, row.mean = first.mean, row.l2 = first.l2;
        row.nans = first.nans, row.infinities = first.infinities, row.zeros = first.zeros;
        row.checksum = first.checksum, row.content = first.content;
        row.flags |= first.flags & kMeasured;
        if (row.reason < 0 && (first.flags & kMeasured) == 0) row.reason = first.reason;
    }
    return all;
}

std::unique_ptr<Block> Step::take_full() {
    const std::lock_guard lock(contents_mutex_);
    if (full_.empty() || full_.front()->filling > 0) return nullptr;
    std::unique_ptr<Block> block = std::move(full_.front());
    full_.pop_front();
    return block;
}

void Step::end_blocks() {
    const std::lock_guard lock(contents_mutex_);
    if (open_ && open_->size > 0) full_.push_back(std::move(open_));
}

}  // namespace torchport::record
