/* usage: log_client URI
 * Does with the logs of URI everything that bindings/pmstore_log.h offers. Prints "ok". */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bindings/expect.h"

static void shared(pmstore_log_session* session) {
  pmstore_log* log;
  pmstore_log_entry entry;
  pmstore_log_place first, last;
  pmstore_log_info info;
  uint64_t start;
  const pmstore_log_bytes batch[] = {{"two", 3}, {"three", 5}};
  GIVES(PMSTORE_LOG_NOT_FOUND, pmstore_log_open(session, "c/shared", 0, &log, &error));
  CHECK(log == NULL && strstr(error.text, "c/shared") != NULL);
  OK(pmstore_log_create(session, "c/shared", 64 * 1024, 0, &error));
  GIVES(PMSTORE_LOG_EXISTS, pmstore_log_create(session, "c/shared", 64 * 1024, 0, &error));
  OK(pmstore_log_open(session, "c/shared", 0, &log, &error));
  GIVES(PMSTORE_LOG_NOT_FOUND, pmstore_log_read(log, &entry, &error));
  OK(pmstore_log_append(log, "one", 3, &first, &error));
  OK(pmstore_log_append_batch(log, batch, 2, &last, &error));
  CHECK(first.lsn == 0 && first.index == 1 && last.index == 3 && last.lsn > first.next_lsn);
  GIVES(PMSTORE_LOG_INVALID_ARGUMENT, pmstore_log_append(log, "", 0, NULL, &error));
  GIVES(PMSTORE_LOG_INVALID_ARGUMENT, pmstore_log_append(log, NULL, 5, NULL, NULL));
  OK(pmstore_log_read(log, &entry, &error));
  CHECK(is(&entry, "one") && entry.place.index == 1);
  OK(pmstore_log_follow(log, 60000, &entry, &error));
  CHECK(is(&entry, "two"));
  OK(pmstore_log_read(log, &entry, &error));
  CHECK(is(&entry, "three") && entry.place.lsn == last.lsn);
  GIVES(PMSTORE_LOG_TIMEOUT, pmstore_log_follow(log, 20, &entry, &error));
  OK(pmstore_log_trim(log, last.lsn, &start, &error));
  CHECK(start == last.lsn);
  OK(pmstore_log_seek(log, 0, &error));
  OK(pmstore_log_read(log, &entry, &error));
  CHECK(is(&entry, "three"));
  OK(pmstore_log_seek(log, first.lsn, &error));
  OK(pmstore_log_seek_to_end(log, &error));
  GIVES(PMSTORE_LOG_NOT_FOUND, pmstore_log_read(log, &entry, &error));
  OK(pmstore_log_seal(log, &error));
  GIVES(PMSTORE_LOG_SEALED, pmstore_log_append(log, "four", 4, NULL, &error));
  GIVES(PMSTORE_LOG_SEALED, pmstore_log_read(log, &entry, &error));
  OK(pmstore_log_stat(log, &info, &error));
  CHECK(info.sealed == 1 && info.next_index == 4 && info.start_lsn == last.lsn);
  CHECK(info.damaged == 0 && info.exclusive == 0 && info.bytes == 64 * 1024);
  OK(pmstore_log_close(log, &error));
  OK(pmstore_log_delete(session, "c/shared", &error));
  GIVES(PMSTORE_LOG_NOT_FOUND, pmstore_log_delete(session, "c/shared", &error));
}

/* `readers` may be the same session. */
static void exclusive(pmstore_log_session* session, pmstore_log_session* readers) {
  pmstore_log *log, *thief, *reader;
  pmstore_log_entry entry;
  pmstore_log_place place;
  char text[32];
  int i;
  OK(pmstore_log_create(session, "c/exclusive", 64 * 1024, 1, &error));
  GIVES(PMSTORE_LOG_INVALID_ARGUMENT,
        pmstore_log_open(session, "c/exclusive", PMSTORE_LOG_STEAL, &log, &error));
  OK(pmstore_log_open(session, "c/exclusive", PMSTORE_LOG_EXCLUSIVE, &log, &error));
  OK(pmstore_log_open(readers, "c/exclusive", 0, &reader, &error));
  GIVES(PMSTORE_LOG_BUSY, pmstore_log_append(reader, "no", 2, NULL, &error));
  for (i = 1; i <= 2000; ++i) { /* several laps */
    snprintf(text, sizeof text, "entry %d", i);
    OK(pmstore_log_append(log, text, strlen(text), &place, &error));
    CHECK(place.index == (uint64_t)i);
    /* The keeper publishes, as nothing follows. */
    OK(pmstore_log_follow(reader, 60000, &entry, &error));
    CHECK(is(&entry, text));
  }
  OK(pmstore_log_open(session, "c/exclusive", PMSTORE_LOG_EXCLUSIVE | PMSTORE_LOG_STEAL, &thief,
                      &error));
  GIVES(PMSTORE_LOG_FENCED, pmstore_log_append(log, "late", 4, NULL, &error));
  CHECK(error.code == PMSTORE_LOG_FENCED && strstr(error.text, "another producer") != NULL);
  OK(pmstore_log_append(thief, "mine", 4, &place, &error));
  CHECK(place.index == 2001);
  pmstore_log_close(log, NULL); /* it has lost the log, and may say so */
  OK(pmstore_log_close(reader, &error));
  OK(pmstore_log_close(thief, &error));
  OK(pmstore_log_delete(session, "c/exclusive", &error));
}

/* How often threads of this process have gone to sleep. */
static unsigned long sleeps(void) {
  unsigned long total = 0, some;
  char path[300], line[128];
  struct dirent* thread;
  DIR* threads = opendir("/proc/self/task");
  CHECK(threads != NULL);
  while ((thread = readdir(threads)) != NULL) {
    FILE* status;
    if (thread->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread->d_name);
    status = fopen(path, "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
      if (sscanf(line, "voluntary_ctxt_switches: %lu", &some) == 1) total += some;
    }
    if (status != NULL) fclose(status);
  }
  closedir(threads);
  return total;
}

/* A session that holds nothing is not kept awake by itself. */
static void idle(void) {
  const struct timespec until_kept = {0, 400 * 1000 * 1000}, pause = {2, 0};
  unsigned long before;
  nanosleep(&until_kept, NULL);
  before = sleeps();
  nanosleep(&pause, NULL);
  CHECK(sleeps() - before <= 8);
}

/* Longer than the server's lease of five seconds. */
static void silence(pmstore_log_session* session) {
  const struct timespec pause = {7, 500 * 1000 * 1000};
  pmstore_log* log;
  OK(pmstore_log_create(session, "c/silence", 64 * 1024, 0, &error));
  OK(pmstore_log_open(session, "c/silence", PMSTORE_LOG_EXCLUSIVE, &log, &error));
  OK(pmstore_log_append(log, "before", 6, NULL, &error));
  nanosleep(&pause, NULL);
  OK(pmstore_log_append(log, "after", 5, NULL, &error));
  OK(pmstore_log_close(log, &error));
  OK(pmstore_log_delete(session, "c/silence", &error));
}

int main(int argc, char** argv) {
  pmstore_log_session *session, *readers;
  pmstore_log_options options = {0, NULL, 0};
  if (argc != 2) return 2;
  GIVES(PMSTORE_LOG_INVALID_ARGUMENT, pmstore_log_connect("nonsense", NULL, &session, &error));
  CHECK(session == NULL && strlen(error.text) > 0);
  options.assume_domain = "strong";
  GIVES(PMSTORE_LOG_INVALID_ARGUMENT, pmstore_log_connect(argv[1], &options, &session, &error));
  options.timeout_ms = 60000;
  options.assume_domain = NULL;
  OK(pmstore_log_connect(argv[1], &options, &session, &error));
  shared(session);
  /* Only one session can have a pool in this process. */
  readers = session;
  if (strncmp(argv[1], "local:", 6) != 0) {
    OK(pmstore_log_connect(argv[1], &options, &readers, &error));
  }
  exclusive(session, readers);
  if (readers != session) pmstore_log_disconnect(readers);
  idle();
  silence(session);
  pmstore_log_disconnect(session);
  pmstore_log_disconnect(NULL);
  puts("ok");
  return 0;
}
