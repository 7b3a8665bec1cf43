// Steps on their way to the writer's thread.
#include <dlfcn.h>

#include <chrono>

#include "record/checking.h"

namespace torchport::record {
namespace {

constexpr int64_t kMostWaiting = int64_t{256} << 20;  // bytes of contents: then the run waits for the disk
constexpr auto kLook = std::chrono::milliseconds(50);

// Whether this thread has the interpreter's lock, which the writer's thread needs.
bool holds_interpreter() noexcept {
    static const auto check = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
    return check != nullptr && check() != 0;
}

}  // namespace

void Recorder::wait_for_room() {
    if (waiting_bytes_.load(std::memory_order_relaxed) < kMostWaiting || holds_interpreter()) return;
    std::unique_lock lock(queue_mutex_);
    queue_changed_.wait(lock, [&] { return waiting_bytes_.load() < kMostWaiting || closed_; });
}

void Recorder::end_step(std::string name, bool keep) {
    read_reductions();
    std::shared_ptr<Step> ended;
    {
        const std::lock_guard lock(mutex_);
        ended = step_;
        step_ = std::make_shared<Step>();
        known_.forget();
        forwards_.clear();
        followed_.clear();
    }
    // Its blocks may be with the writer already, who throws them away for a step without a name.
    ended->name = keep ? std::move(name) : "";
    ended->lost = lost_.exchange(0);
    {
        const std::lock_guard lock(queue_mutex_);
        queue_.push_back(step_);
    }
    release(*ended);
}

void Recorder::release(Step &step) {
    if (--step.pending > 0) return;
    const std::lock_guard lock(queue_mutex_);
    queue_changed_.notify_all();
}

Item Recorder::take() {
    std::unique_lock lock(queue_mutex_);
    while (true) {
        const std::shared_ptr<Step> first = queue_.front();
        const bool ended = first->pending.load() <= 0;
        if (ended) first->end_blocks();  // here: whoever was the last to add may not have come to say so
        if (std::unique_ptr<Block> block = first->take_full()) return {Item::kBlock, block.release(), nullptr};
        if (ended) {
            queue_.pop_front();
            taken_ = first;
            return {Item::kStep, nullptr, first.get()};
        }
        // The last one grows until it is ended, which nobody does any more.
        if (closed_ && queue_.size() == 1) return {};
        queue_changed_.wait_for(lock, kLook);
    }
}

void Recorder::free_step(Step *step) {
    const std::lock_guard lock(queue_mutex_);
    if (taken_.get() == step) taken_.reset();
}

void Recorder::free_block(Block *block) {
    waiting_bytes_ -= static_cast<int64_t>(block->size);
    delete block;
    const std::lock_guard lock(queue_mutex_);
    queue_changed_.notify_all();
}

void Recorder::close() {
    const std::lock_guard lock(queue_mutex_);
    closed_ = true;
    queue_changed_.notify_all();
}

}  // namespace torchport::record
