/* usage: append URI LOG TEXT: appends TEXT to a log, durably. */
#include <stdio.h>
#include <string.h>

#include "bindings/pmstore_log.h"

int main(int argc, char** argv) {
  pmstore_log_session* session = NULL;
  pmstore_log* log = NULL;
  pmstore_log_error error = {PMSTORE_LOG_INVALID_ARGUMENT, "usage: append URI LOG TEXT"};
  const int failed =
      argc != 4 || pmstore_log_connect(argv[1], NULL, &session, &error) != PMSTORE_LOG_OK ||
      pmstore_log_open(session, argv[2], 0, &log, &error) != PMSTORE_LOG_OK ||
      pmstore_log_append(log, argv[3], strlen(argv[3]), NULL, &error) != PMSTORE_LOG_OK;
  if (failed) fprintf(stderr, "append: %s\n", error.text);
  pmstore_log_close(log, NULL);
  pmstore_log_disconnect(session);
  return failed;
}
