/* usage: libpmemlog_append FILE BYTES PAYLOAD SECONDS
 * Appends to a libpmemlog pool as `pmstore bench log` appends to a log: the payload is made anew each
 * time; a full log is read, compared and emptied outside of the measured time (what has been read is
 * in the caches when it is overwritten, and costs more); two looks at the clock around each append. Prints one JSON object. PMEM_IS_PMEM_FORCE and PMEM_NO_FLUSH say how it persists. */
#define _POSIX_C_SOURCE 200809L
#include <libpmemlog.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostNs = 1 << 20, kOffsets = 4096 };

static uint64_t counts[kMostNs]; /* of appends that took so many ns; the last one: or more */

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t quantile_ns(uint64_t ops, double share) {
  const uint64_t goal = (uint64_t)((double)ops * share);
  uint64_t seen = 0;
  for (uint64_t ns = 0; ns < kMostNs; ++ns) {
    seen += counts[ns];
    if (seen > goal) return ns;
  }
  return kMostNs;
}

struct lap {
  const char* pattern;
  size_t payload_bytes;
  uint64_t first; /* operation of the lap */
  uint64_t wrong; /* bytes or entries, any number above 0 */
};

static void fill(char* payload, const char* pattern, size_t payload_bytes, uint64_t op) {
  memcpy(payload, &op, 8);
  memcpy(payload + 8, pattern + op * 0x9e3779b97f4a7c15u % kOffsets, payload_bytes - 8);
}

static int check(const void* buf, size_t len, void* arg) {
  struct lap* const lap = arg;
  char* const expected = malloc(lap->payload_bytes);
  if (!expected || len % lap->payload_bytes != 0) ++lap->wrong;
  for (size_t at = 0; expected && at + lap->payload_bytes <= len; at += lap->payload_bytes) {
    fill(expected, lap->pattern, lap->payload_bytes, lap->first++);
    if (memcmp((const char*)buf + at, expected, lap->payload_bytes) != 0) ++lap->wrong;
  }
  free(expected);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: libpmemlog_append FILE BYTES PAYLOAD SECONDS\n");
    return 2;
  }
  const size_t bytes = strtoull(argv[2], NULL, 10);
  const size_t payload_bytes = strtoull(argv[3], NULL, 10);
  const uint64_t wanted_ns = (uint64_t)(strtod(argv[4], NULL) * 1e9);
  PMEMlogpool* const pool = pmemlog_create(argv[1], bytes, 0600);
  char* const pattern = malloc(payload_bytes + kOffsets);
  char* const payload = malloc(payload_bytes);
  if (!pool || !pattern || !payload || payload_bytes < 8) {
    fprintf(stderr, "libpmemlog_append: cannot begin: %s\n", pmemlog_errormsg());
    return 1;
  }
  for (size_t i = 0; i < payload_bytes + kOffsets; ++i) pattern[i] = (char)(i * 131 >> 3);
  uint64_t ops = 0;
  uint64_t end_ns = now_ns();
  const uint64_t start_ns = end_ns;
  uint64_t pauses_ns = 0;
  struct lap lap = {pattern, payload_bytes, 0, 0};
  while (end_ns - start_ns - pauses_ns < wanted_ns) {
    fill(payload, pattern, payload_bytes, ops);
    const uint64_t begin_ns = now_ns();
    const int failed = pmemlog_append(pool, payload, payload_bytes);
    end_ns = now_ns();
    if (failed) { /* full */
      pmemlog_walk(pool, 0, check, &lap);
      pmemlog_rewind(pool);
      end_ns = now_ns();
      pauses_ns += end_ns - begin_ns;
      continue;
    }
    ++ops;
    const uint64_t took_ns = end_ns - begin_ns;
    ++counts[took_ns < kMostNs ? took_ns : kMostNs - 1];
  }
  if (lap.wrong > 0 || lap.first > ops) {
    fprintf(stderr, "libpmemlog_append: what was read back is not what was appended\n");
    return 1;
  }
  pmemlog_close(pool);
  printf("{\"ops\":%llu,\"rate_per_s\":%.0f,\"p50_us\":%.3f,\"p99_us\":%.3f}\n",
         (unsigned long long)ops, (double)ops * 1e9 / (double)(end_ns - start_ns - pauses_ns),
         (double)quantile_ns(ops, 0.5) / 1000, (double)quantile_ns(ops, 0.99) / 1000);
  return 0;
}
