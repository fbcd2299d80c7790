// Volrend: a volume of densities seen from outside, by casting a ray for each pixel ([GeNIMA], section
// III.C; Nieh and Levoy, "Volume rendering on scalable shared-memory MIMD architectures"; Woo and others, "The SPLASH-2
// programs").
//
// Before the measured section, the processors make the volume and an octree of least and greatest densities over it,
// which are only read from then on. Each frame, from another side: pixels are cut into square tiles; a processor casts
// the rays of its tiles' pixels. A ray goes through the volume in steps of a voxel, over empty space in leaps, for the
// octree knows where no density is opaque; adds up light from front to back; and ends once almost no light comes
// through. Rays cost as much as what they meet, so tiles do not cost the same.
//
// The volume is generated, in place of a scanned head: ellipsoids of skin, skull, brain and more.
//
// Variants. By default a processor has a rectangle of the image in a queue of its own, under a lock, and when that is
// empty takes tiles out of others' queues. The image is in rows, so tiles of several processors share pages.
// `interleaved` deals the tiles out in turn, which balances them without queues or locks (the paper's measurements of
// its restructured version show no lock); a processor's tiles are neighbours in memory, at home on its node.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <vector>

#include "common.h"
#include "vec.h"

namespace {

using namespace workloads;

constexpr unsigned kBrick = 4;           // voxels along a side of the octree's smallest cells
constexpr double kEnough = 0.95;         // opacity at which a ray ends
constexpr double kTurn = 2 * M_PI / 72;  // between frames
constexpr double kAmbient = 0.3;         // light that does not depend on direction
constexpr double kOutside = 0.05;        // of the image's edge, around the volume

using Pixel = uint8_t;

struct DensityRange {
  uint8_t least, greatest;
};

// A level of the octree: cells along each side, and where they begin in the array of all levels.
struct Level {
  size_t x, y, z;
  size_t first;
};

// The volume, as all processors see it; the same code reads shared and private memory.
struct Volume {
  size_t x, y, z;  // voxels
  uint8_t* density;
  DensityRange* range;        // of all levels
  std::vector<Level> levels;  // from the smallest cells to one
};

// How opaque a voxel of each density is, and how much it shines.
struct Transfer {
  std::array<double, 256> opacity;
  std::array<double, 256> brightness;
  std::array<unsigned, 257> opaque_below;  // how many lesser densities are opaque at all
};

struct View {
  Vec corner;     // of the image, in front of the volume, in voxels
  Vec right, up;  // from pixel to pixel
  Vec ahead;      // a step along a ray
};

// A processor's tiles that nobody has taken: `next` .. `last`-1 of its list. A page has one alone.
struct Queue {
  uint32_t next;
  uint32_t last;
};

// Written by main() before the processors start.
size_t image_edge;  // pixels
size_t tile_edge;   // pixels
size_t tiles;       // along a side of the image
unsigned iterations;
uint64_t seed;
bool interleaved;
Volume volume;
Transfer transfer;
Pixel* image;
std::vector<Pixel*> tile_pixels;              // where each tile's first pixel is
size_t row_stride;                            // from row to row of a tile, in pixels
std::vector<std::vector<uint32_t>> tiles_of;  // each processor's tiles
char* queues;                                 // a page for each processor
std::vector<mg_lock_t> queue_lock;
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

Queue& queue_of(unsigned processor) {
  return *reinterpret_cast<Queue*>(queues + processor * mg_page_size());
}

// --- The volume ------------------------------------------------------------------------------------------------------

// An ellipsoid in a cube from -1 to 1; what is further down the list lies inside what is before.
struct Ellipsoid {
  Vec centre;
  Vec radius;
  double density;
};
constexpr Ellipsoid kPhantom[] = {
    {{0, 0, 0}, {0.80, 0.92, 0.88}, 70},             // skin
    {{0, 0, 0}, {0.76, 0.88, 0.84}, 190},            // skull
    {{0, 0.02, 0}, {0.68, 0.79, 0.76}, 110},         // brain
    {{-0.25, 0.10, 0.05}, {0.12, 0.30, 0.16}, 30},   // ventricles
    {{0.25, 0.10, 0.05}, {0.12, 0.30, 0.16}, 30},    //
    {{-0.32, -0.30, 0.86}, {0.14, 0.14, 0.20}, 20},  // eye sockets, open to the front
    {{0.32, -0.30, 0.86}, {0.14, 0.14, 0.20}, 20},   //
    {{0.45, 0.30, 0.60}, {0.42, 0.42, 0.52}, 0},     // an opening in the skull
    {{0.35, 0.25, 0.20}, {0.14, 0.12, 0.20}, 230},   // a tumour
};

uint8_t make_density(const Volume& v, size_t x, size_t y, size_t z) {
  const auto place = [](size_t i, size_t count) {
    return count == 1 ? 0.0 : 2 * static_cast<double>(i) / static_cast<double>(count - 1) - 1;
  };
  const Vec at = {place(x, v.x), place(y, v.y), place(z, v.z)};
  double density = 0;
  for (const Ellipsoid& part : kPhantom) {
    const Vec from = at - part.centre;
    const Vec scaled = {from.x / part.radius.x, from.y / part.radius.y, from.z / part.radius.z};
    // Inside by so many voxels, along the shortest radius; surfaces are two voxels thick, or they would show steps.
    const double thinnest = std::min({part.radius.x, part.radius.y, part.radius.z}) * static_cast<double>(v.x) / 2;
    const double inside = (1 - std::sqrt(dot(scaled, scaled))) * thinnest;
    density += std::clamp(0.5 + 0.5 * inside, 0.0, 1.0) * (part.density - density);
  }
  // Tissue is not even, and air is not noisy.
  if (density > 1) density += 3 * (random_unit(seed, (z * v.y + y) * v.x + x) - 0.5);
  return static_cast<uint8_t>(std::clamp(std::lround(density), 0l, 255l));
}

uint8_t density_at(const Volume& v, size_t x, size_t y, size_t z) {
  return v.density[(z * v.y + y) * v.x + x];
}

void lay_out_levels(Volume& v) {
  const auto half = [](size_t count) { return (count + 1) / 2; };
  const auto bricks = [](size_t count) { return (count + kBrick - 1) / kBrick; };
  Level level = {bricks(v.x), bricks(v.y), bricks(v.z), 0};
  v.levels.push_back(level);
  while (level.x * level.y * level.z > 1) {
    level.first += level.x * level.y * level.z;
    level = {half(level.x), half(level.y), half(level.z), level.first};
    v.levels.push_back(level);
  }
}
size_t cells(const Volume& v) {
  return v.levels.back().first + 1;
}

void include(DensityRange& range, DensityRange other) {
  range.least = std::min(range.least, other.least);
  range.greatest = std::max(range.greatest, other.greatest);
}

// The cells z0 .. z1-1 of a level. Those of the level below, or the voxels, are there.
void make_level(const Volume& v, size_t number, Range z_range) {
  const Level& level = v.levels[number];
  for (size_t z = z_range.first; z < z_range.last; ++z) {
    for (size_t y = 0; y < level.y; ++y) {
      for (size_t x = 0; x < level.x; ++x) {
        DensityRange range = {255, 0};
        if (number == 0) {
          // With the voxels at the far sides, which densities between voxels of the cell depend on.
          for (size_t k = z * kBrick; k <= std::min((z + 1) * kBrick, v.z - 1); ++k)
            for (size_t j = y * kBrick; j <= std::min((y + 1) * kBrick, v.y - 1); ++j)
              for (size_t i = x * kBrick; i <= std::min((x + 1) * kBrick, v.x - 1); ++i) {
                const uint8_t density = density_at(v, i, j, k);
                include(range, {density, density});
              }
        } else {
          const Level& below = v.levels[number - 1];
          for (size_t k = 2 * z; k < std::min(2 * z + 2, below.z); ++k)
            for (size_t j = 2 * y; j < std::min(2 * y + 2, below.y); ++j)
              for (size_t i = 2 * x; i < std::min(2 * x + 2, below.x); ++i)
                include(range, v.range[below.first + (k * below.y + j) * below.x + i]);
        }
        v.range[level.first + (z * level.y + y) * level.x + x] = range;
      }
    }
  }
}

// The caller's share of a number of layers among so many processors.
Range share(size_t count, unsigned processor, unsigned processors) {
  return {count * processor / processors, count * (processor + 1) / processors};
}

// All processors call it together; the volume is complete for the caller's eyes after a barrier.
void make_volume(const Volume& v, unsigned processor, unsigned processors) {
  const Range mine = share(v.z, processor, processors);
  for (size_t z = mine.first; z < mine.last; ++z)
    for (size_t y = 0; y < v.y; ++y)
      for (size_t x = 0; x < v.x; ++x) v.density[(z * v.y + y) * v.x + x] = make_density(v, x, y, z);
  for (size_t number = 0; number < v.levels.size(); ++number) {
    if (processors > 1) mg_barrier(barrier);
    make_level(v, number, share(v.levels[number].z, processor, processors));
  }
}

Transfer make_transfer() {
  Transfer t{};
  for (unsigned d = 0; d < 256; ++d) {
    // Air and fluid are clear, skin is a veil, bone and what is denser nearly solid.
    const double veil = d > 45 ? 0.015 : 0;
    const double bone = std::clamp((static_cast<double>(d) - 130) / 60, 0.0, 1.0);
    t.opacity[d] = veil + 0.25 * bone;
    t.brightness[d] = 0.35 + 0.65 * bone;
    t.opaque_below[d + 1] = t.opaque_below[d] + (t.opacity[d] > 0 ? 1 : 0);
  }
  return t;
}
// Whether no density of the range, nor any between two of them, is opaque.
bool is_clear(DensityRange range) {
  const unsigned after = std::min(range.greatest + 1u, 255u);
  return transfer.opaque_below[after + 1] == transfer.opaque_below[range.least];
}

// --- Rays -----------------------------------------------------------------------------------------------------------

View view_of(unsigned frame) {
  const double angle = 0.3 + kTurn * frame;
  const Vec size = {static_cast<double>(volume.x), static_cast<double>(volume.y), static_cast<double>(volume.z)};
  const double diagonal = std::sqrt(dot(size, size));
  const double pitch = (1 + kOutside) * std::hypot(size.x, size.z) / static_cast<double>(image_edge);
  View view{};
  view.right = {std::cos(angle), 0, -std::sin(angle)};
  // From slightly above.
  const double down = 0.25;
  view.ahead = {-std::sin(angle) * std::cos(down), -std::sin(down), -std::cos(angle) * std::cos(down)};
  view.up = {view.right.y * view.ahead.z - view.right.z * view.ahead.y,
             view.right.z * view.ahead.x - view.right.x * view.ahead.z,
             view.right.x * view.ahead.y - view.right.y * view.ahead.x};
  view.right = pitch * view.right;
  view.up = pitch * view.up;
  const double half = 0.5 * static_cast<double>(image_edge - 1);
  view.corner = 0.5 * size - (0.5 * diagonal) * view.ahead - half * view.right - half * view.up;
  return view;
}

// The numbers t at which a ray is inside 0 .. extent along one axis; nothing is left of [first, last] if it never is.
void clip(double from, double step, double extent, double& first, double& last) {
  if (std::abs(step) < 1e-12) {
    if (from < 0 || from >= extent) last = first - 1;
    return;
  }
  const double a = -from / step;
  const double b = (extent - from) / step;
  first = std::max(first, std::min(a, b));
  last = std::min(last, std::max(a, b));
}

struct Sample {
  double density;
  Vec gradient;
};

// Density between the eight voxels around a point, and its slope. The point is inside the voxels' hull.
Sample sample(const Volume& v, const Vec& at) {
  const auto x = static_cast<size_t>(at.x);
  const auto y = static_cast<size_t>(at.y);
  const auto z = static_cast<size_t>(at.z);
  const double fx = at.x - static_cast<double>(x);
  const double fy = at.y - static_cast<double>(y);
  const double fz = at.z - static_cast<double>(z);
  const uint8_t* const corner = v.density + (z * v.y + y) * v.x + x;
  const size_t row = v.x;
  const size_t layer = v.x * v.y;
  // Pairs of neighbours along x: the density between them and the difference.
  double between[4];
  double across[4];
  for (size_t k = 0; k < 4; ++k) {
    const uint8_t* const pair = corner + (k & 1) * row + (k >> 1) * layer;
    across[k] = static_cast<double>(pair[1]) - static_cast<double>(pair[0]);
    between[k] = static_cast<double>(pair[0]) + fx * across[k];
  }
  const double near = between[0] + fy * (between[1] - between[0]);
  const double far = between[2] + fy * (between[3] - between[2]);
  const double across_near = across[0] + fy * (across[1] - across[0]);
  const double across_far = across[2] + fy * (across[3] - across[2]);
  return {near + fz * (far - near),
          {across_near + fz * (across_far - across_near),
           (1 - fz) * (between[1] - between[0]) + fz * (between[3] - between[2]), far - near}};
}

// The step after t at which a ray from `from` has left the largest clear cell that the point at step t is in; t if that
// is in none.
size_t leap(const Volume& v, const Vec& from, const Vec& ahead, size_t t, const Vec& at) {
  size_t best = t;
  double side = kBrick;
  for (const Level& level : v.levels) {
    const auto x = static_cast<size_t>(at.x / side);
    const auto y = static_cast<size_t>(at.y / side);
    const auto z = static_cast<size_t>(at.z / side);
    if (!is_clear(v.range[level.first + (z * level.y + y) * level.x + x])) break;
    double first = 0;
    double last = HUGE_VAL;
    const auto edge = [side](size_t cell) { return static_cast<double>(cell) * side; };
    clip(from.x - edge(x), ahead.x, side, first, last);
    clip(from.y - edge(y), ahead.y, side, first, last);
    clip(from.z - edge(z), ahead.z, side, first, last);
    // Rounding may put the point outside a cell at whose edge it is.
    if (last >= static_cast<double>(t)) best = std::max(best, static_cast<size_t>(last) + 1);
    side *= 2;
  }
  return best;
}

// What a ray sees. With or without leaps over clear space it is the same, since that adds nothing.
Pixel cast(const Volume& v, const View& view, size_t column, size_t row, bool leaping) {
  const Vec from = view.corner + static_cast<double>(column) * view.right + static_cast<double>(row) * view.up;
  double first = 0;
  double last = HUGE_VAL;
  clip(from.x, view.ahead.x, static_cast<double>(v.x - 1), first, last);
  clip(from.y, view.ahead.y, static_cast<double>(v.y - 1), first, last);
  clip(from.z, view.ahead.z, static_cast<double>(v.z - 1), first, last);
  if (!(first <= last)) return 0;
  double light = 0;
  double through = 1;
  const auto end = static_cast<size_t>(last) + 1;
  for (auto t = static_cast<size_t>(std::ceil(first)); t < end; ++t) {
    const Vec at = from + static_cast<double>(t) * view.ahead;
    // Rounding at the hull's sides.
    if (!(at.x >= 0 && at.y >= 0 && at.z >= 0 && at.x < static_cast<double>(v.x - 1) &&
          at.y < static_cast<double>(v.y - 1) && at.z < static_cast<double>(v.z - 1)))
      continue;
    if (leaping) {
      const size_t to = leap(v, from, view.ahead, t, at);
      if (to > t) {
        t = to - 1;
        continue;
      }
    }
    const Sample here = sample(v, at);
    const auto density = static_cast<size_t>(here.density + 0.5);
    const double opacity = transfer.opacity[density];
    if (opacity == 0) continue;
    // The light is where the eye is.
    const double slope = std::sqrt(dot(here.gradient, here.gradient));
    // Where density hardly changes is no surface, so its direction counts for little.
    const double facing = std::abs(dot(here.gradient, view.ahead)) / (slope + 10);
    light += through * opacity * transfer.brightness[density] * (kAmbient + (1 - kAmbient) * facing);
    through *= 1 - opacity;
    if (1 - through > kEnough) break;
  }
  return static_cast<Pixel>(std::lround(255 * std::min(light, 1.0)));
}

// --- Frames ---------------------------------------------------------------------------------------------------------

struct TileRange {
  Range columns;
  Range rows;
};
TileRange pixels_of(size_t tile) {
  const size_t column = tile % tiles * tile_edge;
  const size_t row = tile / tiles * tile_edge;
  return {{column, std::min(column + tile_edge, image_edge)}, {row, std::min(row + tile_edge, image_edge)}};
}

void render_tile(const Volume& v, const View& view, size_t tile, Pixel* to, size_t stride) {
  const TileRange pixels = pixels_of(tile);
  for (size_t y = pixels.rows.first; y < pixels.rows.last; ++y)
    for (size_t x = pixels.columns.first; x < pixels.columns.last; ++x)
      to[(y - pixels.rows.first) * stride + x - pixels.columns.first] = cast(v, view, x, y, true);
}

// Takes a tile out of a processor's queue. False when that is empty.
bool take(unsigned processor, uint32_t& tile) {
  mg_lock(queue_lock[processor]);
  Queue& queue = queue_of(processor);
  const bool got = queue.next < queue.last;
  if (got) tile = tiles_of[processor][queue.next++];
  mg_unlock(queue_lock[processor]);
  return got;
}

// All processors call it together.
void render_frame(const View& view) {
  const unsigned me = mg_processor();
  const auto render = [&view](uint32_t tile) { render_tile(volume, view, tile, tile_pixels[tile], row_stride); };
  if (interleaved) {
    for (const uint32_t tile : tiles_of[me]) render(tile);
  } else {
    // Queues only become emptier during a frame, so one look at each is enough.
    for (unsigned k = 0; k < mg_processors(); ++k) {
      uint32_t tile;
      while (take((me + k) % mg_processors(), tile)) render(tile);
    }
  }
  mg_barrier(barrier);
}

// The caller's queue becomes full for a frame. Nobody looks at queues before the next barrier.
void fill_queue() {
  Queue& queue = queue_of(mg_processor());
  queue.next = 0;
  queue.last = static_cast<uint32_t>(tiles_of[mg_processor()].size());
}

void slave(void*) {
  make_volume(volume, mg_processor(), mg_processors());
  if (!interleaved) fill_queue();
  const uint64_t start = start_measuring(barrier);
  for (unsigned frame = 0; frame < iterations; ++frame) {
    if (frame != 0 && !interleaved) {
      fill_queue();
      mg_barrier(barrier);
    }
    render_frame(view_of(frame));
  }
  if (mg_processor() == 0) elapsed = stop_measuring(start);
}

// --- By main() ------------------------------------------------------------------------------------------------------

// Which tiles are whose, and where their pixels are.
void lay_out_tiles() {
  const unsigned processors = mg_processors();
  tiles_of.resize(processors);
  tile_pixels.resize(tiles * tiles);
  const ProcessorGrid grid = grid_of(processors);
  for (uint32_t tile = 0; tile < tiles * tiles; ++tile) {
    const unsigned owner = interleaved ? tile % processors
                                       : static_cast<unsigned>(tile / tiles * grid.rows / tiles * grid.columns +
                                                               tile % tiles * grid.columns / tiles);
    tiles_of[owner].push_back(tile);
  }
  if (!interleaved) {
    row_stride = image_edge;
    image = allocate_shared<Pixel>(image_edge * image_edge, MG_HOME_BLOCKED);
    for (uint32_t tile = 0; tile < tiles * tiles; ++tile)
      tile_pixels[tile] = image + pixels_of(tile).rows.first * image_edge + pixels_of(tile).columns.first;
    return;
  }
  row_stride = tile_edge;
  const size_t tile_size = tile_edge * tile_edge;
  const size_t part = whole_pages<Pixel>(tiles_of[0].size() * tile_size);
  image = allocate_shared<Pixel>(processors * part, MG_HOME_BLOCKED);
  for (unsigned owner = 0; owner < processors; ++owner)
    for (size_t i = 0; i < tiles_of[owner].size(); ++i)
      tile_pixels[tiles_of[owner][i]] = image + owner * part + i * tile_size;
}

// The last frame in rows.
std::vector<Pixel> gather_image() {
  std::vector<Pixel> rows(image_edge * image_edge);
  for (size_t tile = 0; tile < tiles * tiles; ++tile) {
    const TileRange pixels = pixels_of(tile);
    for (size_t y = pixels.rows.first; y < pixels.rows.last; ++y)
      std::copy_n(tile_pixels[tile] + (y - pixels.rows.first) * row_stride, pixels.columns.last - pixels.columns.first,
                  rows.data() + y * image_edge + pixels.columns.first);
  }
  return rows;
}

// A gray map (PGM), upside up; closes the file. False if it did not all get there.
bool write_image(std::FILE* file, const std::vector<Pixel>& rows) {
  bool written = std::fprintf(file, "P5\n%zu %zu\n255\n", image_edge, image_edge) > 0;
  for (size_t y = image_edge; y-- > 0;)
    written &= std::fwrite(rows.data() + y * image_edge, 1, image_edge, file) == image_edge;
  return std::fclose(file) == 0 && written;
}

// Against the sequential run, to the last bit, and some rays against rays that do not leap.
int check(const std::vector<Pixel>& result, const std::vector<Pixel>& expected, const Volume& alone) {
  size_t lit = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i] != expected[i])
      return print_check(false, "pixel " + std::to_string(i % image_edge) + ", " + std::to_string(i / image_edge) +
                                    " differs from the sequential run's");
    if (result[i] != 0) ++lit;
  }
  const View view = view_of(iterations - 1);
  size_t rays = 0;
  for (size_t i = 0; i < result.size(); i += 1 + result.size() / 2000, ++rays) {
    if (result[i] != cast(alone, view, i % image_edge, i / image_edge, false))
      return print_check(false, "the ray of pixel " + std::to_string(i % image_edge) + ", " +
                                    std::to_string(i / image_edge) + " leapt over something");
  }
  char text[200];
  std::snprintf(text, sizeof text,
                "the last image equals the sequential run's, %zu of its rays those that do not leap; %.0f %% of it is "
                "not dark",
                rays, 100 * static_cast<double>(lit) / static_cast<double>(result.size()));
  return print_check(20 * lit > result.size(), text);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Ray casting of a volume on Multigrain", "volrend");
  size_t given_volume = 0;
  app.add_number("--volume", given_volume,
                 "voxels along two sides of the volume, half as many along the third "
                 "(test 48, paper 256, large 512)",
                 8, 4096);
  size_t given_image = 0;
  app.add_number("--image", given_image, "pixels along a side of the image (test 64, paper 416, large 832)", 4, 16384);
  size_t given_tile = 0;
  app.add_number("--tile", given_tile, "pixels along a side of a tile (default 8)", 1, 1024);
  std::string output;
  app.add_text("--output", output, "a file for the last image, in the PGM format");
  std::string variant;
  add_variants(app, variant, {"interleaved"});
  const Options options = parse_command_line(app, argc, argv, "a volume as large as the SPLASH-2 paper's head");
  std::FILE* const image_file = output.empty() ? nullptr : std::fopen(output.c_str(), "wb");
  if (!output.empty() && image_file == nullptr) {
    std::fprintf(stderr, "volrend: cannot open %s for the image: %s\n", output.c_str(), std::strerror(errno));
    return kBadUsage;
  }
  volume.x = volume.y = choose<size_t>(options, given_volume, 48, 256, 512);
  volume.z = volume.x / 2;
  image_edge = choose<size_t>(options, given_image, 64, 416, 832);
  tile_edge = choose<size_t>(options, given_tile, 8, 8, 8);
  tiles = (image_edge + tile_edge - 1) / tile_edge;
  iterations = choose(options, options.iterations, 2u, 4u, 4u);
  seed = options.seed;
  interleaved = variant == "interleaved";
  transfer = make_transfer();
  lay_out_levels(volume);
  volume.density = allocate_shared<uint8_t>(volume.x * volume.y * volume.z, MG_HOME_BLOCKED);
  volume.range = allocate_shared<DensityRange>(cells(volume), MG_HOME_BLOCKED);
  lay_out_tiles();
  queues = allocate_shared<char>(mg_processors() * mg_page_size(), MG_HOME_BLOCKED);
  queue_lock.resize(interleaved ? 0 : mg_processors());
  for (mg_lock_t& lock : queue_lock) lock = mg_lock_create();
  barrier = mg_barrier_create(0);

  print_header("volrend", variant + ", " + std::to_string(volume.x) + " x " + std::to_string(volume.y) + " x " +
                              std::to_string(volume.z) + " voxels, " + std::to_string(image_edge) + " x " +
                              std::to_string(image_edge) + " pixels, " + std::to_string(iterations) + " frames");
  run_on_all(slave);
  const std::vector<Pixel> result = gather_image();
  double checksum = 0;
  for (size_t i = 0; i < result.size(); ++i) checksum += static_cast<double>(result[i] * (1 + i % 7));
  print_parallel(elapsed, checksum);

  int status = 0;
  if (image_file != nullptr && !write_image(image_file, result)) {
    std::fprintf(stderr, "volrend: cannot write the image to %s\n", output.c_str());
    status = kCheckFailed;
  }
  if (options.speedup || options.check) {
    Volume alone = volume;
    std::vector<uint8_t> density(volume.x * volume.y * volume.z);
    std::vector<DensityRange> range(cells(volume));
    alone.density = density.data();
    alone.range = range.data();
    make_volume(alone, 0, 1);
    std::vector<Pixel> expected(image_edge * image_edge);
    const uint64_t start = mg_time_ns();
    for (unsigned frame = 0; frame < iterations; ++frame) {
      for (size_t tile = 0; tile < tiles * tiles; ++tile)
        render_tile(alone, view_of(frame), tile,
                    expected.data() + pixels_of(tile).rows.first * image_edge + pixels_of(tile).columns.first,
                    image_edge);
    }
    const uint64_t sequential = mg_time_ns() - start;
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = std::max(status, check(result, expected, alone));
  }
  mg_barrier_destroy(barrier);
  for (const mg_lock_t lock : queue_lock) mg_lock_destroy(lock);
  mg_free(queues);
  mg_free(image);
  mg_free(volume.range);
  mg_free(volume.density);
  return status;
}
