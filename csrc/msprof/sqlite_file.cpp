#include "msprof/sqlite_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace msprof {
namespace {

constexpr size_t kPage = 4096;
constexpr uint8_t kLeaf = 13, kInner = 5;  // of a table's tree
constexpr size_t kFileHead = 100, kLeafHead = 8, kInnerHead = 12;
// How much of a record lies in its leaf; the rest in pages of its own ("payload fraction" of the format).
constexpr size_t kMostLocal = kPage - 35, kLeastLocal = (kPage - 12) * 32 / 255 - 23;

void big(std::string &to, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) to += static_cast<char>(value >> (8 * i));
}
void big_at(std::string &page, size_t where, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
        page[where + static_cast<size_t>(i)] = static_cast<char>(value >> (8 * (bytes - 1 - i)));
}

void varint(std::string &to, uint64_t value) {
    if (value >> 56 != 0) {  // nine bytes, the last of eight bits
        for (int i = 0; i < 8; ++i) to += static_cast<char>(0x80 | ((value >> (57 - 7 * i)) & 0x7f));
        to += static_cast<char>(value);
        return;
    }
    int groups = 1;
    while (groups < 8 && value >> (7 * groups) != 0) ++groups;
    for (int i = groups - 1; i >= 0; --i) to += static_cast<char>((i == 0 ? 0 : 0x80) | ((value >> (7 * i)) & 0x7f));
}

std::string record(const std::vector<Value> &values) {
    std::string types, body;
    for (const Value &value : values) {
        if (std::holds_alternative<std::nullptr_t>(value)) {
            varint(types, 0);
        } else if (const auto *integer = std::get_if<int64_t>(&value)) {
            constexpr int kBytes[] = {1, 2, 3, 4, 6, 8};
            int type = 0;
            while (type < 5 && (*integer < -(int64_t{1} << (8 * kBytes[type] - 1)) ||
                                *integer >= int64_t{1} << (8 * kBytes[type] - 1)))
                ++type;
            varint(types, static_cast<uint64_t>(type + 1));
            big(body, static_cast<uint64_t>(*integer), kBytes[type]);
        } else if (const auto *number = std::get_if<double>(&value)) {
            varint(types, 7);
            big(body, std::bit_cast<uint64_t>(*number), 8);
        } else {
            const std::string &text = std::get<std::string>(value);
            varint(types, text.size() * 2 + 13);
            body += text;
        }
    }
    // The head's length counts itself.
    const size_t head = types.size() + (types.size() + 1 < 128 ? 1 : 2);
    std::string out;
    varint(out, head);
    return out + types + body;
}

}  // namespace

void SqliteFile::table(const std::string &name, const std::string &columns) {
    if (pages_.empty()) page();  // the first is the schema's
    tables_.push_back({name, "CREATE TABLE " + name + " (" + columns + ")", {}});
}

void SqliteFile::row(const std::vector<Value> &values) {
    std::vector<std::string> &cells = tables_.back().cells;
    cells.push_back(cell(cells.size() + 1, record(values)));
}

uint32_t SqliteFile::page() {
    pages_.emplace_back(kPage, '\0');
    return static_cast<uint32_t>(pages_.size());
}

std::string SqliteFile::cell(uint64_t row, const std::string &payload) {
    std::string out;
    varint(out, payload.size());
    varint(out, row);
    if (payload.size() <= kMostLocal) return out + payload;
    size_t local = kLeastLocal + (payload.size() - kLeastLocal) % (kPage - 4);
    if (local > kMostLocal) local = kLeastLocal;
    out += payload.substr(0, local);
    uint32_t number = page();
    big(out, number, 4);
    for (size_t from = local; from < payload.size();) {
        const size_t some = std::min(payload.size() - from, kPage - 4);
        pages_[number - 1].replace(4, some, payload, from, some);
        from += some;
        if (from < payload.size()) {
            const uint32_t next = page();
            big_at(pages_[number - 1], 0, next, 4);
            number = next;
        }
    }
    return out;
}

void SqliteFile::fill(uint32_t number, uint8_t kind, const std::vector<std::string> &cells, uint32_t right,
                      size_t head) {
    std::string &page = pages_[number - 1];
    size_t end = kPage, pointer = head + (kind == kLeaf ? kLeafHead : kInnerHead);
    for (const std::string &one : cells) {
        end -= one.size();
        page.replace(end, one.size(), one);
        big_at(page, pointer, end, 2);
        pointer += 2;
    }
    page[head] = static_cast<char>(kind);
    big_at(page, head + 3, cells.size(), 2);
    big_at(page, head + 5, end, 2);
    if (kind == kInner) big_at(page, head + 8, right, 4);
}

// The number of its root.
uint32_t SqliteFile::tree(const std::vector<std::string> &cells) {
    struct Child {
        uint32_t page;
        uint64_t last;
    };
    std::vector<Child> level;
    for (size_t from = 0; from < cells.size() || level.empty();) {
        std::vector<std::string> some;
        size_t room = kPage - kLeafHead;
        while (from < cells.size() && cells[from].size() + 2 <= room) {
            room -= cells[from].size() + 2;
            some.push_back(cells[from++]);
        }
        const uint32_t number = page();
        fill(number, kLeaf, some, 0, 0);
        level.push_back({number, from});
    }
    while (level.size() > 1) {
        std::vector<Child> above;
        for (size_t from = 0; from < level.size();) {
            // At most so many that each fits; the last page of a level must not be left with one child.
            constexpr size_t kMost = 250;
            size_t some = std::min(kMost, level.size() - from);
            if (level.size() - from - some == 1) --some;
            std::vector<std::string> inner;
            for (size_t i = 0; i + 1 < some; ++i) {
                std::string one;
                big(one, level[from + i].page, 4);
                varint(one, level[from + i].last);
                inner.push_back(one);
            }
            const uint32_t number = page();
            fill(number, kInner, inner, level[from + some - 1].page, 0);
            above.push_back({number, level[from + some - 1].last});
            from += some;
        }
        level = std::move(above);
    }
    return level.front().page;
}

std::string SqliteFile::finish() {
    if (pages_.empty()) page();
    std::vector<std::string> schema;
    for (const Table &table : tables_) {
        const uint32_t root = tree(table.cells);
        schema.push_back(cell(schema.size() + 1, record({std::string("table"), table.name, table.name,
                                                         static_cast<int64_t>(root), table.sql})));
    }
    // All of the schema in the first page: there are few tables.
    fill(1, kLeaf, schema, 0, kFileHead);
    std::string &first = pages_.front();
    first.replace(0, 16, std::string("SQLite format 3\0", 16));
    big_at(first, 16, kPage, 2);
    first[18] = first[19] = 1;  // rollback journal
    first[21] = 64;
    first[22] = first[23] = 32;
    big_at(first, 24, 1, 4);  // changes
    big_at(first, 28, pages_.size(), 4);
    big_at(first, 40, 1, 4);  // schema cookie
    big_at(first, 44, 4, 4);  // schema format
    big_at(first, 56, 1, 4);  // UTF-8
    big_at(first, 92, 1, 4);
    big_at(first, 96, 3040000, 4);  // the version that would have written it
    std::string out;
    out.reserve(pages_.size() * kPage);
    for (const std::string &one : pages_) out += one;
    return out;
}

}  // namespace msprof
