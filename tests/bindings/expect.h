/* What the C programs of the bindings' tests expect; the first surprise ends the program. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/pmstore_log.h"

static pmstore_log_error error;

static void expect(pmstore_log_code got, pmstore_log_code wanted, int line) {
  if (got == wanted) return;
  fprintf(stderr, "line %d: code %d, not %d: %s\n", line, (int)got, (int)wanted, error.text);
  exit(1);
}
static void check(int good, int line) {
  if (good) return;
  fprintf(stderr, "line %d: not so\n", line);
  exit(1);
}
#define OK(call) expect((call), PMSTORE_LOG_OK, __LINE__)
#define GIVES(code, call) expect((call), (code), __LINE__)
#define CHECK(what) check((what), __LINE__)

static int is(const pmstore_log_entry* entry, const char* text) {
  return entry->bytes == strlen(text) && memcmp(entry->data, text, entry->bytes) == 0;
}
