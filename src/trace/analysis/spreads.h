// This says how far the figures of a study are spread when the trace is perturbed (section 4.3 of [Bolosky]).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace multigrain::trace {

// These are the largest differences that perturbations made, in per cent.
struct Spread {
  double local = 0, gap = 0;
  void note(bool is_local, double unperturbed, double perturbed);
};

// Returns a SPREAD of a study's document, after so many perturbed runs with each filter.
nlohmann::json spread_json(const Spread& spread, unsigned runs);

// Returns a number, or null for one that JSON cannot express.
nlohmann::json number_or_null(double value);

// These are the spreads of each figure in a false-sharing document.
class FigureSpreads {
 public:
  explicit FigureSpreads(nlohmann::json& unperturbed);
  void note(bool is_local, nlohmann::json& perturbed);
  void write(nlohmann::json& sharing) const;
  static void write_none(nlohmann::json& sharing);

 private:
  using Values = std::map<std::pair<nlohmann::json, std::string>, double>;
  static Values values_of(nlohmann::json& sharing);

  Values values_;
  std::map<std::pair<nlohmann::json, std::string>, Spread> spreads_;
};

}  // namespace multigrain::trace
