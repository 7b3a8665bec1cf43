#include "record/tables.h"

#include <cmath>
#include <cstring>

#include "record/kernels.h"

namespace torchport::record {

namespace {

constexpr size_t kMostSpare = 8;
std::mutex spare_mutex;
std::vector<std::unique_ptr<std::byte[]>> &spare() {
    static auto *all = new std::vector<std::unique_ptr<std::byte[]>>;  // never destroyed: threads use it to the end
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
    if (!bytes) bytes.reset(new std::byte[capacity]);
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

int32_t Step::store(uint64_t checksum, const void *data, size_t size, std::atomic<int64_t> &waiting) {
    const std::lock_guard lock(contents_mutex_);
    const auto [found, added] =
        known_.try_emplace(mixed(checksum ^ mixed(size)), static_cast<int32_t>(contents_.size()));
    if (!added) return found->second;
    if (open_ && open_->size + size > open_->capacity) {
        full_.push_back(std::move(open_));
        ++blocks_;
    }
    if (!open_) {
        open_ = std::make_unique<Block>(std::max(kBlock, size));
    }
    if (size > 0) std::memcpy(open_->bytes.get() + open_->size, data, size);
    contents_.push_back({checksum, static_cast<int64_t>(open_->size), static_cast<int64_t>(size), blocks_});
    open_->size += size;
    waiting += static_cast<int64_t>(size);
    return found->second;
}

std::unique_ptr<Block> Step::take_full() {
    const std::lock_guard lock(contents_mutex_);
    if (full_.empty()) return nullptr;
    std::unique_ptr<Block> block = std::move(full_.front());
    full_.pop_front();
    return block;
}

void Step::end_blocks() {
    const std::lock_guard lock(contents_mutex_);
    if (open_ && open_->size > 0) full_.push_back(std::move(open_));
}

}  // namespace torchport::record
