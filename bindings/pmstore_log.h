/* The persistent log service for programs in C, and for languages that call C.
 *
 *   pmstore_log_error error;
 *   pmstore_log_session* session;
 *   pmstore_log* log;
 *   if (pmstore_log_connect("tcp://db:7000", NULL, &session, &error) != PMSTORE_LOG_OK ||
 *       pmstore_log_open(session, "orders", 0, &log, &error) != PMSTORE_LOG_OK ||
 *       pmstore_log_append(log, "hello", 5, NULL, &error) != PMSTORE_LOG_OK) {
 *     fprintf(stderr, "%s\n", error.text);
 *   }
 *
 * Every call blocks until it is done. An append that returns PMSTORE_LOG_OK is durable.
 *
 * Threads: any; the calls of one session take turns, so one that waits for the network keeps the
 * others waiting (pmstore_log_follow lets them in between its looks). A session has a thread of its
 * own, which keeps its leases while the program does something else. Handles do not survive fork().
 * Lifetimes: a session outlives its logs. Texts and payloads that are given are borrowed until the
 * call returns; those of an entry until the next call with its log.
 * Errors: every function returns a code; where `error` is given, not NULL, it is filled when the
 * call fails. Nothing is thrown. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pmstore_log_code {
  PMSTORE_LOG_OK = 0,
  PMSTORE_LOG_INVALID_ARGUMENT,
  PMSTORE_LOG_NOT_FOUND, /* no such log; of reading: no entry there yet */
  PMSTORE_LOG_EXISTS,
  PMSTORE_LOG_FULL, /* no room for another log */
  PMSTORE_LOG_TOO_LARGE,
  PMSTORE_LOG_BUSY,          /* another producer, or another process, has it */
  PMSTORE_LOG_BACK_PRESSURE, /* the log is full: trim it */
  PMSTORE_LOG_SEALED,        /* nothing can be appended any more; of reading: that was all */
  PMSTORE_LOG_FENCED,        /* another producer has taken the log over */
  PMSTORE_LOG_TRIMMED,       /* what was asked for is no longer kept */
  PMSTORE_LOG_DAMAGED,       /* the medium lost entries: pmstore_log_skip_damaged() goes on */
  PMSTORE_LOG_UNKNOWN,       /* the entries may or may not be there: open again and look */
  PMSTORE_LOG_DISCONNECTED,  /* the server is away; the next call tries again */
  PMSTORE_LOG_TIMEOUT,
  PMSTORE_LOG_UNSUPPORTED,
  PMSTORE_LOG_FAILED /* anything else; the text says what */
} pmstore_log_code;

typedef struct pmstore_log_error {
  pmstore_log_code code;
  char text[244]; /* one line: what, why, what to do; cut when it is longer */
} pmstore_log_error;

typedef struct pmstore_log_session pmstore_log_session;
typedef struct pmstore_log pmstore_log;

/* All zeros: the defaults. */
typedef struct pmstore_log_options {
  uint32_t timeout_ms; /* of each call; 0: 5000 */
  const char*
      assume_domain; /* of local:PATH, for benchmarks: "none", "adr", "eadr"; NULL: as found */
  /* How long a call tries to reach a server that has gone away, beside its own timeout, then goes
   * on: readers stand where they stood, and an append whose answer was lost is sent again and
   * executed once, unless the server was started again meanwhile (UNKNOWN). 0: a call tries once.
   * A log with PMSTORE_LOG_EXCLUSIVE ends with its connection: close it and open it again. Not of
   * replicated logs: INVALID_ARGUMENT. */
  uint32_t ride_through_ms;
} pmstore_log_options;

#pragma GCC visibility push(default) /* the functions, which libpmstore_c.so exports */

/* `uri`: tcp://HOST:PORT, shm://NAME, verbs://HOST:PORT, or local:PATH, which opens the pool in
 * this process. `options` may be NULL. */
pmstore_log_code pmstore_log_connect(const char* uri, const pmstore_log_options* options,
                                     pmstore_log_session** session, pmstore_log_error* error);
/* A session with the replicated logs that these servers have: each of its logs has a replica on
 * several of them (docs/log-replication.md). pmstore_log_create() makes it on all that are given
 * here; the other calls need one of a log's servers among them and find the rest. Connects when a
 * log is used, so that a wrong URI is the only error here. What differs then:
 *   appending is exclusive: pmstore_log_open() with flags 0 is for reading, and append gives
 *     UNSUPPORTED; an append that returns OK is durable on every replica;
 *   a server that is lost stops everything (UNKNOWN, DISCONNECTED, TIMEOUT) until it is back, or
 *     `pmstore log drop-member` has recorded that it goes on without it; then open again. */
pmstore_log_code pmstore_log_connect_replicas(const char* const* uris, size_t count,
                                              const pmstore_log_options* options,
                                              pmstore_log_session** session,
                                              pmstore_log_error* error);
/* Its logs must be closed. NULL is fine. */
void pmstore_log_disconnect(pmstore_log_session* session);

/* Durable on return. `bytes` of persistent memory; with `trim_oldest` not 0, a full log loses its
 * oldest entries instead of refusing new ones. EXISTS, FULL. */
pmstore_log_code pmstore_log_create(pmstore_log_session* session, const char* name, uint64_t bytes,
                                    int trim_oldest, pmstore_log_error* error);
/* NOT_FOUND. */
pmstore_log_code pmstore_log_delete(pmstore_log_session* session, const char* name,
                                    pmstore_log_error* error);

#define PMSTORE_LOG_EXCLUSIVE 1u /* be the only producer: one-sided appends where durable. BUSY */
#define PMSTORE_LOG_STEAL 2u     /* with EXCLUSIVE: also when another one is: it is fenced */

/* Reading starts at the oldest entry. NOT_FOUND; with EXCLUSIVE also BUSY, SEALED. */
pmstore_log_code pmstore_log_open(pmstore_log_session* session, const char* name, unsigned flags,
                                  pmstore_log** log, pmstore_log_error* error);
/* Gives back what it has; `log` is gone also when this fails, with what the lease's end brought.
 * NULL is fine. */
pmstore_log_code pmstore_log_close(pmstore_log* log, pmstore_log_error* error);

/* Where an entry is: LSNs name places and only grow; indexes count entries from 1 on. */
typedef struct pmstore_log_place {
  uint64_t lsn;
  uint64_t next_lsn;
  uint64_t index;
} pmstore_log_place;

typedef struct pmstore_log_bytes {
  const void* data;
  size_t bytes;
} pmstore_log_bytes;

/* 1 byte to 1 MiB. `place` may be NULL. BACK_PRESSURE, TOO_LARGE, SEALED, BUSY (another one is
 * exclusive), FENCED; UNKNOWN. */
pmstore_log_code pmstore_log_append(pmstore_log* log, const void* data, size_t bytes,
                                    pmstore_log_place* place, pmstore_log_error* error);
/* 1 to 256 entries, one behind the other, in one round trip; `last` is the last one's place. */
pmstore_log_code pmstore_log_append_batch(pmstore_log* log, const pmstore_log_bytes* entries,
                                          size_t count, pmstore_log_place* last,
                                          pmstore_log_error* error);

typedef struct pmstore_log_entry {
  pmstore_log_place place;
  const void* data;
  size_t bytes;
} pmstore_log_entry;

/* The next entry. NOT_FOUND at the end; SEALED when there will never be more; TRIMMED, and then it
 * goes on at the oldest one; DAMAGED. */
pmstore_log_code pmstore_log_read(pmstore_log* log, pmstore_log_entry* entry,
                                  pmstore_log_error* error);
/* The same, but waits for one, up to `timeout_ms`: TIMEOUT. Of a replicated log: when nothing comes
 * for 2 s the members are asked whether the replica that is read was dropped, and reading goes on
 * at another one then; DISCONNECTED: for 30 s the members could not tell, and the text says which
 * one could not be asked (bring it back, or drop it). The call may take a connect's time-out longer
 * for that, while other calls of the session wait. */
pmstore_log_code pmstore_log_follow(pmstore_log* log, uint32_t timeout_ms, pmstore_log_entry* entry,
                                    pmstore_log_error* error);
/* Reading goes on at `lsn`, which an append or a read has given; 0: at the oldest entry. */
pmstore_log_code pmstore_log_seek(pmstore_log* log, uint64_t lsn, pmstore_log_error* error);
/* Reading goes on behind the newest entry. */
pmstore_log_code pmstore_log_seek_to_end(pmstore_log* log, pmstore_log_error* error);
/* Behind DAMAGED: reading goes on behind what was lost, [*from, *to). Both may be NULL. */
pmstore_log_code pmstore_log_skip_damaged(pmstore_log* log, uint64_t* from, uint64_t* to,
                                          pmstore_log_error* error);

/* Entries below `lsn` go; `start` (may be NULL) is where the oldest one is then. INVALID_ARGUMENT
 * when no entry begins there. */
pmstore_log_code pmstore_log_trim(pmstore_log* log, uint64_t lsn, uint64_t* start,
                                  pmstore_log_error* error);
/* Nothing can be appended any more. BUSY while a producer is exclusive. */
pmstore_log_code pmstore_log_seal(pmstore_log* log, pmstore_log_error* error);

typedef struct pmstore_log_info {
  uint64_t bytes;
  uint64_t start_lsn;
  uint64_t tail_lsn;
  uint64_t next_index;
  int sealed;
  int exclusive;  /* a producer has it */
  size_t damaged; /* ranges that were lost */
} pmstore_log_info;

/* As the server says now. */
pmstore_log_code pmstore_log_stat(pmstore_log* log, pmstore_log_info* info,
                                  pmstore_log_error* error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
