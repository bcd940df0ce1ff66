/* usage: replicated_log_client URI URI | replicated_log_client follow URI
 * Does with a log on both servers what bindings/pmstore_log.h offers. Or follows the log "c/moved",
 * which is there already, at URI: says "first" when it has read its first entry, and waits for a
 * second one, for which somebody drops URI from the log. Prints "ok". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bindings/expect.h"

/* What is read at the first of these that is current. */
static void read_at(const char* const* servers, size_t count, int sealed) {
  pmstore_log_session* session;
  pmstore_log* log;
  pmstore_log_entry entry;
  OK(pmstore_log_connect_replicas(servers, count, NULL, &session, &error));
  OK(pmstore_log_open(session, "c/replicated", 0, &log, &error));
  OK(pmstore_log_read(log, &entry, &error));
  CHECK(is(&entry, "two") && entry.place.index == 2);
  OK(pmstore_log_read(log, &entry, &error));
  CHECK(is(&entry, "three"));
  GIVES(sealed ? PMSTORE_LOG_SEALED : PMSTORE_LOG_NOT_FOUND, pmstore_log_read(log, &entry, &error));
  GIVES(PMSTORE_LOG_UNSUPPORTED, pmstore_log_append(log, "no", 2, NULL, &error));
  CHECK(strstr(error.text, "PMSTORE_LOG_EXCLUSIVE") != NULL);
  OK(pmstore_log_close(log, &error));
  pmstore_log_disconnect(session);
}

/* Of an append to the others its own replica never hears. */
static void follow_to_another_replica(const char* uri) {
  pmstore_log_session* session;
  pmstore_log* log;
  pmstore_log_entry entry;
  pmstore_log_place first;
  OK(pmstore_log_connect_replicas(&uri, 1, NULL, &session, &error));
  OK(pmstore_log_open(session, "c/moved", 0, &log, &error));
  OK(pmstore_log_follow(log, 60000, &entry, &error));
  CHECK(is(&entry, "before") && entry.place.index == 1);
  first = entry.place;
  puts("first");
  fflush(stdout);
  OK(pmstore_log_follow(log, 250000, &entry, &error));
  CHECK(is(&entry, "after") && entry.place.index == 2 && entry.place.lsn == first.next_lsn);
  GIVES(PMSTORE_LOG_NOT_FOUND, pmstore_log_read(log, &entry, &error));
  OK(pmstore_log_close(log, &error));
  pmstore_log_disconnect(session);
}

int main(int argc, char** argv) {
  pmstore_log_session *session, *other, *single;
  pmstore_log *log, *thief;
  pmstore_log_entry entry;
  pmstore_log_place first, last;
  pmstore_log_info info;
  uint64_t start;
  const char* both[2];
  const char* reversed[2];
  const char* wrong[] = {"nonsense"};
  pmstore_log_options options = {0, NULL, 0};
  const pmstore_log_bytes batch[] = {{"two", 3}, {"three", 5}};
  if (argc != 3) return 2;
  if (strcmp(argv[1], "follow") == 0) {
    follow_to_another_replica(argv[2]);
    puts("ok");
    return 0;
  }
  both[0] = reversed[1] = argv[1];
  both[1] = reversed[0] = argv[2];
  GIVES(PMSTORE_LOG_INVALID_ARGUMENT,
        pmstore_log_connect_replicas(wrong, 1, NULL, &session, &error));
  GIVES(PMSTORE_LOG_INVALID_ARGUMENT,
        pmstore_log_connect_replicas(both, 0, NULL, &session, &error));
  options.ride_through_ms = 1;
  GIVES(PMSTORE_LOG_INVALID_ARGUMENT,
        pmstore_log_connect_replicas(both, 2, &options, &session, &error));
  CHECK(strstr(error.text, "ride_through_ms") != NULL);
  OK(pmstore_log_connect_replicas(both, 2, NULL, &session, &error));
  GIVES(PMSTORE_LOG_NOT_FOUND, pmstore_log_open(session, "c/replicated", 0, &log, &error));
  OK(pmstore_log_create(session, "c/replicated", 64 * 1024, 0, &error));
  GIVES(PMSTORE_LOG_EXISTS, pmstore_log_create(session, "c/replicated", 64 * 1024, 0, &error));
  OK(pmstore_log_open(session, "c/replicated", PMSTORE_LOG_EXCLUSIVE, &log, &error));
  OK(pmstore_log_append(log, "one", 3, &first, &error));
  OK(pmstore_log_append_batch(log, batch, 2, &last, &error));
  CHECK(first.index == 1 && last.index == 3);
  OK(pmstore_log_follow(log, 60000, &entry, &error));
  CHECK(is(&entry, "one"));
  OK(pmstore_log_trim(log, first.next_lsn, &start, &error));
  CHECK(start == first.next_lsn);
  OK(pmstore_log_stat(log, &info, &error));
  CHECK(info.start_lsn == start && info.exclusive == 1 && info.sealed == 0);

  /* One server of it is not the log. */
  OK(pmstore_log_connect(argv[2], NULL, &single, &error));
  OK(pmstore_log_open(single, "c/replicated", 0, &thief, &error));
  GIVES(PMSTORE_LOG_UNSUPPORTED, pmstore_log_append(thief, "no", 2, NULL, &error));
  GIVES(PMSTORE_LOG_UNSUPPORTED, pmstore_log_read(thief, &entry, &error));
  OK(pmstore_log_close(thief, &error));
  pmstore_log_disconnect(single);

  OK(pmstore_log_connect_replicas(reversed, 1, NULL, &other, &error));
  GIVES(PMSTORE_LOG_BUSY,
        pmstore_log_open(other, "c/replicated", PMSTORE_LOG_EXCLUSIVE, &thief, &error));
  OK(pmstore_log_open(other, "c/replicated", PMSTORE_LOG_EXCLUSIVE | PMSTORE_LOG_STEAL, &thief,
                      &error));
  GIVES(PMSTORE_LOG_FENCED, pmstore_log_append(log, "late", 4, NULL, &error));
  pmstore_log_close(log, NULL); /* it has lost the log, and may say so */
  read_at(both, 2, 0);
  read_at(reversed, 2, 0);
  OK(pmstore_log_seal(thief, &error));
  pmstore_log_close(thief, NULL);
  read_at(reversed, 1, 1);
  OK(pmstore_log_delete(other, "c/replicated", &error));
  GIVES(PMSTORE_LOG_NOT_FOUND, pmstore_log_delete(session, "c/replicated", &error));
  pmstore_log_disconnect(other);
  pmstore_log_disconnect(session);
  puts("ok");
  return 0;
}
