#include "command_line.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace workloads {

struct CommandLine::Parser {
  Parser(const char* description, const char* name) : app(description, name) {}
  CLI::App app;
};

CommandLine::CommandLine(const char* description, const char* name)
    : parser_(std::make_unique<Parser>(description, name)) {}
CommandLine::~CommandLine() = default;

void CommandLine::add_number(const char* names, unsigned& to, const std::string& help, unsigned least, unsigned most) {
  parser_->app.add_option(names, to, help)->check(CLI::Range(least, most));
}
void CommandLine::add_number(const char* names, size_t& to, const std::string& help, size_t least, size_t most) {
  CLI::Option* const option = parser_->app.add_option(names, to, help);
  if (least != 0 || most != SIZE_MAX) option->check(CLI::Range(least, most));
}
void CommandLine::add_text(const char* names, std::string& to, const std::string& help) {
  parser_->app.add_option(names, to, help);
}
void CommandLine::add_choice(const char* names, std::string& to, const std::string& help,
                             const std::vector<std::string>& among) {
  parser_->app.add_option(names, to, help)->check(CLI::IsMember(among));
}
void CommandLine::add_flag(const char* names, bool& to, const std::string& help) {
  parser_->app.add_flag(names, to, help);
}

void CommandLine::parse(int argc, char** argv) {
  try {
    parser_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(parser_->app.help().c_str(), stdout);
    std::exit(0);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s (--help lists the options)\n", parser_->app.get_name().c_str(), error.what());
    std::exit(kBadUsage);
  }
}

}  // namespace workloads
