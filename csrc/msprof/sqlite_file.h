// Writes a SQLite database from nothing (https://sqlite.org/fileformat2.html), so that no library is needed for it
// where a profile is made: tables of integers, numbers and texts, filled once, in order.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace msprof {

using Value = std::variant<std::nullptr_t, int64_t, double, std::string>;

class SqliteFile {
  public:
    // `columns` as in CREATE TABLE: "id INTEGER, value TEXT". Rows that are added belong to the last table.
    void table(const std::string &name, const std::string &columns);
    void row(const std::vector<Value> &values);
    // The file's bytes; nothing can be added afterwards.
    std::string finish();

  private:
    struct Table {
        std::string name, sql;
        std::vector<std::string> cells;  // of its leaves, in the order of their rows
    };
    uint32_t page();  // a new one, empty
    std::string cell(uint64_t row, const std::string &payload);
    uint32_t tree(const std::vector<std::string> &cells);
    void fill(uint32_t number, uint8_t kind, const std::vector<std::string> &cells, uint32_t right, size_t head);

    std::vector<Table> tables_;
    std::vector<std::string> pages_;
};

}  // namespace msprof
