/* usage: libnfs_load URL FILE_BYTES SECONDS FILES
 * What tests/compare/compare_files measures on a folder, on an NFS export through libnfs: durable
 * random writes and reads of 4 KiB, sequential ones of 1 MiB, in a file that was written before,
 * and rates of metadata of FILES files. Prints one JSON object. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
/* clang-format off: it uses struct timeval without including it */
#include <nfsc/libnfs.h>
/* clang-format on */

enum { kMostOps = 1 << 22 };

static struct nfs_context* nfs;
static double* took_us;

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void need(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "libnfs_load: %s: %s; look at the log of the server\n", what, nfs_get_error(nfs));
  exit(1);
}

static int by_size(const void* one, const void* other) {
  const double a = *(const double*)one, b = *(const double*)other;
  return (a > b) - (a < b);
}

static void say(const char* name, size_t ops, double seconds, const char* end) {
  qsort(took_us, ops, sizeof *took_us, by_size);
  printf("\"%s\": {\"rate_per_s\": %.2f, \"p50_us\": %.2f}%s", name, (double)ops / seconds,
         ops == 0 ? 0 : took_us[ops / 2], end);
}

/* A server or the library may take less than was asked for. */
static void transfer(struct nfsfh* file, uint64_t at, char* bytes, uint64_t count, int is_write) {
  while (count > 0) {
    const int done =
        is_write ? nfs_pwrite(nfs, file, at, count, bytes) : nfs_pread(nfs, file, at, count, bytes);
    need(done > 0, is_write ? "write" : "read");
    at += (uint64_t)done;
    bytes += done;
    count -= (uint64_t)done;
  }
}

static void data(const char* name, uint64_t file_bytes, double seconds, uint64_t payload,
                 int is_write, int is_random) {
  struct nfsfh* file;
  need(nfs_open(nfs, "/data", is_write ? O_RDWR | O_SYNC : O_RDONLY, &file) == 0, "open");
  char* const bytes = malloc(payload);
  need(bytes != NULL, "memory");
  memset(bytes, 7, payload);
  const uint64_t blocks = file_bytes / payload;
  uint64_t state = 1;
  size_t ops = 0;
  const double start = now_s();
  double last = start;
  while (ops < kMostOps && last - start < seconds) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t block = is_random ? (state >> 20) % blocks : ops % blocks;
    memcpy(bytes, &ops, sizeof ops);
    transfer(file, block * payload, bytes, payload, is_write);
    const double now = now_s();
    took_us[ops++] = (now - last) * 1e6;
    last = now;
  }
  say(name, ops, last - start, ",\n");
  free(bytes);
  need(nfs_close(nfs, file) == 0, "close");
}

static void one(int what, size_t i) {
  char name[64], other[64];
  snprintf(name, sizeof name, "/names/f%zu", i);
  snprintf(other, sizeof other, "/names/r%zu", i);
  struct nfsfh* file;
  struct nfs_stat_64 status;
  if (what == 0) {
    need(nfs_open2(nfs, name, O_WRONLY | O_CREAT | O_EXCL, 0644, &file) == 0, "create");
    need(nfs_close(nfs, file) == 0, "close");
  } else if (what == 1) {
    need(nfs_stat64(nfs, name, &status) == 0, "stat");
  } else if (what == 2) {
    need(nfs_rename(nfs, name, other) == 0, "rename");
  } else {
    need(nfs_unlink(nfs, other) == 0, "unlink");
  }
}

static void metadata(size_t files) {
  static const char* const names[] = {"create", "stat", "rename", "unlink"};
  need(nfs_mkdir(nfs, "/names") == 0, "mkdir");
  for (int what = 0; what < 4; ++what) {
    const double start = now_s();
    double last = start;
    for (size_t i = 0; i < files; ++i) {
      one(what, i);
      const double now = now_s();
      took_us[i] = (now - last) * 1e6;
      last = now;
    }
    say(names[what], files, last - start, what < 3 ? ",\n" : "}\n");
    if (what != 1) continue;
    struct nfsdir* directory;
    const double before = now_s();
    need(nfs_opendir(nfs, "/names", &directory) == 0, "opendir");
    size_t found = 0;
    while (nfs_readdir(nfs, directory) != NULL) ++found;
    nfs_closedir(nfs, directory);
    need(found >= files, "readdir");
    printf("\"readdir\": {\"rate_per_s\": %.2f},\n", (double)files / (now_s() - before));
  }
  need(nfs_rmdir(nfs, "/names") == 0, "rmdir");
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: libnfs_load URL FILE_BYTES SECONDS FILES\n");
    return 2;
  }
  const uint64_t file_bytes = strtoull(argv[2], NULL, 10);
  const double seconds = strtod(argv[3], NULL);
  took_us = malloc(kMostOps * sizeof *took_us);
  nfs = nfs_init_context();
  if (nfs == NULL || took_us == NULL) return 1;
  struct nfs_url* const url = nfs_parse_url_dir(nfs, argv[1]);
  need(url != NULL, argv[1]);
  need(nfs_mount(nfs, url->server, url->path) == 0, "mount");

  struct nfsfh* file;
  need(nfs_open2(nfs, "/data", O_RDWR | O_CREAT | O_TRUNC, 0644, &file) == 0, "create");
  char* const bytes = calloc(1, 1 << 20);
  need(bytes != NULL, "memory");
  for (uint64_t at = 0; at < file_bytes; at += 1 << 20) transfer(file, at, bytes, 1 << 20, 1);
  free(bytes);
  need(nfs_close(nfs, file) == 0, "close");

  printf("{");
  data("write_4k", file_bytes, seconds, 4096, 1, 1);
  data("read_4k", file_bytes, seconds, 4096, 0, 1);
  data("write_1m", file_bytes, seconds, 1 << 20, 1, 0);
  data("read_1m", file_bytes, seconds, 1 << 20, 0, 0);
  need(nfs_unlink(nfs, "/data") == 0, "unlink");
  metadata(strtoull(argv[4], NULL, 10));
  nfs_destroy_url(url);
  nfs_destroy_context(nfs);
  return 0;
}
