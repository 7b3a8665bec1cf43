// Live handles: which addresses stand for an object, and ownership of that object for as long as a call uses it.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/fault.h"

namespace vnpu {

// Whoever finds an object shares it: it may be removed while a call that has found it is still at work, and lives until
// that call has returned.
template <class T>
class Handles {
  public:
    // `noun` is what messages call the object.
    explicit Handles(const char *noun) : noun_(noun) {}
    Handles(const Handles &) = delete;
    Handles &operator=(const Handles &) = delete;

    // The object's handle: its address.
    void *add(std::shared_ptr<T> object) {
        const std::lock_guard lock(table_.mutex);
        void *handle = object.get();
        table_.live.emplace(handle, std::move(object));
        return handle;
    }

    // Fault InvalidHandle.
    std::shared_ptr<T> find(const void *handle) const {
        if (std::shared_ptr<T> object = find_or_null(handle)) return object;
        unknown(handle);
    }

    std::shared_ptr<T> find_or_null(const void *handle) const {
        const std::lock_guard lock(table_.mutex);
        const auto it = table_.live.find(handle);
        return it != table_.live.end() ? it->second : nullptr;
    }

    // The object of a handle that the caller chose; `make()` makes it where there is none.
    template <class Make>
    std::shared_ptr<T> find_or_add(const void *handle, Make make) {
        const std::lock_guard lock(table_.mutex);
        if (const auto it = table_.live.find(handle); it != table_.live.end()) return it->second;
        return table_.live.emplace(handle, make()).first->second;
    }

    // Takes the object out and gives it to the caller. Fault InvalidHandle.
    std::shared_ptr<T> remove(const void *handle) {
        {
            const std::lock_guard lock(table_.mutex);
            if (auto node = table_.live.extract(handle)) {
                table_.retire(node.mapped());
                return std::move(node.mapped());
            }
        }
        unknown(handle);
    }

    // Takes all objects out for which `which(object)` holds.
    template <class Which>
    std::vector<std::shared_ptr<T>> remove_if(Which which) {
        std::vector<std::shared_ptr<T>> removed;
        const std::lock_guard lock(table_.mutex);
        std::erase_if(table_.live, [&](auto &entry) {
            if (!which(*entry.second)) return false;
            table_.retire(entry.second);
            removed.push_back(std::move(entry.second));
            return true;
        });
        return removed;
    }

    std::vector<std::shared_ptr<T>> all() const {
        std::vector<std::shared_ptr<T>> found;
        const std::lock_guard lock(table_.mutex);
        for (const auto &[handle, object] : table_.live) found.push_back(object);
        return found;
    }

  private:
    struct Table {
        std::mutex mutex;  // a shared_mutex costs 200 ns where this one costs 5, and it is never held long
        std::unordered_map<const void *, std::shared_ptr<T>> live;
        // The latest that were removed. A weak_ptr keeps the memory that make_shared took, and so the address: a handle
        // that a program uses after its end is not taken for another object's.
        std::deque<std::weak_ptr<T>> removed;

        void retire(const std::shared_ptr<T> &object) {
            removed.push_back(object);
            if (removed.size() > kRemoved) removed.pop_front();
        }
    };
    static constexpr size_t kRemoved = 256;

    [[noreturn]] void unknown(const void *handle) const {
        fail(FaultKind::InvalidHandle, "{} is not a live {}.", handle, noun_);
    }

    const char *const noun_;
    Table &table_ = *new Table;  // never destroyed: other libraries call in until the very end of the process
};

}  // namespace vnpu
